"""Sandboxes that are made beforehand, so that nobody waits for one."""

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from orchestrator.base.errors import NotRunningError, OrchestratorError
from orchestrator.engine import shared_engine
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.sandbox.models import DEFAULT_TTL, Template

_LONGEST_WAIT = 24 * 3600.0
"""Seconds that a sandbox waits for its use; then the pool has another one."""
_AGAIN = 1.0
"""Seconds until a sandbox is tried again that could not be made."""


class SandboxPool:
    """Keeps sandboxes ready. Each is given to one caller, used once and never given again.

    A sandbox that waits too long for its use, or that has ended meanwhile, is replaced.
    """

    def __init__(
        self,
        template: Template,
        *,
        warm: int = 4,
        ttl: float = DEFAULT_TTL,
        labels: Mapping[str, str] | None = None,
        engine: ContainerEngine | str = "docker",
    ) -> None:
        """Begin to make sandboxes.

        Args:
            template: How they are made.
            warm: Number of sandboxes that are kept ready.
            ttl: Seconds that a sandbox lives after `take`.
            labels: Labels of a sandbox that was taken or waits.
            engine: The engine, or the name of an installed one.

        Raises:
            EngineUnavailableError: The engine cannot be reached.
        """
        self._template = template
        self._warm = warm
        self._ttl = ttl
        self._labels = labels
        self._engine = engine
        # So that sandboxes of one pool share a connection; those that are taken hold it, too.
        self._held = ExitStack()
        self._held.enter_context(shared_engine(engine))
        self._ready: deque[Sandbox] = deque()
        self._changed = threading.Condition()
        self._problem: OrchestratorError | None = None
        self._closed = False
        self._maker = threading.Thread(target=self._make, name="sandbox-pool", daemon=True)
        self._maker.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def take(self, timeout: float = 60.0) -> Sandbox:
        """Return a sandbox that nobody has used; wait for one if none is ready.

        Raises:
            OrchestratorError: No sandbox could be made; the error says why.
            TimeoutError: None was ready within so many seconds.
        """
        while True:
            with self._changed:
                if not self._changed.wait_for(
                    lambda: self._ready or self._problem or self._closed, timeout
                ):
                    raise TimeoutError(f"no sandbox was ready within {timeout:g} s")
                if not self._ready:
                    raise self._problem or NotRunningError(
                        "the pool is closed", key="sandbox.pool-closed"
                    )
                box = self._ready.popleft()
                self._changed.notify_all()
            try:
                box.extend(self._ttl)
            except (NotRunningError, OSError):
                box.kill()
                continue
            return box

    def close(self) -> None:
        """End the sandboxes that nobody took. Those that were taken go on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._maker.join()
        while self._ready:
            self._ready.popleft().kill()
        self._held.close()

    def _make(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) < self._warm)
                if self._closed:
                    return
            try:
                # protection: unused-sandboxes-end-with-pool
                box = Sandbox.make(
                    self._template, ttl=_LONGEST_WAIT, labels=self._labels or {},
                    engine=self._engine, owned=True,
                )  # fmt: skip
                with self._changed:
                    self._problem = None
                    self._ready.append(box)
                    self._changed.notify_all()
            except OrchestratorError as error:
                with self._changed:
                    self._problem = error
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._closed, _AGAIN)

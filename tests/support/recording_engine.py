"""An engine that records its containers, and that is not reachable once."""

from collections.abc import Callable
from pathlib import Path

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.engine.interface.spec import ContainerSpec
from tests.support.local_engine import LocalContainer, LocalEngine


class RecordingEngine(LocalEngine):
    """Records the specifications of its containers; fails once, before a chosen container."""

    def __init__(
        self, scratch: Path, is_gone_at: Callable[[ContainerSpec], bool] = lambda _: False
    ) -> None:
        super().__init__(scratch)
        self.specs: list[ContainerSpec] = []
        self._is_gone_at: Callable[[ContainerSpec], bool] | None = is_gone_at

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if self._is_gone_at and self._is_gone_at(spec):
            self._is_gone_at = None
            raise EngineUnavailableError("gone", key="engine.unreachable", hint="wait")
        self.specs.append(spec)
        return super().create(spec)

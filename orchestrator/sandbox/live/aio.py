"""The calls of sandboxes for programs of `asyncio`: the same names, awaited."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack

from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.sandbox.batch import run_all
from orchestrator.sandbox.live.box import CommandOptions, Sandbox
from orchestrator.sandbox.live.files import Files
from orchestrator.sandbox.live.process import Process
from orchestrator.sandbox.models import (
    DEFAULT_TTL,
    Finished,
    SandboxInfo,
    Submission,
    Template,
)
from orchestrator.sandbox.supervision.cancel import Cancel

_THREADS = 512
"""Maximum number of calls at the same time; `asyncio` itself has only a few threads."""
P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="sandbox-call")


async def _call(function: Callable[[], R]) -> R:
    return await asyncio.get_running_loop().run_in_executor(_pool(), function)


class _Twin:
    def __init__(self, blocking: object) -> None:
        self._blocking = blocking


def _twin(method: Callable[Concatenate[B, P], R]) -> Callable[Concatenate[_Twin, P], Awaitable[R]]:
    """Return the method of a twin that calls the blocking object's method in a thread."""

    async def call(twin: _Twin, /, *args: P.args, **rest: P.kwargs) -> R:
        return await _call(partial(method, twin._blocking, *args, **rest))  # type: ignore[arg-type]

    call.__doc__ = method.__doc__
    return call


class AsyncFiles(_Twin):
    """See `Files`."""

    read = _twin(Files.read)
    write = _twin(Files.write)
    stat = _twin(Files.stat)
    list = _twin(Files.list)
    make_dir = _twin(Files.make_dir)
    move = _twin(Files.move)
    remove = _twin(Files.remove)
    upload = _twin(Files.upload)
    download = _twin(Files.download)


class AsyncProcess(_Twin):
    """See `Process`."""

    write = _twin(Process.write)
    close_stdin = _twin(Process.close_stdin)
    signal = _twin(Process.signal)
    output = _twin(Process.output)
    kill = _twin(Process.kill)
    wait = _twin(Process.wait)


class AsyncSandbox(_Twin):
    """See `Sandbox`."""

    _blocking: Sandbox

    def __init__(self, blocking: Sandbox) -> None:
        """Wrap a sandbox."""
        super().__init__(blocking)
        self.files = AsyncFiles(blocking.files)
        self.id = blocking.id
        self.labels = blocking.labels

    pause = _twin(Sandbox.pause)
    resume = _twin(Sandbox.resume)
    snapshot = _twin(Sandbox.snapshot)
    extend = _twin(Sandbox.extend)
    kill = _twin(Sandbox.kill)

    @classmethod
    async def create(
        cls,
        template: Template | None = None,
        *,
        snapshot: str | None = None,
        ttl: float = DEFAULT_TTL,
        labels: Mapping[str, str] | None = None,
        engine: ContainerEngine | str = "docker",
        **options: object,
    ) -> Self:
        """See `Sandbox.create`. If the call is cancelled, the sandbox ends."""
        make = partial(
            Sandbox.create,
            template,
            snapshot=snapshot,
            ttl=ttl,
            labels=labels,
            engine=engine,
            **options,
        )
        future = _pool().submit(make)
        try:
            return cls(await asyncio.wrap_future(future))
        except asyncio.CancelledError:

            def end(made: Future[Sandbox]) -> None:
                if made.exception() is None:
                    made.result().kill()

            future.add_done_callback(end)
            raise

    @classmethod
    async def connect(cls, id: str, *, engine: ContainerEngine | str = "docker") -> Self:
        """See `Sandbox.connect`."""
        return cls(await _call(partial(Sandbox.connect, id, engine=engine)))

    @staticmethod
    async def list(labels: Mapping[str, str] | None = None) -> "list[SandboxInfo]":
        """See `Sandbox.list`."""
        return await _call(partial(Sandbox.list, labels))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.kill()

    async def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | None = None,
        **options: Unpack[CommandOptions],
    ) -> Finished:
        """See `Sandbox.run`. If the call is cancelled, the command ends."""
        start = partial(self._blocking.start, command, stdin=stdin is not None, **options)
        process = await _call(start)
        try:
            return await _call(partial(process.finish, stdin))
        except asyncio.CancelledError:
            _pool().submit(process.kill)
            raise

    async def start(
        self, command: Sequence[str], *, stdin: bool = True, **options: Unpack[CommandOptions]
    ) -> AsyncProcess:
        """See `Sandbox.start`."""
        start = partial(self._blocking.start, command, stdin=stdin, **options)
        return AsyncProcess(await _call(start))


async def run_all_async(
    submissions: Iterable[Submission],
    *,
    template: Template | None = None,
    at_once: int = 4,
    engine: ContainerEngine | None = None,
) -> AsyncIterator[Finished]:
    """See `run_all`. If the iteration is cancelled or left, the sandboxes end."""
    cancel = Cancel()
    results = run_all(submissions, template=template, at_once=at_once, engine=engine, cancel=cancel)
    try:
        while (result := await _call(partial(next, results, None))) is not None:
            yield result
    finally:
        cancel.press(kill=True)
        await asyncio.shield(_call(partial(list, results)))

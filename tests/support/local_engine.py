"""A container engine that runs containers as plain processes, for tests without Docker.

A container is a process group without a file system of its own: each word of the command, each
variable and the working directory is replaced by the path on the host if the whole text is a path
below a mount. So `cat /data/x` works, but `sh -c 'cat /data/x'` does not. Nothing is isolated, and
no limit is enforced: tests of these use the Docker engine.
"""

import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from orchestrator.engine import (
    BindMount,
    ContainerSpec,
    ContainerState,
    Counters,
    Egress,
    EngineError,
    EngineFeatures,
    ExitStatus,
    ImageNotFoundError,
    Leftover,
    LogChunk,
    Measurement,
    NotRunningError,
    PortTakenError,
    PrivateNetwork,
    Stream,
    TerminalSize,
    TmpfsMount,
    UnsupportedError,
    Usage,
)
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.features import WATCHED
from orchestrator.engine.interface.inner_command import GRACE, InnerCommand
from orchestrator.worker.workspace.layout import HARVEST, OBJECTS, STORE, WORKSPACE
from tests.support.local_process import LocalProcess

_CHUNK = 64 * 1024
_DEATH = 60.0
# /tmp of the machine stays visible, because tests pass paths below it to tasks.
_SHARED = "/tmp"


class LocalEngine:
    """See `orchestrator.engine.interface.protocol.ContainerEngine`."""

    name = "local"

    def __init__(self, scratch: Path, *, images: tuple[str, ...] = (BASE_IMAGE,)) -> None:
        """Create an engine that keeps its containers' files in `scratch`."""
        self._scratch = scratch
        self._images = images
        self._containers: dict[str, LocalContainer] = {}
        self._networks: dict[str, Leftover] = {}
        self._lock = threading.Lock()

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        """Accept the images that the engine was created with, and one runtime."""
        for image in images:
            self._check_image(image)
        if runtime not in (None, "process"):
            raise UnsupportedError(
                f"the local engine has no runtime `{runtime}`", key="runtime.unknown"
            )
        return EngineFeatures(
            overlay=False,
            runtimes=("process",),
            cpus=os.cpu_count() or 1,
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            version="local 1",
            # Nothing else is limited, and no test of these is needed.
            enforced=WATCHED,
        )

    def _check_image(self, image: str) -> None:
        if image not in self._images:
            raise ImageNotFoundError(f"no such image: `{image}`", key="image.missing")

    def create(self, spec: ContainerSpec) -> "LocalContainer":
        """Prepare to start the command as a process group."""
        self._check_image(spec.image)
        if spec.network_of is not None:
            return self._create_beside(spec, spec.network_of)
        return self._create(spec)

    def _create_beside(self, spec: ContainerSpec, other: str) -> "LocalContainer":
        """Create a container; all processes share one network anyway."""
        holder = self._containers.get(other)
        if holder is None or not holder.runs:
            raise EngineError(
                "the container whose network was to be shared does not run", key="engine.refusal"
            )
        container = self._create(replace(spec, ports={}, network_of=None))
        container.ports = holder.ports
        return container

    def _create(self, spec: ContainerSpec) -> "LocalContainer":
        _check_ports(spec.ports)
        with self._lock:
            if any(spec.name == other.spec.name for other in self._containers.values()):
                raise EngineError(f"the name `{spec.name}` is in use", key="engine.refusal")
            container = self._make(spec, self._scratch / secrets.token_hex(6))
            self._containers[container.id] = container
        return container

    def _make(self, spec: ContainerSpec, scratch: Path) -> "LocalContainer":
        return LocalContainer(self, spec, scratch)

    def start(self, spec: ContainerSpec) -> "LocalContainer":
        """Create and start a container."""
        container = self.create(spec)
        try:
            container.start()
        except BaseException:
            container.remove()
            raise
        return container

    def adopt(self, container_id: str) -> "LocalContainer | None":
        """Return a container of this engine, whose output is read again from the start."""
        container = self._containers.get(container_id)
        return None if container is None else container.again()

    def enter(
        self,
        container_id: str,
        command: tuple[str, ...],
        *,
        terminal: TerminalSize | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        stays: bool = False,
    ) -> InnerCommand:
        """Start a command in the directory of a running container."""
        container = self._containers.get(container_id)
        if container is None or not container.runs:
            raise NotRunningError(f"no such container: {container_id}", key="container.not-running")
        if user is not None:
            raise UnsupportedError("the local engine has no users", key="engine.unsupported")
        command = tuple(_program(command))
        return InnerCommand(
            container.start_beside, command, terminal=terminal, env=env, stdin=stdin, cwd=cwd,
            timeout=timeout, grace=grace, stays=stays,
        )  # fmt: skip

    def commit(self, container_id: str, name: str, labels: Mapping[str, str]) -> str:
        """Refuse: processes have no file system of their own."""
        asked = f"`{name}` of {container_id} ({labels})"
        raise UnsupportedError(f"no image: {asked}", key="engine.unsupported")

    def exposed_ports(self, image: str) -> tuple[int, ...]:
        """Return no ports."""
        self._check_image(image)
        return ()

    def has_command(self, image: str) -> bool:
        """Return False: there are no images."""
        self._check_image(image)
        return False

    def create_network(self, name: str, labels: Mapping[str, str]) -> str:
        """Record a network."""
        with self._lock:
            self._networks[name] = Leftover(kind="network", id=name, labels=dict(labels))
        return name

    def create_private_network(
        self, name: str, labels: Mapping[str, str], *, addresses: int
    ) -> PrivateNetwork:
        """Refuse: plain processes cannot be confined."""
        asked = f"`{name}` ({labels}) with {addresses} addresses"
        raise UnsupportedError(
            f"the local engine has no private networks: {asked}", key="runtime.unknown"
        )

    def close_host(
        self, name: str, network: str, egress: Egress, labels: Mapping[str, str]
    ) -> str | None:
        """Do nothing: processes of this machine share its network."""

    def usage(self, labels: Mapping[str, str]) -> list[Measurement]:
        """Return the resource usage of running containers."""
        with self._lock:
            found = list(self._containers.values())
        chosen = (one for one in found if labels.items() <= one.spec.labels.items())
        measured = ((one, one.usage()) for one in chosen)
        return [
            Measurement(id=one.id, labels=one.spec.labels, usage=usage)
            for one, usage in measured
            if usage is not None
        ]

    def leftovers(self, labels: Mapping[str, str]) -> list[Leftover]:
        """Return the objects that were not removed."""
        with self._lock:
            found = [
                Leftover(kind="container", id=container.id, labels=container.spec.labels)
                for container in self._containers.values()
            ]
            found += self._networks.values()
        return [leftover for leftover in found if labels.items() <= leftover.labels.items()]

    def remove(self, leftover: Leftover) -> None:
        """Remove one object."""
        container = self._containers.get(leftover.id)
        if container is not None:
            container.remove()
        with self._lock:
            self._networks.pop(leftover.id, None)

    def forget(self, container: "LocalContainer") -> None:
        """Forget a container that was removed."""
        with self._lock:
            self._containers.pop(container.id, None)

    def close(self) -> None:
        """Do nothing: the engine holds no connection."""


class LocalContainer:
    """See `orchestrator.engine.interface.protocol.Container`."""

    def __init__(self, engine: LocalEngine, spec: ContainerSpec, scratch: Path) -> None:
        self.id = f"local-{secrets.token_hex(6)}"
        self.spec = spec
        self.ports = spec.ports
        self._engine = engine
        self._scratch = scratch
        self._ended = threading.Event()
        self._removed = False
        self._read = False
        self._users = 1
        """Number of users of the pipes: the container until it is removed, and each reader."""
        self._counting = threading.Lock()
        self._history: list[LogChunk] = []
        self._state = ContainerState(started_at=None, ended_at=None)
        self._process: subprocess.Popen[bytes] | None = None
        self._beside: list[LocalProcess] = []
        self._counters = Counters()
        # Readers of the output wait for all pipes; this pipe signals the end of the process.
        self._end_seen, self._end = os.pipe()

    def start(self) -> None:
        """Start the process, unless it was started before."""
        if self._process is not None:
            return
        self.paths = _host_paths(self.spec, self._scratch)
        self._process = _launch(self.spec, self.paths)
        self._state = ContainerState(started_at=datetime.now(UTC), ended_at=None)
        name = f"reap-{self.spec.name}"
        threading.Thread(target=self._reap, args=(self._process,), name=name, daemon=True).start()

    def start_beside(
        self,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str],
        stdin: bool,
        terminal: TerminalSize | None = None,
    ) -> LocalProcess:
        """Start another command, which ends with the container."""
        spec = replace(self.spec, command=command, env={**self.spec.env, **env})
        place = _place(spec, self.paths)
        process = LocalProcess(_words(spec, self.paths), **place, stdin=stdin, terminal=terminal)
        self._beside.append(process)
        return process

    @property
    def runs(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and not self._ended.is_set()

    def state(self) -> ContainerState:
        """Return when the process started and ended."""
        if self._removed:
            raise EngineError(f"no such container: {self.id}", key="engine.refusal")
        return self._state

    def _reap(self, process: "subprocess.Popen[bytes]") -> None:
        # WNOWAIT keeps the process id, so no other group can get the id before the kill.
        with suppress(ChildProcessError):  # another thread has already waited for the process
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self._signal_group(signal.SIGKILL)
        for other in self._beside:
            other.kill()
        with suppress(ChildProcessError):
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self._counters = Counters(
                cpu_time=used.ru_utime + used.ru_stime,
                peak_memory=used.ru_maxrss * 1024,
                missing="plain processes have no control group",
            )
        process.wait()
        self._state = replace(self._state, ended_at=datetime.now(UTC))
        self._ended.set()
        os.close(self._end)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def again(self) -> "LocalContainer | None":
        """Return the container, to be read again from the first byte."""
        self._read = False
        return None if self._removed else self

    def logs(self) -> Iterator[LogChunk]:
        """Yield all output until the main process ends."""
        assert not self._read, "the output may be read only once"
        self._read = True
        yield from tuple(self._history)
        assert self._process is not None, "not started"
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        with self._counting:
            if self._users == 0:
                raise EngineError(f"no such container: {self.id}", key="engine.refusal")
            # While the pipes are being read, a removal leaves them open.
            self._users += 1
        try:
            open_pipes: dict[Stream, int] = {
                "stdout": self._process.stdout.fileno(),
                "stderr": self._process.stderr.fileno(),
            }
            with selectors.DefaultSelector() as selector:
                for pipe in (*open_pipes.values(), self._end_seen):
                    os.set_blocking(pipe, False)
                    selector.register(pipe, selectors.EVENT_READ)
                for chunk in self._follow(selector, open_pipes):
                    self._history.append(chunk)
                    yield chunk
        finally:
            self._release_pipes()

    def _follow(
        self, selector: selectors.BaseSelector, open_pipes: dict[Stream, int]
    ) -> Iterator[LogChunk]:
        while True:
            ended = self._ended.is_set()
            more = False
            for stream, pipe in list(open_pipes.items()):
                with suppress(BlockingIOError):
                    data = os.read(pipe, _CHUNK)
                    if data:
                        more = True
                        yield LogChunk(stream=stream, data=data)
                    else:
                        del open_pipes[stream]
                        selector.unregister(pipe)
            if ended and not more:
                return
            if not more:
                selector.select()

    def _release_pipes(self) -> None:
        with self._counting:
            self._users -= 1
            if self._users == 0:
                self._close_pipes()

    def _close_pipes(self) -> None:
        os.close(self._end_seen)
        if self._process is None:
            os.close(self._end)
            return
        for file in (self._process.stdout, self._process.stderr):
            assert file is not None
            file.close()

    def wait(self, timeout: float | None) -> ExitStatus:
        """Block until the main process ends."""
        if self._removed:
            raise EngineError(f"no such container: {self.id}", key="engine.refusal")
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the container still runs after {timeout} s")
        assert self._process is not None
        code = self._process.returncode
        return ExitStatus(
            exit_code=code if code >= 0 else 128 - code,
            oom_killed=False,
            counters=self._counters,
        )

    def kill(self, signal: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Send SIGTERM to the main process, or SIGKILL to all processes."""
        if self._ended.is_set() or self._process is None:
            return
        if signal == "SIGKILL":
            self._signal_group(_SIGKILL)
        else:
            # `send_signal` would reap an ended process, so that `_reap` would not find it.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, _SIGTERM)

    def read_counters(self) -> Counters:
        """Return no numbers: the kernel counts nothing for process groups."""
        return Counters(missing="processes are not counted")

    def pause(self) -> None:
        """Stop the processes."""
        self._check_runs()
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the processes go on."""
        self._check_runs()
        self._signal_group(signal.SIGCONT)

    def _check_runs(self) -> None:
        if not self.runs:
            raise NotRunningError("the container has ended", key="container.not-running")

    def lost_network(self) -> None:
        """Return None: processes use the network of the machine."""

    def network_lines(self) -> None:
        """Return None: processes have no gateway."""

    def end_network(self) -> None:
        """Do nothing: processes have no gateway."""

    def usage(self) -> Usage | None:
        """Return the sums over the processes of the group."""
        processes = list(_processes(self._process.pid)) if self._process else []
        if self._ended.is_set() or not processes:
            return None
        memory, cpu = (sum(column) for column in zip(*processes, strict=True))
        return Usage(memory=memory, pids=len(processes), pids_limit=self.spec.pids, cpu=cpu)

    def remove(self) -> None:
        """Kill the processes and remove the container's files."""
        if not self._ended.is_set():
            self._signal_group(_SIGKILL)
        if self._process is not None and not self._ended.wait(_DEATH):
            raise EngineError(f"{self.id} does not die", key="engine.refusal")
        if self._removed:
            return
        self._removed = True
        self._release_pipes()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._engine.forget(self)


_SIGTERM, _SIGKILL = signal.SIGTERM, signal.SIGKILL


def _check_ports(ports: Mapping[int, int]) -> None:
    for port in ports.values():
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise PortTakenError(f"port {port}: {error.strerror}", key="port.taken") from error


def _launch(spec: ContainerSpec, paths: Mapping[str, Path]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        _words(spec, paths),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **_place(spec, paths),
    )


def _words(spec: ContainerSpec, paths: Mapping[str, Path]) -> list[str]:
    words = [_translated(word, paths) for word in _program(spec.command)]
    # Like a container, the shell exits with 127 or 126 if a program is missing or not executable.
    return ["/bin/sh", "-c", 'exec "$@"', "sh", *words]


def _program(command: Sequence[str]) -> list[str]:
    return [sys.executable if command[0] == "python3" else command[0], *command[1:]]


def _place(spec: ContainerSpec, paths: Mapping[str, Path]) -> dict[str, Any]:
    env = {name: _translated(value, paths) for name, value in spec.env.items()}
    return {
        "cwd": _translated(spec.workdir, paths) or None,
        "env": {"PATH": os.environ["PATH"], **env, **_git_places(paths)},
    }


def _host_paths(spec: ContainerSpec, scratch: Path) -> dict[str, Path]:
    """Return the paths on the host of all mounts, the deepest first."""
    scratch.mkdir(parents=True)
    found: dict[str, Path] = {}
    for mount in spec.mounts:
        if isinstance(mount, BindMount):
            found[mount.target] = mount.source
        elif not isinstance(mount, TmpfsMount):
            raise EngineError("the local engine has no overlays", key="engine.refusal")
        elif mount.target != _SHARED:
            found[mount.target] = scratch / mount.target.strip("/").replace("/", "-")
            found[mount.target].mkdir()
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _translated(word: str, paths: Mapping[str, Path]) -> str:
    for target, place in paths.items():
        if word == target or word.startswith(f"{target}/"):
            return f"{place}{word.removeprefix(target)}"
    return word


def _git_places(paths: Mapping[str, Path]) -> dict[str, str]:
    """Return variables that lead git to the store; nothing can be mounted over a `.git`."""
    if HARVEST in paths or not {STORE, WORKSPACE, OBJECTS} <= paths.keys():
        return {}
    return {
        "GIT_DIR": str(paths[STORE]),
        "GIT_WORK_TREE": str(paths[WORKSPACE]),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(paths[OBJECTS]),
    }


def _processes(group: int) -> Iterator[tuple[int, int]]:
    """Return the bytes of memory and nanoseconds of CPU time of each process of a group."""
    page, tick = os.sysconf("SC_PAGE_SIZE"), 10**9 // os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                yield int(fields[21]) * page, (int(fields[11]) + int(fields[12])) * tick

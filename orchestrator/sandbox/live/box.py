"""A sandbox that stays: a container in which commands run until its time is over."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self, TypedDict, Unpack

from orchestrator.base.errors import (
    ConfigError,
    NotRunningError,
    OrchestratorError,
    UnsupportedError,
)
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.base.machine import uptime
from orchestrator.base.results import Reason
from orchestrator.config.settings.values import Model, parse_size
from orchestrator.engine import shared_engine
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import Container, ContainerEngine
from orchestrator.engine.places.place import Start
from orchestrator.sandbox.deadlines.removal import remove_all
from orchestrator.sandbox.home import Home, known
from orchestrator.sandbox.layout import CONTROL, HOME, STEP, Maker, check, place_of
from orchestrator.sandbox.live import snapshots
from orchestrator.sandbox.live.exposed import ExposedPorts
from orchestrator.sandbox.live.files import Files
from orchestrator.sandbox.live.network import BoxNetwork
from orchestrator.sandbox.live.process import Process
from orchestrator.sandbox.live.snapshots import Snapshot
from orchestrator.sandbox.models import (
    DEFAULT_TTL,
    REASONS,
    WORKSPACE,
    EndReason,
    Finished,
    SandboxInfo,
    Template,
)
from orchestrator.sandbox.network.shared_network import SharedNetwork
from orchestrator.sandbox.supervision.limits import LimitMeter

_ENDS = "ends"
_KEEPER = """\
trap 'exit 0' TERM
while read -r end < "$0" && read -r now rest < /proc/uptime && [ "${now%.*}" -lt "$end" ]; do
  left=$((end - ${now%.*}))
  [ "$left" -lt 10 ] || left=10
  sleep "$left" & wait $!
done"""
"""The main process of a sandbox, which ends at the time in a file that it can only read. It is the
last resort: the process of `deadlines.reaper` ends sandboxes at their time.
"""
_OURS = 24
"""Number of processes of ours in a sandbox, which its limit leaves room for."""
_LATE = 5.0
"""Seconds after which the main process ends by itself, so that the reaper comes first."""
_TICK = 0.25
_USER = re.compile(r"[1-9][0-9]{0,9}(:[1-9][0-9]{0,9})?")
_KILLED = 137
"""Exit code of a command that SIGKILL ended."""
_PEAK = "the kernel keeps one peak of memory for all commands of a sandbox"
_NEITHER = "the kernel counts the commands of a sandbox together, and others ran beside this one"


class CommandOptions(TypedDict, total=False):
    """How a command runs in a sandbox; what is left out or None has its default."""

    cwd: str | None
    """Working directory. Default: `/workspace`."""
    env: Mapping[str, str] | None
    """Variables in addition to those of the template."""
    user: str | None
    """User as `UID` or `UID:GID`. Default: the sandbox's."""
    timeout: float | None
    """Seconds after which the command is stopped with all that it started, even if this process has
    died. Default: the sandbox's time to live.
    """
    idle_timeout: float
    """Seconds without output after which the command is stopped. Default: no limit."""
    output_limit: int | str | None
    """Bytes of output, such as `1m`; more of it stops the command. Default: the limit of the
    template.
    """


class _About(Model):
    """What other processes know of a sandbox."""

    template: Template
    labels: Mapping[str, str]
    created_at: datetime


class Sandbox:
    """A container with limits and a time to live, in which commands run as an ordinary user.

    Several threads may use one object, and several processes one sandbox.
    """

    def __init__(
        self,
        home: Home,
        about: _About,
        engine: ContainerEngine,
        container: Container,
        *,
        leave: Callable[[], None],
    ) -> None:
        """Store the arguments; use `create` or `connect` in place of this.

        Args:
            home: The directory of the sandbox.
            about: What other processes know of it.
            engine: The engine.
            container: Its container, which runs.
            leave: Gives back what this process shares among sandboxes; called after its end.
        """
        shared = None if about.template.user == "root" else home.workspace
        self.files = Files(self.run, self.start, shared)
        """The sandbox's files."""
        self.network = BoxNetwork(home, about.template.network, engine, container)
        """What the sandbox reaches."""
        self._ports = ExposedPorts(home, engine, container)
        self._home = home
        self._about = about
        self._engine = engine
        self._container = container
        self._leave = leave
        self._lock = threading.Condition()
        self._running = self._starting = 0
        self._overlaps = 0
        """Number of starts of commands while another one was running."""
        self._ended: tuple[EndReason, str | None] | None = None
        self._over = threading.Event()
        threading.Thread(target=self._watch, name=f"sandbox-{home.id}", daemon=True).start()

    @classmethod
    def create(
        cls,
        template: Template | None = None,
        *,
        snapshot: str | None = None,
        ttl: float = DEFAULT_TTL,
        labels: Mapping[str, str] | None = None,
        engine: ContainerEngine | str = "docker",
        **options: object,
    ) -> Self:
        """Create a sandbox, which lives for `ttl` seconds whatever becomes of this process.

        Args:
            template: How the sandbox is made. Default: made of `options`.
            snapshot: Name of a snapshot, with whose files the sandbox begins; its template is the
                default of every field.
            ttl: Seconds until the sandbox ends itself; see `extend`.
            labels: Texts by which `list` finds it.
            engine: The engine, or the name of an installed one.
            options: Fields of a template, such as `image` and `limits`.

        Raises:
            ConfigError: A setting is wrong, or the state of sandboxes cannot be written.
            ImageNotFoundError: The engine lacks the image.
            EngineUnavailableError: The engine cannot be reached.
            EngineError: The container could not be created; nothing is left behind.
            ValidationError: A field of the template is wrong.
        """
        source = None if snapshot is None else snapshots.find(snapshot)
        if template is None:
            usual = {} if source is None else dict(source.template)
            template = Template.model_validate({**usual, **options})
        elif options:
            raise ConfigError(
                "a sandbox is made of a template or of its fields, not of both",
                key="sandbox.template-and-fields",
            )
        box = cls.make(template, ttl=ttl, labels=labels or {}, engine=engine)
        if source is not None:
            try:
                box.files.unpack(snapshots.pieces(source.name), ".")
            except BaseException:
                box.kill()
                raise
        return box

    @classmethod
    def make(
        cls,
        template: Template,
        *,
        ttl: float,
        labels: Mapping[str, str],
        engine: ContainerEngine | str,
        owned: bool = False,
    ) -> Self:
        """Create a sandbox as `create` does; if it is `owned`, it ends with this process."""
        if not 1 <= ttl <= 10**9:
            raise ConfigError(
                "the time to live of a sandbox is at least one second", key="sandbox.ttl"
            )
        about = _About(template=template, labels=labels, created_at=datetime.now(UTC))
        with ExitStack() as undo:
            found = undo.enter_context(shared_engine(engine))
            maker = check(template, found)
            home = Home.create(
                engine=found.name, seconds=ttl, owned=owned,
                about=about.model_dump_json(),
            )  # fmt: skip
            network = "none"
            with ExitStack() as failed:
                failed.callback(home.remove)
                if maker.egress is not None:
                    shared = SharedNetwork.of(found, maker.egress)
                    undo.callback(shared.leave, home)
                    network = shared.join(home)
                _write_end(home, ttl)
                place = place_of(home, maker, spare_pids=_OURS)
                command = ("sh", "-c", _KEEPER, f"{CONTROL}/{_ENDS}")
                env = {"HOME": HOME, **template.env}
                container = place.order(STEP, Start(command=command, env=env, network=network))
                failed.callback(container.remove)
                container.start()
                home.note_ready()
                box = cls(home, about, found, container, leave=undo.pop_all().close)
                failed.pop_all()
                return box

    @classmethod
    def connect(cls, id: str, *, engine: ContainerEngine | str = "docker") -> Self:
        """Return a sandbox that this or another process created.

        Raises:
            NotRunningError: There is no such sandbox, or it has ended.
            EngineUnavailableError: The engine cannot be reached.
        """
        home = next((home for home in known() if home.id == id), None)
        if home is None:
            raise NotRunningError(f"there is no sandbox `{id}`", key="sandbox.missing")
        with ExitStack() as undo:
            found = undo.enter_context(shared_engine(engine))
            about = _About.model_validate_json(home.about)
            ids = [left.id for left in found.leftovers(home.labels) if left.kind == "container"]
            container = found.adopt(ids[0]) if ids else None
            if container is None or container.state().ended_at is not None:
                raise NotRunningError(f"the sandbox `{id}` has ended", key="sandbox.ended")
            return cls(home, about, found, container, leave=undo.pop_all().close)

    @staticmethod
    def list(labels: Mapping[str, str] | None = None) -> "list[SandboxInfo]":
        """Return the sandboxes of this user that have all of these labels, oldest first."""
        found = []
        for home in known():
            # One may be just about to be created or removed, or exist for one submission.
            with suppress(OSError, ValueError, KeyError):
                if not home.is_ready:
                    continue
                about = _About.model_validate_json(home.about)
                if (labels or {}).items() <= about.labels.items() and home.left > 0:
                    found.append(
                        SandboxInfo(
                            id=home.id,
                            image=about.template.image,
                            labels=about.labels,
                            created_at=about.created_at,
                            expires_in=home.left,
                        )
                    )
        return sorted(found, key=lambda info: info.created_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def id(self) -> str:
        """Return the sandbox's id, by which another process connects to it."""
        return self._home.id

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels that the sandbox was created with."""
        return self._about.labels

    @property
    def expires_in(self) -> float:
        """Return the seconds until the sandbox ends itself; negative if it has ended."""
        try:
            return self._home.left
        except OSError:
            return -1.0

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes | None = None,
        **options: Unpack[CommandOptions],
    ) -> Finished:
        """Run a command to its end, and return how it ended.

        Args:
            command: The command and its arguments; no shell interprets them.
            stdin: Its input. Default: none.
            options: See `CommandOptions`.

        Raises:
            NotRunningError: The sandbox has ended.
            ConfigError: An option is wrong.
            EngineError: The engine does not answer.
        """
        return self.start(command, stdin=stdin is not None, **options).finish(stdin)

    def start(
        self, command: Sequence[str], *, stdin: bool = True, **options: Unpack[CommandOptions]
    ) -> Process:
        """Start a command and return it while it runs.

        Args:
            command: The command and its arguments; no shell interprets them.
            stdin: Whether it has input, which `Process.write` sends.
            options: See `CommandOptions`.

        Raises:
            NotRunningError: The sandbox has ended.
            ConfigError: An option is wrong.
            EngineError: The engine does not answer.
        """
        limits, user = self._about.template.limits, options.get("user")
        limit = _size(options.get("output_limit") or limits.log_limit)
        if self._ended is not None:
            raise NotRunningError("the sandbox has ended", key="sandbox.ended")
        # Files of root in a directory of this machine could make anybody root here.
        # protection: root-only-in-sandboxes-of-root
        if user is not None and self._about.template.user != "root" and not _USER.fullmatch(user):
            raise ConfigError(
                f"a command of this sandbox cannot run as `{user}`",
                key="sandbox.user",
                hint="use numbers, `UID` or `UID:GID`, other than 0; or create the sandbox with "
                '`user="root"`',
            )
        with self._lock:
            self._overlaps += self._running > 0
            self._running += 1
            self._starting += 1
            overlaps = self._overlaps
        try:
            before = self._container.read_counters()
            inner = self._engine.enter(
                self._container.id, tuple(command), stdin=stdin, user=user,
                env={**self._about.template.env, **(options.get("env") or {})},
                cwd=options.get("cwd") or WORKSPACE, timeout=options.get("timeout"),
                grace=limits.grace,
            )  # fmt: skip
        except BaseException:
            with self._lock:
                self._running -= 1
            raise
        finally:
            with self._lock:
                self._starting -= 1
                self._lock.notify_all()

        fate = partial(self._fate, before, overlaps)
        idle_timeout = options.get("idle_timeout", 0.0)
        return Process(inner, output_limit=limit, idle_timeout=idle_timeout, fate=fate)

    def _fate(
        self, before: Counters, overlaps: int, code: int | None, stopped: EndReason | None
    ) -> Finished:
        """Return the result, without output, of a command that has ended.

        Args:
            before: What the kernel had counted before the command.
            overlaps: Number of overlaps of commands before it.
            code: Its exit code; None if the container ended first.
            stopped: Why the command was stopped; None if it was not.
        """
        after = self._container.read_counters()
        with self._lock:
            self._running -= 1
            alone = self._overlaps == overlaps
        reason, message = stopped or EndReason.EXITED, None
        killed = (after.memory_kills or 0) > (before.memory_kills or 0)
        if stopped is None and (code is None or (code == _KILLED and not self._lives())):
            reason, message = self._end()
        elif stopped is None and code == _KILLED and killed:
            reason, message = EndReason.OOM, "killed at the limit of memory"
        spent = None
        if alone and after.cpu_time is not None and before.cpu_time is not None:
            spent = after.cpu_time - before.cpu_time
        return Finished(
            exit_code=code,
            reason=reason,
            message=message,
            cpu_time=spent,
            uncounted=_NEITHER if spent is None else _PEAK,
        )

    def expose(self, port: int, *, at: int = 0) -> str:
        """Let a port of this machine lead to a port of the sandbox; return it as `127.0.0.1:PORT`.

        Only programs of this machine reach it, until `kill` or the end of this process. It leads to
        what listens there at the sandbox's `localhost` or any address, now or later, also in a
        sandbox without a network, whose network does not become wider.

        Args:
            port: The port in the sandbox.
            at: The port of this machine. Default: one that is free, or that leads there already.

        Raises:
            NotRunningError: The sandbox has ended.
            ConfigError: The number is no port.
            PortTakenError: `at` is in use.
            ImageNotFoundError: The engine lacks the image of our own containers.
            EngineError: The engine cannot do this.
        """
        if self._ended is not None or self.expires_in <= 0:
            raise NotRunningError("the sandbox has ended", key="sandbox.ended")
        return self._ports.expose(port, at)

    def pause(self) -> None:
        """Stop all processes of the sandbox for a while; its time goes on, and so do timeouts.

        Raises:
            NotRunningError: The sandbox has ended.
            UnsupportedError: The engine cannot pause containers.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._starting == 0)
            self._container.pause()

    def resume(self) -> None:
        """Let the processes of a paused sandbox go on; one that is not paused is no error."""
        self._container.resume()

    def snapshot(self, name: str | None = None) -> str:
        """Keep the files of the workspace, for `create(snapshot=...)`; return the snapshot's name.

        Commands may go on, and should not write meanwhile: see `pause`.

        Args:
            name: Its name. Default: a new one.

        Raises:
            NotRunningError: The sandbox has ended.
            ConfigError: The name is not usable or taken, or the files cannot be kept.
        """
        if self.expires_in <= 0:
            raise NotRunningError("the sandbox has ended", key="sandbox.ended")
        if self._about.template.user == "root":
            raise UnsupportedError(
                "a sandbox of the user root has no snapshots", key="sandbox.root-snapshot"
            )
        return snapshots.take(name, self._about.template, self._home.workspace).name

    @staticmethod
    def snapshots() -> Sequence[Snapshot]:
        """Return the snapshots of this user, oldest first."""
        return snapshots.every()

    @staticmethod
    def remove_snapshot(name: str) -> None:
        """Remove a snapshot. Sandboxes that were made of it stay.

        Raises:
            NotRunningError: There is none of this name.
        """
        snapshots.remove(name)

    def extend(self, seconds: float) -> None:
        """Let the sandbox live for so many seconds from now on, whatever becomes of this process.

        Raises:
            NotRunningError: The sandbox has ended.
        """
        if self.expires_in <= 0:
            raise NotRunningError("the sandbox has ended", key="sandbox.ended")
        _write_end(self._home, seconds)
        self._home.extend(seconds)

    def kill(self) -> None:
        """End the sandbox with all its commands, and remove it with its files."""
        self._finish(EndReason.KILLED, "the sandbox was ended")
        self._over.set()
        self._ports.close()
        self._container.remove()
        if self._home.ports.exists():
            # Another process may have exposed ports, too.
            remove_all(self._engine, self._engine.leftovers(self._home.all_labels))
        self._home.remove()
        self._leave()

    def _finish(self, reason: EndReason, message: str | None) -> None:
        self._ended = self._ended or (reason, message)

    def _lives(self) -> bool:
        try:
            at_end = self._ended is not None or self.expires_in <= 0
            return not at_end and self._container.state().ended_at is None
        except OrchestratorError:
            return False

    def _end(self) -> tuple[EndReason, str | None]:
        """Return why the container of a command has ended."""
        if self._ended is None:
            over = self.expires_in <= 0
            ended = (
                (EndReason.EXPIRED, "the time of the sandbox was over")
                if over
                else (EndReason.ENGINE_LOST, "the container of the sandbox is gone")
            )
            self._finish(*ended)
        return self._ended or (EndReason.ENGINE_LOST, None)

    def _watch(self) -> None:
        """Enforce the limits that the kernel does not, until the sandbox has ended."""
        template = self._about.template
        place = place_of(self._home, Maker(template, self._engine))

        def use(*, most_files: int, seconds: float) -> DiskUse:
            return place.usage((STEP,), most_files=most_files, seconds=seconds)

        nothing = DiskUse(size=0, files=0, hidden=0)
        meter = LimitMeter(self._container, template.limits, use, before=nothing)
        while not self._over.wait(_TICK):
            if self.expires_in < 0:
                with suppress(OrchestratorError):
                    self._ports.close()
                return
            meter.look()
            lost = meter.verdict is not None and meter.verdict.reason is Reason.NETWORK_LOST
            if lost and self.network.kind == "none":
                # It was taken away on purpose.
                meter.verdict = None
            if meter.verdict is not None:
                reason = REASONS.get(meter.verdict.reason, EndReason.ENGINE_LOST)
                self._finish(reason, meter.verdict.measured)
                with suppress(OrchestratorError):
                    # protection: sandbox-over-its-limits-is-killed
                    self._container.kill("SIGKILL")
                return


def _write_end(home: Home, seconds: float) -> None:
    home.write_control(_ENDS, f"{uptime() + seconds + _LATE:.0f}\n".encode())


def _size(limit: int | str) -> int:
    try:
        found = parse_size(limit)
    except ValueError as error:
        raise ConfigError(str(error), key="sandbox.size") from error
    if not isinstance(found, int) or found < 1:
        raise ConfigError(f"not a number of bytes: {limit!r}", key="sandbox.size")
    return found

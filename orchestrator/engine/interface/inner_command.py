"""Commands in running containers, watched from inside: how each engine runs and ends them.

A command runs below a shell of the container, which says when the command has ended, also if
others still hold its output open. Beside it may stand two watchers. One ends the command after
its timeout, without a message from here. The other waits for the end of a connection, so that
the command does not outlive its client, however that dies.

All of that runs as the command's user, which may therefore kill it. A command that does so, or
that leaves its session and takes the mark out of the environment of its processes, lives as long
as its container, within the container's limits. The client ends a command that outlives its
timeout once more, from another process.
"""

import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from orchestrator.base.errors import EngineError, OrchestratorError, UnsupportedError
from orchestrator.engine.interface.protocol import LogChunk, TerminalSize

MARK = "ORCHESTRATOR_ENTERED"
"""Variable that marks the processes of a command; child processes inherit it."""
GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL, unless the caller chooses others."""
SIGNALS = frozenset(
    f"SIG{name}"
    for name in (*("HUP", "INT", "QUIT", "ABRT", "KILL", "USR1", "USR2", "ALRM", "TERM"),
                 *("CONT", "STOP", "TSTP", "WINCH"))
)  # fmt: skip
"""Signals that can be sent to a command."""
_SHORT = 10.0
"""A command with a shorter timeout needs nothing else that ends it when its client dies."""
_NOTICE = 3.0
"""Seconds after its timeout and grace after which the client ends a command itself."""
_PATIENCE = 1.0
"""Seconds without output after a command's end, whose output another process holds open."""
_LONGEST = 86_400.0
"""Seconds that can be waited at once."""
_LATE = 8 * 1024**2
"""Bytes of output after a command's end: more than an engine can have in its buffers."""
_EARLY = 16 * 1024**2
"""Bytes that an engine may pass on before what a command's shell has printed first."""
_SIGN = b"\x1e"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_SHELL = ("executable file", "no such file", "not found", "exec format error")
"""Words of container runtimes for a program that does not exist or cannot run."""

# The names begin with `_`, because a variable of the container with the same name would change.
_ENDING = """\
_tell() { :; }
_send() {
  _marked=$(grep -lsF "$_mark" /proc/[0-9]*/environ)
  for _at in /proc/[0-9]*; do
    read -r _line < "$_at/stat" || continue
    set -- ${_line##*) }
    [ "$3" != "$_leader" ] || continue
    case "$4 $_marked" in
      "$_leader "* | *"$_at/environ"*) kill "-$_signal" "${_at#/proc/}" ;;
    esac
  done
  kill "-$_signal" "-$_leader"
}
_lives() { read -r _line < "/proc/$_leader/stat" && case ${_line##*) } in Z*) false ;; esac; }
_finish() {
  trap '' PWR
  trap 'kill -KILL "-$_leader"' EXIT
  _tell
  [ "$_first" != TERM ] || kill -PWR "$_leader"
  for _signal in $_first; do _send; done
  while [ "$_grace" -gt 0 ] && _lives; do
    sleep 0.1 || { sleep 1; _grace=$((_grace - 9)); }
    _grace=$((_grace - 1))
  done
  _signal=KILL
  _send
  _send
}
_watch_time() {
  trap 'kill -KILL "$!"; wait; exit' PWR
  sleep "$_limit" &
  wait "$!" || exit
  _finish
}
"""
"""Shell functions that end a command; variables are their parameters.

`_leader` leads the command's session and group. If it watches the command, SIGPWR tells it that the
command is being ended. A shell that cannot start another process, because the container has too
many, ends; the trap then kills the group.
"""
_WATCHED = f"""\
{_ENDING}
_mark=$1 _said=$2 _cwd=$3 _limit=$4 _grace=$5 _lease=$6 _leader=$$ _first=TERM _over= _watchers=
shift 6
exec 3<&0 4>&2 < /dev/null 2> /dev/null
trap '' HUP INT QUIT ABRT USR1 USR2 PIPE ALRM TERM
if [ "$_limit" ]; then
  (
    _tell() {{ printf '\\036%s timeout\\n' "$_said" >&4 & }}
    _watch_time
  ) > /dev/null 3<&- &
  _watchers=$!
fi
if [ "$_lease" ]; then
  ( read -r _line; _finish ) <&3 > /dev/null 3<&- 4>&- &
  _watchers="$_watchers $!"
  exec 3< /dev/null
fi
trap : HUP INT QUIT ABRT USR1 USR2 PIPE ALRM TERM
trap _over=1 PWR
(
  read -r _line _ < /proc/self/stat
  printf '\\036%s %s %s\\n' "$_said" "$_leader" "$_line" >&4
  [ -z "$_cwd" ] || CDPATH= cd -- "$_cwd" 2>&4 || exit 126
  unset OLDPWD
  exec "$@" <&3 2>&4 3<&- 4>&-
)
_line=$?
if [ "$_over" ]; then
  printf '\\036%s %s\\n' "$_said" "$_line" >&4
  trap 'kill -KILL "-$_leader"' EXIT
  _signal=KILL
  _send
fi
[ -z "$_watchers" ] || kill -PWR $_watchers
printf '\\036%s %s\\n' "$_said" "$_line" >&4
wait
exit "$_line"
"""
"""Runs a command and watches it: tells the numbers of its leader and of itself, and its end."""
_AT_TERMINAL = """\
_said=$1 _cwd=$2
shift 2
printf '\\036%s %s %s\\n' "$_said" $$ $$
[ -z "$_cwd" ] || CDPATH= cd -- "$_cwd" || exit 126
unset OLDPWD
exec "$@"
"""
_GUARD = f"""\
{_ENDING}
_born() {{ read -r _line < "/proc/$_leader/stat" && set -- ${{_line##*) }} && echo "${{20}}"; }}
_mark=$1 _leader=$2 _limit=$3 _grace=$4 _first=$5 _timer=
exec 3<&0 2> /dev/null
_since=$(_born) || exit
if [ "$_limit" ]; then
  ( _watch_time ) > /dev/null 3<&- &
  _timer=$!
fi
if read -r _line <&3 || [ "$(_born)" != "$_since" ]; then
  [ -z "$_timer" ] || kill -PWR "$_timer"
  wait
  exit
fi
_finish
"""
"""Ends a command when its own input ends, unless a line says that there is no need."""
_END = f"""\
{_ENDING}
_mark=$1 _leader=$2 _grace=$3 _first=$4 _force=$5
exec 2> /dev/null
if [ -e "/proc/$_leader" ]; then
  grep -qsF "$_mark" "/proc/$_leader/environ" || exit
elif [ -z "$_force" ]; then
  exit
fi
_finish
"""
"""Ends a command now, unless it has ended; with force also what is left of it."""
_KILL = 'kill "-$1" "$2" 2> /dev/null'


class PlainProcess(Protocol):
    """A command that an engine runs in a container as it is."""

    def receive(self, timeout: float | None) -> LogChunk | None:
        """Return output; None if there will be no more.

        Raises:
            TimeoutError: There was none for so many seconds.
            EngineError: The engine does not answer.
        """

    def write(self, data: bytes) -> None:
        """Send input."""

    def close_stdin(self) -> None:
        """End the input."""

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the terminal."""

    def wait(self) -> int:
        """Return the exit code of a command that has ended."""

    def close(self) -> None:
        """Close the connection."""


class StartPlain(Protocol):
    """Starts commands in one container, all as the same user."""

    def __call__(
        self,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str],
        stdin: bool,
        terminal: TerminalSize | None = None,
    ) -> PlainProcess:
        """Start a command."""


class InnerCommand:
    """Implements `orchestrator.engine.interface.protocol.InnerProcess` for any engine."""

    def __init__(
        self,
        start: StartPlain,
        command: tuple[str, ...],
        *,
        terminal: TerminalSize | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        cwd: str | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        stays: bool = False,
    ) -> None:
        """Start the command; see `orchestrator.engine.interface.protocol.ContainerEngine.enter`."""
        self._start, self._stays, self._grace = start, stays, grace
        self._said = _SIGN + secrets.token_hex(8).encode()
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        self._first = "TERM" if terminal is None else "HUP TERM"
        self._is_terminal = terminal is not None
        self._has_input = stdin or terminal is not None
        self._held = b""
        self._ready: list[LogChunk] = []
        self._exit_code: int | None = None
        self._is_reported = terminal is not None
        """Whether the command's shell has told its end: otherwise it may live on without it."""
        self._late = 0
        self._is_closed = False
        self.timed_out = False
        self._guard: PlainProcess | None = None
        limit = "" if timeout is None else f"{timeout:.3f}".rstrip("0").rstrip(".")
        tenths = str(round(grace * 10))
        env = dict(env or {})
        # A shell does not pass on variables whose names it cannot write.
        odd = [name for name in env if not _NAME.fullmatch(name)]
        if odd:
            command = ("env", *(f"{name}={env.pop(name)}" for name in odd), *command)
        said = self._said[1:].decode()
        words: tuple[str, ...]
        if terminal is not None:
            words = (_AT_TERMINAL, "sh", said, cwd or "")
        else:
            lease = "" if stdin or stays else "1"
            words = (_WATCHED, "sh", self._mark, said, cwd or "", limit, tenths, lease)
        name, _, value = self._mark.partition("=")
        self._deadline = None if timeout is None else time.monotonic() + timeout + grace + _NOTICE
        self._process = start(
            ("sh", "-c", *words, *command),
            env={**env, name: value},
            stdin=terminal is not None or not stays or stdin,
            terminal=terminal,
        )
        try:
            self._leader, self._pid = self._greeting()
            if self._has_input and not stays and (terminal or (timeout or _SHORT) >= _SHORT):
                guard = ("sh", "-c", _GUARD, "sh", self._mark, str(self._leader),
                         limit if terminal else "", tenths, self._first)  # fmt: skip
                self._guard = start(guard, env={}, stdin=True)
        except BaseException:
            self._process.close()
            raise

    def _greeting(self) -> tuple[int, int]:
        """Return the numbers of the command's leader and of its own process.

        Raises:
            UnsupportedError: The image has no shell.
            EngineError: The command could not be started.
        """
        said, size = b"", 0
        while size < _EARLY and (chunk := self._process.receive(None)):
            size += len(chunk.data)
            # The engine may pass on the command's output first.
            if chunk.stream == "stdout" and not self._is_terminal:
                self._ready.append(chunk)
                continue
            said += chunk.data
            found = re.search(re.escape(self._said) + rb" (\d+) (\d+)\r?\n", said)
            if found:
                if rest := said[: found.start()] + said[found.end() :]:
                    self._ready += self._cleaned(LogChunk(stream=chunk.stream, data=rest))
                return int(found[1]), int(found[2])
        said += b"".join(chunk.data for chunk in self._ready)
        code = self._process.wait()
        text = said.decode("utf-8", "replace").strip()
        if code in (126, 127) and any(words in text for words in _NO_SHELL):
            raise UnsupportedError(
                "the container's image has no shell",
                key="container.no-shell",
                hint="use an image with `/bin/sh`: commands are started and watched by it",
            )
        raise EngineError(
            f"the container engine could not start the command: {text[:300] or code}",
            key="command.not-started",
        )

    def output(self) -> Iterator[LogChunk]:
        """Yield all output until the command ends."""
        while True:
            yield from self._ready
            self._ready = []
            if self._late > _LATE or (chunk := self._receive()) is None:
                break
            if self._exit_code is not None:
                self._late += len(chunk.data)
            self._ready = self._cleaned(chunk)
        if held := self._held:
            self._held = b""
            yield LogChunk(stream="stderr", data=held)

    def _receive(self) -> LogChunk | None:
        """Return output; None at its end, or if it stays open after the command's end."""
        while True:
            patience = None
            if self._exit_code is not None:
                patience = _PATIENCE
            elif self._deadline is not None:
                patience = min(max(0.0, self._deadline - time.monotonic()), _LONGEST)
            try:
                return self._process.receive(patience)
            except TimeoutError:
                if self._exit_code is not None:
                    return None
                if patience == _LONGEST:
                    continue
                self._deadline, self.timed_out = None, True
                self._end(force=True)
                self._exit_code = self._process.wait()

    def _cleaned(self, chunk: LogChunk) -> list[LogChunk]:
        """Return output without the lines in which the command's shell reports."""
        if self._is_terminal or chunk.stream != "stderr":
            return [chunk]
        data, self._held = self._held + chunk.data, b""
        while (at := data.find(self._said)) >= 0:
            end = data.find(b"\n", at)
            if end < 0:
                break
            word = data[at + len(self._said) + 1 : end]
            if word == b"timeout":
                self.timed_out = True
            elif word.isdigit() and len(word) < 4:
                self._exit_code, self._is_reported = int(word), True
            data = data[:at] + data[end + 1 :]
        if at < 0:
            # What the data ends with may be the beginning of a report.
            at = data.rfind(_SIGN, max(0, len(data) - len(self._said)))
            at = at if at >= 0 and self._said.startswith(data[at:]) else len(data)
        data, self._held = data[:at], data[at:]
        return [LogChunk(stream="stderr", data=data)] if data else []

    def write(self, data: bytes) -> None:
        """Send input to the command."""
        if not self._has_input:
            raise EngineError("the command was started without input", key="command.no-input")
        try:
            self._process.write(data)
        except EngineError as error:
            raise EngineError(
                "the command reads no more input: it has ended, or its engine does not answer",
                key="command.ended",
            ) from error

    def close_stdin(self) -> None:
        """End the command's input."""
        if self._has_input:
            self._process.close_stdin()

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the command's terminal."""
        self._process.resize(size)

    def signal(self, name: str, *, group: bool = True) -> None:
        """Send a signal to the command, and with `group` to all processes of its group."""
        if name not in SIGNALS:
            raise UnsupportedError(
                f"commands cannot be sent the signal `{name}`",
                key="command.signal",
                hint=f"choose one of {', '.join(sorted(SIGNALS))}",
            )
        if self._exit_code is None:
            target = str(-self._leader if group else self._pid)
            self._run(("sh", "-c", _KILL, "sh", name.removeprefix("SIG"), target))

    def wait(self) -> int:
        """Return the command's exit code."""
        if self._exit_code is None:
            self._exit_code = self._process.wait()
        return self._exit_code

    def close(self) -> None:
        """Close the command's input and output, and end it unless it was started to stay."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with suppress(OrchestratorError):
                if self._guard is not None and self._exit_code is not None:
                    self._guard.write(b"\n")
                elif self._guard is not None:
                    self._guard.close_stdin()
                    self._drain(self._guard)
                elif not (self._stays or (self._exit_code is not None and self._is_reported)):
                    self._end(force=self._exit_code is not None)
        finally:
            if self._guard is not None:
                self._guard.close()
            self._process.close()

    def _end(self, *, force: bool = False) -> None:
        self._run(
            ("sh", "-c", _END, "sh", self._mark, str(self._leader), str(round(self._grace * 10)),
             self._first, "1" if force else "")
        )  # fmt: skip

    def _run(self, command: tuple[str, ...]) -> None:
        process = self._start(command, env={}, stdin=False)
        try:
            self._drain(process)
        finally:
            process.close()

    def _drain(self, process: PlainProcess) -> None:
        # A shell that hangs does not block a thread for long.
        with suppress(TimeoutError):
            while process.receive(self._grace + 10):
                pass

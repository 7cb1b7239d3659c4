"""The process that kills overdue containers when the orchestrator is gone (a dead man's switch).

`dead_man_switch` starts it as a separate program that needs only Python. It reads commands from its
standard input, one per line:

    starting WORKER MOMENT  a container is about to start; it must be dead by MOMENT if the
                            orchestrator is gone by then, and a minute later in any case
    running WORKER MOMENT   the worker's containers must be dead by MOMENT; `-` for no deadline
    idle WORKER             none of the worker's running containers has a deadline
    forget                  all containers are gone

A moment is in seconds since the machine's boot, including time asleep. The end of the input means
that the orchestrator is gone. Containers of idle workers, such as services, are then killed after a
delay in which the run can be resumed. The process that resumes the run starts its own switch. At
its first command, the new switch writes its id to a file in the run's directory; this process
then finds that the id is not its own, and ends. If the run's directory is removed, the run cannot
be resumed: all containers with a deadline are killed at once. The killing is done by another
command, so that this process stays small: see `overdue`.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

RESUME = 60.0
"""Seconds in which a run can be resumed before the services of idle workers are killed."""
SLOW = 60.0
"""Extra seconds for a container that is just being started, while the orchestrator is alive."""
_AGAIN = (2.0, 5.0, 15.0, *(30.0,) * 20, 300.0)
"""Seconds until a failed command is repeated; the last value applies to all further repetitions.
Each attempt costs about a second of CPU time, even if the engine never comes back.
"""
_LOOK = 30.0
"""Maximum number of seconds until something may be due."""
_TICK = 0.5
"""Maximum number of seconds between two checks of the clock: deadlines count the time that the
machine is asleep, but waiting does not.
"""
LEAD = 5.0
"""Seconds before a deadline at which the killing command is started, because it needs time to load.
"""
_PIECE = 4096
MARK = "switch"
"""Name of the file in the run's directory in which the run's newest switch writes its id."""


def uptime() -> float:
    """Return the seconds since the machine's boot, as `machine.uptime` does.

    This program cannot import the package.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # unknown for now, so not treated as gone
    return False


class Switch:
    """The workers that the process watches, and the times at which it must act."""

    def __init__(self, lease: Path, log: Path, command: Sequence[str]) -> None:
        """Start with no workers.

        Args:
            lease: A file that exists as long as the run can be resumed.
            log: File that records what was killed.
            command: The command that kills containers. It reads lines from its standard input: a
                time (seconds since the epoch; containers that started later are not killed),
                `tasks` or `all` for services too, and the numbers of workers. It answers each line
                with `done` or `failed`.
        """
        self.alone = False
        """Whether the process that started the containers is gone."""
        self._lease = lease
        self._log = log
        self._command = list(command)
        self._marked = lease.with_name(MARK)
        self._mark: str | None = None
        self._running: dict[str, float] = {}
        self._starting: set[str] = set()
        """Workers of `_running` whose container is being started."""
        self._endless: set[str] = set()
        self._idle: set[str] = set()
        self._failures = 0
        self._not_before = 0.0
        self._loaded: tuple[int, int, int] | None = None
        """The started killing command: its process id, and the pipes to its standard input and from
        its standard output.
        """
        self._unneeded: list[int] = []
        """Process ids of killing commands that were not used and will end."""

    def _sign(self) -> str:
        """Write a new id of this switch to the file `MARK`; return the content of the file."""
        mark = f"{os.getpid()} {os.urandom(8).hex()}\n"
        try:
            self._marked.write_text(mark)
        except OSError:
            # The file's current content cannot be from a later switch.
            return _text(self._marked) or ""
        return mark

    @property
    def _is_replaced(self) -> bool:
        """Return whether a later switch of the same run has received a command."""
        return _text(self._marked) not in (None, "", self._mark)

    @property
    def is_lost(self) -> bool:
        """Return whether the run can never be resumed, because its directory was removed."""
        return self.alone and _is_gone(self._lease)

    def take(self, line: str) -> None:
        """Handle a command that the orchestrator sent."""
        # protection: switch-ends-only-for-resumed-runs-switch
        if self._mark is None:
            self._mark = self._sign()
        word, _, rest = line.partition(" ")
        worker, _, moment = rest.partition(" ")
        for known in (self._starting, self._endless, self._idle):
            known.discard(worker)
        self._running.pop(worker, None)
        if word == "forget":
            self._running, self._starting, self._endless, self._idle = {}, set(), set(), set()
        elif word == "idle":
            self._idle.add(worker)
        elif moment == "-":
            self._endless.add(worker)
        elif word in ("starting", "running"):
            self._running[worker] = float(moment)
            if word == "starting":
                self._starting.add(worker)

    def leave_alone(self) -> None:
        """Set deadlines for the containers of idle workers, because the orchestrator has died."""
        self.alone = True
        # protection: services-of-dead-run-are-killed
        for worker in self._idle:
            self._running[worker] = uptime() + RESUME
        self._idle, self._starting = set(), set()

    @property
    def is_done(self) -> bool:
        """Return whether no container is left to watch."""
        # protection: switch-ends-when-resumed-run-takes-over
        return self.alone and (not self._running or self._is_replaced)

    def _moment(self, worker: str) -> float:
        return self._running[worker] + (SLOW if worker in self._starting else 0.0)

    def rest(self) -> float:
        """Return the number of seconds until the next container may be overdue."""
        moments = (self._moment(worker) for worker in self._running)
        first = max(min(moments, default=uptime() + _LOOK), self._not_before)
        return min(max(first - uptime(), 0.0), _LOOK)

    def act(self, *, at_once: bool = False) -> None:
        """Kill the containers of overdue workers; with `at_once`, of all with a deadline."""
        now = uptime()
        # protection: overdue-containers-are-killed
        late = sorted(worker for worker in self._running if at_once or self._moment(worker) <= now)
        # protection: attempts-to-kill-become-rare
        if not late or now < self._not_before or self.is_done:
            self._prepare(any(self._moment(worker) - LEAD <= now for worker in self._running))
            return
        if self._kill(late):
            self._failures, self._not_before = 0, 0.0
            for worker in late:
                del self._running[worker]
            if not self.alone:
                self._idle.update(late)
        else:
            self._not_before = now + _AGAIN[min(self._failures, len(_AGAIN) - 1)]
            self._failures += 1

    def end_pause(self) -> None:
        """End the delay after a failed killing command, so that it is repeated now."""
        self._not_before = 0.0

    def _prepare(self, needed: bool) -> None:
        """Start the killing command if it may soon be needed; end it if it is not needed."""
        if needed and self._loaded is None and uptime() >= self._not_before:
            with suppress(OSError):
                self._load()
        elif not needed:
            self._unload()
        self._unneeded = [pid for pid in self._unneeded if os.waitpid(pid, os.WNOHANG) == (0, 0)]

    def _load(self) -> tuple[int, int, int]:
        """Start the killing command, which connects to the engine and waits for lines."""
        if self._loaded is None:
            pipes = [*os.pipe(), *os.pipe()]
            given, line, answer, said = pipes
            try:
                words = self._command
                places = [(os.POSIX_SPAWN_DUP2, given, 0), (os.POSIX_SPAWN_DUP2, said, 1)]
                process = os.posix_spawn(words[0], words, os.environ, file_actions=places)
            except OSError:
                os.close(line)
                os.close(answer)
                raise
            finally:
                os.close(given)
                os.close(said)
            self._loaded = process, line, answer
        return self._loaded

    def _unload(self) -> None:
        """End the killing command, which ends when its standard input does."""
        if self._loaded is not None:
            process, line, answer = self._loaded
            self._loaded = None
            os.close(line)
            os.close(answer)
            self._unneeded.append(process)

    def _kill(self, workers: Sequence[str]) -> bool:
        # A container started after this moment belongs to a process that has resumed the run. The
        # orchestrator removes services itself while it lives.
        text = f"{time.time():.3f} {'all' if self.alone else 'tasks'} {' '.join(workers)}\n"
        answered = b""
        try:
            _, line, answer = self._load()
            os.write(line, text.encode())
            answered = os.read(answer, _PIECE)
        except OSError:
            pass  # No memory at this moment, or the command could not reach the engine.
        done = answered == b"done\n"
        if not done:
            self._unload()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with suppress(OSError), self._log.open("a") as file:
            file.write(
                f"{now} workers {' '.join(workers)}: killed after their deadline: "
                f"{'done' if done else 'failed'}\n"
            )
        # protection: failed-kill-is-repeated
        return done


def watch(switch: Switch, source: int, woken: int) -> None:
    """Read commands and kill overdue containers, until nothing is left to watch.

    If the run can never be resumed, its containers are killed at once. After the orchestrator's
    death, they are also killed at once on a signal, because this process may be stopped before the
    deadline. While the orchestrator lives, it gets the signal too and ends its containers itself.

    Args:
        switch: State of the watched workers.
        source: Descriptor of the orchestrator's commands.
        woken: Descriptor that becomes readable on a signal.
    """
    said, asked = b"", False
    while not switch.is_done:
        sources = [woken] if switch.alone else [woken, source]
        ready, _, _ = select.select(sources, (), (), min(switch.rest(), _TICK))
        if source in ready:
            piece = os.read(source, _PIECE)
            *lines, said = (said + piece).split(b"\n")
            for line in lines:
                switch.take(line.decode())
            if not piece:
                switch.leave_alone()
        if woken in ready and os.read(woken, _PIECE):
            asked = True
            switch.end_pause()
        # protection: containers-are-killed-at-once
        switch.act(at_once=switch.is_lost or (asked and switch.alone))


def main(arguments: Sequence[str]) -> None:
    """Run the process until nothing is left to watch.

    Args:
        arguments: Path of a file that exists as long as the run can be resumed, path of the log,
            and the words of the command that kills containers.
    """
    # A pipe that becomes readable when this process receives a signal.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Detached from its parent process, which then neither waits for nor kills this process.
    if os.fork():
        os._exit(0)
    for path, text in (("/proc/self/oom_score_adj", "-1000"), ("/proc/self/comm", "deadman")):
        try:
            Path(path).write_text(text)
        except OSError:
            continue  # Only root may lower the OOM score.
    lease, log, *command = arguments
    watch(Switch(Path(lease), Path(log), command), sys.stdin.fileno(), woken)


if __name__ == "__main__":
    main(sys.argv[1:])

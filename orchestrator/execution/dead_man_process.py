"""The process of the dead man's switch: it kills containers past their deadline when nobody does.

Started by `dead_man_switch` as a program of its own that needs nothing but Python. It reads
what it is told from its standard input, line by line:

    starting WORKER MOMENT  about to start a container, which must be dead by then if whoever starts
                            it is gone, and a minute later in any case
    running WORKER MOMENT   the worker's containers must be dead by then; `-` for no deadline
    idle WORKER             none of its containers that has a deadline runs now
    forget                  all containers are gone

A moment is in seconds since the machine's boot, the time of its sleep included. The end of the
input means that the process in charge of the containers is gone. Then an idle worker's containers,
such as services, are given a while for somebody to resume the run. Whoever resumes it has a switch
of its own. That one signs a file in the run's directory as soon as it knows what to watch, so that
this one ends. Where the run's directory is removed, nobody can resume it: all is killed at once.

What is late is killed by a command, so that this process stays small: see `overdue`.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RESUME = 60.0
"""Seconds for somebody to resume a run before the services of idle workers are ended."""
SLOW = 60.0
"""Seconds more for a container that is being started, while there is somebody who starts it."""
_AGAIN = (2.0, 5.0, 15.0, 30.0)
"""Seconds before a command that failed is tried again; the last one holds from then on."""
_LOOK = 30.0
"""Seconds between two looks at the clock, at most: a machine that slept makes moments pass."""
_PIECE = 4096
MARK = "switch"
"""The file in the run's directory that the run's latest switch signs."""


def uptime() -> float:
    """Return the seconds since the machine's boot, the time of its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
        return False  # It cannot be told at this moment.
    return False


class Switch:
    """What is known of the workers, and when something is to be done."""

    def __init__(self, lease: Path, log: Path, command: Sequence[str]) -> None:
        """Prepare, with nothing running.

        Args:
            lease: The file that is there for as long as the run can be resumed.
            log: What is killed is written there.
            command: Kills containers. A moment and the numbers of workers are added to it: what
                was started later than that, in seconds since the epoch, is left alone.
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
        """Those among them whose container is being started."""
        self._endless: set[str] = set()
        self._idle: set[str] = set()
        self._failures = 0
        self._not_before = 0.0

    def _sign(self) -> str:
        """Take the place of an earlier switch of the run, and return what says so."""
        mark = f"{os.getpid()} {os.urandom(8).hex()}\n"
        try:
            self._marked.write_text(mark)
        except OSError:
            # Whatever is there now is no later switch's.
            return _text(self._marked) or ""
        return mark

    @property
    def _is_replaced(self) -> bool:
        """Whether a later switch of the run was told what to watch."""
        return _text(self._marked) not in (None, "", self._mark)

    @property
    def is_lost(self) -> bool:
        """Whether nobody can resume the run any more, because its directory was removed."""
        return self.alone and _is_gone(self._lease)

    def take(self, line: str) -> None:
        """Note what the process in charge says."""
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
        """Note that the process in charge is gone: what is idle now ends in a while."""
        self.alone = True
        for worker in self._idle:
            self._running[worker] = uptime() + RESUME
        self._idle, self._starting = set(), set()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to watch."""
        return self.alone and (not self._running or self._is_replaced)

    def _moment(self, worker: str) -> float:
        return self._running[worker] + (SLOW if worker in self._starting else 0.0)

    def rest(self) -> float:
        """Return the seconds until something may be late."""
        moments = (self._moment(worker) for worker in self._running)
        first = max(min(moments, default=uptime() + _LOOK), self._not_before)
        return min(max(first - uptime(), 0.0), _LOOK)

    def act(self, *, at_once: bool = False) -> None:
        """Kill the containers of workers that are late; with `at_once`, of all with a deadline."""
        now = uptime()
        late = sorted(one for one in self._running if at_once or self._moment(one) <= now)
        if not late or (now < self._not_before and not at_once) or self.is_done:
            return
        if self._kill(late):
            self._failures, self._not_before = 0, 0.0
            for worker in late:
                del self._running[worker]
        else:
            self._not_before = now + _AGAIN[min(self._failures, len(_AGAIN) - 1)]
            self._failures += 1

    def _kill(self, workers: Sequence[str]) -> bool:
        # What starts after this moment is the next step of a process that is in charge again.
        words = [*self._command, f"{time.time():.3f}", *workers]
        try:
            started = os.posix_spawn(words[0], words, os.environ)
            _, status = os.waitpid(started, 0)
        except OSError:
            # No memory at this moment, as after the death of a process that had taken it all.
            return False
        self._note(f"workers {' '.join(workers)}: nobody stopped them: exit code {status >> 8}")
        return status == 0

    def _note(self, text: str) -> None:
        try:
            with self._log.open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
        except OSError:
            return


def _become_nobodys_child() -> None:
    """Leave whoever started us, who is not to wait for us, nor to take us along."""
    if os.fork():
        os._exit(0)
    for path, text in (("/proc/self/oom_score_adj", "-1000"), ("/proc/self/comm", "deadman")):
        try:
            Path(path).write_text(text)
        except OSError:
            continue  # Only root may lower the first; without it, we are just the smallest.


def _catch_signals() -> int:
    """Let signals be read from a pipe, and return its end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return woken


def watch(switch: Switch, source: int, woken: int) -> None:
    """Read and act until nothing is left to watch.

    What can never be resumed ends at once.

    A signal ends at once what nobody watches: somebody ends all processes of a service, and this
    one will not be there when the moment comes. While the process in charge lives, it is sent one
    too, and ends its containers itself.

    Args:
        switch: Knows what is to be done.
        source: Where the process in charge is read from.
        woken: Where signals are read from.
    """
    said, asked = b"", False
    while not switch.is_done:
        sources = [woken] if switch.alone else [woken, source]
        ready, _, _ = select.select(sources, (), (), switch.rest())
        if source in ready:
            piece = os.read(source, _PIECE)
            *lines, said = (said + piece).split(b"\n")
            for line in lines:
                switch.take(line.decode())
            if not piece:
                switch.leave_alone()
        asked = asked or (woken in ready and bool(os.read(woken, _PIECE)))
        switch.act(at_once=switch.is_lost or (asked and switch.alone))


def main(arguments: Sequence[str]) -> None:
    """Watch.

    Args:
        arguments: The run's lease, the log, and the words of the command.
    """
    woken = _catch_signals()
    _become_nobodys_child()
    lease, log, *command = arguments
    watch(Switch(Path(lease), Path(log), command), sys.stdin.fileno(), woken)


if __name__ == "__main__":
    main(sys.argv[1:])

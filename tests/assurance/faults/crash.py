"""Run the command line and kill it at one point.

Usage: `python -m tests.assurance.faults.crash POINT ARGUMENTS`. With `POINT:SIGTERM` the process
sends itself that signal instead and continues, with `POINT:SIGTERM:SIGTERM` two.
"""

import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.engine.docker import network_filter
from orchestrator.engine.places.place import PlaceSpec
from orchestrator.faces.cli.app import main
from orchestrator.repository.git import command as git
from tests.assurance.faults.points import (
    FLOW_POINTS,
    GIT_POINTS,
    LANDING_POINTS,
    POINTS,
    TURN_POINTS,
    GitPoint,
    Point,
    holders,
)

HURRY = "FAULTS_HURRY"
"""Variable with which what outlives its client ends soon."""
_SOON = 8.0
_BETWEEN = 0.3
"""Seconds after each signal, before the next signal or the next step."""
_PAUSE = 1.0
"""Seconds between the death of this process and the continuation of a stopped git."""


def hurry() -> None:
    """Let what outlives its client end soon, if the caller asks for it.

    A place of the engine then waits `_SOON` seconds for its client, a run's helper as long for
    workers.
    """
    if os.environ.get(HURRY):
        PlaceSpec.__init__.__kwdefaults__ |= {"start_within": _SOON, "collect_within": _SOON}
        network_filter.ALONE = _SOON


def die() -> NoReturn:
    """Kill this process with SIGKILL: no handler, `finally` or other thread runs."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()
    raise AssertionError("unreachable")


def interrupt(*names: str) -> None:
    """Send signals to this process, one after the other."""
    for name in names:
        os.kill(os.getpid(), signal.Signals[name])
        time.sleep(_BETWEEN)


def install(point: Point, strike: Callable[[], object]) -> None:
    """Call `strike` at one call of a function."""
    found, name = holders(point.target)
    real: Callable[..., Any] = getattr(found[0], name)
    calls = itertools.count(1)
    lock = threading.Lock()

    @functools.wraps(real)
    def deadly(*arguments: Any, **named: Any) -> Any:
        counts = point.argument is None or any(point.argument in str(one) for one in arguments)
        with lock:
            chosen = counts and next(calls) == point.nth
        if chosen and point.when == "before":
            time.sleep(point.pause)
            strike()
        try:
            return real(*arguments, **named)
        finally:
            if chosen and point.when == "after":
                strike()

    for holder in found:
        setattr(holder, name, deadly)


def install_git(point: GitPoint, top: Path) -> None:
    """Stop a git command while it writes files, and kill this process."""
    real = subprocess.run

    def run(command: Sequence[str], **rest: Any) -> Any:
        if not _contains(command, point.command):
            return real(command, **rest)
        rest.pop("check")
        rest.pop("timeout")
        process = subprocess.Popen(command, **rest)
        while not any(top.glob(point.files)):
            assert process.poll() is None, "git ended before it was stopped"
            time.sleep(0.0005)
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None, "git ended before it was stopped"
        if point.dies:
            process.kill()
            process.wait()
        else:
            later = ("sh", "-c", f"sleep {_PAUSE}; kill -CONT {process.pid}")
            subprocess.Popen(later, start_new_session=True)
        die()

    git.subprocess.run = run  # type: ignore[attr-defined]


def _contains(command: Sequence[str], wanted: Sequence[str]) -> bool:
    places = range(len(command) - len(wanted) + 1)
    return any(tuple(command[at : at + len(wanted)]) == tuple(wanted) for at in places)


if __name__ == "__main__":
    hurry()
    chosen, *signals = sys.argv.pop(1).split(":")
    if chosen in GIT_POINTS:
        install_git(GIT_POINTS[chosen], Path.cwd())
    else:
        strike = functools.partial(interrupt, *signals) if signals else die
        install({**POINTS, **FLOW_POINTS, **LANDING_POINTS, **TURN_POINTS}[chosen], strike)
    main()

"""A client of a place in a process of its own, which ends or stops as soon as a step has started.

Reads a pickled `PlaceSpec`, the name of a step, its `Start` and the number of a signal.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.places.place import Place, PlaceSpec, Start

ROOT = Path(__file__).parents[2]


def order_and_die(
    spec: PlaceSpec,
    step: str,
    start: Start,
    signal: int,
    *,
    program: str = "tests.support.dying_client",
) -> "subprocess.Popen[bytes]":
    """Let another process order a step and send itself a signal; return the process."""
    process = subprocess.Popen([sys.executable, "-m", program], cwd=ROOT, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(pickle.dumps((spec, step, start, signal)))
    process.stdin.close()
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status) or os.WIFSIGNALED(status), status
    return process


def die(opened: Callable[[PlaceSpec], Place]) -> None:
    """Do in a place what the standard input says."""
    spec, step, start, signal = pickle.load(sys.stdin.buffer)
    place = opened(spec)
    place.put(spec.parts)
    place.order(step, start).start()
    os.kill(os.getpid(), signal)


if __name__ == "__main__":
    die(DockerEngine().open_place)

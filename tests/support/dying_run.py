"""A run on the local engine whose process kills itself at one call of one function.

Usage: `python -m tests.support.dying_run MODULE:NAME WHEN NTH REPOSITORY SCRATCH TASK RETRY_FROM`,
where WHEN is `before` or `after`.
"""

import functools
import itertools
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run


def die_at(target: str, when: str, nth: int) -> None:
    """Replace a function by one that kills this process at its `nth` call."""
    module, _, path = target.partition(":")
    *parents, name = path.split(".")
    holder: Any = functools.reduce(getattr, parents, import_module(module))
    real = getattr(holder, name)
    calls = itertools.count(1)

    def deadly(*given: Any, **named: Any) -> Any:
        chosen = next(calls) == nth
        if chosen and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*given, **named)
        if chosen and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(holder, name, deadly)


if __name__ == "__main__":
    target, when, nth, repo, scratch, task, retry_from = sys.argv[1:]
    die_at(target, when, int(nth))
    shell_run(
        Path(repo), LocalEngine(Path(scratch)), task, retries=3, retry_delay=0,
        retry_from=retry_from,
    )  # fmt: skip

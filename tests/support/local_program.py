"""The command line with the local engine in place of Docker, and if asked with closed streams."""

import os
import sys
from pathlib import Path

import orchestrator.engine
from orchestrator.faces.cli.app import main
from tests.support.dying_run import die_at
from tests.support.local_engine import LocalEngine

FOLDER = "LOCAL_ENGINE"
"""Variable with the directory of the local engine; without it, the engine is Docker."""
PYTHON = "--python"
"""Word before the text of a program that is run in place of the command line."""
CLOSED = "CLOSED_STREAMS"
"""Variable with the descriptors of closed streams."""
DEATH = "DIE_AT"
"""Variable with the call at which the process kills itself: `MODULE:NAME before|after NTH`."""


class _Engine(LocalEngine):
    def image_id(self, image: str) -> str:
        """Return an id, which judgements record with the results of checks."""
        return f"sha256:{image}"


def _use_local_engine() -> None:
    original = orchestrator.engine.load_engine
    folder = os.environ.pop(FOLDER, None)
    for module in [*sys.modules.values()] if folder else []:
        if getattr(module, "load_engine", None) is original:
            module.load_engine = lambda *_: _Engine(Path(str(folder)))  # type: ignore[attr-defined]


def _run() -> None:
    _use_local_engine()
    if sys.argv[1:2] == [PYTHON]:
        exec(compile(sys.argv[2], "<program>", "exec"), {"__name__": "__main__"})
        return
    for number in map(int, os.environ.pop(CLOSED, "").split()):
        os.close(number)
        # Python does the same at its start.
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    if death := os.environ.pop(DEATH, "").split():
        die_at(death[0], death[1], int(death[2]))
    main()


if __name__ == "__main__":
    _run()

"""The command line with the local engine in place of Docker, and if asked with closed streams."""

import os
import sys
from pathlib import Path

import orchestrator.engine
from tests.support.local_engine import LocalEngine

FOLDER = "LOCAL_ENGINE"
"""Variable with the directory of the local engine; without it, the engine is Docker."""
CLOSED = "CLOSED_STREAMS"
"""Variable with the descriptors of closed streams."""
DEATH = "DIE_AT"
"""Variable with the call at which the process kills itself: `MODULE:NAME before|after NTH`."""


class _Engine(LocalEngine):
    def image_id(self, image: str) -> str:
        """Return an id, which judgements record with the results of checks."""
        return f"sha256:{image}"


def use_local_engine() -> None:
    """Load the local engine where this process asks for one, if the variable is set."""
    original = orchestrator.engine.load_engine
    folder = os.environ.pop(FOLDER, None)
    for module in [*sys.modules.values()] if folder else []:
        if getattr(module, "load_engine", None) is original:
            module.load_engine = lambda *_: _Engine(Path(str(folder)))  # type: ignore[attr-defined]


def _run() -> None:
    # Imported here because programs without a command line use the engine, too.
    from orchestrator.faces.cli.app import main
    from tests.support.dying_run import die_at

    use_local_engine()
    for number in map(int, os.environ.pop(CLOSED, "").split()):
        os.close(number)
        # Python does the same at its start.
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    if death := os.environ.pop(DEATH, "").split():
        die_at(death[0], death[1], int(death[2]))
    main()


if __name__ == "__main__":
    _run()

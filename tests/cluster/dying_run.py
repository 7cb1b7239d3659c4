"""The program, which kills itself at one call of one function.

Usage: `python -m tests.cluster.dying_run MODULE:NAME WHEN NTH ARGUMENTS…`, where WHEN is `before`
or `after`, and the arguments are those of `orchestrator`.
"""

import sys

from orchestrator.faces.cli.app import run
from tests.support.dying_run import die_at

if __name__ == "__main__":
    target, when, nth, *arguments = sys.argv[1:]
    die_at(target, when, int(nth))
    sys.exit(run(arguments))

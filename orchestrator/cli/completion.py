"""Print completions when a shell asks for them."""

from typing import Any

from typer.completion import completion_init  # type: ignore[attr-defined]  # not exported, no other

VARIABLE = "_ORCHESTRATOR_COMPLETE"
"""Environment variable with the words of the unfinished command line; the scripts of `orchestrator
completion` set it.
"""


def complete(group: Any) -> int:  # noqa: ANN401
    """Print the completions or the script that a shell asked for, and return the exit code.

    Args:
        group: The program's top command, which contains all others.
    """
    completion_init()
    try:
        group.main([], prog_name="orchestrator", complete_var=VARIABLE)
    except SystemExit as ending:
        return int(ending.code or 0)
    except Exception:  # noqa: BLE001 - a message would disturb the line that the user writes
        return 1
    return 0

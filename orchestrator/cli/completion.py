"""Answer a shell that completes a command line."""

from typing import Any

from typer.completion import completion_init  # type: ignore[attr-defined]  # not exported, no other

VARIABLE = "_ORCHESTRATOR_COMPLETE"
"""Variable with the command line's words, set by the scripts of `orchestrator completion`."""


def complete(group: Any) -> int:  # noqa: ANN401
    """Print the completions or the script that the environment requests; return the exit code.

    Args:
        group: The command that has all other commands.
    """
    completion_init()
    try:
        group.main([], prog_name="orchestrator", complete_var=VARIABLE)
    except SystemExit as ending:
        return int(ending.code or 0)
    except Exception:  # noqa: BLE001 - a message would disturb the line that the user writes
        return 1
    return 0

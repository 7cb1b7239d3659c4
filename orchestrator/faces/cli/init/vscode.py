"""Tasks of VS Code that run the commands, and its rule for finding errors in their output."""

from json import dumps
from pathlib import Path
from typing import Final

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.output import create_output
from orchestrator.faces.cli.output.messages import show, tell

FILE_NAME: Final = ".vscode/tasks.json"
_MATCHER: Final = {
    "owner": "orchestrator",
    "source": "orchestrator",
    "severity": "error",
    "fileLocation": ["autoDetect", "${workspaceFolder}"],
    # `error: FILE:LINE: MESSAGE`; of several mistakes in a file, each has a line with an indent.
    "pattern": {
        "regexp": r"^(?:error: |  )(\S.*?):(\d+): (.+)$",
        "file": 1,
        "line": 2,
        "message": 3,
    },
}
_COMMANDS: Final = {
    "run a task": ("parallel", "--", "${input:orchestratorTask}"),
    "watch runs": ("watch",),
    "check the configuration": ("config", "validate"),
    "check the open workflow file": ("spec", "validate", "${file}"),
    "look for conflicts": ("conflicts",),
    "clean up ended runs": ("parallel-cleanup",),
}


def write_tasks(top: Path) -> None:
    """Write the tasks into the repository, and print the file's name.

    Raises:
        ConfigError: The file exists already; then the tasks are printed. Or it cannot be written.
    """
    target = top / FILE_NAME
    tasks = {
        "version": "2.0.0",
        "tasks": [
            {
                "label": f"orchestrator: {name}",
                # No shell interprets the text of a task.
                "type": "process",
                "command": "orchestrator",
                "args": [*words],
                "problemMatcher": _MATCHER,
            }
            for name, words in _COMMANDS.items()
        ],
        "inputs": [
            {"id": "orchestratorTask", "type": "promptString", "description": "Task of the worker"}
        ],
    }
    text = dumps(tasks, indent=2) + "\n"
    try:
        create_output(target, [text.encode()])
    except FileExistsError as error:
        show(text.rstrip())
        raise ConfigError(
            f"{target} exists already",
            key="file.exists",
            hint="add the printed `tasks` and `inputs` to it",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot write {target}: {error.strerror}",
            key="file.unwritable",
            hint="check what is there, and the directory's permissions",
        ) from error
    show(str(target))
    tell("next: run a task of VS Code whose name begins with `orchestrator`")

"""Check that the tasks of a workflow can honour the settings of the run."""

from collections.abc import Sequence

from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.workflow.model import Task, Workflow


def check_modes(config: ParallelConfig, workflow: Workflow) -> None:
    """Refuse a workflow with tasks that write, if the run is read-only.

    Raises:
        ConfigError: The `mode` of a task is `rw`.
    """
    writers = [task.id for task in workflow.tasks if task.mode == "rw"]
    if config.isolation.read_only and writers:
        raise ConfigError(
            f"task `{writers[0]}`: `mode` is `rw`, but the run is read-only",
            hint="remove `mode`, or run without `read_only`",
        )


def check_results(config: ParallelConfig, tasks: Sequence[Task]) -> None:
    """Refuse shell commands that would contain results of other workers as text.

    Args:
        config: The settings of the tasks.
        tasks: Tasks with equal settings.

    Raises:
        ConfigError: A shell would execute text that other workers wrote.
    """
    for task in tasks:
        if config.agent_cli == "shell" and task.results_at:
            raise ConfigError(
                f"task `{task.id}` is a command with `{{{{results}}}}`: a shell would "
                "execute what other workers printed",
                hint="let the command read the results from the file `$ORCHESTRATOR_RESULTS`",
            )


def merges(workflow: Workflow) -> bool:
    """Return whether any task depends on several other tasks, whose results must be merged."""
    return any(len(task.depends_on) + len(task.earlier) > 1 for task in workflow.tasks)

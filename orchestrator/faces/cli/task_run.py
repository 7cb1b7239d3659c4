"""Run the tasks of a command line, in contrast to those of a workflow."""

from orchestrator.base.errors import ConfigError
from orchestrator.faces.cli.check_settings import refuse_idle_options
from orchestrator.faces.cli.new_run import configure, fetch_base, start
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.views import make_view
from orchestrator.faces.cli.run_options import RunOptions
from orchestrator.faces.cli.when_busy import turn
from orchestrator.runs.runner import ParallelRunner


def run_tasks(positional: str | None, given: GivenSettings, run: RunOptions) -> None:
    """Configure a run of `orchestrator parallel`, and start it.

    Args:
        positional: The task given as an argument.
        given: The settings given as options.
        run: The other options.

    Raises:
        ConfigError: A setting is invalid.
        typer.Exit: With the exit code of the run.
    """
    if positional is not None:
        if not positional.strip():
            raise ConfigError(
                "argument TASK must not be empty",
                key="task.empty",
                hint="write the task in quotes, or pass tasks only with `--task`",
            )
        given = {**given, "tasks": (positional, *given.get("tasks", ()))}
    config = configure(given, run).config
    refuse_idle_options(given, config)
    if run.has_next_step:
        # Imported here because no other run is judged or merged.
        from orchestrator.faces.cli.after_run import with_next_step

        run = with_next_step(config, run)
    with turn(run):
        fetch_base(run, config.base)
        view = make_view(quiet=run.quiet, events=run.events)
        start(ParallelRunner(config, emit=view), config, view, run)

"""`orchestrator spec run`."""

from orchestrator.cli.options import GivenSettings, with_settings
from orchestrator.cli.run_options import SeveralRunOptions
from orchestrator.cli.spec_arguments import NOT_OF_WORKFLOWS, WorkflowOptions


@with_settings(without=NOT_OF_WORKFLOWS)
def run(settings: GivenSettings, run_options: SeveralRunOptions, part: WorkflowOptions) -> None:
    """Run a workflow: each task starts from the results of the tasks that it depends on."""
    # Imported here so that help and completion do not wait for it.
    from orchestrator.cli.workflow_run import run_workflow

    run_workflow(settings, run_options, part)

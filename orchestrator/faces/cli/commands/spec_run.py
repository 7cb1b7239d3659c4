"""`orchestrator spec run`: run a workflow."""

from orchestrator.faces.cli.options import GivenSettings, import_later, with_settings
from orchestrator.faces.cli.run_options import SeveralRunOptions
from orchestrator.faces.cli.spec_arguments import NOT_OF_WORKFLOWS, WorkflowOptions

_run_workflow = import_later("workflow_run", "run_workflow")


@with_settings(
    without=NOT_OF_WORKFLOWS,
    texts={"model": "Model of each worker whose task names none in the workflow file."},
)
def run(settings: GivenSettings, run_options: SeveralRunOptions, part: WorkflowOptions) -> None:
    """Run a workflow: each task starts from the results of the tasks that it depends on."""
    _run_workflow(settings, run_options, part)

"""What a worker of a workflow starts with: its task's wishes, and what other tasks have made.

Whatever is worked out here comes out the same when it is done over again, by us or by whoever
resumes the run: from the results of the tasks that it goes on from, which are on disk.
"""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.errors import ConfigError
from orchestrator.git.lfs import content_since
from orchestrator.git.merge import Tip, integrate
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.attempts import has_begun
from orchestrator.worker.context import RunContext, of_worker
from orchestrator.worker.prepare import ready_more
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Earlier, Task
from orchestrator.workflow.reduce_prompt import render_prompt
from orchestrator.workspace.shared_files import Input

Results = Mapping[str, WorkerResult]
"""Of the tasks that are over, by their ids."""


def apply_dependencies(
    run: RunContext, spec: WorkerSpec, results: Results
) -> tuple[RunContext, WorkerSpec]:
    """Return run and worker as the worker is to have them.

    Args:
        run: The run, as all workers share it.
        spec: The worker.
        results: At least those of the tasks that it depends on.

    Raises:
        MergeConflict: What those made cannot be put together.
        OrchestratorError: It could not be read or written.
        OSError: There is no room for it.
    """
    run = of_worker(run, spec)
    if run.workflow is None or spec.name is None:
        return run, spec
    task = run.workflow[spec.name]
    results = {**results, **{one.task: _earlier(run, one) for one in task.earlier}}
    run = _on_own_base(run, spec, task, results)
    return run, _told(run, spec, task, results)


def _told(run: RunContext, spec: WorkerSpec, task: Task, results: Results) -> WorkerSpec:
    """Return a task that reduces others what came of them."""
    if not task.inputs:
        return spec
    inputs = [
        Input(name=name, result=results[name], base=_base_of(run, task, name, results[name]))
        for name in task.inputs
    ]
    run.shared.give_inputs(spec, inputs)
    said = [(one.name, run.redactor.model(one.result)) for one in inputs]
    if run.agent.name == "shell":
        # A command finds them in a file: in its text, a shell would run them.
        return spec
    prompt = render_prompt(spec.task, said, places=task.results_at)
    return spec.model_copy(update={"task": prompt})


def _earlier(run: RunContext, one: Earlier) -> WorkerResult:
    result = _run_of(run, one).result(one.worker_id)
    if result is None:
        raise ConfigError(
            f"what task `{one.task}` came to in run {one.run_id} is not on record any more"
        )
    return result


def _run_of(run: RunContext, one: Earlier) -> RunDirectory:
    return RunDirectory(run.directory.path.with_name(one.run_id))


def _base_of(run: RunContext, task: Task, name: str, result: WorkerResult) -> str:
    """Return what a task's changes are counted from."""
    places = {one.task: _run_of(run, one) for one in task.earlier}
    # Where a run goes on from another, both have one base.
    return places.get(name, run.directory).base_of(result.worker_id) or run.run_base


def _on_own_base(run: RunContext, spec: WorkerSpec, task: Task, results: Results) -> RunContext:
    base = run.directory.base_of(spec.worker_id)
    if base is None:
        base = _merged(run, spec, task, results)
        if base == run.base:
            return run
        run.directory.note_base(spec.worker_id, base)
    if not has_begun(run, spec):
        _move_branch(run, spec, base)
    objects = ready_more(run.repository, run.directory, base, since=run.base, by=spec.worker_id)
    content = content_since(
        run.repository, base, run.directory.path / f"index-{spec.worker_id}",
        given=run.content, run=run.directory.path,
    )  # fmt: skip
    return replace(run, base=base, objects=objects, content=content)


def _merged(run: RunContext, spec: WorkerSpec, task: Task, results: Results) -> str:
    """Merge the commits of the tasks that a task goes on from."""
    sources = _sources(run, task, results)
    tips = [Tip(name, one.commit) for name, one in sources.items() if one.commit is not None]
    scratch = run.directory.path / f"merge-{spec.worker_id}"
    return integrate(run.repository, run.base, tips, when=run.began, scratch=scratch)


def _sources(run: RunContext, task: Task, results: Results) -> Results:
    """Return the results whose commits a task starts from, in the order of its dependencies.

    A dependency that was not needed, was skipped or failed has no commit to go on from: it passes
    on what it would have started from itself. One whose dependencies cannot be merged passes on
    nothing.
    """
    tasks = run.workflow.by_id if run.workflow else {}
    elsewhere = {one.task: one for other in tasks.values() for one in other.earlier}
    found: dict[str, WorkerResult] = {}
    seen: set[str] = set()
    pending = [*reversed(_before(task))]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        result = results[name] if name in results else _earlier(run, elsewhere[name])
        if result.status is Status.SUCCESS and not result.never_ran:
            found[name] = result
        elif result.reason is not Reason.CONFLICT and name in tasks:
            pending.extend(reversed(_before(tasks[name])))
    return found


def _before(task: Task) -> tuple[str, ...]:
    return (*(one.task for one in task.earlier), *task.depends_on)


def _move_branch(run: RunContext, spec: WorkerSpec, base: str) -> None:
    with run.repository.lock():
        if run.repository.resolve(f"refs/heads/{spec.branch}") == run.base:
            run.repository.move_branch(spec.branch, new=base, old=run.base)

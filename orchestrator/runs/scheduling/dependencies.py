"""Prepare a worker from the results of the tasks that its task depends on.

All values are derived from results on disk, so that a process that resumes the run derives the
same values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.workflow.model import Earlier, Task, Workflow
from orchestrator.config.workflow.reduce_prompt import render_prompt
from orchestrator.repository.checkouts.lfs import content_since
from orchestrator.repository.commits.task_merge import Tip, integrate
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.context import RunContext, WorkerContext
from orchestrator.worker.prepare import ready_more
from orchestrator.worker.workspace.shared_files import Input

Results = Mapping[str, WorkerResult]
"""Results of finished tasks, by the id of the task."""


def apply_dependencies(worker: WorkerContext, results: Results) -> WorkerContext:
    """Return the worker with the base commit and the prompt that follow from other tasks' results.

    Raises:
        MergeConflict: The commits of the task's dependencies cannot be merged.
        OrchestratorError: The base commit could not be read or written.
        OSError: The disk is full.
    """
    workflow = worker.run.request.workflow
    if workflow is None or worker.spec.name is None:
        return worker
    task = workflow[worker.spec.name]
    earlier = {earlier.task: _earlier(worker.run, earlier) for earlier in task.earlier}
    flow = _Flow(worker.run, workflow, task, {**results, **earlier})
    worker = _on_own_base(worker, flow)
    return replace(worker, spec=_with_inputs(worker, flow))


@dataclass(frozen=True)
class _Flow:
    """A workflow's task, and the results of the tasks that it depends on."""

    run: RunContext
    workflow: Workflow
    task: Task
    results: Results

    def inputs(self) -> list[Input]:
        """Return the results of other tasks that the task's worker gets as files."""
        directories = {earlier.task: _run_of(self.run, earlier) for earlier in self.task.earlier}
        inputs = []
        for name in self.task.inputs:
            result = self.results[name]
            # A run that continues another has the same base commit.
            base = directories.get(name, self.run.directory).base_of(result.worker_id)
            inputs.append(Input(name=name, result=result, base=base or self.run.base))
        return inputs

    def tips(self) -> list[Tip]:
        """Return the commits to merge as the task's base, in the order of its dependencies."""
        found = self._sources().items()
        return [Tip(name, result.commit) for name, result in found if result.commit is not None]

    def _sources(self) -> Results:
        """Return the results from whose commits the task starts.

        If a dependency was not needed, was skipped or failed, its own dependencies take its place.
        A dependency with a merge conflict contributes nothing.
        """
        tasks = self.workflow.by_id
        elsewhere = {earlier.task: earlier for other in tasks.values() for earlier in other.earlier}
        found: dict[str, WorkerResult] = {}
        seen: set[str] = set()
        pending = [*reversed(_before(self.task))]
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            known = self.results.get(name)
            result = _earlier(self.run, elsewhere[name]) if known is None else known
            # protection: task-that-never-ran-contributes-no-commit
            if result.status is Status.SUCCESS and not result.never_ran:
                found[name] = result
            # protection: unneeded-task-passes-on-its-dependencies-work
            elif result.reason is not Reason.CONFLICT and name in tasks:
                pending.extend(reversed(_before(tasks[name])))
        return found


def _with_inputs(worker: WorkerContext, flow: _Flow) -> WorkerSpec:
    """Give a worker other tasks' results as files; return its spec with them in the prompt."""
    spec, run, inputs = worker.spec, worker.run, flow.inputs()
    if not inputs:
        return spec
    run.shared.give_inputs(spec, inputs)
    # protection: results-are-not-inserted-into-command-at-its-start
    if worker.agent.name == "shell":
        # A command reads the results from a file: in its text, a shell would execute them.
        return spec
    said = [(given.name, run.redactor.model(given.result)) for given in inputs]
    rendered = render_prompt(spec.task, said, places=flow.task.results_at)
    return spec.model_copy(update={"rendered": rendered})


def _earlier(run: RunContext, earlier: Earlier) -> WorkerResult:
    """Return the result of a task that an earlier run completed."""
    result = _run_of(run, earlier).result(earlier.worker_id)
    if result is None:
        raise ConfigError(
            f"the result of task `{earlier.task}` in run {earlier.run_id} is no longer recorded",
            key="result.missing",
        )
    return result


def _run_of(run: RunContext, earlier: Earlier) -> RunDirectory:
    return RunDirectory(run.directory.path.with_name(earlier.run_id))


def _on_own_base(worker: WorkerContext, flow: _Flow) -> WorkerContext:
    """Return a worker that starts from the merged commits of its task's dependencies."""
    run, number = worker.run, worker.number
    base = run.directory.base_of(number)
    if base is None:
        scratch = run.directory.path / f"merge-{number}"
        base = integrate(run.repository, run.base, flow.tips(), when=run.began, scratch=scratch)
        if base == run.base:
            return worker
        run.directory.note_base(number, base)
    if not worker.has_begun():
        _move_branch(worker, base)
    objects = ready_more(run.repository, run.directory, base, since=run.base, by=number)
    content = content_since(
        run.repository, base, run.directory.path / f"index-{number}",
        given=run.content, run=run.directory.path,
    )  # fmt: skip
    return replace(worker, base=base, objects=objects, content=content)


def _before(task: Task) -> tuple[str, ...]:
    return (*(earlier.task for earlier in task.earlier), *task.depends_on)


def _move_branch(worker: WorkerContext, base: str) -> None:
    """Move the branch of a worker that has not started to the commit it will start from."""
    repository, at = worker.run.repository, worker.run.base
    with repository.lock():
        if repository.resolve(worker.spec.ref) == at:
            repository.move_branch(worker.spec.branch, new=base, old=at)

"""The branches of a run's workers, with the commits where they start and end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Status
from orchestrator.base.text.split_lines import split_lines
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.repository.repository import Repository
from orchestrator.state.judgements import ExcludedCommit, find_excluded_commits
from orchestrator.state.record.history import RunHistory, choose_run
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_outline import holders_of, read_outline


@dataclass(frozen=True)
class Branch:
    """The branch of one worker."""

    worker_id: int
    task: str
    base: str
    """The commit that the worker started from."""
    commit: str
    """The commit that the branch points at; if the branch is gone, the commit in the worker's
    result.
    """
    status: Status | None
    """Status of the worker; None while the worker has no result."""
    title: str | None = None
    """Id of the worker's task in a workflow."""
    summary: str | None = None
    """The end of the worker's last message."""
    branch: str = ""
    """Name of the branch, without `refs/heads/`."""
    is_named: bool = False
    """Whether the user chose the name of the branch."""
    state: str = ""
    """Name of the worker's state, such as `queued` or `cancelled`."""
    sentence: str = ""
    """What a message says of the worker, after its number."""

    @property
    def is_empty(self) -> bool:
        """Return whether the worker committed nothing."""
        return self.commit == self.base


@dataclass(frozen=True)
class RunBranches:
    """A run and the branches of its workers."""

    run_id: str
    began: datetime
    """Time at which the run started."""
    is_live: bool
    branches: tuple[Branch, ...]
    """The branches of the chosen workers, except those whose commits are gone."""
    excluded: Mapping[str, ExcludedCommit] = field(default_factory=dict)
    """The commits that judgements exclude, of this run and of all others."""

    @property
    def way_to_results(self) -> str:
        """A hint on how workers without a result get one."""
        if self.is_live:
            return f"wait for the run's end: `orchestrator wait {self.run_id}`"
        return f"resume the run: `orchestrator resume {self.run_id}`"


def read_branches(
    repository: Repository, wanted: str | None, numbers: Sequence[int] = ()
) -> RunBranches:
    """Return the branches of a run's workers.

    Args:
        repository: The repository.
        wanted: The run's id, or the beginning of it. Default: the newest run that has the workers.
        numbers: Numbers of the workers, in this order. Default: all.

    Raises:
        ConfigError: There is no such run or worker, or the commits of a named worker are gone.
    """
    first = numbers[0] if numbers else None
    runs = list(all_runs(repository.state_dir))
    with choose_run(runs, wanted, worker=first) as history:
        specs = {spec.worker_id: spec for spec in history.record.workers}
        unknown = [number for number in numbers if number not in specs]
        if unknown:
            raise ConfigError(
                f"run {history.run_id} has no worker {unknown[0]}",
                key="worker.unknown",
                hint=f"workers of the run: {', '.join(map(str, specs))}",
            )
        chosen = [specs[number] for number in dict.fromkeys(numbers)] or [*specs.values()]
        live = history.directory.is_live()
        found = {branch.worker_id: branch for branch in _branches(repository, history, chosen)}
        gone = [number for number in numbers if number not in found]
        if gone:
            said = history.sentence(gone[0])
            raise ConfigError(
                f"worker {gone[0]} of run {history.run_id} {said}; it has no commits, or they are "
                "gone",
                key="worker.no-commits",
                hint=f"`orchestrator restore {gone[0]}` restores a branch that a cleanup removed",
            )
        return RunBranches(
            history.run_id,
            history.record.created_at,
            live,
            tuple(found.values()),
            find_excluded_commits(run.path for run in all_runs(repository.state_dir)),
        )


def _branches(
    repository: Repository, history: RunHistory, specs: Iterable[WorkerSpec]
) -> Iterable[Branch]:
    # The run's branches by worker number, without numbers that later runs use.
    refs = frozenset(
        split_lines(repository.git.text("for-each-ref", "--format=%(refname)", "refs/heads"))
    )
    records = ((run, read_outline(run)) for run in all_runs(repository.state_dir))
    entries = [(run, record, spec) for run, record in records if record for spec in record.workers]
    # protection: merged-branch-belongs-to-run
    mine = {
        number: ref
        for number, (run, _, spec) in holders_of(entries, refs).items()
        if run.run_id == history.run_id and (ref := spec.ref) in refs
    }
    view = history.snapshot()
    for spec in specs:
        number = spec.worker_id
        worker = view.by_number[number]
        result = worker.result
        recorded = result.commit if result else None
        tip = repository.commit_of(mine[number]) if number in mine else recorded
        base = history.directory.base_of(number) or history.record.base
        if tip is not None and repository.commit_of(tip) == tip:
            status = result.status if result else None
            summary = result.summary if result else None
            names = (spec.branch, spec.branch_name is not None)
            yield Branch(
                *(number, spec.task, base, tip, status, spec.name, summary),
                *names,
                state=worker.word,
                sentence=worker.sentence,
            )

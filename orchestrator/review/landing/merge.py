"""Merge the branches of a run into a branch of the user: all merges first, then one move.

First every commit is made and checked in a quarantine (a separate repository). Then the objects are
imported, and one `update-ref` moves the branch, if it has not moved meanwhile. Last, if the branch
is checked out anywhere, its files are updated. A process that dies in between leaves a record, from
which the next process completes the change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import fsencode

from orchestrator.base.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.base.results import Status
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.commits.changes import differing_paths
from orchestrator.repository.commits.merge_tree import merge_base, quarantine, require_git
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.failures import disk_full
from orchestrator.repository.incoming.sealed_commits import import_commits
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import files_without_filter, some_paths
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.chain import CannotAddError, Chain
from orchestrator.review.landing.checkout import scratch
from orchestrator.review.landing.conflict import Conflict, kind_of, names
from orchestrator.review.landing.conflict_matrix import MOST_FILES, path_text
from orchestrator.review.landing.exclusion import exclusion
from orchestrator.review.landing.land import check, complete, land, only_one, record_of
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.merged import LeftWorker, Merged, ResolvedConflict
from orchestrator.review.landing.order import order_branches
from orchestrator.review.landing.queue import Answer, CommitTest, Queue
from orchestrator.review.landing.request_text import acting_commits
from orchestrator.review.landing.resolution import Resolver, UnresolvedError
from orchestrator.review.landing.target import Target, check_previewed, find_target
from orchestrator.review.landing.verdicts import StoredVerdicts


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A request to merge the branches of a run, and what the caller decides and provides."""

    request: MergeRequest = field(default_factory=MergeRequest)
    named: bool = False
    """Whether the user named the workers; otherwise only workers that succeeded are merged."""
    overrules_judgement: bool = False
    """Whether chosen workers that a judgement excludes are merged too, as the user insists on it.
    """
    previewed: Merged | None = None
    """A dry run that the merge must repeat exactly; otherwise nothing is changed."""
    test: CommitTest | None = None
    """Function that runs checks on a commit before it is accepted. Default: no check runs."""
    tested_by: str = ""
    """Text that identifies the checks, so that stored results of other checks are not used."""
    doubt: Callable[[Branch], str | None] | None = None
    """Returns why a person has to look at a branch; branches that the user named are not asked
    about.
    """
    resolver: Resolver | None = None
    """Resolves conflicts, if `on_conflict` is `agent`."""


def merge_branches(repository: Repository, run: RunBranches, wish: Wish) -> Merged:
    """Merge the branches of a run into a branch of the user.

    Args:
        repository: The user's repository.
        run: The run and the chosen branches, in the given order.
        wish: How the branches are merged.

    Raises:
        ConfigError: A worker has no result yet, or there is no such branch.
        NotFitError: The target cannot be changed now; nothing was changed.
        RepositoryError: Git failed, or the disk is full.
    """
    require_git("to merge without a checkout", "merge the branches by hand")
    for branch in run.branches:
        if branch.status is None:
            raise ConfigError(
                f"worker {branch.worker_id} of run {run.run_id} {branch.sentence}: not merged",
                key="worker.unfit",
                hint=run.way_to_results,
            )
    try:
        with only_one(repository):
            return _merge(repository, run, wish)
    except OSError as error:
        raise RepositoryError(
            f"the branches could not be merged: {error.strerror or error}",
            key="merge.failed",
            hint=f"the merge needs space below {repository.common_dir}",
        ) from error


def _merge(repository: Repository, run: RunBranches, wish: Wish) -> Merged:
    if not wish.request.dry_run:
        complete(repository)
    target = find_target(repository, wish.request.into)
    check(repository, target, wish.request.form)
    place = scratch(repository)
    with quarantine(repository, place) as git:
        plan = _Plan(repository, git, run, wish, target)
        merged = plan.merge_tested(wish.test) if wish.test else plan.merge()
        check_previewed(merged, wish.previewed)
        if merged.landed and merged.form in ("merge", "rebase"):
            identity = repository.identity()
            kept = acting_commits(git, merged.after, without=merged.before, identity=identity)
            merged = merged.model_copy(update={"kept": kept})
        if not merged.landed or wish.request.dry_run:
            return merged
        plan.hand_in(merged.after)
    land(repository, target, record_of(merged, run))
    return merged


def _reason_to_leave(
    repository: Repository, run: RunBranches, wish: Wish, branch: Branch, onto: str
) -> LeftWorker | None:
    """Return why a branch is not to be merged; None if it is.

    Every way to a merge comes through here.
    """
    number = branch.worker_id
    # protection: failed-workers-are-merged-only-by-number
    if branch.status is not Status.SUCCESS and not wish.named:
        state = branch.state or branch.status
        way = "it committed nothing" if branch.is_empty else "name its number to merge it"
        said = f"the worker did not succeed ({state}); {way}"
        return LeftWorker(worker_id=number, reason="failed", message=said)
    insisted = [chosen.worker_id for chosen in run.branches] if wish.overrules_judgement else []
    found = exclusion(repository, run, branch, onto, insisted=insisted)
    # protection: excluded-workers-are-merged-only-on-request
    if found is not None:
        said = f"{found.said}; {found.way}"
        return LeftWorker(worker_id=number, reason="excluded", message=said)
    doubt = None if wish.named or wish.doubt is None else wish.doubt(branch)
    # protection: branch-that-touches-test-runner-is-merged-only-by-its-number
    if doubt is not None:
        said = (
            f"new code touches the test runner: {doubt}; review it, and name its number to merge it"
        )
        return LeftWorker(worker_id=number, reason="needs_review", message=said)
    if wish.request.unfiltered:
        return None
    files = files_without_filter(repository, base=branch.base, tip=branch.commit)
    if not files:
        return None
    said = f"required filters of git did not run for {some_paths(files)}: `--unfiltered` merges it"
    return LeftWorker(worker_id=number, reason="unfiltered", message=said, files=files[:MOST_FILES])


class _Plan:
    """Decides which branches are merged, after a trial of all of them in a separate repository."""

    def __init__(
        self, repository: Repository, git: Git, run: RunBranches, wish: Wish, target: Target
    ) -> None:
        self._repository = repository
        self._git = git
        self._run = run
        self._wish, self._request = wish, wish.request
        self._target = target
        self._chain = Chain(
            repository=repository,
            git=git,
            run_id=run.run_id,
            form=self._request.form,
            began=run.began,
        )
        self._left: list[LeftWorker] = []
        self._contained: list[Branch] = []
        self._landed: list[Branch] = []
        self._resolved: dict[int, ResolvedConflict] = {}
        self._contents: dict[str, tuple[Branch, ...]] = {}
        """The branches that were merged into the target, by the resulting commit."""
        self._given_conflicts: int | None = None
        self._changed: dict[Branch, frozenset[str]] = {}

    def merge(self) -> Merged:
        """Merge all branches in the quarantine, and return the result."""
        after = self._target.commit
        pending = [(branch, False) for branch in self._choose()]
        for branch, is_conflicting in pending:
            try:
                commit = (self._resolve if is_conflicting else self._add)(after, branch)
            except CannotAddError as error:
                if self._wish.resolver and error.problem == "conflict" and not is_conflicting:
                    # An agent resolves the conflict on top of all other merged branches.
                    pending.append((branch, True))
                    continue
                self._leave(branch, error)
                if self._request.stops_on_conflict:
                    known = {branch.worker_id for branch in self._contained}
                    known |= {left.worker_id for left in self._left}
                    said = f"nothing was merged because of worker {self._left[-1].worker_id}"
                    self._left += [
                        LeftWorker(worker_id=branch.worker_id, reason="stopped", message=said)
                        for branch in self._run.branches
                        if branch.worker_id not in known
                    ]
                    self._landed = []
                    return self._result(self._target.commit)
                continue
            (self._contained if commit == after else self._landed).append(branch)
            after = commit
        return self._result(after)

    def merge_tested(self, test: CommitTest) -> Merged:
        """Merge the branches and test them together; leave out branches that fail the checks."""

        def run_test(commit: str) -> Answer:
            if commit != self._target.commit:
                self.hand_in(commit)
            return test(commit)

        path = self._repository.state_dir / "verdicts.json"
        verdicts = StoredVerdicts(path, self._git, self._wish.tested_by)
        resolve = self._resolve if self._wish.resolver else None
        # protection: agent-queue-resolves-conflicts-last
        queue = Queue(self._add, run_test, verdicts, resolve)
        outcome = queue.run(self._target.commit, self._choose())
        self._landed = outcome.landed
        self._contained += outcome.contained
        for branch, error in outcome.conflicts:
            self._leave(branch, error)
        for branch, proof in outcome.culprits:
            left = LeftWorker(
                worker_id=branch.worker_id,
                reason="checks_failed",
                message=f"the checks pass on {proof.passes[:12]} and fail once the worker's work "
                "is added",
                passes=proof.passes,
                fails=proof.fails,
            )
            self._left.append(left)
        unknown = "the checks gave no answer, or different answers; no worker is to blame"
        self._left += [
            LeftWorker(worker_id=branch.worker_id, reason="no_verdict", message=unknown)
            for branch in outcome.undecided
        ]
        return self._result(outcome.commit)

    def _choose(self) -> Sequence[Branch]:
        """Return the branches to merge, in order; record why the others are left."""
        onto, wanted = self._target.commit, []
        for branch in self._run.branches:
            if branch.is_empty and (branch.status is Status.SUCCESS or self._wish.named):
                self._contained.append(branch)
                continue
            left = _reason_to_leave(self._repository, self._run, self._wish, branch, onto)
            if left is None:
                wanted.append(branch)
            else:
                self._left.append(left)
        if self._request.order == "given" or len(wanted) < 2:
            return wanted
        chain = self._chain.with_form("merge")

        def add(onto: str, branch: Branch) -> str | None:
            try:
                return chain.add(onto, branch)
            except CannotAddError:
                return None

        order, self._given_conflicts = order_branches(
            self._git, onto, wanted, add, lambda branch: len(self._paths(branch))
        )
        return order

    def _add(self, onto: str, branch: Branch) -> str:
        return self._note(self._chain.add(onto, branch), onto, branch)

    def _note(self, commit: str, onto: str, branch: Branch) -> str:
        if commit != onto:
            self._contents[commit] = (*self._contents.get(onto, ()), branch)
        return commit

    def _resolve(self, onto: str, branch: Branch) -> str:
        """Add a branch to a commit; an agent resolves a conflict of the two.

        Raises:
            CannotAddError: No agent resolved the conflict, or a rule is broken.
        """
        resolver = self._wish.resolver
        assert resolver is not None  # noqa: S101
        try:
            return self._add(onto, branch)
        except CannotAddError as error:
            if error.problem != "conflict":
                raise
        commit, merged = self._chain.add_marked(onto, branch)
        files = {*map(path_text, merged.paths)}
        conflict = Conflict(
            commit=commit,
            ours=onto,
            theirs=branch,
            others=tuple(
                other for other in self._contents.get(onto, ()) if files & self._paths(other)
            ),
            base=merge_base(self._git, onto, branch.commit),
            paths=names(merged.paths),
            kind=kind_of(merged.kinds),
        )
        self.hand_in(conflict.commit)
        proposal = resolver.resolve(self._git, conflict)
        note = f"Orchestrator-Resolved-In: {proposal.run_id}"
        resolved = self._chain.add_tree(onto, branch, f"{proposal.commit}", note)
        self._resolved[branch.worker_id] = ResolvedConflict(
            worker_id=branch.worker_id,
            run_id=proposal.run_id,
            files=tuple(map(path_text, map(fsencode, conflict.paths[:MOST_FILES]))),
        )
        return self._note(resolved, onto, branch)

    def hand_in(self, commit: str) -> None:
        """Import a commit from the quarantine into the repository; no ref points at it yet."""
        known = [self._target.commit, *(branch.commit for branch in self._run.branches)]
        place = scratch(self._repository) / "git"
        try:
            import_commits(self._repository, self._git, place, commit, known)
        except GitCommandError as error:
            raise disk_full(error.stderr) or error from error

    def _paths(self, branch: Branch) -> frozenset[str]:
        if branch not in self._changed:
            paths = differing_paths(self._repository, base=branch.base, tip=branch.commit)
            self._changed[branch] = frozenset(paths)
        return self._changed[branch]

    def _leave(self, branch: Branch, error: CannotAddError) -> None:
        files = [path_text(path) for path in error.files[:MOST_FILES]]
        wanted = frozenset(files)
        others = tuple(other.worker_id for other in self._landed if wanted & self._paths(other))
        message = one_line(error.message, limit=500)
        if error.problem == "conflict":
            with_whom = ", ".join(f"worker {number}" for number in others)
            message = f"conflicts with {with_whom or self._target.branch}"
        left = LeftWorker(
            worker_id=branch.worker_id,
            reason=error.problem,
            message=message,
            files=tuple(files),
            others=others,
            refused=error.refused if isinstance(error, UnresolvedError) else (),
        )
        self._left.append(left)

    def _result(self, after: str) -> Merged:
        landed = tuple(branch.worker_id for branch in self._landed)
        return Merged(
            run_id=self._run.run_id,
            form=self._request.form,
            target=self._target.branch,
            before=self._target.commit,
            after=after,
            dry_run=self._request.dry_run,
            landed=landed,
            contained=tuple(branch.worker_id for branch in self._contained),
            left=tuple(self._left),
            resolved=tuple(self._resolved[number] for number in landed if number in self._resolved),
            given_conflicts=self._given_conflicts,
        )

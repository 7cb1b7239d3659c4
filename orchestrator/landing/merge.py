"""Merge the branches of a run into a branch of the user: all merges first, then one move.

First every commit is made and checked in a quarantine (a separate repository). Then the objects are
imported, and one `update-ref` moves the branch, if it has not moved meanwhile. Last, if the branch
is checked out anywhere, its files are updated. A process that dies in between leaves a record, from
which the next process completes the change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from os import fsencode
from typing import Literal

from orchestrator.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.git.changes import changed_paths
from orchestrator.git.command import Git
from orchestrator.git.disk_full import disk_full
from orchestrator.git.merge_tree import merge_base, merge_pairs, quarantine, require_git
from orchestrator.git.repository import Repository
from orchestrator.git.required_filters import named, unfiltered_files
from orchestrator.git.sealed_commits import import_commits
from orchestrator.landing.branches import Branch, RunBranches
from orchestrator.landing.chain import CannotAddError, Chain
from orchestrator.landing.checkout import scratch
from orchestrator.landing.conflict import Conflict, names
from orchestrator.landing.conflict_kinds import kind_of
from orchestrator.landing.conflict_matrix import MOST_FILES, shown_path
from orchestrator.landing.exclusion import exclusion
from orchestrator.landing.land import check, complete, land, only_one, record_of
from orchestrator.landing.merged import LeftWorker, Merged, ResolvedConflict, SentCommit
from orchestrator.landing.order import best_order
from orchestrator.landing.queue import Add, Answer, CommitTest, Proof, Queue
from orchestrator.landing.request_text import acting_commits
from orchestrator.landing.resolution import Resolver, UnresolvedError
from orchestrator.landing.target import Target, check_previewed, find_target
from orchestrator.landing.verdicts import StoredVerdicts
from orchestrator.results import Form, Status
from orchestrator.text.sanitize import one_line

_PAIRS_TIMEOUT = 60.0
Order = Literal["given", "best"]
OnConflict = Literal["stop", "skip", "agent"]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How the user wants the branches of a run to be merged."""

    form: Form = "merge"
    order: Order = "given"
    on_conflict: OnConflict = "stop"
    into: str | None = None
    """The branch to merge into. Default: the branch that is checked out."""
    named: bool = False
    """Whether the user named the workers; otherwise only workers that succeeded are merged."""
    overrules_judgement: bool = False
    """Whether chosen workers that a judgement excludes are merged too, as the user insists on it.
    """
    unfiltered: bool = False
    """Whether work is merged whose files a required filter of git would have changed."""
    dry_run: bool = False
    previewed: Merged | None = None
    """A dry run that the merge must repeat exactly; otherwise nothing is changed."""
    test: CommitTest | None = None
    """Function that runs checks on a commit before it is accepted. Default: no check runs."""
    tested_by: str = ""
    """Text that identifies the checks, so that stored results of other checks are not used."""
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
    _check_ended(run)
    try:
        with only_one(repository):
            return _merge(repository, run, wish)
    except OSError as error:
        raise RepositoryError(
            f"the branches could not be merged: {error.strerror or error}",
            hint=f"the merge needs space below {repository.common_dir}",
        ) from error


def _merge(repository: Repository, run: RunBranches, wish: Wish) -> Merged:
    if not wish.dry_run:
        complete(repository)
    target = find_target(repository, wish.into)
    check(repository, target, wish.form)
    place = scratch(repository)
    with quarantine(repository, place) as git:
        plan = _Plan(repository, git, run, wish, target)
        merged = plan.queued() if wish.test else plan.result()
        check_previewed(merged, wish.previewed)
        if merged.landed and merged.form in ("merge", "rebase"):
            merged = merged.model_copy(update={"kept": _kept(repository, git, merged)})
        if not merged.landed or wish.dry_run:
            return merged
        plan.hand_in(merged.after)
    land(repository, target, record_of(merged, run))
    return merged


def _kept(repository: Repository, git: Git, merged: Merged) -> tuple[SentCommit, ...]:
    identity = repository.identity()
    return acting_commits(git, merged.after, without=merged.before, identity=identity)


def _check_ended(run: RunBranches) -> None:
    for branch in run.branches:
        if branch.status is None:
            raise ConfigError(
                f"worker {branch.worker_id} of run {run.run_id} {branch.sentence}: not merged",
                hint=run.way_to_results,
            )


def _blamed(branch: Branch, proof: Proof) -> LeftWorker:
    return LeftWorker(
        worker_id=branch.worker_id,
        reason="checks_failed",
        message=f"the checks pass on {proof.passes[:12]} and fail once the worker's work is added",
        passes=proof.passes,
        fails=proof.fails,
    )


def _unknown(branch: Branch) -> LeftWorker:
    message = "the checks gave no answer, or different answers; no worker is to blame"
    return LeftWorker(worker_id=branch.worker_id, reason="no_verdict", message=message)


class _Plan:
    """Decides which branches are merged, after a trial of all of them in a separate repository."""

    def __init__(
        self, repository: Repository, git: Git, run: RunBranches, wish: Wish, target: Target
    ) -> None:
        self._repository = repository
        self._git = git
        self._run = run
        self._wish = wish
        self._target = target
        self._chain = Chain(
            repository=repository, git=git, run_id=run.run_id, form=wish.form, began=run.began
        )
        self._insisted = [one.worker_id for one in run.branches] if wish.overrules_judgement else []
        self._left: list[LeftWorker] = []
        self._contained: list[int] = []
        self._landed: list[Branch] = []
        self._resolved: dict[int, ResolvedConflict] = {}
        self._contents: dict[str, tuple[Branch, ...]] = {}
        """The branches that were merged into the target, by the resulting commit."""
        self._given_conflicts: int | None = None
        self._changed: dict[Branch, frozenset[str]] = {}

    def result(self) -> Merged:
        """Merge all branches in the quarantine, and return the result."""
        after = self._target.commit
        conflicting: list[Branch] = []
        for branch in self._ordered():
            try:
                after = self._take(after, branch, self._add)
            except CannotAddError as error:
                if self._wish.resolver and error.problem == "conflict":
                    conflicting.append(branch)
                    continue
                self._left.append(self._told(branch, error))
                if self._wish.on_conflict == "stop":
                    return self._stopped()
        for branch in conflicting:
            try:
                after = self._take(after, branch, self._resolve)
            except CannotAddError as error:
                self._left.append(self._told(branch, error))
        return self._merged(after)

    def _take(self, onto: str, branch: Branch, add: Add) -> str:
        commit = add(onto, branch)
        if commit == onto:
            self._contained.append(branch.worker_id)
        else:
            self._landed.append(branch)
        return commit

    def _add(self, onto: str, branch: Branch) -> str:
        commit = self._chain.add(onto, branch)
        return self._noted(commit, onto, branch)

    def _noted(self, commit: str, onto: str, branch: Branch) -> str:
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
        conflict = self._conflict(onto, branch)
        self.hand_in(conflict.commit)
        proposal = resolver.resolve(self._git, conflict)
        note = f"Orchestrator-Resolved-In: {proposal.run_id}"
        resolved = self._chain.add_tree(onto, branch, f"{proposal.commit}", note)
        self._resolved[branch.worker_id] = ResolvedConflict(
            worker_id=branch.worker_id,
            run_id=proposal.run_id,
            files=tuple(map(shown_path, map(fsencode, conflict.paths[:MOST_FILES]))),
        )
        return self._noted(resolved, onto, branch)

    def _conflict(self, onto: str, branch: Branch) -> Conflict:
        commit, merged = self._chain.add_marked(onto, branch)
        files = {*map(shown_path, merged.paths)}
        return Conflict(
            commit=commit,
            ours=onto,
            theirs=branch,
            others=tuple(one for one in self._contents.get(onto, ()) if files & self._paths(one)),
            base=merge_base(self._git, onto, branch.commit),
            paths=names(merged.paths),
            kind=kind_of(merged.kinds),
        )

    def hand_in(self, commit: str) -> None:
        """Import a commit from the quarantine into the repository; no ref points at it yet."""
        known = [self._target.commit, *(one.commit for one in self._run.branches)]
        place = scratch(self._repository) / "git"
        try:
            import_commits(self._repository, self._git, place, commit, known)
        except GitCommandError as error:
            raise disk_full(error.stderr) or error from error

    def queued(self) -> Merged:
        """Merge the branches and test them together; leave out branches that fail the checks."""
        test, identity = self._wish.test, self._wish.tested_by
        assert test is not None  # noqa: S101

        def tested(commit: str) -> Answer:
            if commit != self._target.commit:
                self.hand_in(commit)
            return test(commit)

        path = self._repository.state_dir / "verdicts.json"
        verdicts = StoredVerdicts(path, self._git, identity)
        resolve = self._resolve if self._wish.resolver else None
        queue = Queue(self._add, tested, verdicts, resolve)
        outcome = queue.run(self._target.commit, self._ordered())
        self._landed = outcome.landed
        self._contained += [one.worker_id for one in outcome.contained]
        self._left += [self._told(branch, error) for branch, error in outcome.conflicts]
        self._left += [_blamed(branch, proof) for branch, proof in outcome.culprits]
        self._left += [_unknown(branch) for branch in outcome.undecided]
        return self._merged(outcome.commit)

    def _ordered(self) -> Sequence[Branch]:
        wanted = []
        for branch in self._run.branches:
            if branch.is_empty:
                self._contained.append(branch.worker_id)
            elif (left := self._unasked(branch)) is not None:
                self._left.append(left)
            else:
                wanted.append(branch)
        if self._wish.order == "given" or len(wanted) < 2:
            return wanted
        self._given_conflicts = self._conflicts_in(wanted)
        if not self._given_conflicts:
            return wanted
        return best_order(self._target.commit, wanted, self._try, self._weights(wanted).__getitem__)

    def _unasked(self, branch: Branch) -> LeftWorker | None:
        """Return why a branch is not to be merged; None if it is.

        Every way to a merge comes through here.
        """
        number = branch.worker_id
        if branch.status is not Status.SUCCESS and not self._wish.named:
            state = branch.state or branch.status
            said = f"the worker did not succeed ({state}); name its number to merge it"
            return LeftWorker(worker_id=number, reason="failed", message=said)
        found = exclusion(
            self._repository, self._run, branch, self._target.commit, insisted=self._insisted
        )
        if found is not None:
            said = f"{found.said}; {found.way}"
            return LeftWorker(worker_id=number, reason="excluded", message=said)
        return None if self._wish.unfiltered else self._unfiltered(branch)

    def _unfiltered(self, branch: Branch) -> LeftWorker | None:
        files = unfiltered_files(self._repository, base=branch.base, tip=branch.commit)
        if not files:
            return None
        said = f"required filters of git did not run for {named(files)}: `--unfiltered` merges it"
        return LeftWorker(
            worker_id=branch.worker_id, reason="unfiltered", message=said, files=files[:MOST_FILES]
        )

    def _conflicts_in(self, branches: Sequence[Branch]) -> int:
        onto, conflicts = self._target.commit, 0
        for branch in branches:
            added = self._try(onto, branch)
            onto, conflicts = added or onto, conflicts + (added is None)
        return conflicts

    def _try(self, onto: str, branch: Branch) -> str | None:
        try:
            return self._chain.with_form("merge").add(onto, branch)
        except CannotAddError:
            return None

    def _weights(self, branches: Sequence[Branch]) -> dict[Branch, tuple[int, ...]]:
        """Return each branch's sort key: its numbers of conflicts and changed files, its place."""
        pairs = [*combinations(branches, 2)]
        commits = [(one.commit, other.commit) for one, other in pairs]
        merges = merge_pairs(self._git, commits, timeout=_PAIRS_TIMEOUT)
        bad = [pair for pair, one in zip(pairs, merges, strict=True) if one is None or one.paths]
        return {
            branch: (sum(branch in pair for pair in bad), len(self._paths(branch)), place)
            for place, branch in enumerate(branches)
        }

    def _paths(self, branch: Branch) -> frozenset[str]:
        if branch not in self._changed:
            paths = changed_paths(self._repository, base=branch.base, tip=branch.commit)
            self._changed[branch] = frozenset(paths)
        return self._changed[branch]

    def _told(self, branch: Branch, error: CannotAddError) -> LeftWorker:
        files = [shown_path(path) for path in error.files[:MOST_FILES]]
        wanted = frozenset(files)
        others = tuple(one.worker_id for one in self._landed if wanted & self._paths(one))
        message = one_line(error.message, limit=500)
        if error.problem == "conflict":
            with_whom = ", ".join(f"worker {number}" for number in others)
            message = f"conflicts with {with_whom or self._target.branch}"
        return LeftWorker(
            worker_id=branch.worker_id,
            reason=error.problem,
            message=message,
            files=tuple(files),
            others=others,
            refused=error.refused if isinstance(error, UnresolvedError) else (),
        )

    def _stopped(self) -> Merged:
        """Return the result of a merge that one branch prevents: no branch is merged."""
        cause = self._left[-1]
        told = {*self._contained, *(one.worker_id for one in self._left)}
        said = f"nothing was merged because of worker {cause.worker_id}"
        self._left += [
            LeftWorker(worker_id=branch.worker_id, reason="stopped", message=said)
            for branch in self._run.branches
            if branch.worker_id not in told
        ]
        self._landed = []
        return self._merged(self._target.commit)

    def _merged(self, after: str) -> Merged:
        return Merged(
            run_id=self._run.run_id,
            form=self._wish.form,
            target=self._target.branch,
            before=self._target.commit,
            after=after,
            dry_run=self._wish.dry_run,
            landed=tuple(branch.worker_id for branch in self._landed),
            contained=tuple(self._contained),
            left=tuple(self._left),
            resolved=tuple(
                self._resolved[one.worker_id]
                for one in self._landed
                if one.worker_id in self._resolved
            ),
            given_conflicts=self._given_conflicts,
        )

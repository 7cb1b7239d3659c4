"""The tools that preview and perform merges: what was previewed is what is merged."""

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.mcp import answers, arguments
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.pick import candidate_of, merge_candidate
from orchestrator.review.judging.store import latest_judgement
from orchestrator.review.landing.branches import RunBranches, read_branches
from orchestrator.review.landing.conflict_matrix import find_conflicts
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.merged import Merged
from orchestrator.review.landing.target import find_target

_MOST_PREVIEWS = 100
_PAIRS = 100
_FILES = 20
_AGAIN = "call the tool `orchestrator_conflicts` again, and read its answer"


@dataclass(frozen=True)
class _Preview:
    """A merge that was tried: its commits, its target and its result."""

    run: RunBranches
    wish: Wish


@dataclass
class Previews:
    """The previews of this server, each of which can be merged once. Thread-safe."""

    repository: Repository
    may_merge: bool
    _kept: OrderedDict[str, _Preview] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def conflicts(self, asked: arguments.Preview) -> answers.ConflictsAnswer:
        """Try to merge every pair of workers, and all workers into the user's branch."""
        run = read_branches(self.repository, asked.run, asked.workers)
        changed = [branch for branch in run.branches if not branch.is_empty]
        target = find_target(self.repository, None)
        found = find_conflicts(self.repository, changed, run_id=run.run_id, base=target.commit)
        preview: answers.PreviewAnswer | None = None
        refused: str | None = None
        try:
            preview = self._preview(run, asked, target.branch)
        except OrchestratorError as error:
            refused = one_line(str(error), limit=500)
        shown = sorted(
            (pair for pair in found.pairs if pair.files or not pair.is_clean),
            key=lambda pair: pair.is_clean,
        )
        return answers.ConflictsAnswer(
            run_id=run.run_id,
            pairs=tuple(
                answers.PairEntry(
                    a=pair.a,
                    b=pair.b,
                    kind=pair.kind,
                    untrusted=answers.PairFiles(
                        files=tuple(one_line(path, limit=300) for path in pair.files[:_FILES])
                    ),
                )
                for pair in shown[:_PAIRS]
            ),
            conflicts=len(found.conflicting),
            preview=preview,
            no_preview=refused,
        )

    def _preview(
        self, run: RunBranches, asked: arguments.Preview, branch: str
    ) -> answers.PreviewAnswer:
        # A client does not overrule judgements, and what a filter would change is left out.
        # protection: previewed-target-is-merged-into
        request = MergeRequest(form=asked.form, on_conflict="skip", into=branch, dry_run=True)
        wish = Wish(request=request, named=bool(asked.workers))
        tried = merge_branches(self.repository, run, wish)
        token = None
        # protection: only-who-may-merge-gets-token
        if tried.landed and self.may_merge:
            wish = replace(wish, request=replace(request, dry_run=False), previewed=tried)
            token = secrets.token_hex(16)
            with self._lock:
                self._kept[token] = _Preview(run, wish)
                while len(self._kept) > _MOST_PREVIEWS:
                    self._kept.popitem(last=False)
        return answers.PreviewAnswer(
            token=token,
            form=asked.form,
            target=tried.target,
            target_commit=tried.before,
            lands=tried.landed,
            left=_left(tried),
        )

    def merge(self, asked: arguments.Merge) -> answers.MergedAnswer:
        """Merge what was previewed, if neither the workers nor the target changed meanwhile."""
        with self._lock:
            # protection: token-works-once
            preview = self._kept.pop(asked.token, None)
        if preview is None:
            raise ConfigError(
                "there is no such preview: it was merged, or it is from another server",
                key="preview.unknown",
                hint=_AGAIN,
            )
        numbers = [branch.worker_id for branch in preview.run.branches]
        present = read_branches(self.repository, preview.run.run_id, numbers)
        # protection: previewed-commits-are-merged
        if _commits(present) != _commits(preview.run):
            raise ConfigError(
                "a worker's branch has moved since the preview", key="preview.outdated", hint=_AGAIN
            )
        return _answer(merge_branches(self.repository, present, preview.wish))


def _commits(run: RunBranches) -> list[tuple[int, str]]:
    return [(branch.worker_id, branch.commit) for branch in run.branches]


def _left(merged: Merged) -> tuple[answers.LeftEntry, ...]:
    return tuple(
        answers.LeftEntry(worker_id=entry.worker_id, reason=entry.reason) for entry in merged.left
    )


def _answer(merged: Merged) -> answers.MergedAnswer:
    return answers.MergedAnswer(
        run_id=merged.run_id,
        target=merged.target,
        before=merged.before,
        after=merged.after,
        landed=merged.landed,
        left=_left(merged),
    )


def pick(repository: Repository, asked: arguments.OfRun) -> answers.MergedAnswer:
    """Merge the worker that a judgement found clearly the best."""
    judgement = latest_judgement(repository.state_dir, asked.run)
    best = candidate_of(judgement)
    if best is None:
        raise ConfigError(
            "no worker of the run is clearly the best",
            key="judgement.undecided",
            hint="read `orchestrator_judgement`; the user decides with `orchestrator pick N`",
        )
    return _answer(merge_candidate(repository, judgement, best, Wish(named=True)))

"""Every layout of a repository with every command that changes one: right, or refused."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.results import RunResult
from orchestrator.faces.cli.after_run import LandRun
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.pick import merge_candidate
from orchestrator.review.landing.branches import read_branches
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from tests.support.layouts import (
    HOOKS,
    LAYOUTS,
    path_with,
    relative_git,
    state_of,
    user_worktrees,
    worktree_state,
)
from tests.support.local_engine import LocalEngine
from tests.support.reports import judged
from tests.support.repository import git
from tests.support.runs import configured, shell_run

TASK = "echo new > new.txt"


@dataclass(frozen=True)
class Cell:
    """A repository in some layout, in which a worker has added `new.txt`."""

    tree: Path
    engine: LocalEngine
    run: RunResult

    @property
    def repository(self) -> Repository:
        return Repository(self.tree)


def _parallel(_: Cell) -> None:
    """The run itself is the command."""


def _merge(cell: Cell) -> None:
    merge_branches(cell.repository, read_branches(cell.repository, None), Wish())


def _into(cell: Cell) -> None:
    merge_branches(
        cell.repository,
        read_branches(cell.repository, None),
        Wish(request=MergeRequest(into="main")),
    )


def _pick(cell: Cell) -> None:
    (branch,) = read_branches(cell.repository, None).branches
    verdict = judged(report_workers=1, run_id=cell.run.run_id)
    chosen = verdict.ranking[0].model_copy(
        update={"run_id": cell.run.run_id, "commit": branch.commit, "protected": branch.commit}
    )
    merge_candidate(cell.repository, verdict, chosen, Wish(named=True))


def _land(cell: Cell) -> None:
    LandRun(cell.repository, configured(TASK), "merge", quiet=True)(cell.run, show_text=False)


def _cleanup(cell: Cell) -> None:
    report = cleanup(cell.tree, engine=cell.engine, wanted=Wanted())
    assert report.problems == ()
    assert not (cell.tree / ".architect-parallel-1").exists()


ACTIONS: dict[str, Callable[[Cell], None]] = {
    "parallel": _parallel, "merge": _merge, "into": _into, "pick": _pick, "land": _land,
    "cleanup": _cleanup,
}  # fmt: skip
REFUSED = {
    ("separate-linked", "into"): "does not record where",
    ("detached", "merge"): "no branch is checked out",
    ("detached", "pick"): "no branch is checked out",
    ("detached", "land"): "no branch is checked out",
    **{("mid-merge", action): "a merge is under way" for action in ("merge", "pick", "land")},
    ("mid-merge", "into"): "a merge is under way",
}
"""The cells of the table that are refused, with a part of the reason. All others succeed."""

LINKED = ("linked", "separate-linked", "submodule-linked", "relative")
"""Layouts in which the user works on the branch `topic`."""


@pytest.fixture
def cell(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    local_engine: LocalEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> Cell:
    layout, hooks = request.param
    tree = LAYOUTS[layout](tmp_path / "place")
    if hooks:
        git(tree, "config", "core.hooksPath", HOOKS)
    if layout == "relative":
        monkeypatch.setenv("PATH", path_with(relative_git(tmp_path / "bin")))
    before = state_of(tree)
    run = shell_run(tree, local_engine, TASK)
    assert [(one.status, one.files_modified) for one in run.results] == [("success", ["new.txt"])]
    found = state_of(tree)
    if not hooks:
        assert found == before
    assert {**found, "config": before["config"]} == before
    return Cell(tree, local_engine, run)


@pytest.mark.variants(
    "partial-merge",
    "bare-*cleanup", "bare-*merge", "separate-linked-into", "submodule-hooks-cleanup",
    "relative-hooks-cleanup", "linked-into", "detached-land", "mid-merge-merge", "sha256-pick",
)  # fmt: skip
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param((layout, hooks), id=f"{layout}-hooks" if hooks else layout)
        for layout in LAYOUTS
        for hooks in (False, True)
    ],
    indirect=True,
)
def test_command_is_right_or_refused(
    cell: Cell, action: str, request: pytest.FixtureRequest
) -> None:
    layout = request.node.callspec.params["cell"][0]
    before = state_of(cell.tree)

    if reason := REFUSED.get((layout, action)):
        with pytest.raises(OrchestratorError, match=reason):
            ACTIONS[action](cell)
        assert state_of(cell.tree) == before
        return
    ACTIONS[action](cell)

    after = state_of(cell.tree)
    assert after["hooks"] == before["hooks"]
    for tree in user_worktrees(cell.tree):
        # Nothing that a merge brought is staged for deletion: the next commit would revert it.
        assert "new.txt" not in git(tree, "status", "--porcelain")
        assert worktree_state(tree)[0].startswith("true\n")
    if action in ("parallel", "cleanup"):
        assert {**after, "config": before["config"]} == before
        return
    target = "main" if action == "into" or layout not in LINKED else "topic"
    assert git(cell.tree, "show", f"refs/heads/{target}:new.txt") == "new"


def test_shallow_clone_with_a_detached_head(
    repo: Path, tmp_path: Path, local_engine: LocalEngine
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", str(clone))
    git(clone, "checkout", "-q", "--detach")
    (worker,) = shell_run(
        clone, local_engine, "git log --oneline; echo x > new; git add -A; git commit -qm new"
    ).results
    assert (worker.status, worker.files_modified) == ("success", ["new"])
    git(clone, "fsck")

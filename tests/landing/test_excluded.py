"""Tests that every way to a merge leaves out a worker that the run's judgement excludes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.cli.app import run
from orchestrator.cli.land_run import LandRun
from orchestrator.git.repository import Repository
from orchestrator.judging.judgement import Candidate, Flag, Judgement
from orchestrator.judging.store import write_judgement
from orchestrator.landing.branches import read_branches
from orchestrator.landing.merge import Wish, merge_branches
from orchestrator.results import RunResult
from orchestrator.runs.merging import MergeOptions, Merger
from orchestrator.runs.picking import merge_best, pick
from tests.support.forges import add_remote, install_forges
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, shell_run
from tests.support.web import browser

TASKS = ("echo good > good", "echo bad > bad")
EXCLUDED = 2


@pytest.fixture
def judged(repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    """Return a run of two workers; its judgement excludes the second one, and picks nobody."""
    monkeypatch.chdir(repo)
    result = shell_run(repo, local_engine, *TASKS)
    forged = Flag(flag="forged", out=True, message="the check cannot be trusted")
    candidates = tuple(
        Candidate(
            run_id=result.run_id, worker_id=one.worker_id, commit=str(one.commit),
            protected=str(one.commit), place=None if one.worker_id == EXCLUDED else 1,
            passes=False, out=one.worker_id == EXCLUDED,
            flags=(forged,) if one.worker_id == EXCLUDED else (), lines=1, files=1,
        )
        for one in result.results
    )  # fmt: skip
    judgement = Judgement(
        run_id=result.run_id, number=1, base=result.base, tests="extend", checks=("true",),
        decision="none", ranking=candidates,
    )  # fmt: skip
    write_judgement(Repository(repo).state_dir / "runs" / result.run_id, judgement)
    return result


def _queue(repo: Path, _: RunResult) -> object:
    wish = Wish(test=lambda _: "pass", tested_by="a test")
    return merge_branches(Repository(repo), read_branches(Repository(repo), None), wish)


def _in_browser(repo: Path, result: RunResult) -> object:
    visitor, page = browser(repo), f"/repo/{result.run_id}/merge"
    shown = visitor.get(page).text
    assert 'value="1" checked' in shown
    assert f'value="{EXCLUDED}" checked' not in shown, "the form does not propose the worker"
    form: dict[str, object] = {
        "token": visitor.token(page), "worker": ["1", str(EXCLUDED)], "form": "merge",
        "conflict": "skip",
    }  # fmt: skip
    preview = visitor.post(page, {**form, "how": "preview"}).text
    assert "the judgement excludes the worker (forged)" in preview
    before = preview.partition('name="before" value="')[2].partition('"')[0]
    return visitor.post(page, {**form, "how": "merge", "before": before})


def _best(repo: Path, _: RunResult) -> object:
    judgement = Judgement.model_validate_json(
        next(Repository(repo).state_dir.glob("runs/*/judgement-1.json")).read_text()
    )
    forced = judgement.model_copy(update={"picked": EXCLUDED, "decision": "clear"})
    return merge_best(Repository(repo), forced)


WAYS: Mapping[str, Callable[[Path, RunResult], object]] = {
    "merge": lambda *_: run(["merge"]),
    "merge --json": lambda *_: run(["merge", "--json", "--on-conflict", "skip"]),
    "merge --queue": _queue,
    "Python": lambda repo, _: Merger(repo).merge(MergeOptions()),
    "--land": lambda repo, result: LandRun(
        Repository(repo), configured(*TASKS), "merge", quiet=True
    )(result, show_text=False),
    "pick": lambda *_: run(["pick"]),
    "Python pick": lambda repo, _: pick(repo),
    "--pick auto": _best,
    "web": _in_browser,
}


@pytest.mark.parametrize("way", WAYS)
def test_excluded_worker_is_not_merged(repo: Path, judged: RunResult, way: str) -> None:
    WAYS[way](repo, judged)
    assert "bad" not in git(repo, "ls-tree", "--name-only", "main").split()
    assert ("good" in git(repo, "ls-tree", "--name-only", "main").split()) == ("pick" not in way)


@pytest.mark.parametrize("how", [["merge", "2"], ["pick", "2"], ["web"], ["Python"]])
def test_excluded_worker_is_merged_if_a_person_insists(
    repo: Path, judged: RunResult, how: list[str]
) -> None:
    if how == ["web"]:
        visitor, page = browser(repo), f"/repo/{judged.run_id}/pick"
        form = {"token": visitor.token(f"{page}?worker=2"), "worker": "2", "form": "merge"}
        before = git(repo, "rev-parse", "main")
        visitor.post(page, {**form, "how": "merge", "before": before})
    elif how == ["Python"]:
        pick(repo, worker=2)
    else:
        assert run(how) == 0
    assert "bad" in git(repo, "ls-tree", "--name-only", "main").split()


def test_pull_request_of_an_excluded_worker_says_so(
    repo: Path,
    judged: RunResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add_remote(repo, tmp_path / "remote.git")
    install_forges(tmp_path / "bin", monkeypatch, "gh", "glab")
    assert run(["pr", "--best", "--forge", "gh", judged.run_id]) == 1
    capsys.readouterr()
    assert run(["pr", "2", "--forge", "gh", "--dry-run", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["workers"]
    assert one["note"] == "the judgement excludes the worker (forged)"

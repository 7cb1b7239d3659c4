"""Tests that every way to a merge leaves out what a judgement excludes, and what builds on it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.base.results import RunResult
from orchestrator.faces.cli.after_run import LandRun
from orchestrator.faces.cli.app import run
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judgement import Candidate, Flag, Judgement
from orchestrator.review.judging.store import write_judgement
from orchestrator.review.landing.branches import read_branches
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeOptions
from orchestrator.runs.purposes.merging import Merger
from orchestrator.runs.purposes.picking import merge_best, pick
from tests.support.forges import add_remote, install_forges
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, shell_run
from tests.support.web import browser, previewed
from tests.support.workflow_runs import result_of, task

TASKS = (
    task("good", "echo good > good"),
    task("bad", "echo bad > bad"),
    task("top", "echo top > top", "bad"),
)
EXCLUDED, ON_TOP = 2, 3
LEFT = {"bad", "top"}


@pytest.fixture
def judged(repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    """Return a run of three workers, of which the third builds on the second.

    The judgement excludes the second worker only, and picks nobody.
    """
    monkeypatch.chdir(repo)
    result = result_of(repo, local_engine, *TASKS)
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
    for number in (EXCLUDED, ON_TOP):
        assert f'value="{number}" checked' not in shown, "the form does not propose the worker"
    form: dict[str, object] = {
        "token": visitor.token(page), "worker": ["1", str(EXCLUDED), str(ON_TOP)],
        "form": "merge", "conflict": "skip",
    }  # fmt: skip
    preview = visitor.post(page, {**form, "how": "preview"}).text
    assert "the judgement excludes the worker (forged)" in preview
    assert "the branch contains the work of worker 2, which" in preview
    return visitor.post(page, {**form, "how": "merge", **previewed(preview)})


def _best(repo: Path, _: RunResult) -> object:
    judgement = Judgement.model_validate_json(
        next(Repository(repo).state_dir.glob("runs/*/judgement-1.json")).read_text()
    )
    for number in (EXCLUDED, ON_TOP):
        forced = judgement.model_copy(update={"picked": number, "decision": "clear"})
        merged = merge_best(Repository(repo), forced)
        assert merged is not None
        assert [one.reason for one in merged.left] == ["excluded"]
    return None


WAYS: Mapping[str, Callable[[Path, RunResult], object]] = {
    "merge": lambda *_: run(["merge"]),
    "merge --json": lambda *_: run(["merge", "--json", "--on-conflict", "skip"]),
    "merge --queue": _queue,
    "merge, only what builds on it": lambda *_: run(["merge", "1", str(ON_TOP)]),
    "merge --as squash": lambda *_: run(["merge", "--as", "squash", "--on-conflict", "skip"]),
    "Python": lambda repo, _: Merger(repo).merge(MergeOptions()),
    "--land": lambda repo, result: LandRun(Repository(repo), configured("-"), "merge", quiet=True)(
        result, show_text=False
    ),
    "pick": lambda *_: run(["pick"]),
    "pick what builds on it": lambda *_: run(["pick", str(ON_TOP)]),
    "Python pick": lambda repo, _: pick(repo),
    "--pick auto": _best,
    "web": _in_browser,
}


@pytest.mark.variants("merge", "merge --queue", "merge, only*", "pick", "--pick auto", "web")
@pytest.mark.parametrize("way", WAYS)
def test_excluded_worker_is_not_merged(repo: Path, judged: RunResult, way: str) -> None:
    WAYS[way](repo, judged)
    there = set(git(repo, "ls-tree", "--name-only", "main").split())
    assert not there & LEFT
    assert ("good" in there) == ("pick" not in way)


@pytest.mark.variants("how0", "how3")
@pytest.mark.parametrize(
    "how", [["merge", "2"], ["merge", "2", "3"], ["pick", "2"], ["web"], ["Python"]]
)
def test_excluded_worker_is_merged_if_a_person_insists(
    repo: Path, judged: RunResult, how: list[str]
) -> None:
    if how == ["web"]:
        visitor, page = browser(repo), f"/repo/{judged.run_id}/pick"
        form = {"token": visitor.token(f"{page}?worker=2"), "worker": "2", "form": "merge"}
        preview = visitor.post(page, {**form, "how": "preview"}).text
        visitor.post(page, {**form, "how": "merge", **previewed(preview)})
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
    assert run(["pr", "2", "3", "--forge", "gh", "--dry-run", "--json"]) == 0
    one, on_top = json.loads(capsys.readouterr().out)["workers"]
    assert one["note"] == "the judgement excludes the worker (forged)"
    said = "the branch contains the work of worker 2, which the judgement excludes (forged)"
    assert on_top["note"] == said
    _pick(repo, ON_TOP)
    assert run(["pr", "--best", "--forge", "gh", judged.run_id]) == 3
    assert said in capsys.readouterr().err


def _pick(repo: Path, number: int) -> None:
    """Let the judgement pick a worker."""
    (file,) = Repository(repo).state_dir.glob("runs/*/judgement-1.json")
    judgement = Judgement.model_validate_json(file.read_text())
    picked = judgement.model_copy(update={"picked": number, "decision": "clear"})
    file.write_text(picked.model_dump_json())


def test_work_on_top_of_merged_work_is_merged(repo: Path, judged: RunResult) -> None:
    assert run(["merge", str(ON_TOP)]) == 1
    assert run(["pick", str(EXCLUDED), "--as", "squash"]) == 0, "a person insists"
    assert run(["merge", str(ON_TOP), judged.run_id]) == 0
    assert "top" in git(repo, "ls-tree", "--name-only", "main").split()


def test_work_of_another_run_is_named(
    repo: Path,
    judged: RunResult,
    local_engine: LocalEngine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, bad, top = judged.results
    git(repo, "update-ref", f"refs/heads/{bad.branch}", f"{top.commit}")
    later = shell_run(repo, local_engine, "echo later > later", base=bad.branch)
    capsys.readouterr()
    assert run(["merge", later.run_id]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"the work of worker 2 of run {judged.run_id}, which the judgement excludes" in said
    assert not {*git(repo, "ls-tree", "--name-only", "main").split()} & {*LEFT, "later"}
    assert run(["merge", judged.run_id, "2"]) == 0, "its own branch has moved, and it is named"
    assert run(["merge", later.run_id]) == 0

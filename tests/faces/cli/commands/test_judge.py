"""Tests of `eval`, `judge`, `compare` and `pick`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.results import Status, WorkerResult
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.app import run
from orchestrator.repository.repository import Repository
from orchestrator.runs.purposes.candidates import rest_of_budgets, rounds_of
from orchestrator.state.run_directory import all_runs
from tests.support.errors import reports
from tests.support.judging import TESTS, commit_shop
from tests.support.junit_readers import gitlab_cases
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run
from tests.support.shell_report import reporting

FIX = 'sed -i "s/width + height/width * height/" calc.py'
SECRET = "22962963"
SUITE = "python3 -m unittest discover -s tests -t ."
# Searches everything that a worker can reach for the hidden number.
SPY = (
    "n=2296; n=${n}2963; { env; git log -p --all --reflog; git cat-file --batch-all-objects "
    "--batch; } 2>&1 | grep -a $n; grep -rsoh $n / --exclude-dir=proc --exclude-dir=sys; " + FIX
)

COVERAGE = ("--coverage", 'printf "SF:calc.py\\nDA:2,1\\n" > "$ORCHESTRATOR_COVERAGE"')


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_shop(repo)
    monkeypatch.chdir(repo)


def _logs_of_candidates(state: Path) -> Iterator[Path]:
    """Yield logs of agents; logs of checks have values of hidden tests, on the host only."""
    for run_directory in all_runs(state):
        if not run_directory.is_test:
            yield from run_directory.path.glob("worker-*/*.log")


@pytest.mark.docker
def test_candidates_cannot_find_hidden_tests(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    hidden = tmp_path / "hidden" / "tests" / "test_more.py"
    hidden.parent.mkdir(parents=True)
    text = TESTS.replace("1234567, 2", "7654321, 3").replace("2469134", SECRET)
    hidden.write_text(text)
    check = (
        """echo "<t><testcase name='seen'/></t>" > "$ORCHESTRATOR_JUNIT"; """
        "python3 -m unittest discover -s tests -t ."
    )
    shell = ["--agent-cli", "shell", "--quiet", "--network", "none"]
    judged = ["--hidden", str(tmp_path / "hidden"), "--check", check, "--json"]
    refs = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads")

    with reports("must-fix.unproved"):
        assert run(["eval", *shell, "--must-fix", "true", "-n", "1", SPY]) == 3
    kept = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads")
    assert kept == refs, "the candidate did not start"
    assert run(["eval", *shell, *judged, *COVERAGE, "-n", "1", "--pick", "auto", SPY]) == 0

    judgement = json.loads(capsys.readouterr().out)
    assert [judgement["ranking"][0][key] for key in ("worker_id", "hidden", "coverage")] == [
        judgement["picked"], "pass", 1,
    ]  # fmt: skip
    assert "width * height" in git(repo, "show", "main:calc.py")
    assert run(["wait", "--json"]) == 0, "the newest run is that of the candidate"
    assert json.loads(capsys.readouterr().out)["run_id"] == judgement["run_id"]
    cases = [path.read_text() for path in (Repository(repo).state_dir / "judged").iterdir()]
    assert any('"cases":{"seen":"passed"}' in text for text in cases)
    git(repo, "update-ref", "refs/heads/architect/parallel-1", "main~2")
    with reports("branch.moved"):
        assert run(["pick", "1"]) == 3
    # The next worker finds nothing of the first judgement.
    assert run(["merge", "--undo"]) == 0
    assert run(["eval", *shell, *judged, "-n", "1", SPY]) == 0
    state = Repository(repo).state_dir
    assert [*_logs_of_candidates(state)]
    assert not [one for one in _logs_of_candidates(state) if SECRET in one.read_text()]
    assert not git(repo, "log", "--all", "--oneline", f"-S{SECRET}")
    workers = {f"refs/heads/architect/parallel-{number}" for number in (1, 2)}
    kept = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads").split()
    assert {*kept} == {*refs.split(), *workers}
    # The search finds what a worker can reach: a value in the history of the base.
    (repo / "leak").write_text(SECRET)
    git(repo, "add", "leak")
    git(repo, "commit", "-qm", "a leak")
    git(repo, "revert", "--no-edit", "HEAD")
    assert run(["parallel", *shell, "--workers", "1", SPY]) == 0
    seen = [path for path in _logs_of_candidates(state) if SECRET in path.read_text()]
    assert [path.name for path in seen] == ["stdout.log"]


@pytest.mark.extra
@pytest.mark.docker
def test_candidates_start_in_rounds_until_one_passes(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    task = (
        f"grep -q 'attempt 1: .python3' \"$ORCHESTRATOR_CONTEXT\" && {FIX}; echo > note; "
        'echo \'{"type": "orchestrator.report", "cost": 1.0}\''
    )
    check = ["--must-fix", SUITE, "--json", "--quiet"]
    shell = ["--agent-cli", "shell", "--network", "none", "--models", "a,b,c", "--first", "1"]
    reports = [f"--report={tmp_path / name}" for name in ("eval.xml", "eval.env", "eval.json")]
    assert run(["eval", *shell, *check, task, "--pick", "auto", "--learn", *reports]) == 0
    judgement = json.loads(capsys.readouterr().out)
    assert judgement.pop("merged")["landed"] == [2]
    suites = {case.suite for case in gitlab_cases((tmp_path / "eval.xml").read_text())}
    assert {"orchestrator.worker-1.judgement", "orchestrator.parallel.merge"} < suites
    assert "ORCHESTRATOR_WINNER=2\n" in (tmp_path / "eval.env").read_text()
    assert json.loads((tmp_path / "eval.json").read_text())["judgement"] == judgement
    page = f"--report={tmp_path / 'judge.md'}"
    assert run(["judge", *check[:2], "--quiet", page, "2"]) == 0
    assert "worker 2 is the best" in (tmp_path / "judge.md").read_text()
    assert "worker 2 is the best" in capsys.readouterr().out
    assert [one["model"] for one in judgement["ranking"]] == ["b", "a"], "`c` did not start"
    assert len({one["run_id"] for one in judgement["ranking"]}) == 2
    assert "width * height" in git(repo, "show", "main:calc.py")
    git(repo, "reset", "-q", "--hard", "HEAD~")
    never = ["--must-fix", "grep nothing calc.py", *check[2:3], "--budget-total", "1.5"]
    assert run(["eval", *shell, *never, task]) == 1
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["ranking"]) == 1
    assert "no more candidates" in shown.err


@pytest.mark.docker
@pytest.mark.extra
def test_third_of_five_models_is_the_first_right_one(
    repo: Path, capsys: pytest.CaptureFixture
) -> None:
    task = f"test $ORCHESTRATOR_MODEL != c || {FIX}; echo > note; {reporting(cost=1.0)}"
    given = [
        "eval", task, "--agent-cli", "shell", "--network", "none", "--models", "a,b,c,d,e",
        "--first", "1", "--must-fix", SUITE, "--json", "--quiet",
    ]  # fmt: skip
    assert run(given) == 0
    judgement = json.loads(capsys.readouterr().out)
    best, *others = [one["model"] for one in judgement["ranking"]]
    assert (best, sorted(others)) == ("c", ["a", "b"]), "the others differ only in their duration"
    assert run([*given, "--budget-total", "2"]) == 1
    judgement = json.loads(capsys.readouterr().out)
    assert {one["model"] for one in judgement["ranking"]} == {"a", "b"}
    agents = [one for one in all_runs(Repository(repo).state_dir) if not one.is_test]
    assert len(agents) == 5, "three rounds, and two"


def test_rounds_have_the_models_in_their_order() -> None:
    config = ParallelConfig(tasks=("x",), models=("a", "b", "c"), workers=4)
    found = [(one.models, one.workers) for one in rounds_of(config, 3)]
    assert found == [(("a", "b", "c"), 3), ((), 1)]
    assert [one.models for one in rounds_of(config, None)] == [("a", "b", "c")]


def used(number: int, **known: Any) -> WorkerResult:
    return WorkerResult(
        worker_id=number, branch="b", model="m", status=Status.SUCCESS, worktree_path="",
        **{"started_at": datetime.now(UTC), **known},
    )  # fmt: skip


def test_rest_of_a_budget_is_enough_for_one_more_or_nothing() -> None:
    results = [used(1, cost=1.0, cost_known=True), used(2, cost=3.0, cost_known=True)]

    def rest(total: float | None) -> float | None:
        return rest_of_budgets(ParallelConfig(tasks=("x",), budget_total=total), results)[0]

    assert [rest(total) for total in (None, 3.0, 5.9, 6.0, 9.0)] == [None, 0, 0, 2.0, 5.0]


def test_candidate_that_did_not_say_what_it_used_counts_with_its_share() -> None:
    config = ParallelConfig(tasks=("x",), budget_total=9.0, tokens_total=900)
    known, silent = used(1, cost=1.0, cost_known=True, tokens=100), used(2)
    never_ran = used(3, started_at=None)
    assert rest_of_budgets(config, [known]) == (8.0, 800)
    assert rest_of_budgets(config, [known, never_ran]) == (8.0, 800)
    assert rest_of_budgets(config, [known, silent]) == (3.5, 350)
    assert rest_of_budgets(config, [silent]) == (0, 0)
    limited = config.model_copy(update={"budget_per_worker": 2.0})
    assert rest_of_budgets(limited, [silent]) == (7.0, 0)


@pytest.mark.docker
@pytest.mark.extra
def test_hidden_tests_are_never_sent_back(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    hidden = tmp_path / "hidden" / "tests" / "test_more.py"
    hidden.parent.mkdir(parents=True)
    hidden.write_text(TESTS.replace("2469134", SECRET))
    shell = ["--agent-cli", "shell", "--quiet", "--network", "none"]
    own = ["--check", SUITE, "--fix-checks", "1"]
    assert run(["parallel", *shell, *own, "--workers", "1", "echo x >> more"]) == 2
    capsys.readouterr()
    assert run(["judge", "--hidden", str(tmp_path / "hidden"), "--check", SUITE, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ranking"][0]["hidden"] == "fail"
    assert run(["continue", "1", "--checks", "--quiet", "--json"]) == 2
    turns = json.loads(capsys.readouterr().out)["results"][0]["turns"]
    messages = [turn["message"] for turn in turns[1:]]
    assert [SUITE in message and "test_area" in message for message in messages] == [True] * 2
    assert [text for text in messages if "test_more" in text or SECRET in text] == []


def test_hidden_files_cannot_be_sent_away(tmp_path: Path) -> None:
    file = tmp_path / "orchestrator.yaml"
    file.write_text("container:\n  check_network: open\n")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "test_more.py").write_text("")
    judged = ["--hidden", str(tmp_path / "hidden"), "--config", str(file)]
    with reports("hidden-tests.network"):
        assert run(["judge", "--check", "true", *judged]) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["judge"], "judging needs a check"),
        (["judge", "--check", "true"], "there is no run in this repository"),
        (["judge", "--check", "true", "--tests", "all"], "option `--tests` is `all`"),
        (["judge", "--check", "true", "--hidden", "."], "`--hidden` is in the repository"),
        (["judge", "--check", " "], "a command must not be empty"),
        (["judge", "--check", "true", "--lint", ""], "a command must not be empty"),
        (["judge", "--check", "true", "--coverage", ""], "option `--coverage` is ``"),
        (["judge", "--check", "true", "--probe", " "], "option `--probe` is"),
        (["judge", "--check", "true", "--judge", ""], "option `--judge` is ``"),
        (["merge", "--queue", "--check", ""], "a command must not be empty"),
        (["compare"], "no run was judged"),
        (["pick"], "no run was judged"),
        (["pick", "1", "2"], "only one worker can be picked"),
        (["pick", "--as", "copy"], "option `--as` is `copy`"),
        (["eval", "x", "--pick", "2", "--check", "true"], "option `--pick` is `2`"),
        (["eval", "x", "--until", "2", "--check", "true"], "`--until` requires `--first`"),
        (["eval", "x", "--learn", "--check", "true"], "`--learn` requires `--first`"),
        (["eval", "x"], "judging needs a check"),
        (["eval", " ", "--check", "true"], "argument TASK must not be empty"),
    ],
)
def test_wrong_options_are_errors(
    capsys: pytest.CaptureFixture, arguments: list[str], said: str
) -> None:
    assert run(arguments) == 3
    assert said in capsys.readouterr().err


@pytest.mark.docker
def test_workers_whose_commits_are_gone_cannot_be_judged(
    repo: Path, local_engine: LocalEngine, capsys: pytest.CaptureFixture
) -> None:
    result = shell_run(repo, local_engine, "echo x > new")
    git(repo, "worktree", "remove", "--force", ".architect-parallel-1")
    git(repo, "branch", "-D", "architect/parallel-1")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    for ref in git(repo, "for-each-ref", "--format=%(refname)", "refs/orchestrator").split():
        git(repo, "update-ref", "-d", ref)
    git(repo, "gc", "-q", "--prune=now")
    assert run(["judge", "--check", "true"]) == 3
    shown = capsys.readouterr().err
    assert f"no worker of run {result.run_id} has commits that can be judged" in shown
    assert "`orchestrator restore`" in shown

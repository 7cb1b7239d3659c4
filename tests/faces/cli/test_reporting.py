"""Tests of `--report` on commands that run, of `orchestrator report`, and in CI jobs."""

import json
import shlex
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.base.results import RunResult
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli import task_run
from orchestrator.faces.cli.app import run
from orchestrator.runs.runner import ParallelRunner
from tests.support.ci_parsers import HOSTILE_LINES, GitHubRunner, gitlab_sections
from tests.support.errors import reports
from tests.support.junit_readers import gitlab_cases
from tests.support.live import newest
from tests.support.local_engine import LocalEngine
from tests.support.runs import past_run

SHELL = ("--agent-cli", "shell", "--network", "none", "--workers", "2")


@pytest.fixture(autouse=True)
def _there(repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change into the repository, and replace Docker by the local engine."""

    def runner(config: ParallelConfig, **rest: object) -> ParallelRunner:
        return ParallelRunner(config, engine=local_engine, **rest)  # type: ignore[arg-type]

    monkeypatch.chdir(repo)
    monkeypatch.setattr(task_run, "ParallelRunner", runner)


def test_reports_are_written_at_the_end_of_a_run(tmp_path: Path, capsys) -> None:
    files = {name: tmp_path / name for name in ("a.xml", "b.md", "c.env", "d.json", "quality")}
    reports = [f"--report={files[name]}" for name in ("a.xml", "b.md", "c.env", "d.json")]
    reports.append(f"--report=codequality={files['quality']}")
    assert run(["parallel", *SHELL, "--task", "true", "--task", "exit 3", "--json", *reports]) == 1
    result = RunResult.model_validate_json(capsys.readouterr().out)
    assert [case.status for case in gitlab_cases(files["a.xml"].read_text())] == [
        "success", "failed",
    ]  # fmt: skip
    assert "failed, 1 of 2 workers succeeded" in files["b.md"].read_text()
    assert f"ORCHESTRATOR_RUN_ID={result.run_id}\n" in files["c.env"].read_text()
    whole = json.loads(files["d.json"].read_text())
    assert [worker["result"]["status"] for worker in whole["workers"]] == ["success", "failed"]
    assert json.loads(files["quality"].read_text()) == []
    assert {path.name for path in tmp_path.iterdir() if ".new" in path.name} == set()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("junit=a.txt/a.xml", "cannot be written: Not a directory"),
        ("junit=link/a.xml", "/link` is a link in a repository, where a commit may have put it"),
        ("junit=.git/config", "/.git/config` is a part of a git directory"),
        ("src", "must be FORMAT=FILE"),
        ("junit=src", "is a directory"),
        ("junit", "needs a file: stdout has the result"),
        ("nonsense=a.xml", "must be FORMAT=FILE"),
        ("github=a.xml", "must be FORMAT=FILE"),
    ],
)
def test_wrong_report_is_refused_before_the_run(repo: Path, given: str, said: str, capsys) -> None:
    (repo / "link").symlink_to("..")
    assert run(["parallel", *SHELL, "true", "--report", given]) == 3
    assert said in capsys.readouterr().err
    assert not (repo / ".git" / "orchestrator").exists()
    for other in ("--dry-run", "--detach"):
        assert run(["parallel", *SHELL, "true", "--report", "a.xml", other]) == 3


def test_report_that_cannot_be_written_changes_no_exit_code(tmp_path: Path, capsys) -> None:
    place = shlex.quote(str(tmp_path / "reports"))
    task = f"touch {place}"
    assert run(["parallel", *SHELL, task, "--report", f"{tmp_path}/reports/a.xml"]) == 0
    assert "warning: the report `junit` could not be written to" in capsys.readouterr().err


def test_report_that_becomes_a_link_by_a_merge_is_not_written(
    repo: Path, tmp_path: Path, capsys
) -> None:
    task = f"ln -s {shlex.quote(str(tmp_path / 'victim'))} r.html; mkdir out; ln -s ../.. out/x"
    reports = ("--report", "r.html", "--report", "out/x/r.xml", "--report", "out/new/r.json")
    assert run(["parallel", *SHELL, "--workers", "1", task, "--land", "merge", *reports]) == 0
    warnings = capsys.readouterr().err
    assert f"`{repo}/r.html` is a link in a repository" in warnings
    assert f"`{repo}/out/x` is a link in a repository" in warnings
    assert (repo / "r.html").is_symlink()
    assert not (tmp_path / "victim").exists()
    assert not (repo.parent / "r.xml").exists()
    assert json.loads((repo / "out" / "new" / "r.json").read_text())["workers"]


def test_report_is_written_if_the_engine_fails(
    tmp_path: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    class Failing(ParallelRunner):
        def execute(self) -> RunResult:
            super().execute()
            raise EngineUnavailableError("gone", key="engine.unreachable")

    def runner(config: ParallelConfig, **rest: object) -> Failing:
        return Failing(config, engine=local_engine, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(task_run, "ParallelRunner", runner)
    path = tmp_path / "a.xml"
    assert run(["parallel", *SHELL, "true", f"--report={path}"]) == 7
    assert len(gitlab_cases(path.read_text())) == 2
    assert "gone" in capsys.readouterr().err


def test_report_of_an_ended_run(repo: Path, local_engine: LocalEngine, tmp_path, capsys) -> None:
    result = past_run(repo, local_engine, "true", "echo printed; exit 3")
    assert run(["report"]) == 0
    assert "failed, 1 of 2 workers succeeded" in capsys.readouterr().out
    assert run(["report", "--report", "markdown"]) == 0
    assert "### orchestrator: failed, 1 of 2 workers succeeded" in capsys.readouterr().out
    assert run(["report", result.run_id, "--report", "junit"]) == 0
    text = capsys.readouterr().out
    assert [case.status for case in gitlab_cases(text)] == ["success", "failed"]
    path = tmp_path / "report.xml"
    assert run(["report", result.run_id[:-2], "--report", str(path)]) == 0
    assert path.read_text() == text
    with reports("report.stdout"):
        assert run(["report", "--report", "junit", "--report", "markdown"]) == 3
    (newest(repo).directory.path / "run.json").write_text("{}")
    assert run(["report", result.run_id]) == 3


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_events_are_the_only_output(quiet: tuple[str, ...], repo: Path, capsys) -> None:
    assert run(["parallel", *SHELL, "echo '##[group]x'; exit 3", "--events", *quiet]) == 1
    shown = capsys.readouterr()
    events = [json.loads(line) for line in shown.out.splitlines()]
    recorded = (newest(repo).directory.path / "events.ndjson").read_text().splitlines()
    assert sorted(map(str, events)) == sorted(str(json.loads(line)) for line in recorded)
    assert (events[0]["type"], events[-1]["type"]) == ("run_started", "run_done")
    assert events[-1]["result"]["status"] == "failed"
    assert "##[" not in shown.out
    assert ("worker 1 started" in shown.err) == (not quiet)
    for other in ("--json", "--summary", "--timings", "--dry-run", "--detach"):
        assert run(["parallel", *SHELL, "true", "--events", other]) == 3


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    """Return a task that prints hostile lines, and fails."""
    path = tmp_path / "hostile"
    path.write_text("\n".join(line[:2000] for line in HOSTILE_LINES) + "\n")
    return f"cat {path}; cat {path} >&2; exit 1"


def test_github_gets_a_report_by_itself(
    hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert run(["parallel", *SHELL, "--task", "echo fine", "--task", hostile]) == 1
    shown = capsys.readouterr()
    runner = GitHubRunner()
    for stream in (shown.out, shown.err):
        runner.read(stream)
    names = [name for name, _ in runner.commands]
    assert names == ["group", "endgroup", "group", "endgroup", "error"]
    assert [data for name, data in runner.commands if name == "group"] == [
        "worker 1: success", "worker 2: failed (agent_failed)",
    ]  # fmt: skip
    assert "failed, 1 of 2 workers succeeded" in (tmp_path / "summary").read_text()
    assert "\nfailed\n" in (tmp_path / "output").read_text()


@pytest.mark.parametrize("variable", ["ORCHESTRATOR_REPORT", "ORCHESTRATOR_CI"])
def test_one_variable_switches_automatic_reports_off(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv(variable, "off")
    assert run(["parallel", *SHELL, "exit 3"]) == 1
    assert "::" not in capsys.readouterr().err
    assert not (tmp_path / "summary").exists()
    monkeypatch.setenv(variable, "no")
    with reports("variable.invalid", f"`{variable}` is `no`"):
        assert run(["parallel", *SHELL, "true"]) == 3


def test_gitlab_gets_sections_by_itself(hostile: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    assert run(["parallel", *SHELL, "--task", "echo fine", "--task", hostile, "--quiet"]) == 1
    shown = capsys.readouterr()
    assert len(list(gitlab_sections(shown.out + shown.err))) == 2, "only the failure, if quiet"
    assert run(["report", "--report", "gitlab"]) == 0
    assert len(list(gitlab_sections(capsys.readouterr().out))) == 4

"""Tests of actions: each does what its command does, asks first, and is absent if read-only."""

import html
import json
import os
import re
import shlex
import signal

import pytest

from orchestrator.config.run import ParallelConfig
from orchestrator.runs.detach import continue_in_background
from orchestrator.state.run_directory import RunDirectory
from orchestrator.web.forms import RUN_FORMS
from orchestrator.worker_spec import WorkerSpec
from tests.support.reports import RUN_ID
from tests.support.repository import git
from tests.support.web import Shape, begun, browser, ended_run, result_of, write_run

RUN = f"/repo/{RUN_ID}"


@pytest.fixture
def live(repo):
    """Return a live run with two workers."""
    specs = [WorkerSpec(worker_id=n, task="sleep", model=None) for n in (1, 2)]
    run = write_run(repo, specs, begun(specs))
    yield run
    run.release()


def test_stop_asks_first_and_then_requests_it_like_the_command(repo, live):
    visitor = browser(repo)
    assert "Stop worker 2?" in visitor.get(f"{RUN}/2/stop").text
    assert live.stop_requests() == frozenset()
    token = visitor.token(f"{RUN}/2/stop")
    answer = visitor.post(f"{RUN}/2/stop", {"token": token, "how": "stop"})
    assert (answer.status, answer.headers["location"]) == (303, f"{RUN}/2")
    assert live.stop_requests() == {2}
    assert not live.kill_asked(2)
    assert "web view: the user asked to stop worker 2" in visitor.get(f"{RUN}/events").text
    visitor.post(f"{RUN}/stop", {"token": token, "how": "kill"})
    assert live.stop_requests() == {1, 2}
    assert live.kill_asked(1)


def test_ended_run_cannot_be_stopped(repo):
    run = ended_run(repo, result_of(1))
    visitor = browser(repo)
    assert "Stop" not in visitor.get(RUN).text
    token = visitor.token(f"{RUN}/1/stop")
    answer = visitor.post(f"{RUN}/1/stop", {"token": token, "how": "stop"})
    assert answer.status == 409
    assert "has ended" in answer.text
    assert run.stop_requests() == frozenset()


def test_read_only_view_has_no_actions(repo, live):
    visitor = browser(repo, read_only=True)
    assert "New run" not in visitor.get("/").text
    for path in (RUN, f"{RUN}/1"):
        page = visitor.get(path).text
        assert "Stop" not in page
        assert "More" not in page
        assert '<form method="post"' not in page
    for path in (
        f"{RUN}/stop",
        f"{RUN}/1/stop",
        f"{RUN}/1/retry",
        f"{RUN}/merge",
        f"{RUN}/pick",
        "/repo/new",
        *(f"{RUN}/{name}" for name in RUN_FORMS),
    ):
        assert visitor.get(path).status == 404
        assert visitor.post(path, {"how": "stop"}).status == 405
    assert live.stop_requests() == frozenset()


# --- Forms that start commands.


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait for the end of commands, however busy the machine is."""
    monkeypatch.setattr("orchestrator.web.commands.PATIENCE", 100.0)
    monkeypatch.setattr("orchestrator.web.commands._LONGEST_PREVIEW", 100.0)


@pytest.fixture
def commit_of(repo):
    """Return a function that commits a file on a worker's branch, and returns the commit."""

    def commit(number: int) -> str:
        git(repo, "checkout", "-q", "-b", f"architect/parallel-{number}")
        (repo / f"file-{number}.txt").write_text(f"{number}\n")
        git(repo, "add", ".")
        git(repo, "commit", "-q", "-m", f"work of {number}")
        tip = git(repo, "rev-parse", "HEAD").strip()
        git(repo, "checkout", "-q", "-")
        return tip

    return commit


def send(visitor, path: str, **fields: object):
    """Send the form at an address with these fields."""
    return visitor.post(path, {"token": visitor.token(path), **fields})


def record_run(repo, config: ParallelConfig, *results) -> None:
    """Write an ended run with its whole plan."""
    run = ended_run(repo, *(results or (result_of(1), result_of(2))))
    path = run.path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()),
                                "config": config.model_dump(mode="json")}))  # fmt: skip


def command_on(page: str) -> str:
    """Return the command line that a page shows."""
    found = re.search(r'aria-label="Command line">(.*?)</pre>', page, re.DOTALL)
    assert found
    return html.unescape(found[1])


def test_a_new_run_shows_the_command_line_and_nothing_can_be_another_option(repo):
    visitor = browser(repo)
    page = visitor.get("/repo/new").text
    assert command_on(page) == "orchestrator parallel --detach"
    answer = send(
        visitor, "/repo/new", how="show", task=["--config=/etc/passwd", "two\r\nlines", ""],
        network="none", preset="--help", agent_cli="shell", checks="make test\r\n\r\n --json ",
    )  # fmt: skip
    words = shlex.split(command_on(answer.text))
    assert words == [
        "orchestrator", "parallel", "--detach", "--task=--config=/etc/passwd", "--task=two\nlines",
        "--agent-cli=shell", "--network=none", "--check=make test", "--check=--json",
    ]  # fmt: skip
    assert "--config=/etc/passwd</textarea>" in answer.text, "the form keeps what was typed"


def test_the_command_itself_checks_the_settings_of_a_new_run(repo):
    visitor = browser(repo)
    answer = send(visitor, "/repo/new", how="start", task="true", memory="12 bananas")
    assert answer.status == 303
    page = Shape(visitor.get(answer.headers["location"]).text).text
    assert "The command ended with exit code 3." in page
    assert "--memory" in page
    assert not (repo / ".git" / "orchestrator" / "runs").exists()
    answer = send(visitor, "/repo/new", how="start", task="a\0b")
    assert answer.status == 409
    assert "contains a character" in answer.text


def test_run_again_has_the_settings_that_differ_from_those_of_today(repo):
    config = ParallelConfig.model_validate({
        "tasks": ("echo one", "echo two"), "agent_cli": "shell", "workers": 2, "max_steps": 7,
        "isolation": {"network": "none"}, "limits": {"memory": 512 * 1024**2},
    })  # fmt: skip
    record_run(repo, config)
    visitor = browser(repo)
    assert f'href="/repo/new?from={RUN_ID}"' in visitor.get(RUN).text
    page = visitor.get(f"/repo/new?from={RUN_ID}").text
    assert shlex.split(command_on(page))[3:] == [
        "--task=echo one", "--task=echo two", "--agent-cli=shell", "--workers=2", "--network=none",
        "--memory=512m",
    ]  # fmt: skip
    assert "does not repeat `max_steps`" in Shape(page).text
    assert visitor.get("/repo/new?from=20200101-000000-000000").status == 404


def test_a_merge_is_undone_by_the_command(repo, commit_of):
    before = git(repo, "rev-parse", "HEAD").strip()
    ended_run(repo, result_of(1, commit=commit_of(1), files_modified=["file-1.txt"]))
    visitor = browser(repo)
    assert visitor.get(f"{RUN}/undo").status == 404
    preview = send(visitor, f"{RUN}/merge", how="preview", worker="1").text
    start = re.search(r'name="before" value="(\w+)"', preview)
    done = send(visitor, f"{RUN}/merge", how="merge", worker="1", before=start and start[1]).text
    assert git(repo, "rev-parse", "HEAD").strip() != before
    assert f'formaction="{RUN}/undo"' in done
    assert "Undo…" in visitor.get(RUN).text
    answer = send(visitor, f"{RUN}/undo", how="start")
    assert (answer.status, answer.headers["location"]) == (303, RUN)
    assert git(repo, "rev-parse", "HEAD").strip() == before
    assert "the user started `orchestrator merge" in visitor.get(f"{RUN}/events").text


def test_what_destroys_or_publishes_starts_only_as_it_was_previewed(repo, tmp_path, commit_of):
    record_run(repo, ParallelConfig.model_validate({"tasks": ("x",)}), *(
        result_of(n, commit=commit_of(n), files_modified=[f"file-{n}.txt"]) for n in (1, 2)
    ))  # fmt: skip
    git(repo, "init", "-q", "--bare", str(tmp_path / "remote.git"))
    git(repo, "remote", "add", "origin", str(tmp_path / "remote.git"))
    visitor = browser(repo)
    refs = git(repo, "for-each-ref")
    page = send(visitor, f"{RUN}/pr", how="start", worker=["1", "2", "x; --force"])
    told = command_on(page.text)
    assert told == f"orchestrator pr {RUN_ID} 1 2"
    other = send(visitor, f"{RUN}/pr", how="start", worker="2", previewed=told)
    assert other.status in (200, 409), "a preview of the other command"
    cleaned = send(visitor, f"{RUN}/cleanup", how="start")
    assert cleaned.status == 200
    assert "would remove worker 1" in Shape(cleaned.text).text, cleaned.text
    assert git(repo, "for-each-ref") == refs
    told = command_on(cleaned.text)
    answer = send(visitor, f"{RUN}/cleanup", how="start", previewed=told)
    page = Shape(visitor.get(answer.headers["location"]).text).text
    assert "removed worker 1" in page
    assert "restore with" in page
    assert "architect/parallel-1" not in git(repo, "branch")


def test_a_run_whose_process_died_is_resumed_by_the_command(repo):
    specs = [WorkerSpec(worker_id=1, task="true", model=None)]
    run = write_run(repo, specs, begun(specs)[:1])
    visitor = browser(repo)
    assert visitor.get(f"{RUN}/resume").status == 404, "the run is live"
    run.release()
    assert f'href="{RUN}/resume"' in visitor.get(RUN).text
    answer = send(visitor, f"{RUN}/resume", how="start")
    # The record of this run was written by hand: the command says what is wrong with it.
    page = Shape(visitor.get(answer.headers["location"]).text).text
    assert "exit code 3" in page
    assert f"orchestrator resume {RUN_ID}" in page


def test_a_retry_leads_to_the_new_run(repo, monkeypatch):
    ended_run(repo, result_of(1))
    new = "20261122-000000-abcdef"
    started = []

    def command(*words):
        started.append(words)
        return [
            "sh",
            "-c",
            f"""echo '{{"type": "run_started", "run_id": "{new}"}}'; exec sleep 60""",
        ]

    monkeypatch.setattr("orchestrator.web.commands.own_command", command)
    visitor = browser(repo)
    page = visitor.get(f"{RUN}/1/retry").text
    assert "Retry worker 1?" in page
    assert command_on(page) == f"orchestrator retry 1 --run {RUN_ID}"
    assert started == []
    answer = send(visitor, f"{RUN}/1/retry", how="start")
    assert answer.headers["location"] == f"/repo/{new}"
    assert started == [("retry", "1", "--run", RUN_ID, "--events")]
    job = Shape(visitor.get("/repo/command/1").text).text
    assert "in progress" in job
    os.killpg(visitor.jobs.job(1).process.pid, signal.SIGKILL)
    assert visitor.jobs.job(1).ended.wait(60)


def test_a_repository_provides_no_modules_of_commands(repo):
    marker = repo / "was-imported"
    package = repo / "orchestrator"
    package.mkdir()
    code = f"open({str(marker)!r}, 'w').close()\n"
    for place in (package / "__init__.py", package / "__main__.py", repo / "json.py"):
        place.write_text(code)
    visitor = browser(repo)
    answer = send(visitor, "/repo/new", how="start", task="true", memory="12 bananas")
    assert "exit code 3" in visitor.get(answer.headers["location"]).text
    run = RunDirectory(repo / ".git" / "orchestrator" / "runs" / RUN_ID)
    run.create("{}")
    os.waitpid(continue_in_background(run, top=repo), 0)
    run.release()
    assert "error:" in (run.path / "background.log").read_text()
    assert not marker.exists()

"""Tests of actions: each does what its command does, asks first, and is absent if read-only."""

import html
import json
import os
import re
import shlex
import signal
import stat

import pytest

from orchestrator.base.events import Intervention, WorkerDone
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.web.comments import Comment, read_comments
from orchestrator.faces.web.forms import RUN_FORMS, WORKER_FORMS
from orchestrator.review.landing.branches import read_branches
from orchestrator.runs.resuming.detach import continue_in_background
from orchestrator.state.run_directory import RunDirectory
from tests.support.reports import BASE, RUN_ID, at
from tests.support.repository import git
from tests.support.web import (
    HOSTILE_TEXTS,
    Shape,
    begun,
    browser,
    ended_run,
    previewed,
    result_of,
    write_run,
)

RUN = f"/repo/{RUN_ID}"
NEW = "20261122-000000-abcdef"


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
        f"{RUN}/1/comment",
        *(f"{RUN}/1/{name}" for name in WORKER_FORMS),
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
    monkeypatch.setattr("orchestrator.faces.web.commands.PATIENCE", 100.0)
    monkeypatch.setattr("orchestrator.faces.web.commands._LONGEST_PREVIEW", 100.0)


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
    return visitor.post(path, {**visitor.hidden(path), **fields})


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
    done = send(visitor, f"{RUN}/merge", how="merge", worker="1", **previewed(preview)).text
    assert git(repo, "rev-parse", "HEAD").strip() != before
    assert f'formaction="{RUN}/undo"' in done
    assert "Undo…" in visitor.get(RUN).text
    answer = send(visitor, f"{RUN}/undo", how="start")
    assert (answer.status, answer.headers["location"]) == (303, RUN)
    assert git(repo, "rev-parse", "HEAD").strip() == before
    assert "the user started `orchestrator merge" in visitor.get(f"{RUN}/events").text


@pytest.mark.variants("before the click-merge", "after the check-rebase")
@pytest.mark.parametrize("form", ["merge", "squash", "rebase", "apply"])
@pytest.mark.parametrize("when", ["before the click", "after the check"])
def test_a_branch_that_moved_since_the_preview_is_not_merged(
    repo, commit_of, monkeypatch, form, when
):
    ended_run(repo, result_of(1, commit=commit_of(1), files_modified=["file-1.txt"]))
    start, moved, reads = git(repo, "rev-parse", "HEAD"), commit_of(2), []
    visitor, page = browser(repo), f"{RUN}/merge"
    fields = previewed(send(visitor, page, how="preview", worker="1", form=form).text)

    def read(*given):
        reads.append(given)
        if len(reads) == (1 if when == "before the click" else 2):
            git(repo, "update-ref", "refs/heads/architect/parallel-1", moved)
        return read_branches(*given)

    monkeypatch.setattr("orchestrator.faces.web.actions.read_branches", read)
    said = Shape(send(visitor, page, how="merge", worker="1", form=form, **fields).text).text
    assert ("moved since" if when == "before the click" else "other commits than in") in said
    assert git(repo, "rev-parse", "HEAD") == start
    assert not [*repo.glob("file-*.txt")]


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


class Started(list[tuple[str, ...]]):
    """The words of the commands that were started."""

    seconds = 0.1
    """How long each of them takes."""

    def __init__(self, stdin):
        super().__init__()
        self._stdin = stdin

    @property
    def message(self):
        """What the latest command was given on stdin."""
        return self._stdin.read_bytes().decode()


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Start a harmless process for each command, and return the commands' words."""
    found = Started(tmp_path / "stdin")

    def command(*words):
        found.append(words)
        event = json.dumps({"type": "run_started", "run_id": NEW})
        script = f"""cat > "$0"; echo '{event}'; exec sleep {found.seconds}"""
        return ["sh", "-c", script, str(tmp_path / "stdin")]

    monkeypatch.setattr("orchestrator.faces.web.commands.own_command", command)
    return found


def test_a_retry_with_another_text_leads_to_the_new_run_while_others_run(repo, live, started):
    visitor = browser(repo)
    assert visitor.get(f"{RUN}/1/retry").status == 404, "the worker still runs"
    live.log_event(WorkerDone(at=at(8), result=result_of(1)))
    page = visitor.get(f"{RUN}/1/retry").text
    assert command_on(page) == f"orchestrator retry 1 --run {RUN_ID}"
    assert f'href="{RUN}/1/retry"' in visitor.get(f"{RUN}/1").text
    assert started == []
    answer = send(visitor, f"{RUN}/1/retry", how="start", message="--help\r\nme", keep="yes")
    assert answer.headers["location"] == f"/repo/{NEW}"
    assert started == [
        ("retry", "1", "--run", RUN_ID, "--retry-from=keep", "--message-file=-", "--events")
    ]
    assert started.message == "--help\nme"
    assert visitor.jobs.job(1).ended.wait(60)


def test_a_message_is_the_workers_next_turn_and_is_not_recorded(repo, live, started):
    alert = Intervention(at=at(3), worker_id=2, trigger="needs_input", detail="drop?", stops=False)
    live.log_event(alert)
    visitor = browser(repo)
    page = visitor.get(f"{RUN}/2").text
    assert f'action="{RUN}/2/continue"' in page, "the answer is asked for where the question is"
    answer = send(
        visitor, f"{RUN}/2/continue", how="start", message="the word is swordfish", now="yes"
    )
    assert answer.headers["location"] == f"{RUN}/2"
    # Other users of the machine can read arguments.
    assert started == [("continue", "2", "--run", RUN_ID, "--now", "--message-file=-")]
    assert started.message == "the word is swordfish"
    events = (live.path / "events.ndjson").read_text()
    assert f"the user started `orchestrator continue 2 --run {RUN_ID} --now`" in events
    assert "swordfish" not in events
    assert visitor.jobs.job(1).ended.wait(60)


def test_a_form_starts_one_command(repo, started):
    record_run(repo, ParallelConfig.model_validate({"tasks": ("x",)}))
    visitor, later = browser(repo), browser(repo)
    for path in (f"{RUN}/1/continue", f"{RUN}/1/retry", "/repo/new", f"{RUN}/judge"):
        sent = {**visitor.hidden(path), "how": "start", "message": "go on", "task": "x"}
        # A ticket of another server, which does not know what was sent there, and no ticket at all.
        for once in (later.hidden(path)["once"], "", "x" * 48, "\u00e4" * 48):
            assert visitor.post(path, {**sent, "once": once}).status == 409
        assert started == []
        assert visitor.post(path, sent).status == 303
        again = visitor.post(path, sent)
        assert again.status == 409
        assert "sent already" in again.text
        assert len(started) == 1
        assert send(visitor, path, how="start", message="go on", task="x").status == 303
        assert len(started) == 2
        started.clear()


def test_a_command_that_has_not_reached_its_run_is_shown_itself(repo, started, monkeypatch):
    ended_run(repo, result_of(1))
    monkeypatch.setattr("orchestrator.faces.web.commands.PATIENCE", 0.1)
    started.seconds = 60
    visitor = browser(repo)
    answer = send(visitor, f"{RUN}/1/continue", how="start", message="go on")
    # The page of the ended run would not be refreshed.
    assert answer.headers["location"] == "/repo/command/1"
    page = visitor.get("/repo/command/1").text
    assert "Show its progress" in page
    assert f'href="{RUN}/1"' in page
    assert "data-live" in page
    os.killpg(visitor.jobs.job(1).process.pid, signal.SIGKILL)
    assert visitor.jobs.job(1).ended.wait(60)


def test_few_commands_are_in_progress_at_once(repo, started, monkeypatch):
    monkeypatch.setattr("orchestrator.faces.web.commands._MOST_RUNNING", 1)
    started.seconds = 60
    visitor = browser(repo)
    assert send(visitor, "/repo/new", how="start", task="x").status == 303
    refused = send(visitor, "/repo/new", how="start", task="x")
    assert refused.status == 409
    assert "wait for their end" in refused.text
    assert len(started) == 1
    os.killpg(visitor.jobs.job(1).process.pid, signal.SIGKILL)
    assert visitor.jobs.job(1).ended.wait(60)


# --- Comments on lines of a diff.

HOSTILE = "<script>alert(1)</script> {{ 7 * 7 }} \x1b]0;x\x07 \u202e --help $(reboot)"


@pytest.fixture
def changed(repo, commit_of):
    """Write a run of an agent that has added `file-1.txt`, and return its directory."""

    def write(agent: str = "claude") -> RunDirectory:
        base = git(repo, "rev-parse", "HEAD").strip()
        result = result_of(1, commit=commit_of(1), base=base, files_modified=["file-1.txt"])
        record_run(
            repo, ParallelConfig.model_validate({"tasks": ("x",), "agent_cli": agent}), result
        )
        run = RunDirectory(repo / ".git" / "orchestrator" / "runs" / RUN_ID)
        path = run.path / "run.json"
        path.write_text(path.read_text().replace(BASE, base))
        return run

    return write


def comment(visitor, text, *, line="1", how="add", **fields):
    values = {**visitor.hidden(f"{RUN}/1/diff"), "file": "1", "side": "new", "line": line}
    return visitor.post(f"{RUN}/1/comment", {**values, "text": text, "how": how, **fields})


def test_comments_are_kept_shown_as_text_and_sent_as_one_message(repo, changed, started):
    run, visitor = changed(), browser(repo)
    assert comment(visitor, HOSTILE).headers["location"] == f"{RUN}/1/diff#f1"
    comment(visitor, "second\r\nline")
    comment(visitor, "second\r\nline")
    file = run.path / "comments-1.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page = browser(repo).get(f"{RUN}/1/diff").text
    shape = Shape(page)
    assert "<script>alert(1)</script> {{ 7 * 7 }}" in shape.text
    assert "second line" in shape.text
    assert "2 comments are not sent yet" in shape.text
    assert not {tag for tag, _ in shape.elements} & {"img", "iframe"}
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert started == []
    sent = comment(visitor, "", how="send")
    assert sent.headers["location"] == f"{RUN}/1"
    assert started == [("continue", "1", "--run", RUN_ID, "--message-file=-")]
    message = started.message
    assert message.startswith("Comments on your changes:\n\nfile-1.txt:1\n> 1\n<script>alert(1)")
    assert message.endswith("file-1.txt:1\n> 1\nsecond\nline")
    assert "\x1b" not in message
    assert "\u202e" not in message
    assert comment(visitor, "", how="send").status == 409, "nothing is left to send"
    assert len(started) == 1
    assert "not sent yet" not in visitor.get(f"{RUN}/1/diff").text
    assert "reboot" not in (run.path / "events.ndjson").read_text()


def test_hostile_texts_in_comments_are_text(repo, changed):
    run, visitor = changed(), browser(repo)
    comment(visitor, "plain")
    plain = Shape(visitor.get(f"{RUN}/1/diff").text)
    comment(visitor, "", how="remove", comment=read_comments(run, 1)[0].id)
    comment(visitor, "\n".join(HOSTILE_TEXTS))
    found = Shape(visitor.get(f"{RUN}/1/diff").text)
    assert (found.elements, found.links) == (plain.elements, plain.links)
    for text in filter(str.isprintable, HOSTILE_TEXTS):
        assert " ".join(text.split()) in found.text


def test_a_comment_is_removed_once_and_a_failed_message_is_kept(repo, changed, monkeypatch):
    run, visitor = changed(), browser(repo)
    comment(visitor, "one")
    comment(visitor, "two")
    first, second = read_comments(run, 1)
    for _ in range(2):
        comment(visitor, "", how="remove", comment=first.id)
        assert read_comments(run, 1) == (second,)
    monkeypatch.setattr("orchestrator.faces.web.commands.own_command", lambda *_: ["false"])
    answer = comment(visitor, "", how="send")
    assert answer.headers["location"].startswith("/repo/command/")
    assert read_comments(run, 1) == (second,), "it is not marked as sent"


@pytest.mark.parametrize("fields", [
    {"line": "2"}, {"line": "0"}, {"line": "-1"}, {"line": "9" * 30}, {"line": "\u0661"},
    {"file": "2"}, {"file": "0"}, {"side": "old"}, {"text": "x" * 4001}, {"text": " "},
    {"how": "other"}, {"how": ""},
])  # fmt: skip
def test_comments_on_what_the_diff_does_not_show_are_refused(repo, changed, fields):
    run, visitor = changed(), browser(repo)
    assert comment(visitor, **{"text": "x", **fields}).status == 409
    assert read_comments(run, 1) == ()


def test_comments_never_exceed_one_message_and_a_link_is_not_followed(repo, changed, tmp_path):
    run, visitor = changed(), browser(repo)
    many = [Comment(path="a", side="new", line=n + 1, code="c", text="x" * 4000) for n in range(25)]
    file = run.path / "comments-1.json"
    file.write_text(json.dumps([one.model_dump() for one in many]))
    assert comment(visitor, "x" * 4000).status == 409
    assert read_comments(run, 1) == tuple(many)
    assert "which the diff does not show any more" in visitor.get(f"{RUN}/1/diff").text
    target = tmp_path / "elsewhere.json"
    target.write_text(file.read_text())
    file.unlink()
    file.symlink_to(target)
    assert read_comments(run, 1) == ()
    assert comment(visitor, "mine").status == 303
    assert not file.is_symlink()
    assert len(json.loads(target.read_text())) == 25


def test_comments_are_not_run_as_commands(repo, changed, started):
    changed("shell")
    visitor = browser(repo)
    assert 'id="comment"' not in visitor.get(f"{RUN}/1/diff").text
    token = visitor.hidden(f"{RUN}/1/continue")
    values = {**token, "how": "send", "text": "x", "file": "1", "line": "1", "side": "new"}
    answer = visitor.post(f"{RUN}/1/comment", values)
    assert answer.status == 409
    assert started == []


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

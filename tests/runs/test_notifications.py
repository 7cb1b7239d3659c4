"""Tests of notifications to a command or a URL."""

import base64
import hmac
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tenacity import wait_none

from orchestrator.base import outgoing
from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Notice, RunDone, WorkerDone
from orchestrator.base.outgoing import RequestFailedError
from orchestrator.base.results import Reason, RunResult, Status, WorkerResult
from orchestrator.config.loading.loading import load_config
from orchestrator.config.settings.run import Triggers
from orchestrator.runs.notify import notifications as notify
from orchestrator.runs.notify import webhooks
from orchestrator.runs.notify.notifications import Notifier, notification, send
from orchestrator.runs.notify.webhooks import KEY_VARIABLE
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_record import read_record
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run
from tests.support.watched_runs import told, watched


@pytest.fixture
def posted() -> Iterator[tuple[str, list[bytes]]]:
    """Return the URL of a local server, and the bodies posted to it."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print no log lines."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook?token=t0psecret", bodies
    server.shutdown()
    server.server_close()
    thread.join(10)


@contextmanager
def answering(*codes: int) -> Iterator[tuple[str, list[tuple[Message, bytes]]]]:
    """Run a server that answers with these codes in turn, and collects the requests."""
    requests: list[tuple[Message, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((self.headers, body))
            self.send_response(codes[len(requests) - 1])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print no log lines."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", requests
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(autouse=True)
def _retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks.send_once.retry, "wait", wait_none())


class TestNotify:
    @staticmethod
    def task(repo: Path) -> str:
        """Return a task that asks for a password until the alert about it."""
        return f"printf 'password: '; {told(repo)}"

    def test_command_receives_events_as_json(self, repo: Path, local_engine: LocalEngine) -> None:
        said = repo.parent / "said; touch not-a-shell"
        script = repo.parent / "tell.py"
        script.write_text("import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))")
        notify = f"{sys.executable} {script} '{said}'"
        watched(repo, local_engine, self.task(repo), prompts=0.5, notify=notify)
        event, end = map(json.loads, said.read_text().splitlines())
        (run,) = all_runs(repo / ".git" / "orchestrator")
        wanted = {"run_id": run.run_id, "type": "intervention", "worker_id": 1}
        assert wanted.items() <= event.items()
        assert (event["trigger"], event["stops"]) == ("needs_input", False)
        assert (end["type"], end["run_id"], end["status"]) == ("run_done", run.run_id, "success")

    def test_failed_workers_and_the_end_are_sent(
        self, repo: Path, local_engine: LocalEngine, posted: tuple[str, list[bytes]]
    ) -> None:
        address, bodies = posted
        tasks = ("true", "echo $(printf 'w%.0s' $(seq 900)) >&2; exit 3")
        shell_run(repo, local_engine, *tasks, triggers=Triggers(notify=address))
        failed, end = map(json.loads, bodies)
        assert (failed["type"], failed["worker_id"]) == ("worker_failed", 2)
        assert (failed["status"], failed["reason"]) == ("failed", "agent_failed")
        assert (failed["branch"], failed["attempts"]) == ("architect/parallel-2", 1)
        assert len(failed["message"]) <= 500
        assert (end["type"], end["status"], end["resumable"]) == ("run_done", "failed", False)
        assert end["counts"] == {"success": 1, "partial": 0, "failed": 1, "timeout": 0}
        (listed,) = end["not_successful"]
        assert listed == {key: failed[key] for key in listed}

    def test_cancelled_and_skipped_workers_are_only_in_the_final_message(self) -> None:
        result = WorkerResult(
            worker_id=1, branch="b", model="m", status=Status.FAILED, worktree_path="/w",
            reason=Reason.DEPENDENCY,
        )  # fmt: skip
        assert notification("R", WorkerDone(result=result)) is None
        timeout = result.model_copy(update={"status": Status.TIMEOUT, "reason": Reason.TIMEOUT})
        assert notification("R", WorkerDone(result=timeout)) is not None
        assert notification("R", WorkerDone(result=timeout), is_open=True) is None
        many = RunResult(
            run_id="R", status=Status.FAILED, base="c", engine="e", duration=1, cost=0,
            results=[result] * 300,
        )  # fmt: skip
        end = notification("R", RunDone(result=many), is_open=True)
        assert end is not None
        assert (end["counts"], end["resumable"]) == (
            {"success": 0, "partial": 0, "failed": 300, "timeout": 0}, True
        )  # fmt: skip
        assert len(end["not_successful"]) == 100

    def test_full_queue_drops_the_oldest_and_reports_a_hang_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notify, "_LAST", 0.3)
        problems: list[str] = []
        gate = tmp_path / "gate"
        script = f"cat >> {tmp_path}/told; until [ -e {gate} ]; do sleep 0.05; done"
        notifier = Notifier(f"sh -c '{script}'", failed=problems.append)
        for number in range(150):
            notifier.tell({"number": number})
        notifier.close()
        assert problems == ["the program or server took longer than 0.3 s"]
        gate.touch()
        notifier._thread.join(30)
        assert len(problems) == 1
        assert not notifier._waiting.empty()
        waiting = [notifier._waiting.get_nowait() for _ in range(notifier._waiting.qsize())]
        assert {"number": 149} in waiting

    def test_url_is_posted_to_and_not_recorded(
        self, repo: Path, local_engine: LocalEngine, posted: tuple[str, list[bytes]]
    ) -> None:
        address, bodies = posted
        _, _, events = watched(repo, local_engine, self.task(repo), prompts=0.5, notify=address)
        types = [json.loads(body)["type"] for body in bodies]
        assert types == ["intervention", "run_done"]
        (run,) = all_runs(repo / ".git" / "orchestrator")
        record = read_record(run)
        assert record is not None
        assert record.private == ("notify",)
        written = [path for path in run.path.rglob("*") if path.is_file()]
        assert not any(b"t0psecret" in path.read_bytes() for path in written)
        assert "t0psecret" not in str(events)

    @pytest.mark.parametrize("notify", ["/no/such/program", "false", "http://127.0.0.1:9/x", "'"])
    def test_failed_notification_is_reported_and_the_run_continues(
        self, repo: Path, local_engine: LocalEngine, notify: str
    ) -> None:
        worker, found, events = watched(
            repo, local_engine, self.task(repo), prompts=0.5, notify=notify
        )
        assert (worker.status, len(found)) == (Status.SUCCESS, 1)
        notes = [event.message for event in events if isinstance(event, Notice)]
        assert [note for note in notes if note.startswith("a notification could not be sent")]

    def test_hanging_notification_does_not_delay_the_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notify, "_TIMEOUT", 60.0)
        monkeypatch.setattr(notify, "_LAST", 0.2)
        gate = tmp_path / "gate"
        notifier = Notifier(
            f"sh -c 'until [ -e {gate} ]; do sleep 0.02; done'", failed=lambda _: None
        )
        began = time.monotonic()
        for number in range(1000):
            notifier.tell({"number": number})
        notifier.close()
        assert time.monotonic() - began < 50
        assert notifier._thread.is_alive()
        gate.touch()
        notifier._thread.join(30)
        assert not notifier._thread.is_alive()

    def test_temporary_failures_are_retried_with_the_same_signed_id(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = b"k" * 24
        monkeypatch.setenv(KEY_VARIABLE, f"whsec_{base64.b64encode(key).decode()}")
        with answering(503, 429, 204) as (address, requests):
            assert send(address, b'{"a": 1}') is None
        assert len(requests) == 3
        assert len({headers["webhook-id"] for headers, _ in requests}) == 1
        for headers, body in requests:
            said, moment = headers["webhook-id"], headers["webhook-timestamp"]
            assert abs(time.time() - int(moment)) < 300
            content = f"{said}.{moment}.".encode() + body
            digest = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
            assert headers["webhook-signature"] == f"v1,{digest}"

    @pytest.mark.parametrize(("codes", "sent"), [((400, 204), 1), ((503,) * 9, 4)])
    def test_other_failures_are_reported(self, codes: tuple[int, ...], sent: int) -> None:
        with answering(*codes) as (address, requests):
            assert send(address, b"{}") == f"the server answered with the status {codes[0]}"
        assert len(requests) == sent
        assert "webhook-signature" not in requests[0][0]

    def test_pause_that_a_server_asks_for_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []
        monkeypatch.setattr(webhooks.send_once.retry, "wait", webhooks._pause)
        monkeypatch.setattr(webhooks.send_once.retry, "sleep", slept.append)
        failures: list[Exception | None] = [
            RequestFailedError("busy", retry_after=seconds) for seconds in (7.0, 0.0)
        ]

        def post(*_: object, **__: object) -> bytes:
            if failures and (error := failures.pop(0)) is not None:
                raise error
            return b""

        monkeypatch.setattr(outgoing, "post", post)
        assert send("http://127.0.0.1:1/", b"{}") is None
        assert slept == [7.0, 0.0]
        # A pause that ends too late is none.
        failures[:] = [RequestFailedError("come back tomorrow", retry_after=86_400.0)]
        assert send("http://127.0.0.1:1/", b"{}") == "come back tomorrow"
        assert slept == [7.0, 0.0]

    def test_wrong_key_is_refused_before_the_run(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for wrong in ("t0psecret", "whsec_!", "whsec_YQ=="):
            monkeypatch.setenv(KEY_VARIABLE, wrong)
            with pytest.raises(ConfigError, match=KEY_VARIABLE) as caught:
                shell_run(repo, local_engine, "true", triggers=Triggers(notify="true"))
            assert wrong not in str(caught.value)
        assert shell_run(repo, local_engine, "true").status is Status.SUCCESS

    def test_desktop_calls_notify_send_without_text_of_workers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "notify-send"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        result = WorkerResult(
            worker_id=1, branch="b", model="m", status=Status.FAILED, worktree_path="/w",
            message="<b>--evil", name="lint", reason=Reason.OOM,
        )  # fmt: skip
        message = notification("R", WorkerDone(result=result))
        assert send("desktop", json.dumps(message).encode()) is None
        said = (tmp_path / "said").read_text().splitlines()
        assert said == ["--", "orchestrator", "run R: worker 1 (lint) ended: failed (oom)"]

    def test_command_is_not_run_by_a_shell(self, tmp_path: Path) -> None:
        made = tmp_path / "made"
        assert send(f"true ; touch {made}", b"{}") is None
        assert not made.exists()

    def test_hanging_command_is_killed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(notify, "_TIMEOUT", 0.2)
        assert send("sleep 20", b"{}") is not None

    def test_hanging_server_times_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(webhooks, "TIMEOUT", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            problem = send(f"http://127.0.0.1:{silent.getsockname()[1]}/", b"{}")
        assert problem == "no answer within 0.2 s"

    @pytest.mark.parametrize("target", ["/no/t0psecret", "http://127.0.0.1:t0psecret/"])
    def test_error_does_not_contain_the_target(self, target: str) -> None:
        problem = send(target, b"{}")
        assert problem
        assert "t0psecret" not in problem

    def test_discovered_file_cannot_set_notify(self, repo: Path) -> None:
        (repo / "orchestrator.yaml").write_text("triggers:\n  notify: touch /tmp/x\n  silence: 9\n")
        with pytest.raises(ConfigError, match=r"`triggers.notify` is not accepted from a file"):
            load_config(options={"tasks": ("x",)}, environ={}, top=repo, file=None)
        named = load_config(
            options={"tasks": ("x",)}, environ={}, top=repo, file=repo / "orchestrator.yaml"
        )
        assert (named.triggers.notify, named.triggers.silence) == ("touch /tmp/x", 9.0)


EXAMPLES = Path(__file__).parents[2] / "examples" / "notifications"
HOSTILE = "<!channel> <http://evil.example|x> & ```\nTo: other@example.org"


def messages() -> list[bytes]:
    """Return what is sent about a worker that failed, and at the end of its run."""
    failed = WorkerResult(
        worker_id=2, branch="b", status=Status.FAILED, reason=Reason.AGENT_FAILED, model="m",
        worktree_path="", message=HOSTILE,
    )  # fmt: skip
    run = RunResult(
        run_id="R", status=Status.FAILED, base="0" * 40, engine="e", duration=1.0, cost=0.0,
        results=[failed],
    )  # fmt: skip
    found = (notification("R", event) for event in (WorkerDone(result=failed), RunDone(result=run)))
    return [json.dumps(message).encode() for message in found]


class TestExamples:
    def test_slack_message_mentions_no_user(self, posted, monkeypatch) -> None:
        address, bodies = posted
        monkeypatch.setenv("SLACK_WEBHOOK", address)
        for message in messages():
            assert send(f"{sys.executable} {EXAMPLES / 'slack.py'}", message) is None
        first, last = (json.loads(body) for body in bodies)
        assert first.keys() == {"text"}
        assert first["text"].startswith("run R: worker 2 ended: failed (agent_failed)\n```&lt;!ch")
        assert first["text"].count("```") == 2
        assert not {"<", ">"} & {*first["text"]}
        assert last == {"text": "run R: failed, 0 of 1 workers succeeded"}

    def test_mail_goes_to_one_address(self, tmp_path: Path, monkeypatch) -> None:
        program = tmp_path / "sendmail"
        program.write_text(
            f"#!/bin/sh\ncat > '{tmp_path}/mail'\necho \"$*\" >> '{tmp_path}/words'\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        for message, subject in zip(
            messages(),
            (
                "run R: worker 2 ended: failed (agent_failed)",
                "run R: failed, 0 of 1 workers succeeded",
            ),
            strict=True,
        ):
            target = f"{sys.executable} {EXAMPLES / 'mail.py'} you@example.org"
            assert send(target, message) is None
            mail = message_from_string((tmp_path / "mail").read_text())
            assert (mail.get_all("To"), mail["Subject"]) == (["you@example.org"], subject)
            assert "worker 2: <!channel>" in mail.get_payload()
        assert (tmp_path / "words").read_text() == "-t\n-t\n"

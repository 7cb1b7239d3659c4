"""Somebody is told when a worker is silent, repeats an error, asks, or strays; hostile output."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from orchestrator.config.container import Limits
from orchestrator.config.loading import load_config
from orchestrator.config.run import Triggers
from orchestrator.errors import ConfigError
from orchestrator.events import Event, Intervention, Notice, RunDone, WorkerDone
from orchestrator.execution import watchdog as triggers
from orchestrator.execution.watchdog import AllowedPaths, OutputSigns, Watchdog
from orchestrator.git.repository import Repository
from orchestrator.results import Reason, RunResult, Status, WorkerResult
from orchestrator.runs import notifications as notify
from orchestrator.runs.notification_messages import notification
from orchestrator.runs.notifications import Notifier, send
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import all_runs
from tests.support.local_engine import LocalEngine
from tests.support.runs import GRACE, configured, shell_run, show


def watched(
    repo: Path, engine: LocalEngine, task: str, **triggers: object
) -> tuple[WorkerResult, list[Intervention], list[Event]]:
    """Run a task, which may wait until it was `told`."""
    events: list[Event] = []
    found: list[Intervention] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, Intervention):
            found.append(event)
            (repo.parent / f"told-{len(found)}").touch()

    config = configured(task, triggers=Triggers(**triggers), limits=Limits(grace=GRACE))
    (worker,) = ParallelRunner(config, repo, engine=engine, emit=emit).run()
    return worker, found, events


def told(repo: Path, number: int | str = 1) -> str:
    """Give a command that ends when so many interventions have been told."""
    return f"until [ -e {repo.parent}/told-{number} ]; do sleep 0.02; done"


class TestWarnings:
    def test_silence_once_for_each_time(self, repo: Path, local_engine: LocalEngine) -> None:
        task = f"echo a; {told(repo)}; echo b; {told(repo, 2)}; echo c"
        worker, found, _ = watched(repo, local_engine, task, silence=1.0)
        assert worker.status is Status.SUCCESS
        said = [(event.trigger, event.detail, event.stops) for event in found]
        assert said == [("silence", "the agent printed nothing for 1 s", False)] * 2

    def test_an_error_that_comes_again_and_again(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        task = (
            'for i in 1 2 3 4 5; do echo "$i: Error: no route to 10.0.0.$i" >&2; echo $i; done;'
            f"echo error of another kind; {told(repo)}"
        )
        _, found, _ = watched(repo, local_engine, task, repeated_errors=4)
        assert [event.detail for event in found] == ["4 times: 4: Error: no route to 10.0.0.4"]
        assert found[0].trigger == "repeated_error"

    @pytest.mark.parametrize(
        "said", ["Do you want to proceed? (y/n) ", "Password for ann: ", "Press enter to go on\\n"]
    )
    def test_a_question_that_nobody_answers(
        self, repo: Path, local_engine: LocalEngine, said: str
    ) -> None:
        task = f"echo working; printf '{said}'; {told(repo)}; echo on"
        _, found, _ = watched(repo, local_engine, task, prompts=0.5)
        said = said.removesuffix("\\n").strip()
        asked = [(event.trigger, event.detail) for event in found]
        assert asked == [("needs_input", f"the agent waits for an answer: {said}")]

    def test_a_question_that_was_passed_is_none(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        task = r"printf 'Are you sure? (y/n)\nyes, I am\n'; sleep 1.2"
        assert watched(repo, local_engine, task, prompts=0.4)[1] == []

    def test_changes_outside_the_scope(self, repo: Path, local_engine: LocalEngine) -> None:
        (repo / ".gitignore").write_text("*.tmp\n")
        task = (
            "echo x > src/new.py; echo x >> docs.md; mkdir -p b; echo x > b/out; echo x > a.txt; "
            f"touch -d 2001-01-01 b/old; echo x > src.py; {told(repo)}; rm src/app.py"
        )
        paths = ("src/", "*.md")
        _, found, _ = watched(repo, local_engine, task, paths=paths)
        detail = "the agent changed files out of its scope: a.txt, b/old, b/out, src.py"
        assert [(event.trigger, event.detail) for event in found] == [("out_of_scope", detail)]

    def test_what_git_ignores_is_no_change(self, repo: Path, local_engine: LocalEngine) -> None:
        from tests.support.repository import git

        (repo / ".gitignore").write_text("*.tmp\nbuild/\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "ignore")
        task = "mkdir build; echo x > build/out; echo x > y.tmp; echo x > src/a; sleep 2.6"
        assert watched(repo, local_engine, task, paths=("src",))[1] == []

    def test_nothing_is_looked_for_unasked(self, repo: Path, local_engine: LocalEngine) -> None:
        task = "for i in 1 2 3; do echo error; done; echo x > x; printf 'go on? (y/n)'; sleep 1"
        assert watched(repo, local_engine, task)[1] == []


class TestStops:
    @pytest.mark.parametrize(
        ("task", "triggers", "status", "reason"),
        [
            ("exec sleep 60", {"silence": 0.5}, Status.TIMEOUT, Reason.IDLE),
            ("while :; do echo error; sleep 0.1; done", {"repeated_errors": 3}, Status.FAILED,
             Reason.REPEATED_ERROR),
            ("printf 'password: '; exec sleep 60", {"prompts": 0.5}, Status.FAILED,
             Reason.NEEDS_INPUT),
            ("exec sleep 60", {"paths": ("src",)}, Status.FAILED, Reason.OUT_OF_SCOPE),
        ],
    )  # fmt: skip
    def test_the_worker_is_stopped_for_it_and_its_work_is_kept(
        self, repo: Path, local_engine: LocalEngine, task: str, triggers: dict[str, object],
        status: Status, reason: Reason,
    ) -> None:  # fmt: skip
        worker, found, _ = watched(
            repo, local_engine, f"echo w > w; {task}", on_trigger="stop", **triggers
        )
        assert (worker.status, worker.reason) == (status, reason)
        assert str(worker.message).startswith("stopped: ")
        assert [event.stops for event in found] == [True]
        assert show(repo, f"{worker.branch}:w") == "w"


class TestHostileOutput:
    LINES = (
        b"error" * 200_000,
        b"password" * 100_000 + b"\n",
        b"password" + b" " * 500_000 + b"x\n",
        b"(y/n" * 100_000,
        b"\n" * 1_000_000,
        b"error\n" * 200_000,
        b"error " + b"a" * 65536 + b"\n",
        b"error 0x" + b"f" * 65536 + b"\n",
        bytes(range(256)) * 4000,
    )

    @pytest.mark.parametrize("number", range(len(LINES)))
    def test_takes_bounded_time_and_memory(self, number: int) -> None:
        signs = OutputSigns(Triggers(repeated_errors=1_000_000, prompts=1))
        data, began = self.LINES[number], time.process_time()
        for at in range(0, len(data), 65536):
            signs.feed("stdout", data[at : at + 65536])
            signs.prompt()
        assert time.process_time() - began < 1.0
        assert sum(map(len, signs._kinds)) + len(signs.end) + len(signs._started["stdout"]) < 80_000

    def test_many_kinds_of_errors_are_not_all_remembered(self) -> None:
        signs = OutputSigns(Triggers(repeated_errors=3))
        for number in range(1000):
            words = "".join(chr(97 + (number >> shift) % 26) for shift in (0, 3, 6))
            signs.feed("stdout", f"error {words}{'x' * (number % 50)}\nerror the same\n".encode())
        assert len(signs._kinds) <= 64
        assert signs.repeated == "error the same"

    def test_of_a_flood_a_few_lines_are_enough(self) -> None:
        signs = OutputSigns(Triggers(repeated_errors=300))
        signs.feed("stdout", b"error: no\n" * 1000)
        assert signs.repeated is None
        signs.feed("stdout", b"error: no\n" * 1000)
        assert signs.repeated == "error: no"

    def test_a_line_in_pieces_is_one(self) -> None:
        signs = OutputSigns(Triggers(repeated_errors=2))
        for piece in (b"err", b"or: a\ner", b"ror", b": a", b"\n"):
            signs.feed("stderr", piece)
        assert signs.repeated == "error: a"

    def test_a_flood_of_different_errors_is_told_a_bounded_number_of_times(self) -> None:
        signs, sentry = (
            OutputSigns(Triggers(repeated_errors=1)),
            Watchdog(Triggers(repeated_errors=1), None),
        )
        told = 0
        for number in range(300):
            signs.repeated = f"error {number}"
            told += len(list(sentry.look(signs, heard_at=0)))
        assert told == 100

    def test_nothing_of_it_steers_a_terminal(self, repo: Path, local_engine: LocalEngine) -> None:
        task = r"printf '\033[2J error \033]0;x\007\n\033[2J error \033]0;x\007\n'; " + told(repo)
        _, (found,), _ = watched(repo, local_engine, task, repeated_errors=2)
        assert found.detail.isprintable()


class TestResults:
    """What was noticed on the way is in the result."""

    QUESTION = "echo working; printf 'Overwrite? (y/n) '; exec sleep 60"

    def noticed(self, worker: WorkerResult) -> list[tuple[str, str]]:
        return [(one.trigger, one.detail) for one in worker.interventions]

    def test_all_that_was_told(self, repo: Path, local_engine: LocalEngine) -> None:
        task = f"echo error; echo error; printf 'go on? (y/n) '; {told(repo, 3)}; echo on"
        task += f"; {told(repo, 4)}"
        worker, found, _ = watched(
            repo, local_engine, task, silence=0.5, prompts=0.5, repeated_errors=2
        )
        assert worker.status is Status.SUCCESS
        seen = dict.fromkeys((event.trigger, event.detail) for event in found)
        assert self.noticed(worker) == list(seen)
        assert {one.trigger for one in worker.interventions} == {
            "repeated_error", "silence", "needs_input",
        }  # fmt: skip
        assert worker.message is None

    @pytest.mark.parametrize("triggers", [{}, {"prompts": 0.3}])
    def test_a_question_at_the_deadline(
        self, repo: Path, local_engine: LocalEngine, triggers: dict[str, float]
    ) -> None:
        """Whether or not somebody wished to be told of it while there was time."""
        config = configured(
            self.QUESTION, timeout_per_worker=2, triggers=Triggers(**triggers),
            limits=Limits(grace=GRACE),
        )  # fmt: skip
        (worker,) = ParallelRunner(config, repo, engine=local_engine).run()
        asked = "the agent waits for an answer: Overwrite? (y/n)"
        assert worker.message == f"stopped at its deadline of 2 s; noticed before: {asked}"
        assert self.noticed(worker) == [("needs_input", asked)]

    def test_output_that_passes_by_is_no_question(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        config = configured(
            "while :; do printf 'sure? (y/n) '; sleep 0.1; done", timeout_per_worker=1.5,
            limits=Limits(grace=GRACE),
        )  # fmt: skip
        (worker,) = ParallelRunner(config, repo, engine=local_engine).run()
        assert (worker.message, worker.interventions) == ("stopped at its deadline of 1.5 s", [])

    def test_many_of_them_are_bounded(self, repo: Path, local_engine: LocalEngine) -> None:
        lines = "n=0; for k in a b c d e f g h i j k l m n o p q r s t u v w x y z"
        wait = told(repo, "$n")
        task = f"{lines}; do echo error $k; echo error $k; n=$((n+1)); {wait}; done"
        worker, found, _ = watched(repo, local_engine, task, repeated_errors=2)
        assert len(found) == 26
        assert len(worker.interventions) == 20
        assert worker.interventions[-1].detail.endswith("error z")


class TestFiles:
    @pytest.fixture
    def sentry(self, repo: Path) -> Callable[[], Watchdog]:
        written = repo.parent / "written"
        written.mkdir()
        for number in range(9):
            (written / f"\033[2J{number}").touch()
        scope = AllowedPaths(paths=("src",), written=written, since=None, git=Repository(repo).git)
        return lambda: Watchdog(Triggers(paths=("src",)), scope)

    def look(self, sentry: Watchdog) -> list[str]:
        found = sentry.look(OutputSigns(Triggers()), heard_at=time.monotonic())
        return [one.detail for one in found]

    def test_names_do_not_steer_a_terminal(self, sentry: Callable[[], Watchdog]) -> None:
        (detail,) = self.look(sentry())
        assert detail.isprintable()
        assert detail.endswith("and 4 more")

    def test_few_are_looked_at(
        self, sentry: Callable[[], Watchdog], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(triggers, "_MOST_FILES", 7)
        (detail,) = self.look(sentry())
        assert detail.endswith("and 2 more")


@pytest.fixture
def posted() -> Iterator[tuple[str, list[bytes]]]:
    """A web address on this machine, and what was posted to it."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook?token=t0psecret", bodies
    server.shutdown()
    server.server_close()
    thread.join(10)


class TestNotify:
    TASK = "printf 'password: '; exec sleep 1.5"

    def test_a_command_gets_the_event(self, repo: Path, local_engine: LocalEngine) -> None:
        said = repo.parent / "said; touch not-a-shell"
        script = repo.parent / "tell.py"
        script.write_text("import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))")
        notify = f"{sys.executable} {script} '{said}'"
        watched(repo, local_engine, self.TASK, prompts=0.5, notify=notify)
        event, end = map(json.loads, said.read_text().splitlines())
        (run,) = all_runs(repo / ".git" / "orchestrator")
        wanted = {"run_id": run.run_id, "type": "intervention", "worker_id": 1}
        assert wanted.items() <= event.items()
        assert (event["trigger"], event["stops"]) == ("needs_input", False)
        assert (end["type"], end["run_id"], end["status"]) == ("run_done", run.run_id, "success")

    def test_failed_workers_and_the_end_are_told(
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

    def test_whoever_was_cancelled_or_skipped_is_in_the_end_alone(self) -> None:
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

    def test_the_newest_is_told_and_what_hangs_is_said_once(
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

    def test_a_web_address_is_posted_to_and_kept_nowhere(
        self, repo: Path, local_engine: LocalEngine, posted: tuple[str, list[bytes]]
    ) -> None:
        address, bodies = posted
        _, _, events = watched(repo, local_engine, self.TASK, prompts=0.5, notify=address)
        types = [json.loads(body)["type"] for body in bodies]
        assert types == ["intervention", "run_done"]
        (run,) = all_runs(repo / ".git" / "orchestrator")
        record = run.record()
        assert record is not None
        assert record.private == ("notify",)
        written = [path for path in run.path.rglob("*") if path.is_file()]
        assert not any(b"t0psecret" in path.read_bytes() for path in written)
        assert "t0psecret" not in str(events)

    @pytest.mark.parametrize("notify", ["/no/such/program", "false", "http://127.0.0.1:9/x", "'"])
    def test_one_that_does_not_arrive_is_said_and_harms_nothing(
        self, repo: Path, local_engine: LocalEngine, notify: str
    ) -> None:
        worker, found, events = watched(repo, local_engine, self.TASK, prompts=0.5, notify=notify)
        assert (worker.status, len(found)) == (Status.SUCCESS, 1)
        notes = [event.message for event in events if isinstance(event, Notice)]
        assert [note for note in notes if note.startswith("a notification could not be sent")]

    def test_one_that_hangs_holds_nobody_up(
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

    def test_no_shell_reads_a_command(self, tmp_path: Path) -> None:
        made = tmp_path / "made"
        assert send(f"true ; touch {made}", b"{}") is None
        assert not made.exists()

    def test_a_server_that_hangs_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(notify, "_TIMEOUT", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            assert send(f"http://127.0.0.1:{silent.getsockname()[1]}/", b"{}") == "TimeoutError"

    @pytest.mark.parametrize("target", ["/no/t0psecret", "http://127.0.0.1:t0psecret/"])
    def test_nothing_of_the_target_is_told(self, target: str) -> None:
        problem = send(target, b"{}")
        assert problem
        assert "t0psecret" not in problem

    def test_a_file_that_nobody_named_starts_no_program(self, repo: Path) -> None:
        (repo / "orchestrator.yaml").write_text("triggers:\n  notify: touch /tmp/x\n  silence: 9\n")
        with pytest.raises(ConfigError, match=r"`triggers.notify` is not accepted from a file"):
            load_config(options={"tasks": ("x",)}, environ={}, top=repo, file=None)
        named = load_config(
            options={"tasks": ("x",)}, environ={}, top=repo, file=repo / "orchestrator.yaml"
        )
        assert (named.triggers.notify, named.triggers.silence) == ("touch /tmp/x", 9.0)

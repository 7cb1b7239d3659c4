"""Tests of workers that continue with a message, and of checks that are sent back."""

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Event, Notice, TurnDone, TurnStarted, WorkerDone, WorkerStarted
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.project import Check
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.runs.resuming.continued_worker import ContinuedWorker
from orchestrator.runs.resuming.continuing import (
    Message,
    check_message,
    leave_message,
    message_from_checks,
)
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import require_record
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.turns import (
    LONGEST_MESSAGE,
    NextTurn,
    is_queued,
    queue_message,
    take_message,
    withdraw_message,
)
from orchestrator.worker import attempts, lifecycle
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.turns.sessions import with_session
from orchestrator.worker.workspace.mounts import Workspace
from tests.support.attempts import state_of
from tests.support.errors import raises
from tests.support.live import eventually
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, past_run, show


def continued(
    repo: Path, engine: LocalEngine, message: str, worker: int = 1, **rest: Any
) -> WorkerResult:
    emit = rest.pop("emit", None)
    directory = state_of(repo)
    turn = Message(worker, NextTurn(message=message, **rest))
    runner = ContinuedWorker(directory, turn, emit=emit, engine=engine)
    (result,) = runner.execute().results
    return result


@pytest.mark.parametrize("text", ["", " \n", "a\0b", "a\ud800", "x" * (LONGEST_MESSAGE + 1)])
def test_unusable_message_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        check_message(text)


class TestContinue:
    def test_second_turn_starts_from_the_branch_and_adds_to_it(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        first = past_run(repo, local_engine, "echo 1 > one.txt", "echo b > b.txt").results
        tree, events = repo / ".architect-parallel-1", list[Event]()
        (tree / "mine.txt").write_text("mine\n")
        git(tree, "add", "mine.txt")
        git(tree, "commit", "-qm", "by the user")
        told = "cat one.txt mine.txt > two.txt"
        result = continued(repo, local_engine, told, emit=events.append)
        assert (result.status, result.worker_id, result.attempts) == (Status.SUCCESS, 1, 2)
        assert show(repo, "architect/parallel-1:two.txt") == "1\nmine"
        assert result.files_modified == ["mine.txt", "one.txt", "two.txt"]
        assert (result.base, result.branch) == (first[0].base, first[0].branch)
        assert git(repo, "rev-parse", "architect/parallel-1") == result.commit
        assert (tree / "two.txt").read_text() == "1\nmine\n"
        assert git(tree, "status", "--porcelain") == ""
        turns = [(turn.number, turn.message, turn.continued) for turn in result.turns]
        assert turns == [(1, None, None), (2, told, "command")]
        assert [turn.commit for turn in result.turns] == [first[0].commit, result.commit]
        began = [(e.turn, e.attempt, e.message) for e in events if isinstance(e, TurnStarted)]
        ended = [e.turn for e in events if isinstance(e, TurnDone)]
        assert (began, ended) == ([(2, 2, told)], [result.turns[-1]])
        # The other worker's result is as it was.
        run = state_of(repo).run_result()
        assert run is not None
        assert [found.worker_id for found in run.results] == [1, 2]
        assert run.results[1] == first[1]
        third = continued(repo, local_engine, "cat two.txt > three.txt")
        assert [turn.number for turn in third.turns] == [1, 2, 3]
        assert third.turns[:2] == result.turns

    def test_cost_of_all_turns_counts(self, repo: Path, local_engine: LocalEngine) -> None:
        report = """echo '{"type": "orchestrator.report", "cost": %s, "tokens": 10}'"""
        past_run(repo, local_engine, report % 0.5, budget_per_worker=1.0)
        second = continued(repo, local_engine, report % 0.25)
        assert (second.cost, second.tokens) == (0.75, 20)
        assert [turn.cost for turn in second.turns] == [0.5, 0.25]
        third = continued(repo, local_engine, report % 0.25)
        assert (third.cost, third.turns[-1].cost) == (1.0, 0.25)
        with pytest.raises(ConfigError, match="has spent"):
            continued(repo, local_engine, report % 0.25)
        fourth = continued(repo, local_engine, report % 0.25, budget_per_worker=2.0)
        assert fourth.cost == 1.25
        # A limit stays until another is given.
        assert (
            continued(repo, local_engine, "env | grep ^ORCHESTRATOR_BUDGET > b").status
            is Status.SUCCESS
        )
        assert show(repo, "architect/parallel-1:b") == "ORCHESTRATOR_BUDGET=0.75"

    @pytest.mark.parametrize(
        "limit", [{"budget_total": 1.0}, {"tokens_total": 9}, {"tokens_per_worker": 9}]
    )
    def test_is_refused_if_nothing_is_left_of_the_budget(
        self, repo: Path, local_engine: LocalEngine, limit: dict[str, Any]
    ) -> None:
        task = """echo '{"type": "orchestrator.report", "cost": 1.0, "tokens": 9}'"""
        (first,) = past_run(repo, local_engine, task, **limit).results
        with raises("budget.spent"):
            continued(repo, local_engine, "echo 2 > two", budget_per_worker=5.0)
        assert state_of(repo).result(1) == first

    def test_message_that_begins_no_turn_is_an_error(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError("no space left")

        past_run(repo, local_engine, "echo 1 > one")
        monkeypatch.setattr(attempts, "_archive_attempt", fail)
        with raises("message.undelivered", "no space left"):
            continued(repo, local_engine, "echo 2 > two")

    def test_continues_after_failure_timeout_and_cancel(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        (first,) = past_run(
            repo, local_engine, "echo 1 > a; sleep 60", timeout_per_worker=1
        ).results
        assert first.status is Status.TIMEOUT
        second = continued(repo, local_engine, "cat a > b; exit 3")
        assert (second.status, second.reason) == (Status.FAILED, Reason.AGENT_FAILED)
        third = continued(repo, local_engine, "cat b > c", timeout_per_worker=30)
        assert (third.status, show(repo, "architect/parallel-1:c")) == (Status.SUCCESS, "1")
        assert [turn.status for turn in third.turns] == [
            Status.TIMEOUT, Status.FAILED, Status.SUCCESS,
        ]  # fmt: skip

    def test_retries_of_a_turn_start_where_the_turn_began(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        past_run(repo, local_engine, "echo 1 > one", retries=1, retry_delay=0)
        told = f"echo x >> {tally}; ls > of-$(wc -l < {tally}); test $(wc -l < {tally}) = 2"
        result = continued(repo, local_engine, told)
        assert (result.status, result.attempts) == (Status.SUCCESS, 3)
        assert result.turns[-1].attempts == 2
        assert result.files_modified == ["of-2", "one"]

    @pytest.mark.parametrize(
        ("spoil", "match"),
        [
            (lambda repo: (repo / ".architect-parallel-1/a.txt").write_text("x"), "uncommitted"),
            (lambda repo: git(repo, "worktree", "remove", "-f", ".architect-parallel-1")
             + git(repo, "branch", "-D", "architect/parallel-1"), "cannot continue"),
            (lambda repo: git(repo / ".architect-parallel-1", "checkout", "-qb", "mine"),
             "not checked out"),
            (lambda repo: git(repo / ".architect-parallel-1", "checkout", "-q", "--detach"),
             "not checked out"),
        ],
    )  # fmt: skip
    def test_is_refused_before_anything_changes(
        self, repo: Path, local_engine: LocalEngine, spoil: Any, match: str
    ) -> None:
        past_run(repo, local_engine, "echo 1 > one")
        spoil(repo)
        before = git(repo, "for-each-ref")
        with pytest.raises(ConfigError, match=match):
            continued(repo, local_engine, "true")
        assert git(repo, "for-each-ref") == before
        assert state_of(repo).result(1) is not None
        assert not is_queued(state_of(repo), 1)

    def test_commits_of_the_user_are_kept_if_a_turn_rewrites_the_branch(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        past_run(repo, local_engine, "echo 1 > one")
        tree = repo / ".architect-parallel-1"
        git(tree, "commit", "-q", "--allow-empty", "-m", "by the user")
        mine = git(tree, "rev-parse", "HEAD")
        # The harvest finds no commits in the worker's git directory that it could keep.
        lost = 'git reset -q --hard HEAD~2; rm -f "$(git rev-parse --git-dir)"/objects/pack/*'
        commit = "echo 2 > two; git add two; git commit -qm two"
        result = continued(repo, local_engine, f"{lost}; {commit}")
        assert (result.status, result.files_modified) == (Status.SUCCESS, ["two"])
        assert git(repo, "for-each-ref", f"--contains={mine}", "refs/orchestrator/attempts/")

    def test_worktree_that_appeared_at_the_end_is_updated(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        past_run(repo, local_engine, "echo '*.tmp' > .gitignore", worktrees="end", retries=1)
        tree = repo / ".architect-parallel-1"
        (tree / "mine.tmp").write_text("of the user")
        # The turn's first attempt fails, and the second starts where the turn began.
        told = "echo 2 > two; ls > of-$ORCHESTRATOR_WORKER_ID; test -e again || exit 1"
        result = continued(repo, local_engine, told)
        assert (result.attempts, result.message) == (3, "exited with 1")
        assert git(tree, "status", "--porcelain") == ""
        result = continued(repo, local_engine, "mv two three; echo 3 >> three")
        assert (result.status, result.message) == (Status.SUCCESS, None)
        assert git(tree, "status", "--porcelain") == ""
        assert (tree / "three").read_text() == "2\n3\n"
        assert (tree / "mine.tmp").read_text() == "of the user"
        assert not list(state_of(repo).path.glob("*.half-made-*"))
        git(repo, "worktree", "remove", "-f", str(tree))
        result = continued(repo, local_engine, "echo 4 > four")
        assert (tree / "four").exists()


def test_full_disk_before_failed_checks_are_sent_back_ends_the_worker(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(attempts, "note_turn", full)
    checks = (Check(run="false"),)
    (result,) = past_run(repo, local_engine, "date > a", checks=checks, fix_checks=1).results
    assert (result.status, result.reason) == (Status.PARTIAL, Reason.CHECKS_FAILED)
    assert result.files_modified == ["a"]


class TestUndelivered:
    """A message that was accepted by a process which then died."""

    @pytest.mark.parametrize("delivered", [False, True])
    def test_is_kept_and_resumed(
        self, repo: Path, local_engine: LocalEngine, delivered: bool
    ) -> None:
        (first,) = past_run(repo, local_engine, "echo 1 > a").results
        directory = state_of(repo)
        assert queue_message(directory, 1, NextTurn(message="echo 2 >> a"))
        if delivered:
            Checkpoints(directory.worker(1)).note_given_up(first)
            assert take_message(directory, 1)
        with raises("run.unfinished"):
            continued(repo, local_engine, "echo 3 >> a")
        (second,) = ResumedRun(directory, engine=local_engine).execute().results
        third = continued(repo, local_engine, "echo 3 >> a")
        assert [turn.message for turn in second.turns] == [None, "echo 2 >> a"]
        assert third.turns[:2] == second.turns
        assert show(repo, "architect/parallel-1:a") == "1\n2\n3"

    def test_is_not_replaced_by_another(self, repo: Path, local_engine: LocalEngine) -> None:
        past_run(repo, local_engine, "echo 1 > a")
        directory, one = state_of(repo), NextTurn(message="echo 2 >> a")
        other = NextTurn(message=one.message)
        assert [queue_message(directory, 1, turn) for turn in (one, other)] == [True, False]
        assert [is_queued(directory, 1, turn) for turn in (one, other)] == [True, False]
        assert not withdraw_message(directory, 1, other)
        assert withdraw_message(directory, 1, one)
        assert not is_queued(directory, 1)
        assert [path for path in directory.path.iterdir() if "message" in path.name] == []

    def test_is_not_delivered_if_it_is_withdrawn_at_that_moment(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (first,) = past_run(repo, local_engine, "date +%N > a").results
        directory, turn, note = state_of(repo), NextTurn(message="true"), Checkpoints.note_given_up

        def withdrawn(self: Checkpoints, result: WorkerResult) -> None:
            note(self, result)
            withdraw_message(directory, 1, turn)

        monkeypatch.setattr(Checkpoints, "note_given_up", withdrawn)
        assert queue_message(directory, 1, turn)
        (result,) = ResumedRun(directory, engine=local_engine).execute().results
        assert (result, directory.result(1)) == (first, first)
        assert not (directory.worker(1) / "attempt.json").exists()


class TestLiveRun:
    def run(
        self, repo: Path, engine: LocalEngine, *tasks: str, **rest: Any
    ) -> tuple[threading.Thread, list[Event]]:
        events, started = list[Event](), threading.Event()

        def emit(event: Event) -> None:
            events.append(event)
            if isinstance(event, WorkerStarted):
                started.set()

        runner = ParallelRunner(configured(*tasks, **rest), repo, engine=engine, emit=emit)
        thread = threading.Thread(target=runner.execute)
        thread.start()
        assert started.wait(30)
        return thread, events

    @pytest.mark.parametrize("worktrees", ["start", "end"])
    def test_message_waits_for_the_end_of_the_turn(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path, worktrees: str
    ) -> None:
        flag, tree = tmp_path / "flag", repo / ".architect-parallel-1"
        wait = f"echo 1 > a; until test -e {flag}; do sleep 0.05; done"
        if worktrees == "end":
            # The worktree is behind the first of two turns without a pause.
            past_run(repo, local_engine, "true", worktrees=worktrees)
            thread = threading.Thread(target=lambda: continued(repo, local_engine, wait))
            thread.start()
            eventually(lambda: state_of(repo).is_live() and state_of(repo).result(1) is None)
        else:
            thread, _ = self.run(repo, local_engine, wait)
        found: list[WorkerResult] = []
        asking = threading.Thread(
            target=lambda: found.append(continued(repo, local_engine, "cat a > b"))
        )
        asking.start()
        while not is_queued(state_of(repo), 1):
            time.sleep(0.01)
        flag.touch()
        asking.join(30)
        thread.join(30)
        assert show(repo, "architect/parallel-1:b") == "1"
        assert git(tree, "status", "--porcelain") == ""
        numbers = [turn.number for turn in found[0].turns]
        assert numbers == ([1, 2] if worktrees == "start" else [1, 2, 3])
        assert state_of(repo).result(1) == found[0]

    def test_now_stops_the_turn_and_keeps_its_work(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        thread, _ = self.run(repo, local_engine, "echo 1 > a; sleep 60")
        time.sleep(0.3)
        result = continued(repo, local_engine, "cat a > b", now=True)
        thread.join(30)
        assert (result.status, show(repo, "architect/parallel-1:b")) == (Status.SUCCESS, "1")
        assert result.turns[0].reason is Reason.CANCELLED

    def test_request_to_end_a_turn_never_ends_the_turn_of_its_message(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The turn before ends by itself, after the message was left and before the request."""

        def leave(directory: RunDirectory, message: Message) -> None:
            leave_message(directory, message)
            eventually(lambda: not is_queued(directory, 1))

        monkeypatch.setattr("orchestrator.runs.resuming.continued_worker.leave_message", leave)
        thread, _ = self.run(repo, local_engine, "sleep 1; echo 1 > a")
        result = continued(repo, local_engine, "sleep 1; cat a > b", now=True)
        thread.join(30)
        assert [turn.status for turn in result.turns] == [Status.SUCCESS] * 2
        assert not state_of(repo).stop_asked(1)

    def test_message_with_a_secret_is_dropped(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOKEN", "s3cr3t-value-abcdef")
        closed = Isolation(network="none", secrets=("TOKEN",))
        thread, events = self.run(repo, local_engine, "sleep 1; echo 1 > a", isolation=closed)
        with raises("message.undelivered"):
            continued(repo, local_engine, "echo s3cr3t-value-abcdef > b")
        thread.join(30)
        (result,) = [event.result for event in events if isinstance(event, WorkerDone)]
        assert (result.status, result.attempts) == (Status.SUCCESS, 1)
        assert any("value of a secret" in e.message for e in events if isinstance(e, Notice))
        kept = [path for path in state_of(repo).path.rglob("*") if path.is_file()]
        assert not [path for path in kept if b"s3cr3t-value" in path.read_bytes()]

    def test_full_disk_leaves_the_message_and_the_other_workers_alone(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        other = "until test -e go; do sleep 0.05; done; echo 2 > b"
        thread, events = self.run(repo, local_engine, "true", f"cd {repo}; {other}", workers=2)
        directory = state_of(repo)
        eventually(lambda: directory.result(1) is not None)
        monkeypatch.setattr(Checkpoints, "note_given_up", full)
        assert queue_message(directory, 1, NextTurn(message="echo 3 > c"))
        (repo / "go").touch()
        thread.join(30)
        results = [event.result for event in events if isinstance(event, WorkerDone)]
        assert [result.status for result in results] == [Status.SUCCESS] * 2
        assert is_queued(directory, 1)

    def test_each_client_gets_the_result_of_its_own_message(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        flags = [tmp_path / "1", tmp_path / "2"]
        waits = [f"until test -e {flag}; do sleep 0.05; done" for flag in flags]
        thread, _ = self.run(repo, local_engine, waits[0])
        found: dict[str, WorkerResult] = {}

        def ask(text: str) -> threading.Thread:
            def wait() -> None:
                found[text] = continued(repo, local_engine, text)

            asking = threading.Thread(target=wait)
            asking.start()
            return asking

        second, third = f"echo 2 > a; {waits[1]}", "echo 3 >> a"
        first = ask(second)
        eventually(lambda: is_queued(state_of(repo), 1))
        with raises("message.waiting"):
            continued(repo, local_engine, third)
        flags[0].touch()
        eventually(lambda: not is_queued(state_of(repo), 1))
        last = ask(third)
        eventually(lambda: is_queued(state_of(repo), 1))
        flags[1].touch()
        for one in (first, last, thread):
            one.join(30)
        assert show(repo, "architect/parallel-1:a") == "2\n3"
        assert [turn.message for turn in found[third].turns] == [None, second, third]
        assert second in [turn.message for turn in found[second].turns]

    def test_message_of_an_interrupted_client_is_withdrawn(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        flag = tmp_path / "flag"
        thread, _ = self.run(repo, local_engine, f"until test -e {flag}; do sleep 0.05; done")
        turn = NextTurn(message="echo 2 > a")
        runner = ContinuedWorker(state_of(repo), Message(1, turn), engine=local_engine)
        runner.cancel()
        with raises("message.withdrawn"):
            runner.execute()
        flag.touch()
        thread.join(30)
        result = state_of(repo).result(1)
        assert result is not None
        assert result.turns == []

    def test_worker_that_has_ended_continues_beside_the_others(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        flag = tmp_path / "flag"
        thread, _ = self.run(
            repo, local_engine, "echo 1 > a", f"until test -e {flag}; do sleep 0.05; done"
        )
        while state_of(repo).result(1) is None:
            time.sleep(0.01)
        result = continued(repo, local_engine, "cat a > b")
        assert thread.is_alive()
        assert (result.status, show(repo, "architect/parallel-1:b")) == (Status.SUCCESS, "1")
        flag.touch()
        thread.join(30)
        run = state_of(repo).run_result()
        assert run is not None
        assert [len(found.turns) for found in run.results] == [2, 0]

    @pytest.mark.parametrize("worktrees", ["start", "end"])
    def test_uncommitted_changes_are_not_the_workers(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path, worktrees: str
    ) -> None:
        flag, tree = tmp_path / "flag", repo / ".architect-parallel-1"
        wait = f"until test -e {flag}; do sleep 0.05; done"
        thread, _ = self.run(repo, local_engine, "echo 1 > a", wait, worktrees=worktrees)
        eventually(lambda: state_of(repo).result(1))
        (tree / "mine").write_text("of the user")
        with raises("worktree.dirty"):
            continued(repo, local_engine, "cat a > b")
        assert not is_queued(state_of(repo), 1)
        git(tree, "add", "mine")
        git(tree, "commit", "-qm", "by the user")
        result = continued(repo, local_engine, "cat a mine > b")
        assert (result.status, result.message) == (Status.SUCCESS, None)
        assert (tree / "b").read_text() == "1\nof the user"
        flag.touch()
        thread.join(30)


class TestFixChecks:
    CHECK = ({"name": "fits", "run": "echo 'expected: \x1b[31mtwo'; grep -q two a"},)

    def test_failed_check_is_sent_back_at_most_twice(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        task = "echo one >> a"
        (worker,) = past_run(repo, local_engine, task, checks=self.CHECK, fix_checks=2).results
        assert (worker.status, worker.reason) == (Status.PARTIAL, Reason.CHECKS_FAILED)
        assert [turn.cause for turn in worker.turns] == ["user", "checks", "checks"]
        assert show(repo, "architect/parallel-1:a") == "one\none\none"
        message = worker.turns[1].message or ""
        for part in ("1 of 1 checks", "grep -q two a", "expected: "):
            assert part in message
        assert "\x1b" not in message

    def test_worker_that_reads_the_output_is_fixed(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        task = """echo "$ORCHESTRATOR_MESSAGE" | grep -o 'expected: .*' > a; echo one >> b"""
        (worker,) = past_run(repo, local_engine, task, checks=self.CHECK, fix_checks=2).results
        assert (worker.status, worker.outcome) == (Status.SUCCESS, "success, fixed after 2 turns")
        assert [check.passed for check in worker.checks] == [True]

    def test_message_with_failed_checks_is_made_for_continue(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        past_run(repo, local_engine, "echo one > a", checks=self.CHECK)
        run = state_of(repo)
        assert "expected: " in message_from_checks(run, require_record(run), 1)
        assert continued(repo, local_engine, "echo two > a").status is Status.SUCCESS
        with pytest.raises(ConfigError, match="no check"):
            message_from_checks(run, require_record(run), 1)

    def test_message_that_quotes_others_is_no_command(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        checks = ({"run": "echo 'touch evil'; echo '`touch evil`'; false"},)
        past_run(repo, local_engine, 'echo "$ORCHESTRATOR_MESSAGE" > said', checks=checks)
        run = state_of(repo)
        message = message_from_checks(run, require_record(run), 1)
        result = continued(repo, local_engine, message, quotes=True)
        assert result.files_modified == ["said"]
        assert "touch evil" in show(repo, "architect/parallel-1:said")

    def test_failed_check_is_not_sent_back_when_the_budget_is_spent(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        task = """echo one >> a; echo '{"type": "orchestrator.report", "cost": 0.6}'"""
        rest = {"checks": self.CHECK, "fix_checks": 5, "budget_per_worker": 1.0}
        (worker,) = past_run(repo, local_engine, task, **rest).results
        assert (len(worker.turns), worker.cost) == (2, 1.2)

    def test_worker_without_checks_has_none_to_fix(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        past_run(repo, local_engine, "echo 1 > a")
        with raises("option.unused"):
            continued(repo, local_engine, "echo 2 > a", fix_checks=2)

    def test_no_check_failed(self, repo: Path, local_engine: LocalEngine) -> None:
        (worker,) = past_run(
            repo, local_engine, "echo two > a", checks=self.CHECK, fix_checks=2
        ).results
        assert (worker.status, worker.turns) == (Status.SUCCESS, [])


def test_resume_of_a_run_that_ended_repeats_no_turn(repo: Path, local_engine: LocalEngine) -> None:
    past_run(repo, local_engine, "echo 1 >> a")
    result = continued(repo, local_engine, "echo 2 >> a")
    again = ResumedRun(state_of(repo), engine=local_engine).execute().results
    assert again == [result]


@pytest.mark.parametrize("sessions", [True, False])
def test_no_session_is_kept_unless_wanted(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, sessions: bool
) -> None:
    seen: list[bool] = []

    def note(worker: WorkerContext, workspace: Workspace) -> Workspace:
        seen.append(worker.session is not None)
        return with_session(worker, workspace)

    monkeypatch.setattr(lifecycle, "with_session", note)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
    config = configured("hello", agent_cli="claude", image=BASE_IMAGE, sessions=sessions)
    ParallelRunner(config, repo, engine=local_engine).execute()
    assert seen == [sessions]

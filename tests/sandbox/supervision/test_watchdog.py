"""Tests of alerts about silent, repeating, asking or straying workers, and of hostile output."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.run import Triggers
from orchestrator.engine.interface.spec import BindMount
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import Part, PlaceSpec
from orchestrator.repository.repository import Repository
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.supervision import watchdog as triggers
from orchestrator.sandbox.supervision.watchdog import AllowedPaths, OutputSigns, Watchdog
from tests.support.local_engine import LocalEngine
from tests.support.runs import GRACE, configured, show
from tests.support.watched_runs import told, watched


class TestWarnings:
    def test_each_silence_alerts_again(self, repo: Path, local_engine: LocalEngine) -> None:
        task = f"echo a; {told(repo)}; echo b; {told(repo, 2)}; echo c"
        worker, found, _ = watched(repo, local_engine, task, silence=1.0)
        assert worker.status is Status.SUCCESS
        said = {(event.trigger, event.detail, event.stops) for event in found}
        assert said == {("silence", "the agent printed nothing for 1 s", False)}
        assert len(found) >= 2

    def test_silence_alerts_once_until_the_next_output(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 100.0
        monkeypatch.setattr(triggers, "time", SimpleNamespace(monotonic=lambda: now))
        watchdog, told = Watchdog(Triggers(silence=1.0), None), list[float]()
        for heard_at in (100.0, 103.0):
            for now in (heard_at + 0.9, heard_at + 1.0, heard_at + 1.1, heard_at + 2.9):
                told += [now for _ in watchdog.look(OutputSigns(Triggers()), heard_at=heard_at)]
        assert told == [101.0, 104.0]

    def test_repeated_error_alerts(self, repo: Path, local_engine: LocalEngine) -> None:
        task = (
            'for i in 1 2 3 4 5; do echo "$i: Error: no route to 10.0.0.$i" >&2; echo $i; done;'
            f"echo error of another kind; {told(repo)}"
        )
        _, found, _ = watched(repo, local_engine, task, repeated_errors=4)
        assert [event.detail for event in found] == [
            "the agent printed the same error 4 times: 4: Error: no route to 10.0.0.4"
        ]
        assert found[0].trigger == "repeated_error"

    @pytest.mark.parametrize(
        "said", ["Do you want to proceed? (y/n) ", "Password for ann: ", "Press enter to go on\\n"]
    )
    def test_unanswered_question_alerts(
        self, repo: Path, local_engine: LocalEngine, said: str
    ) -> None:
        task = f"echo working; printf '{said}'; {told(repo)}; echo on"
        _, found, _ = watched(repo, local_engine, task, prompts=0.5)
        said = said.removesuffix("\\n").strip()
        asked = [(event.trigger, event.detail) for event in found]
        assert asked == [("needs_input", f"the agent waits for an answer: {said}")]

    def test_answered_question_does_not_alert(self, repo: Path, local_engine: LocalEngine) -> None:
        task = r"printf 'Are you sure? (y/n)\nyes, I am\n'; sleep 1.2"
        assert watched(repo, local_engine, task, prompts=0.4)[1] == []

    def test_changes_outside_of_the_paths_alert(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stray_files = AllowedPaths.stray_files

        def when_all_is_written(scope: AllowedPaths) -> list[str]:
            written = scope.place.changed(scope.part, most=100, seconds=60)
            return stray_files(scope) if "src.py" in written else []

        monkeypatch.setattr(AllowedPaths, "stray_files", when_all_is_written)
        (repo / ".gitignore").write_text("*.tmp\n")
        task = (
            "echo x > src/new.py; echo x >> docs.md; mkdir -p b; echo x > b/out; echo x > a.txt; "
            f"touch -d 2001-01-01 b/old; echo x > src.py; {told(repo)}; rm src/app.py"
        )
        paths = ("src/", "*.md")
        _, found, _ = watched(repo, local_engine, task, paths=paths)
        detail = "the worker changed files outside the allowed paths: a.txt, b/old, b/out, src.py"
        assert [(event.trigger, event.detail) for event in found] == [("out_of_scope", detail)]

    def test_ignored_files_do_not_alert(self, repo: Path, local_engine: LocalEngine) -> None:
        from tests.support.repository import git

        (repo / ".gitignore").write_text("*.tmp\nbuild/\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "ignore")
        task = "mkdir build; echo x > build/out; echo x > y.tmp; echo x > src/a; sleep 2.6"
        assert watched(repo, local_engine, task, paths=("src",))[1] == []

    def test_alerts_are_disabled_by_default(self, repo: Path, local_engine: LocalEngine) -> None:
        default = Triggers()
        assert (default.silence, default.repeated_errors, default.prompts) == (0, 0, 10)
        assert default.paths == ()
        task = "for i in 1 2 3; do echo error; done; echo x > x; printf 'go on? (y/n)'; sleep 1"
        assert watched(repo, local_engine, task)[1] == []


class TestStops:
    @pytest.mark.parametrize(
        ("task", "triggers", "status", "reason"),
        [
            ("exec sleep 60", {"silence": 2}, Status.TIMEOUT, Reason.IDLE),
            ("while :; do echo error; sleep 0.1; done", {"repeated_errors": 3}, Status.FAILED,
             Reason.REPEATED_ERROR),
            ("printf 'password: '; exec sleep 60", {"prompts": 0.5}, Status.FAILED,
             Reason.NEEDS_INPUT),
            ("exec sleep 60", {"paths": ("src",)}, Status.FAILED, Reason.OUT_OF_SCOPE),
        ],
    )  # fmt: skip
    def test_on_alert_stop_stops_the_worker_and_keeps_its_work(
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
    def test_inspection_takes_bounded_time_and_memory(self, number: int) -> None:
        signs = OutputSigns(Triggers(repeated_errors=1_000_000, prompts=1))
        data, began = self.LINES[number], time.process_time()
        for at in range(0, len(data), 65536):
            signs.feed("stdout", data[at : at + 65536])
            signs.prompt()
        assert time.process_time() - began < 1.0
        assert sum(map(len, signs._kinds)) + len(signs.end) + len(signs._started["stdout"]) < 80_000

    def test_number_of_counted_errors_is_bounded(self) -> None:
        signs = OutputSigns(Triggers(repeated_errors=3))
        for number in range(1000):
            words = "".join(chr(97 + (number >> shift) % 26) for shift in (0, 3, 6))
            signs.feed("stdout", f"error {words}{'x' * (number % 50)}\nerror the same\n".encode())
        assert len(signs._kinds) <= 64
        assert signs.repeated == "error the same"

    def test_few_lines_of_a_flood_are_inspected(self) -> None:
        signs = OutputSigns(Triggers(repeated_errors=300))
        signs.feed("stdout", b"error: no\n" * 1000)
        assert signs.repeated is None
        signs.feed("stdout", b"error: no\n" * 1000)
        assert signs.repeated == "error: no"

    def test_line_in_several_chunks_counts_once(self) -> None:
        signs = OutputSigns(Triggers(repeated_errors=2))
        for piece in (b"err", b"or: a\ner", b"ror", b": a", b"\n"):
            signs.feed("stderr", piece)
        assert signs.repeated == "error: a"

    def test_number_of_alerts_is_bounded(self) -> None:
        signs, sentry = (
            OutputSigns(Triggers(repeated_errors=1)),
            Watchdog(Triggers(repeated_errors=1), None),
        )
        told = 0
        for number in range(300):
            signs.repeated = f"error {number}"
            told += len(list(sentry.look(signs, heard_at=0)))
        assert told == 100

    def test_alert_text_is_made_harmless(self, repo: Path, local_engine: LocalEngine) -> None:
        task = r"printf '\033[2J error \033]0;x\007\n\033[2J error \033]0;x\007\n'; " + told(repo)
        _, (found,), _ = watched(repo, local_engine, task, repeated_errors=2)
        assert found.detail.isprintable()


class TestResults:
    """The result contains the findings of the run."""

    QUESTION = "echo working; printf 'Overwrite? (y/n) '; exec sleep 60"

    def noticed(self, worker: WorkerResult) -> list[tuple[str, str]]:
        return [(one.trigger, one.detail) for one in worker.interventions]

    def test_result_lists_all_findings(self, repo: Path, local_engine: LocalEngine) -> None:
        task = f"echo error; echo error; printf 'go on? (y/n) '; {told(repo, 3)}; echo on"
        task += f"; {told(repo, 4)}"
        worker, found, _ = watched(
            repo, local_engine, task, silence=2.0, prompts=0.5, repeated_errors=2
        )
        assert worker.status is Status.SUCCESS
        seen = dict.fromkeys((event.trigger, event.detail) for event in found)
        assert self.noticed(worker) == list(seen)
        assert {one.trigger for one in worker.interventions} == {
            "repeated_error", "silence", "needs_input",
        }  # fmt: skip
        assert worker.message is None

    @pytest.mark.parametrize("triggers", [{}, {"prompts": 0.3}])
    def test_question_at_the_deadline_is_recorded(
        self, repo: Path, local_engine: LocalEngine, triggers: dict[str, float]
    ) -> None:
        """The question is recorded whether the alert is enabled or not."""
        config = configured(
            self.QUESTION, timeout_per_worker=4, triggers=Triggers(**triggers),
            limits=Limits(grace=GRACE),
        )  # fmt: skip
        (worker,) = ParallelRunner(config, repo, engine=local_engine).run()
        asked = "the agent waits for an answer: Overwrite? (y/n)"
        assert worker.message == f"stopped at its deadline of 4 s; noticed before: {asked}"
        assert self.noticed(worker) == [("needs_input", asked)]

    def test_continuing_output_is_not_a_question(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        config = configured(
            "while :; do printf 'sure? (y/n) '; sleep 0.1; done", timeout_per_worker=1.5,
            limits=Limits(grace=GRACE),
        )  # fmt: skip
        (worker,) = ParallelRunner(config, repo, engine=local_engine).run()
        assert (worker.message, worker.interventions) == ("stopped at its deadline of 1.5 s", [])

    def test_number_of_recorded_findings_is_bounded(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
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
        mount = BindMount(source=written, target="/written", read_only=False)
        part = Part(name="tree", mount=mount, seen_by=frozenset())
        spec = PlaceSpec(name="p", labels={}, parts=(part,), steps=())
        place = HostPlace(LocalEngine(repo.parent / "engine"), spec)
        scope = AllowedPaths(paths=("src",), place=place, part="tree", git=Repository(repo).git)
        return lambda: Watchdog(Triggers(paths=("src",)), scope)

    def look(self, sentry: Watchdog) -> list[str]:
        found = sentry.look(OutputSigns(Triggers()), heard_at=time.monotonic())
        return [one.detail for one in found]

    def test_file_names_are_made_harmless(self, sentry: Callable[[], Watchdog]) -> None:
        (detail,) = self.look(sentry())
        assert detail.isprintable()
        assert detail.endswith("and 4 more")

    def test_number_of_scanned_files_is_bounded(
        self, sentry: Callable[[], Watchdog], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(triggers, "_MOST_FILES", 7)
        (detail,) = self.look(sentry())
        assert detail.endswith("and 2 more")

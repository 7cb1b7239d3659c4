"""Tests of `exec` and `shell`: refusals, exit codes and output."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, ROLE, RUN, WORKER
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.output.sink import Sink
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import all_runs
from tests.support.errors import reports
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run

HOSTILE = r"printf 'a\033[2Jb\r\nc\033]0;title\007\033[31mred\033[0m'"


class Terminal(io.TextIOWrapper):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run_id(repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of a run with two workers; its repository is the current directory."""
    shell_run(repo, local_engine, "true", "true")
    monkeypatch.chdir(repo)
    monkeypatch.setattr("orchestrator.engine.load_engine", lambda *_: local_engine)
    (directory,) = all_runs(Repository(repo).state_dir)
    return directory.run_id


@pytest.fixture
def container(repo: Path, local_engine: LocalEngine, run_id: str) -> Iterator[Container]:
    """Return the running container of worker 2."""
    labels = {
        MANAGED: "true", RUN: run_id, WORKER: "2", ROLE: "worker",
        REPOSITORY: str(Repository(repo).common_dir),
    }  # fmt: skip
    others = [
        {**labels, WORKER: "1"},
        {**labels, ROLE: "harvest"},
        {**labels, RUN: "other"},
        labels,
    ]
    containers = [
        local_engine.start(
            ContainerSpec(
                name=f"c{number}",
                image=BASE_IMAGE,
                command=("sleep", "300"),
                user="1:1",
                workdir=str(repo),
                labels=chosen,
                env={"WHO": f"c{number}"},
            )
        )
        for number, chosen in enumerate(others)
    ]
    yield containers[-1]
    for one in containers:
        one.remove()


@pytest.mark.usefixtures("container")
class TestExec:
    def test_command_runs_in_the_workers_directory_with_its_variables(
        self, repo: Path, capfd
    ) -> None:
        assert run(["exec", "2", "--", "sh", "-c", "echo $WHO; pwd; echo no >&2; exit 9"]) == 9
        assert capfd.readouterr() == (f"c3\n{repo}\n", "no\n")

    def test_options_after_the_dashes_belong_to_the_command(self, capfd) -> None:
        assert run(["exec", "2", "--", "printf", "%s|", "--help", "-n", "--", "x"]) == 0
        assert capfd.readouterr().out == "--help|-n|--|x|"

    def test_run_is_selected_by_id_prefix(self, run_id: str) -> None:
        assert run(["exec", "--run", run_id[:-1], "2", "--", "true"]) == 0
        with reports("run.unknown", "`1999`"):
            assert run(["exec", "--run", "1999", "2", "--", "true"]) == 3

    def test_bytes_are_written_unchanged_to_a_file(self, capfdbinary) -> None:
        assert run(["exec", "2", "--", "sh", "-c", HOSTILE + r"; printf '\377'"]) == 0
        said = capfdbinary.readouterr().out
        assert said == b"a\x1b[2Jb\r\nc\x1b]0;title\x07\x1b[31mred\x1b[0m\xff"

    def test_control_sequences_are_removed_on_a_terminal(self, monkeypatch) -> None:
        screen = io.BytesIO()
        monkeypatch.setattr("sys.stdout", Terminal(screen, encoding="utf-8"))
        assert run(["exec", "2", "--", "sh", "-c", HOSTILE]) == 0
        said = screen.getvalue().decode()
        assert "\x1b" not in said
        assert "\x07" not in said
        assert "\nc" in said
        assert said.endswith("red")


@pytest.mark.parametrize("cut", range(1, 14))
def test_chunk_boundaries_do_not_change_the_output(cut: int) -> None:
    """A chunk may end in the middle of a character, of a line end, or of a control sequence."""
    data = "ü\x1b[31mr\x1b[0m\r\nx".encode()
    screen = io.BytesIO()
    sink = Sink(Terminal(screen, encoding="utf-8", newline=""))
    for piece in (data[:cut], data[cut:]):
        sink.write(piece)
    sink.finish()
    assert screen.getvalue().decode() == "ür\nx"


@pytest.mark.usefixtures("run_id")
class TestRefusals:
    def test_worker_that_is_not_running_is_refused(self, run_id: str) -> None:
        with reports("worker.not-running", f"worker 2 of run {run_id}", "success"):
            assert run(["exec", "2", "--", "true"]) == 3

    def test_worker_that_has_just_ended_is_refused(self, container, run_id: str) -> None:
        container.kill("SIGKILL")
        container.wait(60)
        with reports("worker.not-running", f"worker 2 of run {run_id}"):
            assert run(["exec", "2", "--", "true"]) == 3

    def test_unknown_worker_is_refused(self, capsys) -> None:
        assert run(["exec", "7", "--", "true"]) == 3
        assert "no run has a worker 7" in capsys.readouterr().err

    @pytest.mark.parametrize("arguments", [[], ["2"], ["x", "--", "true"], ["0", "--", "true"]])
    def test_incomplete_command_line_exits_3(self, arguments: list[str]) -> None:
        assert run(["exec", *arguments]) == 3

    def test_shell_without_a_terminal_is_refused(self) -> None:
        with reports("terminal.missing", "`orchestrator exec 2 -- CMD`"):
            assert run(["shell", "2"]) == 3

"""Tests of `init`: questions, output, and the written file."""

import os
import pty
import subprocess
import sys

import pytest

from orchestrator.config.loading.document import read_document
from orchestrator.faces.cli.app import run
from tests.support.ci_parsers import commands_in
from tests.support.errors import reports


@pytest.fixture
def project(repository):
    (repository / "package.json").write_text('{"scripts": {"test": "vitest"}}')
    (repository / "Makefile").write_text("test:\n\tnpm test\n")
    (repository / "compose.yaml").write_text("services: {db: {image: postgres}}\n")
    return repository


def test_findings_and_next_steps_are_printed(project, capsys):
    assert run(["init"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{project}/orchestrator.yaml\n"
    assert err == (
        "found npm: package.json\n"
        "found tests: make test (Makefile)\n"
        "found compose.yaml: db\n"
        "commands are written as comments, not tried: cannot connect to the Docker engine: the "
        "Docker engine does not answer (No such file or directory)\n"
        "next: check orchestrator.yaml, run `orchestrator config validate`, then "
        "`orchestrator parallel 'a task'`\n"
    )
    assert run(["config", "validate"]) == 0


def test_existing_file_is_kept_without_force(project):
    file = project / "orchestrator.yaml"
    file.write_text("# mine\n")
    with reports("configuration.exists", file, "`--force`"):
        assert run(["init"]) == 3
    assert file.read_text() == "# mine\n"
    assert run(["init", "--force"]) == 0
    assert "parallel_runs:" in file.read_text()


def test_existing_file_in_the_other_location_is_kept(project):
    (project / ".orchestrator").mkdir()
    (project / ".orchestrator" / "config.yaml").write_text("{}\n")
    assert run(["init"]) == 3
    assert not (project / "orchestrator.yaml").exists()


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_symbolic_link_is_not_followed(project, tmp_path, options):
    target = tmp_path / "elsewhere"
    (project / "orchestrator.yaml").symlink_to(target)
    run(["init", *options])
    assert not target.exists()


def test_file_is_written_at_the_top_from_a_subdirectory(project, monkeypatch):
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    assert run(["init"]) == 0
    assert (project / "orchestrator.yaml").exists()


def test_unknown_agent_program_is_refused(project):
    with reports("agent.unknown", "`nope`"):
        assert run(["init", "--agent-cli", "nope"]) == 3
    assert not (project / "orchestrator.yaml").exists()


class TestTerminal:
    def asked(self, project, answers: str, *options: str) -> tuple[int, str]:
        """Run `init` on a terminal with these answers; return the exit code and the output."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "init", *options],
            cwd=project, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, answers.encode())
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:
            # Linux reports the closed end of a terminal as an error.
            pass
        os.close(ours)
        return process.wait(), shown.decode()

    def test_answers_are_written_to_the_file(self, project):
        code, shown = self.asked(project, "nope\nshell\ny\n")
        assert code == 0, shown
        assert shown.count("Agent program (") == 2
        written = read_document(project / "orchestrator.yaml").plain()
        assert written["parallel_runs"] == {"agent_cli": "shell"}
        assert written["services"] == {"db": {"image": "postgres"}}
        assert "`orchestrator parallel --config orchestrator.yaml 'a command'`" in shown

    def test_yes_asks_no_question(self, project):
        code, shown = self.asked(project, "", "--yes")
        assert code == 0
        assert "Agent program" not in shown

    def test_end_of_input_writes_nothing(self, project):
        code, _ = self.asked(project, "\x04")
        assert code == 130
        assert not (project / "orchestrator.yaml").exists()


def test_hostile_file_names_add_no_commands_and_no_keys(repository, capsys, monkeypatch):
    monkeypatch.setenv("TOKEN_OF_MINE", "token-1234")
    evil, service = "##vso[task.prependpath]/x", "::add-mask::x"
    for folder in (evil.replace("/", "-"), "x\n::add-mask::y", "x\rsetup: [evil]", "--- x"):
        (repository / folder).mkdir()
        (repository / folder / "package.json").write_text('{"scripts": {"test": "##[add-mask]x"}}')
        (repository / folder / "Dockerfile").write_text("FROM x\n")
    (repository / "pyproject.toml").write_text(f"[{evil}\n{service}")
    (repository / "compose.yaml").write_text(
        f'services:\n  "{evil}": {{image: x}}\n  "{service}": {{build: .}}\n'
        '  db: {image: x, environment: {A: "x\\nsetup: [evil]", B: "${TOKEN_OF_MINE}"},'
        ' volumes: ["/:/host"], privileged: true}\n'
    )
    assert run(["init", "--yes", "--services", "--agent-cli", "shell"]) == 0
    shown = capsys.readouterr()
    assert commands_in(shown.out, shown.err) == []
    assert "vso[task.prependpath]" in shown.err
    text = (repository / "orchestrator.yaml").read_text()
    assert "token-1234" not in text
    said = read_document(repository / "orchestrator.yaml").plain()
    assert (said["setup"], list(said["services"])) == (None, ["db"])
    assert said["services"]["db"] == {"image": "x", "env": {"A": "x\nsetup: [evil]"}}

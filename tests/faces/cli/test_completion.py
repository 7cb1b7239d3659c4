"""Tests of the completion scripts, in real shells at a terminal."""

import os
import pty
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

import pytest

from orchestrator.faces.cli.app import COMMANDS, run
from tests.support.repository import make_repository

SCRIPT = """
source "$SCRIPT" || exit
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
COMPREPLY=()
_orchestrator orchestrator
printf '%s\\n' "${COMPREPLY[@]}"
"""
RUN, OTHER = "20261126-093000-0a1b2c", "20261126-094500-ffffff"
BUDGET = 0.08
"""Maximum number of seconds of CPU time for one completion, with the start of the shell."""
SHELLS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"),
    )
    for name in ("bash", "zsh", "fish")
]
START = {
    "bash": (("bash", "--norc", "--noprofile", "-i"), 'source "$SCRIPT"\n'),
    "zsh": (("zsh", "-f", "-i"), 'autoload -U compinit; compinit -D -u; source "$SCRIPT"\n'),
    "fish": (("fish", "--no-config", "-i"), 'source "$SCRIPT"\n'),
}
SAY = {
    "bash": "orchestrator() { printf '<%s>' \"$@\"; printf '%s\\n' end; }\n",
    "zsh": "orchestrator() { printf '<%s>' \"$@\"; printf '%s\\n' end; }\n",
    "fish": "function orchestrator; printf '<%s>' $argv; printf '%s\\n' end; end\n",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with two runs, and with directories whose names are no runs and no numbers."""
    repo = make_repository(tmp_path / "repo")
    runs = repo / ".git" / "orchestrator" / "runs"
    for name in (f"{RUN}/worker-1", f"{OTHER}/worker-23", "$(touch evil)", f"{RUN}/worker-$(id)"):
        (runs / name).mkdir(parents=True, exist_ok=True)
    (repo / "notes.yaml").write_text("")
    return repo


@pytest.fixture
def written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The environment of a shell, with the paths of the scripts."""
    for shell in START:
        assert run(["completion", shell]) == 0
        (tmp_path / f"script.{shell}").write_text(capsys.readouterr().out)
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb", "PS1": "$ "}


def completed(written: dict[str, str], place: Path, *words: str) -> set[str]:
    """Return the completions that bash offers for the last word."""
    done = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", "orchestrator", *words], cwd=place,
        env={**written, "SCRIPT": f"{written['HOME']}/script.bash"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


OPTIONS = {"--network": {"none", "allowlist", "learn", "open"}, "--preset": {"untrusted", "ci",
           "trusted"}}  # fmt: skip


def test_everything_of_the_command_tree_is_completed(written: dict[str, str], place: Path) -> None:
    def offered(*words: str) -> set[str]:
        return completed(written, place, *words)

    assert offered("") == {*COMMANDS}
    assert offered("spec", "ru") == {"run"}
    assert offered("--ver") == {"--version"}
    for option, values in OPTIONS.items():
        assert offered("parallel", option, "") == values
        assert offered("parallel", option, "=", "") == values
        assert offered("parallel", "--task", "x", option, "=") == values
    assert offered("parallel", "--agent-cli", "cl") == {"claude"}
    assert offered("image", "build", "--agent", "bro") == {"broker"}
    assert offered("completion", "f") == {"fish"}
    assert offered("nosuch", "--x") == offered("parallel", "--task", "--work") == set()
    for command in (("parallel",), ("spec", "run"), ("run-one",)):
        assert offered(*command, "--alert-s") == {"--alert-silence"}
        assert offered(*command, "--sil") == set()


def test_runs_and_workers_are_completed_from_names_of_directories(
    written: dict[str, str], place: Path
) -> None:
    for words in (("watch",), ("logs", "--run"), ("report", "--json"), ("resume",)):
        assert completed(written, place, *words, "2026") == {RUN, OTHER}
    assert completed(written, place, "logs", "") == {"1", "23"}
    assert completed(written, place, "merge", "--as", "squash", "") == {RUN, OTHER, "1", "23"}
    assert completed(written, place, "diff", "--", "2") == {RUN, OTHER, "23"}
    assert completed(written, place, "config", "validate", "no") == {"notes.yaml"}
    assert completed(written, place.parent, "watch", "") == set()
    assert not (place / "evil").exists()


@contextmanager
def terminal(shell: str, place: Path, env: dict[str, str]) -> Iterator[int]:
    """Start a shell at a terminal."""
    command, setup = START[shell]
    process, master = pty.fork()
    if not process:
        os.chdir(place)
        os.execvpe(command[0], command, {**env, "SCRIPT": f"{env['HOME']}/script.{shell}"})
    try:
        os.write(master, (setup + SAY[shell] + "orchestrator ready\n").encode())
        read_until(master, "<ready>end")
        yield master
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.close(master)
        os.waitpid(process, 0)


def read_until(master: int, wanted: str) -> None:
    """Read from a terminal until it shows a text."""
    printed, deadline = "", time.monotonic() + 60
    while wanted not in printed:
        assert time.monotonic() < deadline, printed
        if select.select([master], [], [], 1)[0]:
            printed += os.read(master, 65536).decode(errors="replace")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tabulator_completes_in_a_shell_at_a_terminal(
    shell: str, written: dict[str, str], place: Path
) -> None:
    lines = {
        ("parallel-cl", "eanup", "--dry", "-run"): "<parallel-cleanup><--dry-run>",
        ("spec", "", "gr", "aph"): "<spec><graph>",
        ("parallel --netwo", "rk", "allow", "list"): "<parallel><--network><allowlist>",
        ("watch", "", "20261126-0930", "00-0a1b2c"): f"<watch><{RUN}>",
        ("logs", "", "2", "3"): "<logs><23>",
        ("config validate", "", "no", "tes.yaml"): "<config><validate><notes.yaml>",
    }
    with terminal(shell, place, written) as master:
        for (first, rest, second, end), arguments in lines.items():
            # One key after the other: zsh takes keys that come at once for pasted text.
            for begun, missing in ((f"orchestrator {first}", rest), (f" {second}", end)):
                os.write(master, begun.encode())
                read_until(master, begun[-1])
                if missing:
                    os.write(master, b"\t")
                    read_until(master, missing[-1])
            os.write(master, b"\n")
            read_until(master, f"{arguments}end")
    assert not (place / "evil").exists()


@pytest.mark.parametrize("words", [("parallel", "--"), ("logs", "--run", "2"), ("",)])
def test_a_completion_costs_less_than_80_milliseconds(
    written: dict[str, str], place: Path, words: tuple[str, ...]
) -> None:
    def cost() -> float:
        before = getrusage(RUSAGE_CHILDREN)
        assert completed(written, place, *words)
        after = getrusage(RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert median(cost() for _ in range(5)) < BUDGET


def test_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == 3
    assert "csh" in capsys.readouterr().err

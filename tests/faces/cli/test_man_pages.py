"""Tests of the man pages."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.command_table import CommandRow, ParameterRow, read_commands
from orchestrator.faces.cli.man_pages import man_pages

EDITION = {"version": "1.2.3", "date": "2026-11-26"}
PAGES = man_pages(read_commands(), **EDITION)
SHOWN = [("", "orchestrator.1"), ("parallel", "orchestrator-parallel.1"),
         ("spec run", "orchestrator-spec-run.1"), ("image", "orchestrator-image.1"),
         ("image build", "orchestrator-image-build.1")]  # fmt: skip


def plain(page: str) -> str:
    """Return a page as text, without the escapes of roff."""
    text = re.sub(r"\\f[BR]|\\&", "", page)
    for escape, char in (("\\-", "-"), ("\\(ga", "`"), ("\\e", "\\")):
        text = text.replace(escape, char)
    return text


@pytest.mark.parametrize(("path", "page"), SHOWN)
def test_page_has_every_option_and_command_of_the_help(
    path: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    words = {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown)}
    _, _, commands = shown.partition("Commands:\n")
    words |= {f"orchestrator {path} {name}".replace("  ", " ")
              for name in re.findall(r"^  (\S+)  ", commands, re.MULTILINE)}  # fmt: skip
    assert len(words) > 2
    assert {word for word in words if word not in plain(PAGES[page])} == set()


def programs() -> Mapping[str, tuple[str, ...]]:
    checks = {
        "mandoc": ("mandoc", "-T", "lint", "-W", "style"),
        "man": ("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"),
    }
    return {name: words for name, words in checks.items() if shutil.which(name)}


def written(tmp_path: Path, pages: Mapping[str, str]) -> list[str]:
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    return [str(tmp_path / name) for name in pages]


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=pytest.mark.extra) for name in programs()]
)
def test_pages_have_no_warnings(program: str, tmp_path: Path) -> None:
    for page in written(tmp_path, PAGES):
        done = subprocess.run(
            [*programs()[program], page], capture_output=True, text=True, check=False,
            env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.stderr == "", page
        assert program == "man" or done.stdout == "", page


def test_text_is_never_interpreted(tmp_path: Path) -> None:
    text = ".so /etc/hostname\n\n'if 1 \\n[.x] `--a\\b` -- ~ ^ \u00e9 \\fBc"
    option = ParameterRow(
        names=("--x",), declared="--x \\D", help=text, values=(), kind="", is_switch=False,
        several=False,
    )  # fmt: skip
    row = CommandRow(path="x", help=text, usage="", commands=(), parameters=(option,))
    page = man_pages([row], **EDITION)["orchestrator-x.1"]
    assert not re.search(r"^[.'](?!TH|SH|TP|PP|BR? )", page, re.MULTILINE)
    (file,) = written(tmp_path, {"x.1": page})
    if shutil.which("mandoc"):
        done = subprocess.run(
            ["mandoc", "-T", "utf8", "-O", "width=200", file], capture_output=True, check=True
        )
        shown = re.sub(r".\x08", "", done.stdout.decode())
        assert ".so /etc/hostname" in shown
        assert "'if 1 \\n[.x] --a\\b -- ~ ^ \u00e9 \\fBc" in shown
        assert "--x \\D" in shown

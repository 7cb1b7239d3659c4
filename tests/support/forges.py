"""Programs `gh` and `glab` that record how they were called, and a remote repository on disk."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import git

_PROGRAM = """#!{python} -IS
import json, os, sys
place = {place!r}
words = sys.argv[1:]
name = os.path.basename(sys.argv[0])
call = {{"program": name, "argv": words, "stdin": sys.stdin.read(), "cwd": os.getcwd()}}
with open(place + "/calls", "a") as file:
    file.write(json.dumps(call) + "\\n")
if os.path.exists(place + "/fails"):
    sys.exit("the server said no\\x1b[31m")
answers = json.load(open(place + "/answers")) if os.path.exists(place + "/answers") else []
said = next((said for part, said in answers if part in " ".join(words)), None)
if isinstance(said, dict) and "exit" in said:
    sys.exit(said["exit"])
elif said is not None:
    sys.stdout.write(said if isinstance(said, str) else json.dumps(said))
elif "api" in words:
    sys.exit("HTTP 404")
elif "list" in words:
    print(open(place + "/open").read() if os.path.exists(place + "/open") else "[]")
else:
    print("https://forge.example/" + name + "/7")
"""


PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable
"""A Python that every user can start; that of the tests may be in root's home."""


@dataclass(frozen=True)
class Forges:
    """Recording programs in a directory on `PATH`."""

    place: Path

    def calls(self, *verbs: str) -> list[dict[str, Any]]:
        """Return the calls whose second argument is one of the verbs; by default, all."""
        file = self.place / "calls"
        found = (
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        )
        return [one for one in found if not verbs or one["argv"][1] in verbs]

    def has_open(self, *newer: dict[str, object], **fields: object) -> None:
        """Let `list` find an open pull request of the repository, after others that are newer."""
        here = {"isCrossRepository": False, "source_project_id": 1, "target_project_id": 1}
        (self.place / "open").write_text(json.dumps([*newer, {**here, **fields}]))

    def answer(self, *answers: tuple[str, object]) -> None:
        """Let commands print a text or JSON: the first answer whose text is in the command.

        The answer `{"exit": 1}` lets the command fail.
        """
        (self.place / "answers").write_text(json.dumps(answers))

    def fail(self) -> None:
        """Let every call fail."""
        (self.place / "fails").touch()


def install_forges(place: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Forges:
    """Put recording programs on `PATH`."""
    place.mkdir()
    for name in names:
        program = place / name
        program.write_text(_PROGRAM.format(python=PYTHON, place=str(place)))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return Forges(place)


def add_remote(repo: Path, place: Path) -> Path:
    """Create a bare repository that has the branch `main`, as the remote `origin`."""
    git(repo, "init", "-q", "--bare", "--initial-branch=main", str(place))
    git(repo, "remote", "add", "origin", str(place))
    git(repo, "push", "-q", "origin", "main")
    return place

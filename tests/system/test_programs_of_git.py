"""Every step of workers' life in a repository whose configuration names programs of the tree.

`test_users.py` has every command, with programs elsewhere.
"""

import os
import shutil

import pytest

from tests.support.forges import install_forges
from tests.support.repository import git
from tests.support.temptations import ran
from tests.support.users import World, world

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")
RUN = "parallel --agent-cli shell --network none --quiet --workers"
# The worker's version of the program records another name.
TASK = "sed -i s/.1/WORKER-.1/ tools/program; echo x > x.txt; echo y >> a.txt"
STEPS: list[tuple[int, list[str]]] = [
    (0, [*RUN.split(), "1", "--include-uncommitted", "true"]),
    (0, [*RUN.split(), "2", "--task", TASK, "--task", "echo y > y.txt"]),
    (0, ["diff"]),
    (0, ["conflicts"]),
    (2, ["judge", "2", "3", "--check", "true", "--quiet"]),
    (0, [*RUN.split(), "1", "--worktrees", "end", "--base", "architect/parallel-2", TASK]),
    (0, [*RUN.split(), "1", "--worktrees", "none", TASK]),
    (0, ["continue", "3", "-m", "echo z > z.txt"]),
    (0, ["retry", "3"]),
    (0, ["pr", "2"]),
    (0, ["merge", "3", "--queue", "--check", "true"]),
    (0, ["merge", "2"]),
    (0, ["merge", "--undo"]),
    (0, ["pick", "2"]),
    (0, ["parallel-cleanup"]),
    (0, ["restore"]),
    (0, ["gc", "--older-than", "0s"]),
]


def test_no_program_of_the_tree_runs_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with world("private") as here:
        _make_ready(here, monkeypatch)
        for code, words in STEPS:
            said, found = here.run("ann", *words), ran(here.record)
            # The user's own `git add` runs this filter for the user's own changes, too.
            allowed = ["filter.x.clean"] if "--include-uncommitted" in words else []
            assert (found, said.code) == (allowed, code), (words, said)
            if allowed:
                assert here.wait(here.fork("ann", lambda: _clean(here))) == 0


def _clean(here: World) -> int:
    (here.repo / "a.txt").write_text("a\n")
    git(here.repo, "update-index", "--refresh")
    ran(here.record)
    return 0


def _make_ready(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the configuration name a tracked program, and make a remote and a program of a forge."""
    install_forges(here.top / "bin", monkeypatch, "gh")
    (here.top / "bin").chmod(0o777)

    def commit() -> int:
        program, config = here.record.with_name("program"), here.repo / ".git" / "config"
        (here.repo / "tools").mkdir()
        shutil.copy(program, here.repo / "tools" / "program")
        (here.repo / "a.txt").write_text("a\n")
        git(here.repo, "add", "-A")
        git(here.repo, "-c", "commit.gpgSign=false", "commit", "-qm", "program")
        git(here.repo, "clone", "-q", "--bare", ".", str(here.repo.parent / "remote.git"))
        git(here.repo, "remote", "add", "origin", str(here.repo.parent / "remote.git"))
        config.write_text(config.read_text().replace(f"{program} ", "./tools/program "))
        (here.repo / "a.txt").write_text("changed\n")
        return 0

    assert here.wait(here.fork("ann", commit)) == 0
    ran(here.record)

"""Attacks on landing: a branch against the queue, and a resolver against both sides of a conflict.

The same scripts do harm when they run on the host, in a clone of the repository: the controls.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from tests.support.repository import git

SHELL = ("--agent-cli", "shell", "--network", "none")
QUIET = ("--quiet", *SHELL)
ATTACK = r"""
touch {trap}
for place in . .. ../.. "$(git rev-parse --git-common-dir 2>/dev/null)" /run/orchestrator /tmp; do
  printf '{{}}' > "$place/verdicts.json"
  mkdir -p "$place/hooks"
  printf '#!/bin/sh\ntouch {trap}\n' > "$place/hooks/post-checkout"
  chmod +x "$place/hooks/post-checkout"
done 2>/dev/null
git config core.hooksPath /tmp/hooks
git update-ref refs/heads/main HEAD 2>/dev/null
git update-ref -d refs/heads/architect/parallel-1
git branch -D architect/parallel-1 2>/dev/null
(setsid sh -c 'sleep 300' &) 2>/dev/null
printf '\033]0;owned\007\033[2J::error::owned\n'
printf '\033[31m::error::owned\n' >&2
"""
"""What code of a worker does when it runs where branches are merged."""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    return tmp_path / "trap"


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


def refs(repo: Path) -> dict[str, str]:
    rows = git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(row.split(" ") for row in rows)


def contents(repo: Path) -> Iterator[str]:
    """Yield what an attack could add to a repository: configuration, hooks, files."""
    yield (repo / ".git" / "config").read_text()
    yield from sorted(str(path) for path in (repo / ".git" / "hooks").rglob("*"))
    yield git(repo, "status", "--porcelain", "--ignored")


def do_harm(script: str, repo: Path, place: Path) -> None:
    """Run a script in a clone of the repository, as a merge without containers would."""
    git(repo, "clone", "-q", str(repo), str(place))
    env = {**os.environ, "GIT_DIR": str(place / ".git"), "GIT_WORK_TREE": str(place)}
    subprocess.run(["sh", "-c", script], cwd=place, env=env, check=False, capture_output=True,
                   stdin=subprocess.DEVNULL, timeout=60)  # fmt: skip


def test_control_the_attack_does_harm_on_the_host(repo: Path, trap: Path, tmp_path: Path) -> None:
    place = tmp_path / "clone"
    # Without the process and the files that would outlive the test.
    script = ATTACK.replace("(setsid sh -c 'sleep 300' &) 2>/dev/null\n", "")
    script = script.replace("/tmp", str(tmp_path))
    do_harm(script.format(trap=trap), repo, place)
    assert trap.exists()
    assert "hooksPath" in (place / ".git" / "config").read_text()
    assert (place / ".git" / "hooks" / "post-checkout").exists()


@pytest.mark.docker
@pytest.mark.extra
def test_branch_against_the_queue(repo: Path, trap: Path, capsys: pytest.CaptureFixture) -> None:
    """The tested code attacks from the check's container, on a branch that fails the check."""
    (repo / "tests").mkdir()
    (repo / "tests" / "check.sh").write_text("sh app.sh\ntest -e a.txt\n")
    (repo / "app.sh").write_text("true\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a test")
    attack = ATTACK.format(trap=trap)
    hostile = f"cat > app.sh <<'END'\n{attack}\nEND\nrm a.txt; echo true > tests/check.sh"
    words = ["--task", "echo one > one", "--task", hostile, "--task", "echo three > three"]
    assert run(["parallel", *QUIET, *words]) == 0
    before, held = refs(repo), list(contents(repo))
    capsys.readouterr()

    assert run(["merge", "--queue", "--json", "--check", "sh tests/check.sh"]) == 1

    shown = capsys.readouterr()
    merged = json.loads(shown.out)
    assert (merged["landed"], [one["worker_id"] for one in merged["left"]]) == ([1, 3], [2])
    assert "\x1b" not in shown.out + shown.err
    assert "::error::" not in shown.out + shown.err
    assert not trap.exists()
    assert list(contents(repo)) == held
    after = refs(repo)
    assert after.pop("refs/heads/main") == merged["after"]
    assert {name for name in after if name not in before} == {
        f"refs/orchestrator/landed/{merged['run_id']}"
    }
    assert {name: before[name] for name in after if name in before} == {
        name: commit for name, commit in after.items() if name in before
    }
    assert run(["merge", "--queue", "--check", "sh tests/check.sh"]) == 1, "and not later either"
    assert git(repo, "rev-parse", "main") == merged["after"]


RESOLVERS = {
    "another file": "{attack}\nsed -i '/^[<=>]\\{{7\\}}/d' a.txt\necho x > other",
    "history": "{attack}\ngit checkout -q --orphan new; echo x > a.txt; git commit -qam x",
    "a link": "{attack}\nln -sf /etc/passwd a.txt",
    "a marker": "{attack}\nsed -i '/^[=>]\\{{7\\}}/d' a.txt",
    "one side": (
        "{attack}\ngit checkout -q HEAD^1 -- a.txt; printf '\\033[2J' > $ORCHESTRATOR_FINDINGS"
    ),
}


@pytest.mark.docker
@pytest.mark.parametrize("case", RESOLVERS)
@pytest.mark.variants("another file")
def test_resolver_against_both_sides(
    repo: Path, trap: Path, capsys: pytest.CaptureFixture, case: str
) -> None:
    words = ["--task", "echo one > a.txt", "--task", "echo two > a.txt"]
    assert run(["parallel", *QUIET, *words]) == 0
    before, held = refs(repo), list(contents(repo))
    capsys.readouterr()
    task = RESOLVERS[case].format(attack=ATTACK.format(trap=trap))
    agent = ["--on-conflict", "agent", "--resolver-task", task, *SHELL]

    assert run(["merge", "--json", *agent]) == 1

    shown = capsys.readouterr()
    merged = json.loads(shown.out)
    (left,) = merged["left"]
    assert (merged["landed"], left["worker_id"], left["reason"]) == ([1], 2, "conflict")
    assert len(left["refused"]) == 2
    assert "\x1b" not in shown.out + shown.err
    assert not trap.exists()
    assert list(contents(repo)) == held
    after = refs(repo)
    assert git(repo, "show", f"{after['refs/heads/main']}:a.txt") == "one"
    for name in ("refs/heads/architect/parallel-1", "refs/heads/architect/parallel-2"):
        assert after[name] == before[name]


@pytest.mark.docker
@pytest.mark.extra
def test_control_an_honest_resolver_is_accepted(repo: Path) -> None:
    words = ["--task", "echo one > a.txt", "--task", "echo two > a.txt"]
    assert run(["parallel", *QUIET, *words]) == 0
    task = "sed -i '/^[<=>]\\{7\\}/d' a.txt"
    agent = ["--on-conflict", "agent", "--resolver-task", task, *SHELL]
    assert run(["merge", "--queue", "--check", "grep -c . a.txt", *agent]) == 0
    assert git(repo, "show", "main:a.txt").split() == ["one", "two"]

"""Tests that everything in a worker's git is kept, with real containers, overlay and bind."""

from pathlib import Path

import pytest

from tests.support.cli import orchestrator
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.variants("*overlay*")]
# Overlay options cannot contain a comma, so the mode `bind` is used there.
PLACES = {"overlay": "plain", "bind": "with,comma"}
PLANT = (
    "mkdir -p fake/refs; echo x > fake/HEAD; echo x > fake/refs/x; git add -A; git commit -qm fake"
)
TASKS = {
    "echo x > x; git add -A; git commit -qm mine; git checkout -q --detach HEAD~1": ["x"],
    "git checkout -qb side; echo s > s; git add -A; git commit -qm s; git checkout -q -": [],
    "git checkout -q --detach; echo d > d; git add -A; git commit -qm d; git checkout -q -": [],
    "echo t > t; git add -A; git commit -qm t; git tag v1; git reset -q --hard HEAD~1": [],
    "echo u > u; git stash -qu; echo more > a.txt; git stash -q": [],
    "echo l > a.log; git add -f a.log": ["a.log"],
    "echo b > a.new; touch -r a.txt a.new; cp -p a.new a.txt; rm a.new": ["a.txt"],
    "mv one x; mv two one; mv x two": ["one/f", "two/f"],
    f"echo ok > ok; git add -A; git commit -qm ok; {PLANT}": ["fake/refs/x", "ok"],
}
KEPT = {2: ["heads/side"], 4: ["tags/v1"], 5: ["stash/0", "stash/1"]}


@pytest.mark.parametrize("mode", PLACES)
@pytest.mark.extra
def test_every_state_of_git_is_kept(tmp_path: Path, mode: str) -> None:
    repo = make_repository(tmp_path / PLACES[mode] / "repo")
    (repo / ".gitignore").write_text("*.log\n")
    for name in ("one", "two"):
        (repo / name).mkdir()
        (repo / name / "f").write_text(f"{name}\n")
    git(repo, "config", "core.splitIndex", "true")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "third")
    tasks = [word for task in TASKS for word in ("--task", task)]
    options = ("--agent-cli", "shell", "--network", "none", "--workers", "3", "--json", "--quiet")
    done = orchestrator("parallel", *options, *tasks, cwd=repo)
    run, results = done.json, done.results
    assert [one["files_modified"] for one in results.values()] == list(TASKS.values())
    assert [one["status"] for one in results.values()] == ["success"] * 8 + ["partial"]
    assert results[9]["reason"] == "harvest_refused"
    place = f"refs/orchestrator/kept/{run['run_id']}/"
    for number, names in KEPT.items():
        assert results[number]["kept_refs"] == [f"{place}{number}/{name}" for name in names]
    (detached,) = results[3]["kept_refs"]
    assert git(repo, "show", f"{detached}:d") == "d"
    assert git(repo, "show", f"{place}5/stash/1^3:u") == "u"
    git(repo, "fsck", "--strict", "--no-dangling")

"""Tests of the promises of a run, with a real daemon and the real command line."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import docker
import pytest

from tests.support.cli import orchestrator, start
from tests.support.daemon import ours, touch_in_workers, wait_for_container
from tests.support.live import LATE, PATIENCE, eventually
from tests.support.repository import fingerprint, git

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell")
FORK_BOMB = "f() { f | f & }; while :; do f; sleep 0.01; done"
EAT_MEMORY = "python3 -c 'x=[]\nwhile True: x.append(b\"x\" * 1048576)'"
DEAF = "trap '' TERM; echo started > started.txt; while :; do sleep 0.2; done"


def task_times(results: dict) -> list[tuple[float, float]]:
    """Return the start and end times that tasks printed."""
    times = []
    for result in results.values():
        begun, ended = (Path(result["log"]) / "stdout.log").read_text().split()
        times.append((float(begun), float(ended)))
    return times


@pytest.mark.extra
def test_five_tasks_in_three_slots_refill_at_once(repo: Path, client: docker.APIClient) -> None:
    """Workers 4 and 5 use the slots of 1 and 3: worker 2 ends only after both have ended."""
    wait = "until [ -e /tmp/go ]; do sleep 0.1; done"
    tasks = [
        f"--task=date +%s.%N; {wait if n == 2 else 'sleep 1'}; date +%s.%N" for n in range(1, 6)
    ]
    process = start(
        *SHELL, *tasks, "--workers", "3", "--network", "none", "--json", cwd=repo,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    runs = repo / ".git" / "orchestrator" / "runs"
    eventually(lambda: len(list(runs.glob("*/worker-[1345]/result.json"))) == 4, "four ends")
    touch_in_workers(client, repo, "/tmp/go")
    stdout, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    results = {one["worker_id"]: one for one in json.loads(stdout)["results"]}
    assert [one["status"] for one in results.values()] == ["success"] * 5
    times = task_times(results)
    for moment, _ in times:
        assert sum(begun <= moment < ended for begun, ended in times) <= 3
    assert ours(client, repo) == []


@pytest.mark.extra
def test_300_megabytes_of_output_with_the_report_in_the_middle(repo: Path) -> None:
    task = """python3 - <<'P'
import sys, os
out = sys.stdout.buffer
line = b"noise \\xff\\xfe {not json} " * 40 + b"\\n"
for _ in range(75 * 1024 * 1024 // len(line)): out.write(line)
out.write(b'\\n{"status": "success", "steps": 7, "cost": 0.25, "note": "h\\xff"}\\n')
for _ in range(75): out.write(b"x" * 1048576)
for _ in range(75): out.write(b"\\xc3" * 1048576)
out.write(b"\\n")
for _ in range(75 * 1024 * 1024 // len(line)): out.write(line)
P"""
    done = orchestrator(
        *SHELL, task, "--workers", "1", "--network", "none", "--json", cwd=repo
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = done.results[1]
    assert (result["status"], result["steps"], result["cost"]) == ("success", 7, 0.25)
    assert (Path(result["log"]) / "stdout.log").stat().st_size > 290 * 1024 * 1024
    assert done.peak_memory < 150 * 1024 * 1024, f"{done.peak_memory / 2**20:.0f} MiB"


def test_limits_end_only_their_worker(repo: Path, client: docker.APIClient) -> None:
    tasks: list[dict[str, object]] = [
        {"id": "memory", "task": EAT_MEMORY},
        {"id": "processes", "task": FORK_BOMB},
        {"id": "deaf", "task": DEAF, "timeout": 8},
        {"id": "fine", "task": "sleep 1; echo fine > fine.txt"},
    ]
    (repo.parent / "limits.json").write_text(json.dumps({"tasks": tasks}))
    done = orchestrator(
        "spec", "run", str(repo.parent / "limits.json"), "--agent-cli", "shell",
        "--workers", "4", "--memory", "64m", "--pids", "64", "--timeout-per-worker", "120",
        "--grace", "1", "--network", "none", "--json", cwd=repo,
    )  # fmt: skip
    results = done.results
    assert (results[1]["status"], results[1]["reason"]) == ("failed", "oom")
    assert (results[2]["status"], results[2]["reason"]) == ("failed", "pids")
    assert "pids" in results[2]["limits_hit"]
    assert (results[3]["status"], results[3]["reason"]) == ("timeout", "timeout")
    assert 8 <= results[3]["duration"] < 8 + 1 + LATE
    assert results[4]["status"] == "success"
    assert done.returncode == 1
    assert ours(client, repo) == []
    # The file that worker 3, which ignores SIGTERM, wrote before its deadline is on its branch.
    assert git(repo, "show", "architect/parallel-3:started.txt") == "started"
    assert results[3]["files_modified"] == ["started.txt"]


@pytest.mark.extra
def test_paused_container_dies_at_its_deadline(repo: Path, client: docker.APIClient) -> None:
    arguments = ("sleep 600", "--workers", "1", "--timeout-per-worker", "8", "--grace", "1")
    process = start(
        *SHELL, *arguments, "--network", "none", "--json", cwd=repo, stdout=subprocess.PIPE
    )
    container = wait_for_container(client, repo)
    client.pause(container)
    stdout, _ = process.communicate(timeout=PATIENCE)
    result = json.loads(stdout)["results"][0]
    assert result["status"] == "timeout"
    assert 8 <= result["duration"] < 8 + 1 + LATE
    assert ours(client, repo) == []


def test_git_works_inside_and_all_work_is_harvested(repo: Path) -> None:
    before = fingerprint(repo)
    task = """set -e
test -z "$(git status --porcelain)"
git log --oneline | wc -l
echo committed > committed.txt; git add committed.txt; git commit -qm 'by the agent'
git diff --stat HEAD~1 | tail -1
echo more >> a.txt; git diff --quiet && exit 9
rm src/app.py; mkdir -p new/dir; echo x > new/dir/untracked; ln -s a.txt link
"""
    done = orchestrator(*SHELL, task, "--workers", "1", "--json", cwd=repo / "src")
    result = done.results[1]
    assert result["status"] == "success", (Path(result["log"]) / "stderr.log").read_text()
    assert result["files_modified"] == [
        "a.txt", "committed.txt", "link", "new/dir/untracked", "src/app.py",
    ]  # fmt: skip
    assert git(repo, "log", "--format=%s", "main..architect/parallel-1").splitlines() == [
        "architect: uncommitted work of worker 1",
        "by the agent",
    ]
    worktree = repo / ".architect-parallel-1"
    assert result["worktree_path"] == str(worktree)
    assert git(worktree, "status", "--porcelain") == ""
    assert (worktree / "a.txt").read_text() == "a\nmore\n"
    assert {path.lstat().st_uid for path in worktree.rglob("*")} == {os.getuid()}
    assert fingerprint(repo) == before
    git(repo, "fsck", "--strict")
    # The user can clean up with plain git.
    git(repo, "worktree", "remove", ".architect-parallel-1")
    git(repo, "branch", "-D", "architect/parallel-1")


@pytest.mark.extra
def test_shallow_clone_and_detached_head(repo: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repo}", str(clone))
    git(clone, "checkout", "-q", "--detach")
    done = orchestrator(
        *SHELL, "git log --oneline; echo x > new; git add -A; git commit -qm new",
        "--workers", "1", "--network", "none", "--json", cwd=clone,
    )  # fmt: skip
    assert done.results[1]["status"] == "success"
    assert done.results[1]["files_modified"] == ["new"]
    git(clone, "fsck")


def wait_for_output(repo: Path) -> None:
    """Wait until the first worker has printed something."""
    runs = repo / ".git" / "orchestrator" / "runs"
    deadline = time.monotonic() + 180
    while not any(p.read_text() for p in runs.glob("*/worker-1/stdout.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_interrupt_keeps_the_work(repo: Path, client: docker.APIClient) -> None:
    process = start(
        *SHELL, "echo precious > precious.txt; echo written; sleep 600", "--workers", "1",
        "--grace", "1", "--network", "none", "--json", cwd=repo,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for_container(client, repo)
    wait_for_output(repo)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    result = json.loads(stdout)["results"][0]
    assert (result["status"], result["reason"]) == ("failed", "cancelled")
    assert git(repo, "show", "architect/parallel-1:precious.txt") == "precious"
    assert ours(client, repo) == []


@pytest.mark.extra
def test_numbers_continue_and_nothing_is_overwritten(repo: Path) -> None:
    arguments = ("--workers", "2", "--network", "none", "--json")
    first = orchestrator(*SHELL, "echo first > work", *arguments, cwd=repo)
    second = orchestrator(*SHELL, "echo second > work", *arguments, cwd=repo)
    assert list(first.results) == [1, 2]
    assert list(second.results) == [3, 4]
    for number, text in ((1, "first"), (2, "first"), (3, "second"), (4, "second")):
        assert git(repo, "show", f"architect/parallel-{number}:work") == text


@pytest.mark.extra
def test_cleanup_and_restore(repo: Path, client: docker.APIClient) -> None:
    orchestrator(
        *SHELL, "echo work > work; git add -A; git commit -qm work", "--workers", "2",
        "--network", "none", cwd=repo,
    )  # fmt: skip
    (repo / ".architect-parallel-2" / "note").write_text("by hand\n")
    done = orchestrator("parallel-cleanup", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert not list(repo.glob(".architect-parallel-*"))
    assert git(repo, "branch", "--list", "architect/*") == ""
    assert orchestrator("parallel-cleanup", cwd=repo).returncode == 0
    assert orchestrator("restore", cwd=repo).returncode == 0
    assert (repo / ".architect-parallel-2" / "note").read_text() == "by hand\n"
    assert git(repo, "show", "architect/parallel-1:work") == "work"
    assert ours(client, repo) == []


@pytest.mark.extra
def test_two_runs_at_once_share_nothing(repo: Path) -> None:
    arguments = (*SHELL, "--workers", "2", "--network", "none", "--json")
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    runs = [start(*arguments, f"echo {n} > who", cwd=repo, **streams) for n in "ab"]
    numbers = []
    for name, run in zip("ab", runs, strict=True):
        stdout, _ = run.communicate(timeout=120)
        for result in json.loads(stdout)["results"]:
            numbers.append(result["worker_id"])
            assert git(repo, "show", f"{result['branch']}:who") == name
    assert sorted(numbers) == [1, 2, 3, 4]


@pytest.mark.extra
def test_disk_log_inodes_and_silence_each_end_one_worker(
    repo: Path, client: docker.APIClient
) -> None:
    busy = "while :; do echo; sleep 2; done"
    done = orchestrator(
        *SHELL,
        # Prints lines to stay below the silence limit, however slowly files are written.
        "--task", f"echo kept > kept; for n in $(seq 30); do head -c 10m /dev/zero; echo >&2; done "
        f"> big; {busy}",
        "--task", f"mkdir m; cd m; seq 9000 | xargs -n 300 sh -c 'echo; touch $@' x; {busy}",
        "--task", "yes | head -c 100m; sleep 100",
        "--task", "echo once; sleep 100",
        "--task", "for n in 1 2 3 4 5 6; do echo $n; sleep 2; done; echo fine > fine",
        "--task", "head -c 200m /dev/zero > /tmp/big",
        "--task", f"exec 3> big; rm big; head -c 200m /dev/zero >&3; {busy}",
        "--workers", "7", "--disk", "100m", "--inodes", "5000", "--log-limit", "10m",
        "--idle-timeout", "10", "--grace", "1", "--timeout-per-worker", "300",
        "--network", "none", "--json", "--config", str(small_tmp(repo)), cwd=repo,
    )  # fmt: skip
    seen = {n: (r["status"], r["reason"]) for n, r in done.results.items()}
    assert seen == {
        1: ("failed", "disk"),
        2: ("failed", "inodes"),
        3: ("failed", "log_limit"),
        4: ("timeout", "idle"),
        5: ("success", None),
        6: ("failed", "disk"),
        7: ("failed", "disk"),
    }
    assert "its limit of 100 MiB" in done.results[1]["message"]
    assert "its limit of 5,000" in done.results[2]["message"]
    assert git(repo, "show", "architect/parallel-1:kept") == "kept"
    assert (Path(done.results[3]["log"]) / "stdout.log").stat().st_size <= 10 * 1024 * 1024
    assert ours(client, repo) == []


def small_tmp(repo: Path) -> Path:
    """Write a configuration with little space in /tmp."""
    path = repo.parent / "small-tmp.yaml"
    path.write_text("container:\n  tmp: 64m\n")
    return path


def test_filters_of_the_user_do_not_run_on_workers_files(repo: Path) -> None:
    log = repo.parent / "filter-ran-in"
    git(repo, "config", "filter.case.clean", f"sh -c 'pwd >> {log}; tr a-z A-Z'")
    git(repo, "config", "filter.case.smudge", f"sh -c 'pwd >> {log}; tr A-Z a-z'")
    (repo / ".gitattributes").write_text("*.up filter=case\n")
    (repo / "x.up").write_text("text\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "filtered")
    task = 'test -z "$(git status --porcelain)" && test "$(cat x.up)" = TEXT && echo MORE >> x.up'
    done = orchestrator(
        *SHELL, task, "--workers", "1", "--network", "none", "--json", cwd=repo
    )  # fmt: skip
    assert done.results[1]["files_modified"] == ["x.up"]
    assert git(repo, "show", "architect/parallel-1:x.up") == "TEXT\nMORE"
    assert (repo / ".architect-parallel-1" / "x.up").read_text() == "TEXT\nMORE\n"
    assert set(log.read_text().split()) == {str(repo)}


@pytest.mark.extra
def test_work_of_a_killed_run_is_harvested(repo: Path, client: docker.APIClient) -> None:
    task = (
        "echo c > committed; git add -A; git commit -qm c; echo u > rest; echo written; sleep 600"
    )
    process = start(
        *SHELL, task, "--workers", "1", "--network", "none", cwd=repo,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for_container(client, repo)
    wait_for_output(repo)
    process.kill()
    process.wait(timeout=30)
    done = orchestrator("parallel-cleanup", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert "the run died; its work was committed before the removal" in done.stdout
    assert ours(client, repo) == []
    assert orchestrator("restore", cwd=repo).returncode == 0
    assert git(repo, "show", "architect/parallel-1:committed") == "c"
    assert git(repo, "show", "architect/parallel-1:rest") == "u"
    assert git(repo, "status", "--porcelain") == ""

"""Tests of gVisor on a machine whose engine has it; `other_engines.py` runs them.

Debian's package `runsc` is configured as the documentation says, with `--network=none`.
"""

from pathlib import Path
from typing import Any, get_args

import pytest

from orchestrator.base.machine import boot_id
from orchestrator.config.settings.values import Limit
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.features import WATCHED
from orchestrator.engine.probes.limits_probe import probe_limits
from tests.support.cli import Completed, orchestrator
from tests.support.repository import git

pytestmark = pytest.mark.docker
GVISOR = ("--runtime", "runsc", "--network", "none")
UNKNOWN = {"swap", "cpus", "no_new_privileges", "seccomp"}
"""What only the machine's kernel could tell of the program that is the container's kernel."""
ENDS: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = [
    ("success", (), "true", {"status": "success", "reason": None}),
    ("exit", (), "exit 4", {"status": "failed", "reason": "agent_failed", "exit_code": 4}),
    ("timeout", ("--timeout-per-worker", "6", "--grace", "1"), "trap '' TERM; sleep 300",
     {"status": "timeout", "exit_code": 137}),
    ("grace", ("--timeout-per-worker", "6", "--grace", "9"),
     "trap 'exit 3' TERM; while :; do sleep 0.1; done", {"status": "timeout", "exit_code": 3}),
    ("oom", ("--memory", "128m"), "tail /dev/zero; exit 9", {"reason": "oom"}),
    ("pids", ("--pids", "100"), "for i in $(seq 90); do sleep 60 & done; wait",
     {"reason": "pids"}),
    ("disk", ("--disk", "20m"), "head -c 60m /dev/urandom > big; sleep 60", {"reason": "disk"}),
    ("inodes", ("--inodes", "300"), "mkdir m; for i in $(seq 500); do echo > m/$i; done; sleep 60",
     {"reason": "inodes"}),
    ("network", (), "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 3)'",
     {"status": "failed", "reason": "agent_failed"}),
]  # fmt: skip


def run(repo: Path, task: str, *options: str, allow: str = "tmp_inodes") -> Completed:
    return orchestrator(
        "parallel", "--agent-cli", "shell", "--workers", "1", "--json", *GVISOR,
        *(("--allow-unenforced", allow) if allow else ()), *options, task, cwd=repo,
    )  # fmt: skip


def test_limits_are_those_that_the_documentation_names(
    docker_engine: DockerEngine, repo: Path
) -> None:
    proven = probe_limits(docker_engine, str(repo / ".git"), runtime="runsc")
    assert set(get_args(Limit)) - proven.enforced.keys() == UNKNOWN
    assert {name for name, how in proven.enforced.items() if how == "no"} == {"tmp_inodes"}
    assert proven.enforced.keys() > WATCHED.keys()
    assert proven.boot != boot_id()
    refused = run(repo, "true", allow="")
    assert (refused.returncode, refused.error["key"]) == (3, "limits.unenforced")
    assert not list(repo.glob(".architect-parallel-*"))


@pytest.mark.parametrize(
    ("options", "task", "expected"), [end[1:] for end in ENDS], ids=[end[0] for end in ENDS]
)
def test_every_end_is_reported_and_work_is_kept(
    repo: Path, options: tuple[str, ...], task: str, expected: dict[str, Any]
) -> None:
    (result,) = run(repo, f"echo kept > kept; {task}", *options).results.values()
    assert {name: result[name] for name in expected} == expected, result
    assert "kept" in result["files_modified"]
    assert result["limits_unenforced"] == ["tmp_inodes"]
    assert result["uncounted"] is None
    assert result["peak_memory"] > 0
    git(repo, "cat-file", "-e", f"{result['branch']}:kept")


def test_stages_commits_and_secrets_are_as_with_any_runtime(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "of-the-user")
    file = tmp_path / "o.yaml"
    file.write_text(
        "setup: ['echo ready > ready']\nchecks: [test -f work]\nteardown: ['echo over']\n"
    )
    task = (
        "test -f ready && uname -v && ls && echo work > work && git add work && "
        "git commit -qm 'from another kernel' && wc -c < /run/secrets/TOKEN && echo rest > rest"
    )
    done = run(repo, task, "-c", str(file), "--secret", "TOKEN")
    result = done.results[1]
    assert result["status"] == "success", result
    assert set(result["files_modified"]) >= {"work", "rest"}
    assert git(repo, "log", "-1", "--format=%s", "architect/parallel-1~1") == "from another kernel"
    said = (Path(result["log"]) / "stdout.log").read_text()
    assert said.splitlines()[0] not in Path("/proc/version").read_text()
    assert said.splitlines()[-1] == "11"


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (("--network", "open"), "runtime.no-filter"),
        (("--network", "allowlist", "--allow", "192.0.2.0/24"), "runtime.no-filter"),
        (("--ports", "80"), "runtime.no-filter"),
        (("--transfer", "streams"), "transfer.unsupported"),
        (("-c", "services.yaml"), "runtime.services"),
    ],
    ids=["open", "allowlist", "ports", "streams", "services"],
)  # fmt: skip
def test_what_gvisor_cannot_do_is_refused_before_a_worker_starts(
    repo: Path, options: tuple[str, ...], key: str
) -> None:
    (repo / "services.yaml").write_text(
        "services:\n  web:\n    image: orchestrator/base\n    command: [sleep, '60']\n"
    )
    done = run(repo, "true", *options)
    assert (done.returncode, done.error["key"]) == (3, key)
    assert not list(repo.glob(".architect-parallel-*"))


def test_doctor_says_what_a_run_will_do(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_RUNTIME", "runsc")
    done = orchestrator("doctor", cwd=repo)
    said = done.stdout
    assert done.returncode == 3
    assert "✓ system calls: filtered by the runtime `runsc`\n" in said
    assert "✗ limits: tmp_inodes: not enforced" in said
    assert "✓ worktrees: overlay, runtime `runsc` (tested)\n" in said
    assert "! open network: runtime `runsc` is not supported with a network" in said

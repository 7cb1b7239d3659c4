"""Tests that a secret reaches only its worker: no record, no log, no terminal."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import docker
import pytest

from orchestrator.engine.interface.labels import REPOSITORY
from tests.support.cli import orchestrator, start
from tests.support.daemon import inside, touch_in_workers
from tests.support.live import PATIENCE
from tests.support.repository import git

pytestmark = pytest.mark.docker
KEY = b"first line of a key\nsecond\xff line\n"
VALUE = "CANARY-9f3+secret/value=1?"
TOKEN = {"DEPLOY_TOKEN": VALUE}
SHELL = ("parallel", "--agent-cli", "shell", "--network", "none", "--workers", "1", "--json")
WAIT = "while ! test -e /tmp/go; do sleep 0.1; done"
PRINT = """python3 - <<'P'
import base64, json, os, sys, time, urllib.parse
path = os.environ["ORCHESTRATOR_SECRETS"] + "/DEPLOY_TOKEN"
value = open(path).read()
def say(text):
    sys.stdout.write(text + "\\n"); sys.stdout.flush()
say("length %d" % len(value))
say(value)
for before in range(3):
    say(base64.b64encode(b"x" * before + value.encode() + b"tail").decode())
    say(base64.urlsafe_b64encode(b"x" * before + value.encode()).decode())
say(urllib.parse.quote(value, safe="")); say(urllib.parse.quote_plus(value))
say(value.encode().hex())
for cut in range(1, len(value)):
    sys.stdout.write(value[:cut]); sys.stdout.flush(); time.sleep(0.02); say(value[cut:])
print(value, file=sys.stderr)
say(json.dumps({"type": "orchestrator.report", "status": "partial", "steps": 2, "note": value}))
open("named-" + value.replace("/", "_"), "w").close()
P
echo "the end is $(cat /run/secrets/DEPLOY_TOKEN)" >&2; exit 3"""


def spellings(value: str = VALUE) -> list[bytes]:
    raw = value.encode()
    encoded = [base64.b64encode(b"x" * n + raw)[4:-4] for n in range(3)]
    return [raw, raw.hex().encode(), *encoded, *(e.replace(b"/", b"_") for e in encoded)]


def assert_nowhere(*places: Path | str) -> None:
    for place in places:
        files = [Path(place)] if isinstance(place, Path) else []
        if files and files[0].is_dir():
            files = [path for path in files[0].rglob("*") if path.is_file()]
        contents = [(str(f), f.read_bytes()) for f in files] or [("output", str(place).encode())]
        for name, content in contents:
            assert not [s for s in spellings() if s in content], name


def state(repo: Path) -> Path:
    return repo / ".git" / "orchestrator"


def in_memory() -> list[Path]:
    return list(Path("/dev/shm").glob("orchestrator-*"))


def of_run(repo: Path) -> list[Path]:
    """Return the files that runs of this repository have in memory."""
    ids = {path.name for path in (state(repo) / "runs").glob("*/")}
    return [path for path in in_memory() if path.name.removeprefix("orchestrator-") in ids]


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def test_no_encoding_of_a_secret_is_recorded_or_printed(repo: Path) -> None:
    done = orchestrator(*SHELL, "--secret", "DEPLOY_TOKEN", PRINT, cwd=repo, env=TOKEN)
    result = done.results[1]
    assert (result["status"], result["reason"]) == ("failed", "agent_failed")
    assert result["steps"] == 2
    assert result["message"] == "the end is [redacted:DEPLOY_TOKEN]"
    stdout = (Path(result["log"]) / "stdout.log").read_text()
    assert stdout.startswith(f"length {len(VALUE)}\n[redacted:DEPLOY_TOKEN]\n")
    assert stdout.count("[redacted:DEPLOY_TOKEN]") == 1 + 6 + 3 + len(VALUE) - 1 + 1
    shown = [
        path for path in state(repo).rglob("*") if path.is_file() and "upper" not in path.parts
    ]
    assert len(shown) >= 5
    assert_nowhere(*shown, done.stdout, done.stderr)
    assert of_run(repo) == []


@pytest.mark.extra
def test_secrets_in_tasks_and_variables_are_redacted(repo: Path) -> None:
    task = f"echo {VALUE} > a.txt; env"
    done = orchestrator(*SHELL, "--env", f"API_KEY={VALUE}", task, cwd=repo)
    assert done.results[1]["task"] == "echo [redacted:API_KEY] > a.txt; env"
    shown = [
        path for path in state(repo).rglob("*") if path.is_file() and "upper" not in path.parts
    ]
    assert_nowhere(*shown, done.stdout, done.stderr)
    message = git(repo, "log", "-1", "--format=%B", "architect/parallel-1")
    assert "Task: echo [redacted:API_KEY]" in message
    plan = orchestrator(*SHELL, "--env", f"API_KEY={VALUE}", task, "--dry-run", cwd=repo)
    assert_nowhere(plan.stdout, plan.stderr)


def wait_for(client: docker.APIClient, repo: Path, count: int = 1) -> list[str]:
    filters = {"label": f"{REPOSITORY}={repo / '.git'}", "status": "running"}
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = client.containers(filters=filters)
        workers = [c["Id"] for c in found if c["Labels"].get("orchestrator.role") == "worker"]
        if len(workers) == count:
            return workers
        time.sleep(0.05)
    raise AssertionError("the workers did not come up")


def test_secret_file_belongs_to_the_worker_and_the_engine_has_no_value(
    repo: Path, client: docker.APIClient, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(KEY)
    process = start(
        *SHELL, "--secret", "DEPLOY_TOKEN", "--secret", f"KEY=@{tmp_path / 'key'}", WAIT,
        cwd=repo, env=TOKEN, fork=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    (container,) = wait_for(client, repo)
    assert_nowhere(json.dumps(client.inspect_container(container)))
    (directory,) = of_run(repo)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert inside(client, container, "cat", "/run/secrets/DEPLOY_TOKEN") == VALUE
    digest = inside(client, container, "sha256sum", "/run/secrets/KEY").split()[0]
    assert digest == hashlib.sha256(KEY).hexdigest()
    owners = "stat -c '%a %u' /run/secrets /run/secrets/*; id -u"
    assert inside(client, container, "sh", "-c", owners) == (
        "500 {0}\n400 {0}\n400 {0}\n{0}\n".format(20_001 if os.getuid() == 0 else os.getuid())
    )
    change = "echo x > /run/secrets/new; rm /run/secrets/KEY"
    refused = inside(client, container, "sh", "-c", change)
    assert refused.count("Read-only file system") == 2
    assert "DEPLOY_TOKEN" not in inside(client, container, "env")
    assert VALUE not in Path(f"/proc/{process.pid}/cmdline").read_text()
    touch_in_workers(client, repo, "/tmp/go")
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    assert_nowhere(stdout.decode(), stderr.decode())
    assert of_run(repo) == []


@pytest.mark.extra
def test_two_workers_have_their_own_directories(repo: Path, client: docker.APIClient) -> None:
    process = start(
        *SHELL, "--workers", "2", "--secret", "DEPLOY_TOKEN", WAIT,
        cwd=repo, env=TOKEN, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    containers = wait_for(client, repo, 2)
    sources = set()
    for container in containers:
        assert inside(client, container, "sh", "-c", "cat /run/secrets/*") == VALUE
        # A worker sees neither the parent directory nor the files of another worker.
        assert inside(client, container, "ls", "/run/secrets") == "DEPLOY_TOKEN\n"
        memory = inside(client, container, "sh", "-c", "ls -d /dev/shm/*")
        assert memory.endswith("No such file or directory\n")
        mounts = client.inspect_container(container)["Mounts"]
        sources |= {m["Source"] for m in mounts if m["Destination"] == "/run/secrets"}
    assert {Path(source).name for source in sources} == {"worker-1", "worker-2"}
    touch_in_workers(client, repo, "/tmp/go")
    process.communicate(timeout=PATIENCE)
    assert of_run(repo) == []


@pytest.mark.extra
def test_cleanup_removes_secrets_of_a_killed_run(repo: Path, client: docker.APIClient) -> None:
    process = start(
        *SHELL, "--secret", "DEPLOY_TOKEN", WAIT, cwd=repo, env=TOKEN,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(client, repo)
    orchestrator("parallel-cleanup", cwd=repo)
    (directory,) = of_run(repo)
    assert list(directory.rglob("DEPLOY_TOKEN")), "the secrets of a live run were removed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    orchestrator("parallel-cleanup", "--dry-run", cwd=repo)
    assert of_run(repo) == [directory]
    assert orchestrator("parallel-cleanup", cwd=repo).returncode == 0
    assert of_run(repo) == []


@pytest.mark.extra
def test_secret_in_a_commit_is_reported(repo: Path) -> None:
    keep = "cp /run/secrets/DEPLOY_TOKEN kept.txt; head -c 3000000 /dev/zero > big"
    task = f"{keep}; git add -A; git commit -qm x; git rm -q kept.txt; git commit -qm y"
    done = orchestrator(*SHELL, "--secret", "DEPLOY_TOKEN", task, cwd=repo, env=TOKEN)
    result = done.results[1]
    assert result["status"] == "success"
    told = "`architect/parallel-1` contains the value of `DEPLOY_TOKEN` in kept.txt"
    assert result["message"] == told
    assert told in done.stderr
    clean = orchestrator(*SHELL, "--secret", "DEPLOY_TOKEN", "echo x > x", cwd=repo, env=TOKEN)
    assert clean.results[2]["message"] is None


@pytest.mark.variants("run-*")
@pytest.mark.parametrize(
    ("secret", "env", "key"),
    [
        ("MISSING", {}, "secret.unset"),
        ("SHORT", {"SHORT": "abc1234"}, "secret.too-short"),
        ("FILE=@/nonexistent/file", {}, "secret.unreadable"),
        (f"DEPLOY_TOKEN={VALUE}", {}, "configuration.invalid"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "plan"])
def test_missing_secret_is_one_error(
    repo: Path, secret: str, env: dict[str, str], key: str, more: tuple[str, ...]
) -> None:
    arguments = (*SHELL, *more, "--secret", secret, "true")
    done = orchestrator(*arguments, cwd=repo, env=env)
    assert (done.returncode, done.error["key"]) == (3, key)
    debug = orchestrator("--debug", *arguments, cwd=repo, env=env)
    assert_nowhere(done.stdout, done.stderr, debug.stderr)
    assert "abc1234" not in debug.stderr
    assert not state(repo).exists() or not (state(repo) / "runs").exists()

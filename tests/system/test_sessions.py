"""Tests of what a hostile worker writes to the place of its session, in real containers."""

from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.container import Limits
from orchestrator.engine.docker import DockerEngine
from orchestrator.runs.resuming.continued_worker import ContinuedWorker
from orchestrator.runs.resuming.continuing import Message
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.worker.turns import NextTurn
from orchestrator.worker.workspace.session_files import kept_session
from tests.support.attempts import state_of
from tests.support.runs import configured, show
from tests.support.talker import SPEAK, Talker

pytestmark = pytest.mark.docker

PLANT = f"""{SPEAK}
cd "$SESSION"; ln -s /etc/passwd s1.db; mkfifo s2.jsonl; mknod s3.jsonl c 1 3 2>/dev/null
ln -s / up; mkdir settings; echo x > settings.json; echo x > settings/run.sh
printf 'x' > "$(printf 'a\\033[31m\\nb')"
cd /workspace; echo 1 > one
"""


def first(repo: Path, engine: DockerEngine, script: str, **rest: object) -> WorkerResult:
    config = configured("the task", **{"limits": Limits(grace=1), **rest})
    (result,) = ParallelRunner(config, repo, engine=engine, agent=Talker(script)).execute().results
    return result


def second(repo: Path, engine: DockerEngine, script: str) -> WorkerResult:
    turn = Message(1, NextTurn(message="go on"))
    runner = ContinuedWorker(state_of(repo), turn, engine=engine, agent=Talker(script))
    return runner.execute().results[0]


@pytest.mark.variants("mounts")
@pytest.mark.parametrize("transfer", ["mounts", "streams"])
def test_regular_files_of_the_session_alone_come_back(
    repo: Path, docker_engine: DockerEngine, transfer: str
) -> None:
    absent = "test ! -e /session"
    isolation = {"isolation": {"network": "none", "transfer": transfer}}
    checks = ({"name": "absent", "run": absent},)
    begun = first(repo, docker_engine, PLANT, checks=checks, setup=(absent,), **isolation)
    assert (begun.status, begun.message) == (Status.SUCCESS, None)
    place = state_of(repo).worker(1)
    assert [path.name for path in (place / "session.kept").iterdir()] == ["s1.jsonl"]
    assert not (place / "session").exists()
    look = 'find "$SESSION" -type f > found; cat "$SESSION/s1.jsonl" > talk'
    result = second(repo, docker_engine, f"{SPEAK} {look}")
    assert [turn.continued for turn in result.turns] == [None, "session"]
    assert show(repo, "architect/parallel-1:found") == "/session/s1.jsonl"
    assert show(repo, "architect/parallel-1:talk") == "the task\ngo on"


@pytest.mark.variants("large-streams", "hidden-mounts")
@pytest.mark.parametrize("transfer", ["mounts", "streams"])
@pytest.mark.parametrize(
    "planted",
    ["truncate -s 1G $SESSION/s1.db", "mkdir $SESSION/d; chmod 000 $SESSION/d"],
    ids=["large", "hidden"],
)
def test_session_that_is_too_large_or_hidden_harms_nothing_but_itself(
    repo: Path, docker_engine: DockerEngine, transfer: str, planted: str
) -> None:
    isolation = {"isolation": {"network": "none", "transfer": transfer}}
    begun = first(repo, docker_engine, f"echo 1 > one; {SPEAK} {planted}", **isolation)
    assert (begun.status, begun.files_modified) == (Status.SUCCESS, ["one"])
    place = state_of(repo).worker(1)
    assert not (place / "session").exists()
    is_kept = kept_session(place) is not None
    assert is_kept == ("chmod" in planted)
    assert is_kept == ("session" not in (begun.message or ""))
    result = second(repo, docker_engine, f"echo 2 > two; {SPEAK}")
    assert result.turns[-1].continued == ("session" if is_kept else "prompt")
    assert result.files_modified == ["one", "two"]


@pytest.mark.variants("disk")
@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("head -c 200M /dev/zero > $SESSION/s1.jsonl", Reason.DISK),
        ("python3 -c 'for n in range(10**6): open(f\"/session/{n}\", \"x\").close()'",
         Reason.INODES),
    ],
    ids=["disk", "inodes"],
)  # fmt: skip
def test_session_counts_toward_the_limits_of_the_worker(
    repo: Path, docker_engine: DockerEngine, written: str, reason: Reason
) -> None:
    # More entries than a session may have are there when the worker is stopped.
    limits = Limits(grace=1, disk=50 * 1024**2, inodes=30_000)
    result = first(repo, docker_engine, f"echo 1 > one; {SPEAK} {written}; sleep 20", limits=limits)
    assert (result.reason, result.files_modified) == (reason, ["one"])
    assert kept_session(state_of(repo).worker(1)) is None
    again = second(repo, docker_engine, 'echo "$1" > prompt')
    assert [turn.continued for turn in again.turns] == [None, "prompt"]

"""A whole story by MCP alone, with real containers."""

from pathlib import Path

import pytest

from tests.support.mcp_clients import Refused, Session, over_stdio
from tests.support.repository import git

OPTIONS = (
    "--allow",
    "run,stop",
    "--allow",
    "merge",
    "--agent-cli",
    "shell",
    "--budget-total",
    "10",
)
NOISY = 'for i in $(seq 200); do echo \'{"jsonrpc":"2.0","id":1}\'; done; sleep 2; '


@pytest.mark.docker
def test_client_starts_workers_reads_them_and_merges_what_it_previewed(repo: Path) -> None:
    (repo / "orchestrator.yaml").write_text("container: {network: none}\n")
    before = git(repo, "rev-parse", "main")

    async def story(call: Session) -> None:
        started = await call(
            "run_tasks",
            tasks=[NOISY + "echo 1 > one", "echo 2 > two", "echo other > one"],
            timeout=60,
            budget=4,
        )
        run = started["run_id"]
        assert (started["workers"], started["at_once"], started["budget"]) == ([1, 2, 3], 3, 4)
        with pytest.raises(Refused, match="all 3 workers of this server are in use"):
            await call("run_tasks", tasks=["true"])

        seen = await call("wait", run=run, seconds=0)
        assert seen["state"] == "running"
        news = await call("wait", run=run, cursor=seen["cursor"])
        assert news["changed"]
        ended = await call.ended(run)
        assert (ended["status"], ended["workers"]) == ("success", {"success": [1, 2, 3]})

        assert [one["run_id"] for one in (await call("runs"))["runs"]] == [run]
        first = await call("worker", run=run, worker=1)
        assert first["untrusted"]["files"] == ["one"]
        log = await call("log", run=run, worker=1)
        assert log["untrusted"]["text"].count("jsonrpc") == 200
        patch = await call("diff", run=run, worker=2, form="patch")
        assert "+2\n" in patch["untrusted"]["patch"]

        await _merge(call, repo, run)
        await _stop(call)

    over_stdio(repo, story, *OPTIONS)
    assert git(repo, "log", "-1", "--format=%P", "main").split()[0] == before


async def _merge(call: Session, repo: Path, run: str) -> None:
    before = git(repo, "rev-parse", "main")
    found = await call("conflicts", run=run)
    (pair,) = (one for one in found["pairs"] if one["kind"] != "clean")
    assert (pair["a"], pair["b"], pair["untrusted"]["files"]) == (1, 3, ["one"])
    assert found["preview"]["lands"] == [1, 2]
    assert found["preview"]["left"] == [{"worker_id": 3, "reason": "conflict"}]
    assert git(repo, "rev-parse", "main") == before

    chosen = await call("conflicts", run=run, workers=[2])
    merged = await call("merge", token=chosen["preview"]["token"])
    assert merged["landed"] == [2]
    assert git(repo, "show", "main:two") == "2"
    with pytest.raises(Refused, match="moved since the preview"):
        await call("merge", token=found["preview"]["token"])
    with pytest.raises(Refused, match="no such preview"):
        await call("merge", token=chosen["preview"]["token"])


async def _stop(call: Session) -> None:
    endless = await call("run_tasks", tasks=["echo begun > begun; sleep 600"])
    # What the first run cost is not known: it counts as its budget.
    assert endless["budget"] == 6
    with pytest.raises(Refused, match="the budget of this server, 10 USD, is used up"):
        await call("run_tasks", tasks=["true"])
    while "running" not in (await call("wait", run=endless["run_id"], seconds=1))["workers"]:
        pass
    await call("stop", run=endless["run_id"], kill=True)
    ended = await call.ended(endless["run_id"])
    assert ended["workers"] == {"cancelled": [4]}

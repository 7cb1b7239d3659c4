"""Tests of eight containers whose model's API answers 429 for five seconds."""

from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.base.events import Event, ProviderPaused, WorkerPreparing, WorkerRetrying
from orchestrator.base.results import Status
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.run import ParallelConfig, Provider, RateLimit
from orchestrator.engine.docker import DockerEngine
from orchestrator.runs.runner import ParallelRunner
from tests.support.bridge import bridge_gateway
from tests.support.model_script import Rule, Scenario, Turn
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.docker
OUTAGE = 5.0
CAPACITY, RATE = 4, 4.0
SLACK = 1.0
"""Maximum time, in seconds, from the decision to start a worker to its event."""
ASK = """
import json, sys, urllib.error, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": "do it"}]}
request = urllib.request.Request(sys.argv[1], json.dumps(body).encode())
try:
    answer = json.load(urllib.request.urlopen(request, timeout=10))
except urllib.error.HTTPError as error:
    assert error.code == 429, error.code
    sys.exit(json.dumps({"status": "failed", "reason": "rate_limited"}))
open("done.txt", "w").write(answer["choices"][0]["message"]["content"])
"""


@pytest.mark.extra
def test_all_workers_succeed_with_at_most_one_more_attempt(
    repo: Path, docker_engine: DockerEngine
) -> None:
    events: list[Event] = []
    scenario = Scenario((Rule(turns=(Turn(text="Done."),)),))
    with ModelServer(scenario, host=bridge_gateway(), outage=OUTAGE) as server:
        host, port = server.server_address[:2]
        task = f"python3 -c '{ASK}' {server.url}/v1/chat/completions 2>&1"
        config = ParallelConfig(
            tasks=(task,),
            workers=8,
            agent_cli="shell",
            timeout_per_worker=60,
            limits=Limits(grace=1, cpus=1, memory=128 * 1024**2),
            isolation=Isolation(network="open", allow=(f"{host!s}:{port}",)),
            providers={
                "shell": Provider(rate_limit=RateLimit(capacity=CAPACITY, refill_rate=RATE))
            },
        )
        results = ParallelRunner(config, repo, engine=docker_engine, emit=events.append).run()
    assert [one.status for one in results] == [Status.SUCCESS] * 8, results[0].message
    assert [one.files_modified for one in results] == [["done.txt"]] * 8
    assert {one.attempts for one in results} <= {1, 2}
    again = [one.worker_id for one in events if isinstance(one, WorkerRetrying)]
    assert 1 <= len(again) == len({*again})

    pauses = [one for one in events if isinstance(one, ProviderPaused)]
    starts = sorted(one.at for one in events if isinstance(one, WorkerPreparing))
    (first, *_) = pauses
    calm = [one for one in starts if one > first.at + timedelta(seconds=SLACK)]
    assert min(calm) >= first.at + timedelta(seconds=first.seconds)
    for begin, moment in enumerate(starts):
        for count, later in enumerate(starts[begin:], start=1):
            seconds = (later - moment).total_seconds()
            assert count <= CAPACITY + RATE * (seconds + SLACK), starts

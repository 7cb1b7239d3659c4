"""Tests of the resources that a run's workers share: when their network is removed."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.results import Reason
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.project import Check
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, ROLE, RUN, WORKER
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.runs.live import shared_resources
from orchestrator.sandbox.network.run_network import RunNetwork
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run


@pytest.mark.parametrize(
    ("rest", "leaves"),
    [
        ({"tasks": ("true",)}, True),
        ({"tasks": ("exit 1",)}, False),
        ({"tasks": ("true",), "checks": (Check(run="true"),)}, False),
        ({"tasks": ("true",), "retry_on": (Reason.OOM,)}, False),
    ],
)
def test_worker_that_may_need_the_network_again_keeps_it(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch,
    rest: dict[str, Any], *, leaves: bool,
) -> None:  # fmt: skip
    left: list[int] = []
    monkeypatch.setattr(RunNetwork, "leave", lambda _, worker: left.append(worker))
    tasks = rest.pop("tasks")
    shell_run(repo, local_engine, *tasks, isolation=Isolation(network="open"), **rest)
    assert left == ([1] if leaves else [])


def test_removal_of_the_network_spares_containers_of_workers(local_engine: LocalEngine) -> None:
    ours = {MANAGED: "true", RUN: "run"}
    network = local_engine.create_network("network", {**ours, ROLE: "network"})
    spec = ContainerSpec(
        name="harvest", image=BASE_IMAGE, command=("true",), user="", workdir="/",
        labels={**ours, ROLE: "harvest", WORKER: "1"}, network="none",
    )  # fmt: skip
    other = local_engine.create_network("other", {**ours, RUN: "other", ROLE: "network"})
    packing = local_engine.create(spec)
    shared_resources._remove_network(local_engine, "run")
    left = local_engine.leftovers({MANAGED: "true"})
    assert {one.id for one in left} == {packing.id, other} - {network}
    for one in left:
        local_engine.remove(one)

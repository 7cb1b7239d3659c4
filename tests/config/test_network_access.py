"""Tests of the networks and hosts that each stage of a worker may reach."""

from typing import Any

import pytest

from orchestrator.config.network_access import Access, accesses_with_network, stage_access
from orchestrator.config.settings.project import Check, Project, Service
from orchestrator.config.settings.run import ParallelConfig

READS = {"keys": "broker", "git_read": ("https://git.example/x=TOKEN",)}
ALL = Project(setup=("s",), teardown=("t",), checks=(Check(run="c"),))


def config(*, project: Project = ALL, **isolation: Any) -> ParallelConfig:
    return ParallelConfig.model_validate(
        {"tasks": ("t",), "isolation": isolation, "project": project}
    )


def test_stages_share_the_list_of_the_worker() -> None:
    found = stage_access(config(network="allowlist", allow=("a",), check_network="allowlist"))
    assert {found.task, found.setup, found.teardown, found.checks} == {Access("allowlist", ("a",))}


def test_stage_with_a_list_of_its_own_has_no_other() -> None:
    found = stage_access(
        config(network="allowlist", allow=("a",), setup_allow=("s",), check_network="allowlist",
               check_allow=("c",))
    )  # fmt: skip
    assert found.setup == Access("allowlist", ("s",))
    assert found.checks == Access("allowlist", ("c",))
    assert found.task == found.teardown == Access("allowlist", ("a",))


@pytest.mark.parametrize(("task", "setup"), [("allowlist", "open"), ("open", "allowlist")])
def test_hosts_of_a_list_are_no_private_hosts_of_an_open_network(task: str, setup: str) -> None:
    found = stage_access(config(network=task, setup_network=setup, allow=("a",)))
    assert found.task == (task, ("a",))
    assert found.setup == (setup, ())


@pytest.mark.parametrize("network", ["allowlist", "open"])
def test_list_of_a_worker_without_a_network_is_that_of_its_stages(network: str) -> None:
    found = stage_access(config(network="none", setup_network=network, allow=("a",)))
    assert found.setup == (network, ("a",))


@pytest.mark.parametrize(
    ("services", "setup_network", "reads"),
    [(False, "open", True), (False, "none", True), (True, "open", True), (True, "none", False)],
)
def test_setup_of_a_worker_with_services_reads_repositories_only_on_the_network_of_the_task(
    services: bool, setup_network: str, reads: bool
) -> None:
    given = {"services": {"db": Service(image="db")} if services else {}}
    found = stage_access(
        config(project=ALL.model_copy(update=given), setup_network=setup_network, **READS)
    )
    assert found.setup_reads is reads


@pytest.mark.parametrize(
    "change",
    [
        {"isolation": {"keys": "broker"}},
        {"isolation": {**READS, "keys": "env"}},
        {"project": Project()},
        {"closed_stages": ("setup",)},
    ],
)
def test_untrusted_and_missing_setup_commands_read_no_repositories(change: dict[str, Any]) -> None:
    settings = {"tasks": ("t",), "isolation": READS, "project": ALL}
    assert stage_access(ParallelConfig.model_validate(settings)).setup_reads
    assert not stage_access(ParallelConfig.model_validate({**settings, **change})).setup_reads


def test_only_stages_with_commands_and_a_network_count() -> None:
    isolation = {"network": "none", "setup_network": "open", "check_network": "allowlist"}
    assert accesses_with_network(config(project=Project(), **isolation)) == ()
    assert accesses_with_network(config(**isolation)) == (Access("open"), Access("allowlist"))
    assert accesses_with_network(config(network="open")) == (Access("open"),)

"""Tests of the hosts that the settings of a worker open, with an allow-list."""

from typing import Any

import pytest

from orchestrator.base.errors import UnsupportedError
from orchestrator.config.network_access import Access
from orchestrator.config.settings.project import Project
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.egress import worker_egress
from orchestrator.network.gateway.allowed_host import AllowedHost
from tests.support.errors import raises


def config(*allow: str, api_base: str | None = None, **isolation: Any) -> ParallelConfig:
    return ParallelConfig.model_validate(
        {
            "tasks": ("t",),
            "api_base": api_base,
            "isolation": {"network": "allowlist", "allow": allow, **isolation},
        }
    )


def hosts(config: ParallelConfig, **env: str) -> tuple[AllowedHost, ...] | None:
    (egress,) = worker_egress(config, tuple(env), env).values()
    return egress.hosts


def test_list_and_base_urls_are_the_hosts() -> None:
    assert hosts(
        config("a.example", api_base="https://api.example.com/v1"),
        OPENAI_BASE_URL="http://llm.corp.example:8000/v1",
        OTHER="https://other.example",
    ) == (
        AllowedHost(name="a.example"),
        AllowedHost(name="llm.corp.example", port=8000, plain=True),
        AllowedHost(name="api.example.com"),
    )


def test_base_url_alone_is_a_list() -> None:
    assert hosts(config(api_base="https://api.example.com")) == (
        AllowedHost(name="api.example.com"),
    )


def test_machine_is_opened_at_the_ports_of_the_list() -> None:
    asked = config("http://host.docker.internal:11434", "a.example=10.0.0.0/8")
    (egress,) = worker_egress(asked, (), {}).values()
    assert egress.allowed == (("host.docker.internal", 11434),)


def test_open_network_has_no_list() -> None:
    found = worker_egress(config("10.9.8.7", network="open"), (), {})
    assert found[Access("open", ("10.9.8.7",))].hosts is None


def test_empty_list_is_refused() -> None:
    with raises("allow.empty"):
        worker_egress(config(), (), {})


def test_runtime_with_a_network_stack_of_its_own_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="runsc"):
        worker_egress(config("a.example", runtime="runsc"), (), {})


def test_ports_without_a_network_need_a_gateway_without_hosts() -> None:
    asked = config(network="none", ports={"PORT": 3000}, api_base="https://api.example.com")
    ((access, egress),) = worker_egress(
        asked, ("X_API_BASE",), {"X_API_BASE": "http://b.c"}
    ).items()
    assert (access.network, egress.hosts, egress.allowed) == ("none", (), ())
    runtime = config(network="none", ports={"PORT": 3000}, runtime="runsc")
    with pytest.raises(UnsupportedError) as caught:
        worker_egress(runtime, (), {})
    assert str(caught.value.hint).startswith("use no ports with `--network none`; ")


@pytest.mark.parametrize("of_worker", [{"keys": "broker"}, {"ports": {"PORT": 3000}}])
def test_list_of_the_setup_does_not_open_a_worker_without_a_network(
    of_worker: dict[str, Any],
) -> None:
    stages = {"network": "none", "setup_network": "allowlist", **of_worker}
    asked = config("a.example", **stages).model_copy(update={"project": Project(setup=("true",))})
    found = {
        access.network: egress.hosts for access, egress in worker_egress(asked, (), {}).items()
    }
    assert found == {"none": (), "allowlist": (AllowedHost(name="a.example"),)}


def test_sets_are_expanded() -> None:
    found = config("@docs", "a.example", allow_sets={"docs": ["b.example"]})
    assert hosts(found) == (AllowedHost(name="b.example"), AllowedHost(name="a.example"))
    with raises("allow-set.no-allowlist", "`@docs`"):
        hosts(config("@docs", network="open"))


def test_network_that_learns_needs_no_list() -> None:
    (egress,) = worker_egress(config(network="learn"), (), {}).values()
    assert (egress.hosts, egress.learn) == ((), True)
    (egress,) = worker_egress(config("a.example"), (), {}).values()
    assert not egress.learn
    for entry in ("http://a.example:443", "https://a.example:80"):
        with raises("allow.protocol"):
            worker_egress(config(entry, network="learn"), (), {})


def test_broker_needs_a_runtime_with_a_filtered_network() -> None:
    with pytest.raises(UnsupportedError, match="runsc") as caught:
        worker_egress(config(network="none", keys="broker", runtime="runsc"), (), {})
    assert "`--keys env` with `--network none`" in str(caught.value.hint)

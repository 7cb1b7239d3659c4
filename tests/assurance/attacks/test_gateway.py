"""Attempts to get past a gateway, and controls that show that each attempt would be seen.

The outside is in a network namespace of the test; no packet leaves this machine.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.assurance.attacks.attack import SCRIPTS
from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.conftest import CALLERS
from tests.support.cli import Completed, printed
from tests.support.outside import NETWORK, OWN, Outside, outside
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
LISTS = ("files.example=10.99.112.0/24", "files.example:80=10.99.112.0/24")
CLOSED = ("other.example=10.99.112.0/24", "other.example:80=10.99.112.0/24")
REACHED_IF_LISTED = {
    "listed by another name: sni",
    "listed by another name: host",
    "second request with another host",
    "name is resolved",
    "slow tls to another host",
    "dns: another host",
    "dns: over tcp",
}
"""Attempts that fail only because the host is not on the list."""
REACHED_IF_OPEN = {
    *(f"address {number}" for number in range(5)),
    *(f"address {number} with tls" for number in range(5)),
    "dns: of the outside",
}
"""Attempts that fail only because the worker's network leads to its gateway alone."""


@pytest.fixture(scope="module")
def world(grounds: Path) -> Iterator[Outside]:
    folder = grounds / "outside"
    folder.mkdir()
    with outside(folder) as made:
        yield made


def attacked(
    world: Outside, caller: Caller, name: str, entries: tuple[str, ...], network: str = "allowlist"
) -> Completed:
    """Run the attempts in a worker of a caller."""
    world.forget()
    repo = make_repository(caller.home / name)
    (repo / "attack.py").write_text((SCRIPTS / "gateway.py").read_text())
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "attack")
    caller.own(repo)
    options = [word for entry in entries for word in ("--allow", entry)]
    return world.orchestrator(
        "parallel", "--agent-cli", "shell", "--json", "--workers", "1", "--network", network,
        *options, f"python3 attack.py 10.99.112.11 {OWN}",
        cwd=repo, env=caller.environment, timeout=300, caller=caller.prefix, python=caller.python,
    )  # fmt: skip


def outcomes(done: Completed) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    (result,) = done.results.values()
    lines = printed(result).splitlines()
    return {name: outcome for name, _, outcome in (line.rpartition(": ") for line in lines)}


@pytest.mark.parametrize("name", CALLERS)
def test_no_attempt_reaches_a_host_that_is_not_listed(
    world: Outside, everyone: dict[str, Caller], name: str
) -> None:
    found = outcomes(attacked(world, everyone[name], "held", LISTS))
    assert len(found) > 60
    wrong = {attempt: outcome for attempt, outcome in found.items()
             if outcome != ("reached" if attempt.startswith("control") else "held")}  # fmt: skip
    assert wrong == {}
    assert {entry["address"] for entry in world.seen("connection")} == {"10.99.112.10"}
    assert world.names() == {"files.example"}


def test_controls_see_that_the_list_alone_holds(
    world: Outside, everyone: dict[str, Caller]
) -> None:
    found = outcomes(attacked(world, everyone[CALLERS[0]], "controls", (*LISTS, *CLOSED)))
    reached = {attempt for attempt, outcome in found.items() if outcome == "reached"}
    assert reached >= REACHED_IF_LISTED
    assert {entry["address"] for entry in world.seen("connection")} == {
        "10.99.112.10", "10.99.112.11",
    }  # fmt: skip


def test_controls_see_that_the_network_alone_holds(
    world: Outside, everyone: dict[str, Caller]
) -> None:
    """The same attempts on an open network reach what a gateway's topology closes."""
    caller = everyone[CALLERS[0]]
    found = outcomes(attacked(world, caller, "open", (NETWORK,), network="open"))
    reached = {attempt for attempt, outcome in found.items() if outcome == "reached"}
    assert reached >= REACHED_IF_OPEN

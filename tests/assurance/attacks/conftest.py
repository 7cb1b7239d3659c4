"""Options, callers and campaigns; each campaign is run once and used by many tests."""

import base64
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.assurance.attacks.attack import Attack
from tests.assurance.attacks.caller import Caller, callers
from tests.assurance.attacks.campaign import Campaign, run_campaign
from tests.assurance.attacks.table import PAGE, Table
from tests.cluster.lab import LAB
from tests.cluster.runs import UNENFORCED
from tests.support import variants

CALLERS = ("root", "user") if os.getuid() == 0 else ("user",)
Group = tuple[Attack, ...]
_IN_FULL = (
    ("attacks/test_broker", ""),
    ("attacks/test_gateway", ""),
    ("attacks/test_judged", ""),
    ("attacks/test_killed", ""),
)
"""Files that `make test` skips completely."""
_NOT_IN_FEW = (("attacks/test_limits", ""),)
"""Files that `make test` skips, unless tests of them are named."""
_BY_ROOT = (("attacks/test_terminal", "[user]"),)
"""Tests that only root runs, unless every caller makes every attack."""
_CALLS = "pods have the default profile of system calls of their nodes, not that of our engines"
IN_PODS = {
    "70-tmpfs": "a cluster before 1.22 does not limit `/tmp`, which every result says",
    "203-netlink": _CALLS,
    "204-other-entries": _CALLS,
    "205-priority": "a node lets processes lower how soon they are killed for memory",
    "210-terminals": _CALLS,
}
"""Attacks that achieve something in pods, with the reason; the guide about clusters names it."""
Run = Callable[[str, str, tuple[Attack, ...]], Campaign]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attacks")
    group.addoption("--measure-plain", action="store_true", help="attack plain `docker run` too")
    group.addoption("--every-caller", action="store_true", help="every attack as root and as user")
    group.addoption(
        "--transfer", choices=("mounts", "streams"), default="auto",
        help="how the files of attacked runs reach their containers",
    )  # fmt: skip
    group.addoption("--cluster", action="store_true", help="attack pods of the lab's cluster")
    group.addoption("--write-table", action="store_true", help="write tests/assurance/attacks.md")


def each_caller(config: pytest.Config) -> bool:
    """Return whether every caller makes every attack; otherwise callers take turns."""
    return bool(config.getoption("every_caller") or config.getoption("write_table"))


def in_full(config: pytest.Config) -> bool:
    """Return whether all attacks are made, because of an option or because some are named."""
    options = ("worktrees", "cluster", variants.OPTION, "keyword")
    is_named = any("[" in argument for argument in config.args)
    return each_caller(config) or is_named or any(map(config.getoption, options))


def turns(config: pytest.Config, groups: list[Group], *, first: int = 0) -> list[tuple[str, Group]]:
    """Return pairs of a caller and a group of attacks: in turns, or all combinations."""
    if each_caller(config):
        return [(caller, group) for caller in CALLERS for group in groups]
    return [(CALLERS[turn % len(CALLERS)], group) for turn, group in enumerate(groups, start=first)]


def each_attack(
    metafunc: pytest.Metafunc, names: tuple[str, str, str], turns: list[tuple[str, Group]]
) -> None:
    """Generate one test for each attack."""
    cases = [(caller, group, attack) for caller, group in turns for attack in group]
    ids = [f"{attack.name}-{caller}" for caller, _, attack in cases]
    metafunc.parametrize(names, cases, ids=ids)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("write_table") and config.getoption("worktrees") not in (None, "start"):
        raise pytest.UsageError("the table shows runs whose worktrees exist from the start")
    left_out: list[tuple[str, str]] = []
    if not each_caller(config):
        left_out += [*_IN_FULL, *(_BY_ROOT if len(CALLERS) > 1 else ())]
    if not in_full(config):
        left_out += _NOT_IN_FEW
    if not config.getoption("measure_plain", default=False):
        left_out.append(("test_plain", ""))
    items[:] = [
        item
        for item in items
        if not any(name in item.nodeid and caller in item.nodeid for name, caller in left_out)
    ]


@pytest.fixture
def reported(request: pytest.FixtureRequest) -> None:
    """Expect the failure of an attack of which is known that pods do not stop it."""
    attack = request.node.callspec.params["attack"]
    if request.config.getoption("cluster") and attack.name in IN_PODS:
        request.applymarker(pytest.mark.xfail(reason=IN_PODS[attack.name], strict=True))


@pytest.fixture(scope="session")
def grounds() -> Iterator[Path]:
    """A directory that every caller can read; pytest's own directories are private."""
    with tempfile.TemporaryDirectory(prefix="attacks-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def readable_settings(grounds: Path) -> Path:
    """Write the settings of the lab's user, so that every caller can read them."""
    lab, file = Path(os.environ[LAB]), grounds / "kubeconfig"
    settings = json.loads((lab / "kubeconfig-runner").read_text())
    authority = Path(settings["clusters"][0]["cluster"].pop("certificate-authority"))
    data = base64.b64encode(authority.read_bytes()).decode()
    settings["clusters"][0]["cluster"]["certificate-authority-data"] = data
    file.write_text(json.dumps(settings))
    file.chmod(0o644)
    return file


@pytest.fixture(scope="session")
def everyone(grounds: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Caller]]:
    with pytest.MonkeyPatch.context() as patch, callers(grounds) as found:
        patch.setenv("ORCHESTRATOR_TRANSFER", request.config.getoption("transfer"))
        if request.config.getoption("cluster"):
            patch.setenv("ORCHESTRATOR_TRANSFER", "streams")
            patch.setenv("ORCHESTRATOR_ENGINE", "kubernetes")
            patch.setenv("ORCHESTRATOR_ALLOW_UNENFORCED", UNENFORCED)
            patch.setenv("KUBECONFIG", str(readable_settings(grounds)))
        yield found


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    found = Table()
    yield found
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and found.rows:
        reporter.write_line("")
        reporter.write_line(found.text())
    if request.config.getoption("write_table", default=False):
        PAGE.write_text(found.page(PAGE.read_text()))


@pytest.fixture(scope="session")
def campaigns(everyone: dict[str, Caller], table: Table, request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a campaign once, and returns its outcome to every test.

    With `--every-caller`, the callers run the same campaign at the same time.
    """
    known: dict[tuple[str, str, tuple[str, ...]], Future[Campaign]] = {}
    worktrees: str = request.config.getoption("worktrees") or "start"

    def run(name: str, mode: str, attacks: tuple[Attack, ...]) -> Campaign:
        names = tuple(attack.name for attack in attacks)
        if (name, mode, names) not in known:
            makers = list(everyone) if each_caller(request.config) else [name]
            with ThreadPoolExecutor(len(makers)) as pool:
                for who in makers:
                    made = pool.submit(_attack, everyone[who], mode, attacks, worktrees)
                    known[who, mode, names] = made
            for who in makers:
                table.add_all(known[who, mode, names], attacks, column=f"{who}, {mode}")
        return known[name, mode, names].result()

    return run


def _attack(caller: Caller, mode: str, attacks: tuple[Attack, ...], worktrees: str) -> Campaign:
    # Overlay options cannot contain a comma, so such a path gets a mounted checkout.
    folder = "with,comma" if mode == "bind" else "plain"
    place = caller.home / folder / attacks[0].name
    return run_campaign(caller, place, attacks, worktrees=worktrees)

"""Hostile names of hosts, sent to a real gateway: as SNI, as `Host`, as a target, and in queries.

The outside is in a network namespace of the test; no packet leaves this machine.
"""

import json
import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import printed
from tests.support.outside import Outside, outside
from tests.support.repository import git

pytestmark = pytest.mark.docker
SCRIPT = Path(__file__).parent / "scripted" / "names.py"
WIDE = ("*.wide.example=10.99.112.0/24", "*.wide.example:80=10.99.112.0/24")
BELOW = ".wide.example"
LONG = f"data.other.example.{{}}{BELOW}"
LENGTHS = (1, 62, 63, 64, 65, 127, 128, 191, 192, 193, 255, 256, 257, 320, 512, 768, 1024)
"""Lengths of labels: in a query, 63 is the longest, 192 begins a pointer, 256 is encoded as 0."""
HOSTILE = (
    "a.wide.example", "b-c.wide.example", "9.wide.example", "xn--bcher-kva.wide.example",
    "A.WIDE.Example", "x.y.z.wide.example",
    "", ".", ".wide.example", "..wide.example", "a..wide.example", "a.wide.example.",
    "a.wide.example..", "wide.example", "awide.example", "-a.wide.example", "a-.wide.example",
    "_a.wide.example", "a_b.wide.example", "*.wide.example", "a b.wide.example",
    "a\t.wide.example", "a\n.wide.example", "a.wide.example\n", "a.wide.example\0",
    "data.other.example\0.wide.example", "data.other.example\0a.wide.example",
    "\0.wide.example", "\x07example\0.wide.example", "\xe4.wide.example", "\xff\xfe.wide.example",
    "data.other.example/.wide.example", "data.other.example:80.wide.example",
    "data.other.example:80", "u@a.wide.example", "data.other.example#.wide.example",
    "data.other.example?.wide.example", "data.other.example\\.wide.example",
    "data.other.example,a.wide.example", "10.99.112.11", "10.99.112.11.wide.example", "0x0a63700b",
    "[::1]", "[::ffff:10.99.112.11]", "a.wide.example:80:80", "a.wide.example:80x",
    "a.wide.example;", "a.wide.example%00", "%61.wide.example", "$(id).wide.example",
    *(LONG.format("Z" * length) for length in LENGTHS),
    *(f"{'q' * length}{BELOW}" for length in LENGTHS),
    *(".".join("r" * 30 for _ in range(count)) + BELOW for count in (7, 8, 9, 33)),
    *(".".join("s" * length for _ in range(4)) + BELOW for length in (59, 60)),
)  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with outside(tmp_path_factory.mktemp("outside")) as made:
        yield made


def random_names(count: int) -> list[str]:
    """Return names that are made of a listed name by a few random changes, the same at each run."""
    chance = random.Random(20261125)
    found = []
    for _ in range(count):
        labels = [chance.choice(["a", "data", "Z" * chance.choice(LENGTHS), "", "other.example"])
                  for _ in range(chance.randint(1, 4))]  # fmt: skip
        text = ".".join(labels) + BELOW
        for _ in range(chance.randint(0, 2)):
            at = chance.randrange(len(text))
            text = text[:at] + chr(chance.randrange(256)) + text[at + chance.randint(0, 1) :]
        found.append(text)
    return found


def is_host_name(text: str) -> bool:
    """Return whether a text is the full name of a host, in lower case."""
    labels = text.split(".")
    return (
        len(text) <= 253
        and len(labels) > 1
        and labels[-1][:1].isalpha()
        and all(0 < len(label) < 64 and "-" not in (label[0], label[-1]) for label in labels)
        and set(text) <= set(string.ascii_lowercase + string.digits + "-.")
    )


@pytest.mark.variants("allowlist-8")
@pytest.mark.parametrize("count", [8, 80])
@pytest.mark.parametrize("network", ["allowlist", "learn"])
def test_a_name_that_is_not_one_or_not_listed_is_never_asked_for(
    world: Outside, repo: Path, network: str, count: int
) -> None:
    world.forget()
    names = [*HOSTILE, *random_names(count)]
    (repo / "names.json").write_text(json.dumps(names))
    (repo / "names.py").write_text(SCRIPT.read_text())
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "names")
    done = world.orchestrator(
        "parallel", "--agent-cli", "shell", "--json", "--workers", "1", "--network", network,
        *(word for entry in WIDE for word in ("--allow", entry)), "python3 names.py",
        cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert printed(done.results[1]).splitlines() == ["done"]
    asked = world.names()
    real = {name.lower() for name in names if is_host_name(name.lower())}
    listed = real if network == "learn" else {name for name in real if name.endswith(BELOW)}
    # `host:80` in a request's `Host` is the host.
    assert listed <= asked <= {*listed, *({"data.other.example"} if network == "learn" else ())}
    assert len(listed) > 10
    log = (Path(done.results[1]["log"]) / "network.ndjson").read_text().splitlines()
    assert "invalid-name" in {json.loads(line)["reason"] for line in log}

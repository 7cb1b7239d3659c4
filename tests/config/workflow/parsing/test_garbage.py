"""Tests that a damaged file is either read or refused with a message."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.base.errors import ConfigError
from orchestrator.config.workflow.parsing.reader import read_workflow

EXAMPLES = Path(__file__).parents[3] / "data" / "workflows"
FULL = """\
name: Full
vars: {a: 1, b: null}
defaults: {model: big, limits: {cpus: 1}, resources: [x]}
policy: {constraints: {maxLatency: 5, privacy: public}}
continue_on_error: true
stages:
  - Design: ["web:Do {{a}}", {id: x, foreach: [1, b], task: "{{item}}"}]
  - name: Build
    tasks: [{reduce: x, task: "{{results}} {{b}}", ports: [80], services: {db: {image: i}}}]
tasks:
  - {id: y, stage: Build, depends_on: [x], checks: [a, {run: b}], paths: src, when: always}
  - {id: z, foreach: {glob: "*.py"}, batch: 2, task: "{{items|quote}}", setup: [a]}
"""
ODD: tuple[object, ...] = (
    None, True, 0, -1, 1.5, 10**30, "", " ", "x", "y", "a:b", "{{a}}", "{{item}}", "{{results}}",
    "\u202e", "x" * 5000, [], ["x"], [[]], [None], {}, {"x": "y"}, {"id": "x"}, {"tasks": []},
    {"task": {}}, {"command": "ls"}, [["a:b"], ["c:d"]], "1", "none", "always", ["x", "x"],
)  # fmt: skip


def parts(value: object) -> Iterator[tuple[object, object]]:
    """Return every position in a document as container and key."""
    members = value.items() if isinstance(value, dict) else enumerate(value or ())  # type: ignore[arg-type]
    for key, member in list(members):
        yield value, key
        if isinstance(member, (dict, list)):
            yield from parts(member)


def spoil(document: object, chance: random.Random) -> object:
    """Replace, remove and add random parts of a document."""
    for _ in range(chance.randint(1, 4)):
        places = list(parts(document))
        if not places:
            return chance.choice(ODD)
        holder, key = chance.choice(places)
        odd = json.loads(json.dumps(chance.choice(ODD)))
        match chance.randint(0, 3):
            case 0 if isinstance(holder, dict):
                holder[chance.choice(["id", "stage", "foreach", "depends_on", "tsk"])] = odd
            case 1 if isinstance(holder, list):
                holder.append(odd)
            case 2:
                del holder[key]  # type: ignore[attr-defined]
            case _:
                holder[key] = odd  # type: ignore[index]
    return document


@pytest.mark.parametrize("seed", range(150))
def test_damaged_file_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    texts = [FULL, *(path.read_text() for path in sorted(EXAMPLES.glob("*.yaml")))]
    document = spoil(yaml.safe_load(chance.choice(texts)), chance)
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(document))

    try:
        reading = read_workflow(path, variables=chance.choice([{}, {"b": "1"}]))
    except ConfigError as error:
        lines = error.message.splitlines()
        assert all(line.isprintable() for line in lines), lines
        assert all(str(path) in line for line in lines if not line.endswith(("workflow:", "more")))
    else:
        assert reading.workflow.tasks


@pytest.mark.parametrize("seed", range(50))
def test_damaged_squad_file_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = (EXAMPLES / "SQUAD.md").read_text().splitlines()
    extra = [
        "# x",
        "## Parallel agents",
        "### ",
        "### \u202e",
        "```",
        "~~~~",
        "{{a}}",
        "## O",
        "###",
    ]
    for _ in range(chance.randint(1, 6)):
        lines.insert(chance.randint(0, len(lines)), chance.choice(extra))
        del lines[chance.randint(0, len(lines) - 1)]
    path = tmp_path / "SQUAD.md"
    path.write_text("\n".join(lines))

    try:
        tasks = read_workflow(path).workflow.tasks
    except ConfigError as error:
        told = error.message
    else:
        told = f"{path} has {len(tasks)} tasks"
    assert str(path) in told

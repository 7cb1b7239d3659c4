"""Check that the generated parts of the documentation match the code; `--write` updates them.

Part of `make check`; needs no daemon. A generated part of a page stands between
`<!-- generated: NAME -->` and `<!-- end -->`.
"""

import argparse
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pydantic import BaseModel

from orchestrator.base.results import NetworkCounts, Reason, Timings, WorkerResult
from orchestrator.config.fields import (
    AGENT_FIELDS,
    BLOCKS,
    TOP_FIELDS,
    describe_values,
    field_schema,
    flag,
    in_words,
    whole_schema,
)
from orchestrator.config.loading.loading import json_schema
from orchestrator.config.loading.sources import NO_VARIABLE
from orchestrator.config.settings.values import field_docstrings
from orchestrator.config.workflow.parsing.dialects import json_schema as manifest_schema
from orchestrator.config.workflow.parsing.manifest import (
    Foreach,
    Manifest,
    ManifestTask,
    Stage,
    TaskDefaults,
)
from orchestrator.engine.interface import labels as engine_labels
from orchestrator.faces.cli.app import COMMANDS, run
from orchestrator.runs.purposes.picking import PickedJudgement

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "tools"))
from command_tree import table as command_table  # noqa: E402
from error_keys import table as error_table  # noqa: E402
from option_table import table as option_table  # noqa: E402
from rooms import draw as draw_rooms  # noqa: E402
from states_picture import draw as draw_workers  # noqa: E402

ROOMS = Path("docs/rooms.svg")
WORKERS = Path("docs/workers.svg")
SCHEMA = Path("docs/reference/config.schema.json")
OPTION_TABLE = Path("orchestrator/faces/cli/option_table.json")
COMMAND_TABLE = Path("orchestrator/faces/cli/command_table.json")
MANIFEST_SCHEMA = Path("docs/reference/manifest.schema.json")
JUDGEMENT_SCHEMA = Path("docs/reference/judgement.schema.json")
HELP_WIDTH = "80"
_PART = re.compile(r"(?<=<!-- generated: )(?P<name>[^>]+?) -->\n.*?(?=<!-- end -->)", re.DOTALL)
_NOTHING = "-"
_SIZES = ((1024**3, "g"), (1024**2, "m"))
_BLOCKS = {**BLOCKS, "top": TOP_FIELDS, "agents": AGENT_FIELDS}


def main(root: Path = ROOT, arguments: list[str] | None = None) -> int:
    """Check the files, or write them; return 1 if a file does not match the code."""
    parser = argparse.ArgumentParser(description="Check that the documentation matches the code")
    parser.add_argument("--write", action="store_true", help="update files that do not match")
    options = parser.parse_args(arguments)
    if options.write:
        # Written first, because the help texts below come from it.
        (root / OPTION_TABLE).write_text(option_table(), encoding="utf-8")
    problems = [*missing_words(root), *unknown_options(root)]
    for path, text in wanted_files(root):
        if (root / path).read_text(encoding="utf-8") == text:
            continue
        if options.write:
            (root / path).write_text(text, encoding="utf-8")
        else:
            problems.append(f"{path} is out of step with the code")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        print("\nhint: run `.venv/bin/python docs/check.py --write`", file=sys.stderr)
    return 1 if problems else 0


def pages(root: Path) -> list[Path]:
    """List the pages of the documentation, relative to `root`."""
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return sorted(path.relative_to(root) for path in found if "sample" not in path.parts)


def wanted_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield every file with generated parts, and its correct content."""
    yield SCHEMA, json.dumps(json_schema(), indent=2) + "\n"
    yield MANIFEST_SCHEMA, json.dumps(manifest_schema(), indent=2) + "\n"
    yield JUDGEMENT_SCHEMA, json.dumps(_judgement_schema(), indent=2) + "\n"
    yield ROOMS, draw_rooms(ROOT)
    yield WORKERS, draw_workers()
    yield OPTION_TABLE, option_table()
    yield COMMAND_TABLE, command_table()
    for page in pages(root):
        text = (root / page).read_text(encoding="utf-8")
        if "<!-- generated: " in text:
            yield page, _PART.sub(_generated, text)


def _judgement_schema() -> dict[str, Any]:
    """Return the JSON Schema of the output of `orchestrator judge --json`."""
    schema = PickedJudgement.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _generated(match: re.Match[str]) -> str:
    kind, _, argument = match["name"].partition(" ")
    return f"{match['name']} -->\n{GENERATORS[kind](argument)}\n"


def missing_words(root: Path) -> Iterator[str]:
    """Yield a problem for each reason and label without a row in the hand-written reference."""
    reference = root / "docs" / "reference"
    result = (reference / "result.md").read_text(encoding="utf-8")
    for reason in Reason:
        if f"| `{reason.value}` |" not in result:
            yield f"docs/reference/result.md has no row for the reason `{reason.value}`"
    labels = (reference / "labels.md").read_text(encoding="utf-8")
    for name in label_names():
        if f"`{name}`" not in labels:
            yield f"docs/reference/labels.md has no row for the label `{name}`"


def label_names() -> list[str]:
    """List the labels that the engine's objects carry."""
    constants = (value for name, value in vars(engine_labels).items() if name.isupper())
    return [value for value in constants if isinstance(value, str)]


@cache
def help_text(command: str) -> str:
    """Return the output of `orchestrator COMMAND --help` as a code block."""
    shown = " ".join(["orchestrator", *command.split(), "--help"])
    with redirect_stdout(io.StringIO()) as said, patch.dict(os.environ, COLUMNS=HELP_WIDTH):
        code = run([*command.split(), "--help"])
    if code != 0:
        raise RuntimeError(f"{shown} ended with {code}")
    text = "\n".join(line.rstrip() for line in said.getvalue().strip().splitlines())
    return f"```text\n$ {shown}\n{text}\n```"


def settings_table(block: str) -> str:
    """Return a table with a row for every key of a block of the configuration file."""
    rows = ["| Key | Takes | Default | Option | Meaning |", "|---|---|---|---|---|"]
    for name, field in _BLOCKS[block].items():
        schema = field_schema(field)
        cells = (
            f"`{name}`",
            describe_values(field).removeprefix("a ").replace("|", "\\|"),
            _default(schema),
            _option(name),
            " ".join(schema["description"].split()),
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    if value in (None, []) or isinstance(value, dict):
        return _NOTHING
    if isinstance(value, int) and not isinstance(value, bool):
        for size, unit in _SIZES:
            if value % size == 0 and value:
                return f"`{value // size}{unit}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value).strip(chr(34))}`"


def _option(name: str) -> str:
    if name == "tasks":
        return "`--task`, `TASK`"
    option = flag(name)
    return f"`{option}`" if option in options_of("parallel") else _NOTHING


_AN_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@cache
def options_of(command: str) -> frozenset[str]:
    """List the options that the help of a command names."""
    heads = (line for line in help_text(command).splitlines() if re.match(r"  -", line))
    return frozenset(option for line in heads for option in _AN_OPTION.findall(line))


@cache
def commands() -> tuple[str, ...]:
    """List all commands, including the commands of groups."""
    found = []
    for name in COMMANDS:
        inner = help_text(name).partition("Commands:\n")[2]
        found += [
            name,
            *(f"{name} {line.split()[0]}" for line in re.findall(r"^  \w.*", inner, re.M)),
        ]
    return tuple(found)


_OF_OTHERS = frozenset({"--rm", "--name-only", "--force"})
"""Options of other programs that the reference names."""


def unknown_options(root: Path) -> Iterator[str]:
    """Yield a problem for each option in the reference that no command has."""
    known = {option for command in commands() for option in options_of(command)}
    known |= _OF_OTHERS | options_of("")
    for page in sorted((root / "docs" / "reference").glob("*.md")):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        named = set(re.findall(r"`(--[a-z][a-z-]*)", text))
        for option in sorted(named - known):
            yield f"{page.relative_to(root)} names `{option}`, which no command has"


def manifest_table(part: str) -> str:
    """Return a table with a row for every key of a part of a workflow file."""
    rows = ["| Key | Takes | Default | Meaning |", "|---|---|---|---|"]
    for name, schema in _manifest_parts()[part]["properties"].items():
        cells = (
            f"`{name}`",
            in_words(schema).removeprefix("a ").replace("|", "\\|"),
            _default(schema),
            " ".join(schema["description"].split()),
        )
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _manifest_parts() -> dict[str, Mapping[str, Any]]:
    top = whole_schema(Manifest)
    constraints = top["properties"]["policy"]["properties"]["constraints"]
    stage, task = (whole_schema(model) for model in (Stage, ManifestTask))
    shared = TaskDefaults.model_fields
    own = sorted(task["properties"].items(), key=lambda item: item[0] in shared)
    return {
        "top": top,
        "stage": stage,
        "task": {"properties": dict(own)},
        "foreach": whole_schema(Foreach),
        "constraints": constraints,
    }


def variables(_: str) -> str:
    """List the environment variables."""
    names = [f"ORCHESTRATOR_{name.upper()}" for block in BLOCKS.values() for name in block
             if name not in NO_VARIABLE]  # fmt: skip
    return ", ".join(f"`{name}`" for name in sorted(names))


def result_table(_: str) -> str:
    """Return a table with a row for every field of a `WorkerResult`."""
    schema, docstrings = WorkerResult.model_json_schema(), field_docstrings(WorkerResult)
    rows = ["| Field | Type | Meaning |", "|---|---|---|"]
    for name, field in schema["properties"].items():
        rows.append(f"| `{name}` | {_kind(field)} | {' '.join(docstrings.get(name, '').split())} |")
    return "\n".join(rows)


def timings_table(_: str) -> str:
    """Return a table with a row for every step of `timings`."""
    return _fields(Timings)


def network_table(_: str) -> str:
    """Give a row for every sum of `network`."""
    return _fields(NetworkCounts)


def _fields(model: type[BaseModel]) -> str:
    texts = field_docstrings(model)
    rows = [f"| `{name}` | {' '.join(texts[name].split())} |" for name in model.model_fields]
    return "\n".join(["| Field | Meaning |", "|---|---|", *rows])


def _kind(field: Mapping[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(option) for option in field["anyOf"])
    if "$ref" in field:
        return field["$ref"].rpartition("/")[2].lower()
    if field["type"] == "array":
        return f"list of {_kind(field['items'])}"
    names = {"date-time": "time", "integer": "int", "number": "float", "object": "mapping"}
    return names.get(field.get("format", field["type"]), field["type"])


def exports(module: str) -> str:
    """List the names that a module exports to other packages."""
    names: list[str] = import_module(module).__all__
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 100)


GENERATORS: Mapping[str, Callable[[str], str]] = {
    "help": help_text,
    "settings": settings_table,
    "manifest": manifest_table,
    "variables": variables,
    "result": result_table,
    "network": network_table,
    "timings": timings_table,
    "exports": exports,
    "errors": error_table,
}

if __name__ == "__main__":
    sys.exit(main())

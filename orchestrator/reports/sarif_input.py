"""Read the findings in a SARIF file that a check wrote. The file is hostile."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.files.safe_open import read_limited

MOST_BYTES = 3 * 1024**2
"""Maximum size in bytes of a SARIF file that is read. The parsed content of a hostile file needs up
to 29 times as much memory.
"""
_MOST_RULES = 5_000
_MOST_RESULTS = 20_000
"""Maximum number of results in a SARIF file that are examined."""
_KNOWN = frozenset({"unchanged", "absent"})
"""States of findings that are not new: known from the tool's baseline, or no longer found."""
_FINDINGS = frozenset({"fail", "open", "review"})
"""Kinds of results that are findings; results of other kinds, such as `pass`, are ignored."""

Level = Literal["none", "note", "warning", "error"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


_Model = TypeVar("_Model", bound=_Part)


class _Message(_Part):
    text: str = ""


class _Artifact(_Part):
    uri: str = ""


class _Region(_Part):
    start_line: int = Field(default=1, alias="startLine", ge=1, le=10_000_000)
    start_column: int | None = Field(default=None, alias="startColumn", ge=1, le=100_000)


class _Physical(_Part):
    artifact: _Artifact = Field(default=_Artifact(), alias="artifactLocation")
    region: _Region = _Region()


class _Location(_Part):
    physical: _Physical = Field(default=_Physical(), alias="physicalLocation")


class _RuleId(_Part):
    id: str = ""


class _Defaults(_Part):
    level: Level = "warning"


class _Rule(_Part):
    id: str = ""
    defaults: _Defaults = Field(default=_Defaults(), alias="defaultConfiguration")


class _Result(_Part):
    rule_id: str = Field(default="", alias="ruleId")
    rule_index: int = Field(default=-1, alias="ruleIndex")
    rule: _RuleId = _RuleId()
    kind: str = "fail"
    level: Level | None = None
    message: _Message = _Message()
    baseline: str = Field(default="new", alias="baselineState")
    suppressions: tuple[object, ...] | None = None
    locations: tuple[_Location, ...] = ()


class Place(_Part):
    """A finding in a SARIF file: a rule, a file and what is wrong there."""

    rule: str
    level: Level
    path: str
    """Path or URI of the file as the tool wrote it, percent-decoded."""
    line: int
    column: int | None
    text: str


def read_sarif(path: Path) -> Iterator[Place]:
    """Yield the new findings of a SARIF file; none from a file that cannot be read.

    Suppressed findings, and findings that the tool's baseline contains, are left out.
    """
    try:
        log = json.loads(read_limited(path, most=MOST_BYTES))
    # protection: broken-sarif-files-have-no-findings
    except (OSError, ValueError, RecursionError):
        return
    for result, rules in islice(_results(log), _MOST_RESULTS):
        if result is None or result.kind not in _FINDINGS or result.level == "none":
            continue
        if result.suppressions or result.baseline in _KNOWN:
            continue
        known = result.rule_index in range(len(rules))
        rule = (rules[result.rule_index] if known else None) or _Rule()
        name = result.rule_id or result.rule.id or rule.id
        for location in result.locations[:1]:
            yield Place(
                rule=name,
                level=result.level or rule.defaults.level,
                path=_path(location.physical.artifact.uri),
                line=location.physical.region.start_line,
                column=location.physical.region.start_column,
                text=result.message.text or name or "finding",
            )


def _results(log: object) -> Iterator[tuple[_Result | None, Sequence[_Rule | None]]]:
    """Yield each result with the rules of its SARIF run; None for a result that is not valid."""
    for run in _items(log, "runs"):
        driver = _entry(_entry(run, "tool"), "driver")
        rules = [_parse(_Rule, rule) for rule in _items(driver, "rules")[:_MOST_RULES]]
        for item in _items(run, "results"):
            yield _parse(_Result, item), rules


def _path(uri: str) -> str:
    """Return the path of a relative URI or of a `file` URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    if parts.scheme in ("", "file"):
        return unquote(parts.path)
    return ""


def _parse(model: type[_Model], item: object) -> _Model | None:
    try:
        return model.model_validate(item)
    except ValidationError:
        return None


def _entry(value: object, key: str) -> Any:  # noqa: ANN401
    return value.get(key) if isinstance(value, Mapping) else None


def _items(value: object, key: str) -> list[Any]:
    found = _entry(value, key)
    return found if isinstance(found, list) else []

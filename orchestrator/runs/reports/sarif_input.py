"""Read the findings in a SARIF file that a check wrote. The file is hostile."""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.decode import decode
from orchestrator.runs.reports.json_text import JsonText
from orchestrator.worker.workspace.layout import WORKSPACE

MOST_BYTES = 3 * 1024**2
"""Maximum number of bytes of a SARIF file that are read. The parsed content of a hostile file needs
up to 29 times as much memory.
"""
_MOST_RULES = 5_000
_MOST_RESULTS = 20_000
"""Maximum number of results in a SARIF file that are examined."""
_MOST_RUNS = 1000
_LONGEST_TEXT = 2000
_LONGEST_ARGUMENT = 500
_MOST_BASES = 10
"""Maximum number of directories that are relative to each other."""
_KNOWN = frozenset({"unchanged", "absent"})
"""States of findings that are not new: known from the tool's baseline, or no longer found."""
_FINDINGS = frozenset({"fail", "open", "review"})
"""Kinds of results that are findings; results of other kinds, such as `pass`, are ignored."""
_UNDECIDED = frozenset({"underReview", "rejected"})
"""States of a suppression that suppresses nothing."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PLACEHOLDER = re.compile(r"\{(\d{1,3})\}|\{\{|\}\}")

Level = Literal["none", "note", "warning", "error"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        """Let a field that is null have its default, as one that is missing."""
        if not isinstance(value, dict):
            return value
        return {name: entry for name, entry in value.items() if entry is not None}


_Model = TypeVar("_Model", bound=_Part)


class _Message(_Part):
    text: str = ""
    markdown: str = ""
    id: str = ""
    arguments: tuple[object, ...] = ()


class _Artifact(_Part):
    uri: str = ""
    base: str = Field(default="", alias="uriBaseId")
    index: int = -1


class _Region(_Part):
    start_line: int = Field(default=1, alias="startLine", ge=1, le=10_000_000)
    start_column: int = Field(default=0, alias="startColumn")


class _Physical(_Part):
    artifact: _Artifact = Field(default=_Artifact(), alias="artifactLocation")
    region: _Region = _Region()


class _Location(_Part):
    physical: _Physical = Field(default=_Physical(), alias="physicalLocation")


class _Index(_Part):
    index: int = -1


class _RuleId(_Part):
    id: str = ""
    index: int = -1
    component: _Index = Field(default=_Index(), alias="toolComponent")


class _Defaults(_Part):
    level: Level | None = None


class _Rule(_Part):
    id: str = ""
    defaults: _Defaults = Field(default=_Defaults(), alias="defaultConfiguration")
    messages: dict[str, object] = Field(default={}, alias="messageStrings")


class _Override(_Part):
    configuration: _Defaults = _Defaults()
    descriptor: _RuleId = _RuleId()


class _Suppression(_Part):
    status: str = "accepted"


class _Origin(_Part):
    invocation: int = Field(default=-1, alias="invocationIndex")


class _Result(_Part):
    rule_id: str = Field(default="", alias="ruleId")
    rule_index: int = Field(default=-1, alias="ruleIndex")
    rule: _RuleId = _RuleId()
    kind: str = "fail"
    level: Level | None = None
    message: _Message = _Message()
    baseline: str = Field(default="new", alias="baselineState")
    suppressions: tuple[_Suppression, ...] = ()
    locations: tuple[_Location, ...] = ()
    target: _Artifact = Field(default=_Artifact(), alias="analysisTarget")
    origin: _Origin = Field(default=_Origin(), alias="provenance")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A finding in a SARIF file: a rule, a file and what is wrong there."""

    rule: str
    level: Level
    path: str
    """Absolute path of the file in the check's container."""
    line: int
    column: int | None
    text: str


def read_sarif(path: Path, unread: Counter[str] | None = None) -> Iterator[Place]:
    """Yield the new findings of a SARIF file.

    Suppressed findings, and findings that the tool's baseline contains, are left out.

    Args:
        path: The file. If it is larger than `MOST_BYTES` or breaks off, the findings before this
            place are yielded.
        unread: Gets what cannot be read, and how often that occurs.
    """
    unread = Counter() if unread is None else unread
    runs = list[_Run]()
    try:
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
        text = JsonText(decode(data[:MOST_BYTES]))
        for key in text.members():
            for _ in text.items() if key == "runs" else ():
                runs.append(_Run(runs[-1].left if runs else _MOST_RESULTS, unread))
                if len(runs) > _MOST_RUNS:
                    raise ValueError("there are more runs than are read")
                runs[-1].read(text)
    # protection: broken-sarif-files-have-no-findings
    except (OSError, ValueError, RecursionError):
        # A file that breaks off has the results before this place.
        unread["ends of files that are too large or no JSON"] += 1
    for run in runs:
        yield from run.places()


@dataclass
class _Run:
    """The results of one run of a tool, and what they refer to."""

    left: int
    unread: Counter[str]
    results: list[_Result] = field(default_factory=list)
    known: dict[str, Any] = field(default_factory=dict)

    def read(self, text: JsonText) -> None:
        for key in text.members():
            if key != "results":
                self.known[key] = text.value()
                continue
            for _ in text.items():
                if self.left <= 0:
                    raise ValueError("there are more results than are read")
                self.left -= 1
                result = _parse(_Result, text.value())
                if result is None:
                    self.unread["results that are not valid"] += 1
                elif _is_new(result):
                    self.results.append(result)

    def places(self) -> Iterator[Place]:
        """Yield the places of the results."""
        tool = _entry(self.known, "tool")
        driver = _entry(tool, "driver")
        components = [driver, *_items(tool, "extensions")[:_MOST_RULES]]
        rules = _Rules([
            [_parse(_Rule, rule, in_part=True) or _Rule() for rule in rules[:_MOST_RULES]]
            for rules in (_items(part, "rules") for part in components)
        ])  # fmt: skip
        calls = [
            [_parse(_Override, entry) for entry in _items(call, "ruleConfigurationOverrides")]
            for call in _items(self.known, "invocations")[:_MOST_RULES]
        ]
        if "externalPropertyFileReferences" in self.known:
            self.unread["other files with results"] += 1
        for result in self.results:
            rule = rules.find(result.rule, result.rule_id, result.rule_index)
            name = result.rule_id or result.rule.id or rule.id
            call = 0 if len(calls) == 1 else result.origin.invocation
            levels = [
                override.configuration.level
                for override in (calls[call] if call in range(len(calls)) else ())
                if override is not None and rules.find(override.descriptor).id in (rule.id, name)
            ]
            level = result.level or next(filter(None, levels), rule.defaults.level) or "warning"
            place = self._place(result)
            if place is not None:
                path, region = place
                yield Place(
                    rule=name,
                    # The specification gives results that are not failures no severity.
                    level="note" if level == "none" and result.kind != "fail" else level,
                    path=path,
                    line=region.start_line,
                    column=region.start_column if region.start_column > 0 else None,
                    text=_text_of(result.message, rule, driver) or name or "finding",
                )

    def _place(self, result: _Result) -> tuple[str, _Region] | None:
        """Return the first place of a result that is in a file of the repository."""
        named = [(at.physical.artifact, at.physical.region) for at in result.locations]
        named = [(artifact, region) for artifact, region in named if artifact != _Artifact()]
        if not named and result.target != _Artifact():
            named = [(result.target, _Region())]
        for artifact, region in named:
            if (path := self._path(artifact)) is not None:
                return path, region
        why = "outside of the repository" if named else "without a file"
        self.unread[f"results {why}"] += 1
        return None

    def _path(self, artifact: _Artifact) -> str | None:
        """Return the absolute path of a file in the repository; None if it is elsewhere."""
        artifacts, bases = _items(self.known, "artifacts"), _entry(self.known, "originalUriBaseIds")
        if not artifact.uri and artifact.index in range(len(artifacts)):
            found = _entry(artifacts[artifact.index], "location")
            artifact = _parse(_Artifact, found) or _Artifact()
        # No valid URI contains a backslash: it is a path of Windows.
        uri, base = artifact.uri.replace("\\", "/"), artifact.base
        if not uri:
            return None
        for _ in range(_MOST_BASES):
            if uri.startswith("/") or _SCHEME.match(uri):
                break
            above = _parse(_Artifact, _entry(bases, base)) if base else None
            # A base that is not known, or the root, is the top directory.
            if above is None or above.uri in ("/", "file:/", "file:///"):
                break
            end = "/" if above.uri and not above.uri.endswith("/") else ""
            uri, base = f"{above.uri}{end}{uri}", above.base
        try:
            parts = urlsplit(uri)
        except ValueError:
            return None
        if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
            return None
        path = posixpath.normpath(posixpath.join(WORKSPACE, unquote(parts.path)))
        return path if path.startswith(f"{WORKSPACE}/") else None


@dataclass
class _Rules:
    """The rules of a tool and its extensions."""

    listed: Sequence[Sequence[_Rule]]

    def find(self, named: _RuleId, name: str = "", index: int = -1) -> _Rule:
        """Return the rule that a result refers to, by its place and its id."""
        component, index = named.component.index + 1, max(named.index, index)
        found = self.listed[component] if component in range(len(self.listed)) else ()
        rule, name = found[index] if index in range(len(found)) else _Rule(), name or named.id
        # `CA1000/1` is a part of the rule `CA1000`.
        names = [name, name.rpartition("/")[0]]
        if not name or (rule.id and rule.id in names):
            return rule
        return next(filter(None, map(self._by_id.get, names)), _Rule(id=name))

    @cached_property
    def _by_id(self) -> dict[str, _Rule]:
        return {
            rule.id: rule for rules in reversed(self.listed) for rule in reversed(rules) if rule.id
        }


def _is_new(result: _Result) -> bool:
    is_suppressed = result.suppressions and not any(
        found.status in _UNDECIDED for found in result.suppressions
    )
    is_none = result.level == "none" and result.kind == "fail"
    is_known = result.baseline in _KNOWN
    return result.kind in _FINDINGS and not (is_suppressed or is_none or is_known)


def _text_of(message: _Message, rule: _Rule, driver: object) -> str:
    """Return a message, which may be a text of its rule or tool with arguments."""
    text = message.text or message.markdown
    if not text:
        of_tool = _entry(_entry(driver, "globalMessageStrings"), message.id)
        found = _parse(_Message, rule.messages.get(message.id, of_tool)) or _Message()
        text = found.text or found.markdown
    given = [str(given)[:_LONGEST_ARGUMENT] for given in message.arguments[:1000]]

    def fill(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        return given[int(found[1])] if int(found[1]) < len(given) else found[0]

    return _PLACEHOLDER.sub(fill, text[:_LONGEST_TEXT]) if given else text


def _parse(model: type[_Model], item: object, *, in_part: bool = False) -> _Model | None:
    """Return an object of a model; with `in_part`, without the fields that are not valid."""
    try:
        return model.model_validate(item)
    except ValidationError as error:
        if not in_part or not isinstance(item, dict):
            return None
        wrong = {place[0] for mistake in error.errors() if (place := mistake["loc"])}
        return _parse(model, {name: value for name, value in item.items() if name not in wrong})


def _entry(value: object, key: str) -> Any:  # noqa: ANN401
    return value.get(key) if isinstance(value, Mapping) else None


def _items(value: object, key: str) -> list[Any]:
    found = _entry(value, key)
    return found if isinstance(found, list) else []

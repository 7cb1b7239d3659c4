"""Requests: options of a command that Python programs and other front ends give as well.

A request is a frozen dataclass that pydantic checks. A field with an `Option` is an option of the
command line.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from orchestrator.base.errors import mistakes
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.option import Option

Request = TypeVar("Request")
_HINT = "`--help` describes the options"


def request_fields(kind: type) -> Mapping[str, FieldInfo]:
    """Return the fields of a request, by name."""
    fields: Mapping[str, FieldInfo] = kind.__pydantic_fields__  # type: ignore[attr-defined]
    return fields


def request_options(kind: type) -> Mapping[str, Option]:
    """Return the command line options of a request, by the names of the fields."""
    return {
        name: option
        for name, info in request_fields(kind).items()
        for option in info.metadata
        if isinstance(option, Option)
    }


def option_flag(name: str, option: Option) -> str:
    """Return the name of an option, such as `--on-conflict`."""
    return option.flag or "--" + name.replace("_", "-")


def read_request(kind: type[Request], given: Mapping[str, object]) -> Request:
    """Return a request with the given fields.

    Raises:
        ConfigError: A value is invalid, or values contradict each other. The message lists all
            problems, by the names of options.
    """
    try:
        return kind(**given)
    except ValidationError as error:
        problems = [_problem(kind, found) for found in error.errors()]
        raise mistakes(problems, _HINT, "options", key="option.invalid") from error


def _problem(kind: type, found: ErrorDetails) -> str:
    flags = {name: option_flag(name, option) for name, option in request_options(kind).items()}
    said = str(found.get("ctx", {}).get("error", found["msg"]))
    if not found["loc"]:
        return re.sub(r"(?<=`)\w+(?=[ `])", lambda match: flags.get(match[0], match[0]), said)
    name, *inside = found["loc"]
    flag, value = flags.get(str(name), str(name)), one_line(str(found["input"]), limit=60)
    if inside:
        return f"option `{flag}`: `{value}`: {said}"
    # Imported here because only an error needs the words for schemas.
    from orchestrator.config.fields import in_words

    schema: Mapping[str, Any] = TypeAdapter(kind).json_schema()["properties"].get(name, {})
    return f"option `{flag}` is `{value}`: must be {in_words(schema)}"

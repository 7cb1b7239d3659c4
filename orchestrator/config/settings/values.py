"""Types of settings' values: sizes, ports, commands, repositories, entries of a company."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)

DEFAULT_TIMEOUT = 600.0
Limit = Literal[
    "memory", "swap", "cpus", "pids", "open_files", "disk", "inodes", "tmp", "tmp_inodes",
    "read_only_root", "no_new_privileges", "capabilities", "seccomp", "network",
]  # fmt: skip
"""What the container of a worker is kept from exceeding or doing."""


_SIZE = re.compile(
    r"(?P<number>[0-9]{1,30}(?:\.[0-9]{1,30})?)\s*(?P<unit>[kmgt]?)i?b?", re.IGNORECASE
)


_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_size(value: object) -> object:
    """Convert `512m`, `4g` or `1.5GiB` to bytes (in powers of 1024); return numbers unchanged."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size must be a number with a unit, such as 512m or 4g")
    return int(Decimal(match["number"]) * _UNITS[match["unit"].lower()])


IS_SIZE = "x-size"
"""Key in a JSON Schema that marks a number of bytes which may also be written as `512m`."""


Size = Annotated[
    int,
    Field(le=1024**5),
    BeforeValidator(parse_size),
    Field(json_schema_extra={IS_SIZE: True}),
]
"""A number of bytes. The kernel and the engine accept more, but no machine has more."""
Memory = Annotated[
    int,
    Field(ge=16 * 1024**2, le=1024**5),
    BeforeValidator(parse_size),
    Field(json_schema_extra={IS_SIZE: True}),
]
"""Memory of a container: with less, the engine cannot start a program in it."""
# protection: smallest-cpu-limit
Cpus = Annotated[float, Field(ge=0.01, le=1024)]
"""Number of CPUs. The kernel does not enforce a limit below a hundredth of a CPU."""
Pids = Annotated[int, Field(ge=8, le=4_194_304)]
"""Number of processes and threads: at most the kernel's largest process id."""
OpenFiles = Annotated[int, Field(ge=64, le=1_048_576)]
"""Number of open files of a process: at most the kernel's `fs.nr_open`."""
LONGEST = 10**9
"""About 31 years in seconds."""
# protection: longest-timeout-limited
Seconds = Annotated[float, Field(ge=0, le=LONGEST)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Usd = Annotated[float, Field(gt=0, le=10**9)]


Port = Annotated[int, Field(ge=1, le=65535)]


_PORT_NAMES = ("PORT", "API_PORT")


_PORT_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,50}")


def name_ports(value: object) -> object:
    """Convert `[3000, 3010]` to `{PORT: 3000, API_PORT: 3010}`; an item may be `NAME=3000`."""
    if not isinstance(value, (list, tuple)):
        return value
    named: dict[str, object] = {}
    for place, item in enumerate(value):
        name, equals, port = item.partition("=") if isinstance(item, str) else ("", "", item)
        if not equals:
            name, port = (*_PORT_NAMES, f"PORT_{place + 1}")[min(place, len(_PORT_NAMES))], item
        if name in named:
            raise ValueError(f"`{name}` is defined twice")
        named[name] = port
    return named


def _usable_ports(ports: dict[str, int]) -> dict[str, int]:
    for name in ports:
        if not _PORT_NAME.fullmatch(name) or "PORT" not in name:
            raise ValueError(
                "a port's variable must be uppercase and contain `PORT`, as `API_PORT`"
            )
    if len(set(ports.values())) < len(ports):
        raise ValueError("the same port is listed twice")
    return ports


_PORT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 65535}


Ports = Annotated[
    dict[str, Port],
    Field(max_length=10),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": _PORT_SCHEMA, "maxItems": 10},
                {"type": "object", "additionalProperties": _PORT_SCHEMA, "maxProperties": 10},
            ]
        }
    ),
    BeforeValidator(name_ports),
    AfterValidator(_usable_ports),
]


def command_line(text: str) -> str:
    """Check that text can be a command line, and return it.

    Raises:
        ValueError: The command is empty or contains NUL.
    """
    if not text.strip():
        raise ValueError("a command must not be empty")
    if "\0" in text:
        raise ValueError("a command must not contain NUL")
    return with_unix_lines(text)


def with_unix_lines(text: str) -> str:
    """Return a text with the line ends that shells know, as YAML has them."""
    return text.replace("\r\n", "\n")


CommandLine = Annotated[str, AfterValidator(command_line)]
"""A shell command."""
Commands = tuple[CommandLine, ...]
"""A tuple of shell commands."""


VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME_RULE = "a name consists of letters, digits and `_`, and does not begin with a digit"


_PATH_PART = r"[A-Za-z0-9._~+@-]+"
_REPOSITORY = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?)/"
    rf"(?P<path>(?:{_PATH_PART}/)*{_PATH_PART}(?:/\*)?)/?=(?P<variable>[A-Za-z_][A-Za-z0-9_]*)"
)


@dataclass(frozen=True)
class PrivateRepository:
    """An entry of `git_read`: repositories of a git host, and the variable with their token."""

    url: str
    """URL without `.git`; `/*` at its end stands for all repositories below the path."""
    variable: str

    @classmethod
    def parse(cls, text: str) -> "PrivateRepository | None":
        """Parse `https://HOST/PATH=VARIABLE`; return None if the text has another form."""
        found = _REPOSITORY.fullmatch(text)
        if found is None or not {".", ".."}.isdisjoint(found["path"].split("/")):
            return None
        path = found["path"].removesuffix(".git")
        return cls(f"{found['scheme']}://{found['host'].lower()}/{path}", found["variable"])


_PRICE = re.compile(
    r"(?P<model>[A-Za-z0-9][A-Za-z0-9._:@/\[\]-]{0,199})="
    r"(?P<given>[0-9]{1,6}(?:\.[0-9]{1,9})?)/(?P<made>[0-9]{1,6}(?:\.[0-9]{1,9})?)"
)


def parse_prices(entries: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the prices of input and output in USD per million tokens, by the model's name.

    Args:
        entries: Prices such as `MODEL=IN/OUT`.

    Raises:
        ValueError: An entry has another form, or a model has two prices.
    """
    found: dict[str, tuple[float, float]] = {}
    for entry in entries:
        parts = _PRICE.fullmatch(entry)
        if parts is None:
            raise ValueError(
                "a price must be written as `MODEL=IN/OUT`, such as `gpt-x=2.5/10`, in USD per "
                "million tokens"
            )
        if parts["model"] in found:
            raise ValueError(f"the model `{parts['model']}` has two prices")
        found[parts["model"]] = float(parts["given"]), float(parts["made"])
    return found


CA, PROXY = "ca", "proxy"
_COMPANY_NAMES = ("pip", "npm", "go", PROXY, CA)
"""Names of entries of the setting `company`."""


def parse_entries(given: Iterable[str]) -> dict[str, str]:
    """Return a URL or the name of a variable, or for `ca` a file, by the name of an entry.

    Raises:
        ValueError: An entry has another form, or a URL contains a password.
    """
    found: dict[str, str] = {}
    for entry in given:
        name, _, value = entry.partition("=")
        if name not in _COMPANY_NAMES or not value:
            raise ValueError(
                f"an entry must be written as NAME=VALUE, with {', '.join(_COMPANY_NAMES)}"
            )
        if name != CA and not VARIABLE_NAME.fullmatch(value):
            check_url(value, secret=False)
        found[name] = value
    return found


def check_url(url: str, *, secret: bool) -> str:
    """Return the URL of a mirror or proxy.

    Args:
        url: The URL.
        secret: Whether it may contain a password.

    Raises:
        ValueError: The URL cannot be used.
    """
    wrong = "a mirror or proxy must be an HTTP URL, or a variable with one"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Its text quotes parts of the URL, such as a password.
        raise ValueError(wrong) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(wrong)
    if parts.password and not secret:
        raise ValueError("a URL with a password must be in a variable: NAME=VARIABLE")
    return url


CacheKind = Literal["pip", "npm", "uv", "cargo"]


CHECKED = ConfigDict(extra="forbid", hide_input_in_errors=True)
"""Configuration of the dataclasses with the options of a function of the Python API."""


class Model(BaseModel):
    """Base of all settings: immutable, and unknown fields are errors.

    The JSON Schema describes each field by the docstring below the field. Pydantic's own
    `use_attribute_docstrings` would parse every model's source at each import; this class parses it
    only when a schema is made, which commands that run tasks or print help do not need.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        # Errors are printed, and an input may be a secret.
        hide_input_in_errors=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        core_schema: Any,  # noqa: ANN401  # pydantic's
        handler: GetJsonSchemaHandler,
    ) -> dict[str, Any]:
        """Return the JSON Schema of the model, with descriptions of its fields."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docstrings(cls).items():
            info = cls.model_fields.get(name)
            found = properties.get(name if info is None else info.alias or name)
            if found is not None:
                found.setdefault("description", text)
        return schema


@cache
def field_docstrings(model: type) -> dict[str, str]:
    """Return the docstrings below the fields of a model and of its base classes, by field."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is not object and base.__module__ != BaseModel.__module__:
            definition = ast.parse(dedent(getsource(base))).body[0]
            found |= {
                field.target.id: cleandoc(text.value.value)
                for field, text in pairwise(getattr(definition, "body", ()))
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    return found

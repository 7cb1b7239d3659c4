"""Find the hosts that package managers use, in their own configuration on this machine.

No host is written here: a company's mirror is found where the company configured it, and a tool
without configuration has its default in its own files. Only the user's and the machine's files are
read, not files of a repository: their authors could choose what a worker may reach.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from typing import Any

from orchestrator.base.text.decode import decode
from orchestrator.base.text.split_lines import split_lines

_LARGEST = 4 * 1024**2
"""Maximum number of bytes of a configuration file that are read."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NPM_DEFAULT = re.compile(r"'registry',\s*\{\s*default:\s*'(https?://[^']+)'")
_PIP_DEFAULT = re.compile(r'\(\s*"(https?://[^"]+)",\s*file_storage_domain="([^"]+)"')
_APT_LINE = re.compile(r"^deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)")
_APT_FIELD = re.compile(r"^(?:URIs|uris):((?:.*(?:\n[ \t].*)*))", re.MULTILINE)
_APT_OFF = re.compile(r"^Enabled:\s*(?:no|false|0)\s*$", re.MULTILINE | re.IGNORECASE)
_NAMED = re.compile(r"^[\w.-]+=(?=https?://)")
_URL = re.compile(r"(?:mirror\+|sparse\+|registry\+)*(https?://\S+)")


@dataclass(frozen=True)
class FoundUrl:
    """A URL found in the configuration of a tool."""

    url: str
    source: str
    """File or variable in which the URL was found."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The directories and variables of this machine in which tools have their configuration."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    root: Path = Path("/")
    """Root directory of the machine's own files, normally `/`."""

    @property
    def home(self) -> Path:
        """The user's home directory."""
        return Path(self.environ.get("HOME") or Path.home())

    def user_file(self, name: str) -> Path:
        """Return the path of a file in the user's configuration directory."""
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config") / name

    def programs(self, *names: str) -> Iterator[Path]:
        """Yield the paths of installed programs with some names, and the targets of links."""
        for name in names:
            found = shutil.which(name, path=self.environ.get("PATH"))
            if found is not None:
                yield from dict.fromkeys((Path(found).resolve(), Path(found)))


def _text(path: Path) -> str:
    """Return a file's text; empty if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return decode(file.read(_LARGEST))
    except OSError:
        return ""


def _toml(path: Path) -> dict[str, Any]:
    # Imported here because a run without sets of hosts reads no file of a tool.
    import tomllib

    try:
        return tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _variables(machine: Machine, *names: str) -> Iterator[FoundUrl]:
    for name in names:
        for word in machine.environ.get(name, "").split():
            # An index of uv may have a name: `NAME=URL`.
            yield FoundUrl(_NAMED.sub("", word), f"${name}")


def pip_urls(machine: Machine) -> Iterator[FoundUrl]:
    """Yield the package indexes of pip and uv."""
    # Imported here because a run without sets of hosts reads no file of a tool.
    import configparser

    index = list(_variables(machine, "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"))
    others = list(
        _variables(
            machine, "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_EXTRA_INDEX_URL", "UV_INDEX"
        )
    )
    configured: list[FoundUrl] = []
    for path in _pip_files(machine):
        parser = configparser.RawConfigParser(strict=False)
        with suppress(configparser.Error):
            parser.read_string(_text(path))
        for section in parser.sections():
            for key, text in parser[section].items():
                urls = [FoundUrl(word, str(path)) for word in text.split()]
                name = key.replace("_", "-")
                if name == "index-url":
                    configured = urls
                elif name in ("extra-index-url", "find-links"):
                    others += urls
    for path in (machine.root / "etc/uv/uv.toml", machine.user_file("uv/uv.toml")):
        settings = _toml(path)
        configured += _uv(settings, str(path))
    yield from index or configured or _pip_default(machine)
    yield from others


def _uv(settings: Mapping[str, Any], source: str) -> Iterator[FoundUrl]:
    for part in (settings, settings.get("pip", {})):
        if not isinstance(part, Mapping):
            continue
        indexes, more = (part.get(key) for key in ("index", "extra-index-url"))
        tables = indexes if isinstance(indexes, list) else ()
        listed = [index.get("url") for index in tables if isinstance(index, Mapping)]
        others = more if isinstance(more, list) else ()
        for value in (part.get("index-url"), *others, *listed):
            if isinstance(value, str):
                yield FoundUrl(value, source)


def _pip_files(machine: Machine) -> Iterator[Path]:
    """Yield pip's configuration files, in increasing precedence."""
    own = machine.environ.get("PIP_CONFIG_FILE")
    if own != os.devnull:
        yield machine.root / "etc/xdg/pip/pip.conf"
        yield machine.root / "etc/pip.conf"
        yield machine.home / ".pip/pip.conf"
        yield machine.user_file("pip/pip.conf")
        if "VIRTUAL_ENV" in machine.environ:
            yield Path(machine.environ["VIRTUAL_ENV"]) / "pip.conf"
        if own:
            yield Path(own)


def _pip_default(machine: Machine) -> Iterator[FoundUrl]:
    """Yield pip's default package index, and the host of the packages' files."""
    programs = machine.programs("pip3", "pip", "python3")
    prefixes = [*(program.parent.parent for program in programs), machine.root / "usr"]
    if machine.root == Path("/"):
        prefixes.append(Path(sys.base_prefix))
    model = "pip/_internal/models/index.py"
    for prefix in prefixes:
        places = ("lib/python3*/site-packages", "lib/python3*/dist-packages")
        for path in (found for place in places for found in prefix.glob(f"{place}/{model}")):
            known = _PIP_DEFAULT.search(_text(path))
            if known:
                yield FoundUrl(known[1], str(path))
                yield FoundUrl(f"https://{known[2]}/", str(path))
                return


def npm_urls(machine: Machine) -> Iterator[FoundUrl]:
    """Yield the registries of npm."""
    environ = machine.environ
    given = [name for name in environ if name.lower() == "npm_config_registry"]
    registry, scoped = list(_variables(machine, *given)), list[FoundUrl]()
    user = Path(environ.get("NPM_CONFIG_USERCONFIG") or machine.home / ".npmrc")
    own = environ.get("NPM_CONFIG_GLOBALCONFIG")
    machines = (Path(own),) if own else (machine.root / "etc/npmrc", machine.root / "usr/etc/npmrc")
    for path in (user, *machines):
        for line in split_lines(_text(path)):
            key, _, text = (part.strip() for part in line.partition("="))
            address = _VARIABLE.sub(lambda found: environ.get(found[1], ""), text.strip("\"'"))
            url = FoundUrl(address, str(path))
            if key == "registry" and not registry:
                registry.append(url)
            elif key.startswith("@") and key.endswith(":registry"):
                scoped.append(url)
    yield from registry or _npm_default(machine)
    yield from scoped


def _npm_default(machine: Machine) -> Iterator[FoundUrl]:
    module = "@npmcli/config/lib/definitions/definitions.js"
    for program in machine.programs("npm"):
        inside = program.parent.parent
        for path in (inside / "node_modules" / module, inside.parent / module):
            known = _NPM_DEFAULT.search(_text(path))
            if known:
                yield FoundUrl(known[1], str(path))
                return


def cargo_urls(machine: Machine) -> Iterator[FoundUrl]:
    """Yield the registries of cargo, and the hosts of their packages."""
    home = Path(machine.environ.get("CARGO_HOME") or machine.home / ".cargo")
    names = (name for name in machine.environ if name.startswith("CARGO_REGISTRIES_"))
    yield from _variables(machine, *(name for name in sorted(names) if name.endswith("_INDEX")))
    is_replaced = False
    for path in (home / "config.toml", home / "config"):
        settings = _toml(path)
        for part, key in (("source", "registry"), ("registries", "index")):
            for table in _tables(settings.get(part)):
                is_replaced = is_replaced or "replace-with" in table
                if isinstance(table.get(key), str):
                    yield FoundUrl(table[key], str(path))
    if is_replaced:
        return
    # The index of each registry that was used says where the registry keeps its packages.
    for path in sorted(home.glob("registry/index/*/config.json")):
        host = path.parent.name.rpartition("-")[0]
        yield FoundUrl(f"https://{host}/", str(path))
        with suppress(ValueError, RecursionError):
            places = loads(_text(path))
            if isinstance(places, dict):
                yield from (FoundUrl(str(places[key]), str(path)) for key in ("dl", "api")
                            if places.get(key))  # fmt: skip


def _tables(part: object) -> Iterable[Mapping[str, Any]]:
    values = part.values() if isinstance(part, Mapping) else ()
    return [value for value in values if isinstance(value, Mapping)]


def go_urls(machine: Machine) -> Iterator[FoundUrl]:
    """Yield the module proxies and the checksum database of Go."""
    roots = [program.parent.parent for program in machine.programs("go")]
    if "GOROOT" in machine.environ:
        roots.insert(0, Path(machine.environ["GOROOT"]))
    user = Path(machine.environ.get("GOENV") or machine.user_file("go/env"))
    for name, urls in (("GOPROXY", _go_proxies), ("GOSUMDB", _go_sums)):
        if name in machine.environ:
            yield from urls(machine.environ[name], f"${name}")
            continue
        for path in (user, *(root / "go.env" for root in roots)):
            lines = (line.partition("=") for line in split_lines(_text(path)))
            value = next((text.strip() for key, _, text in lines if key.strip() == name), None)
            if value is not None:
                yield from urls(value, str(path))
                break


def _go_proxies(value: str, source: str) -> Iterator[FoundUrl]:
    yield from (FoundUrl(part.strip(), source) for part in re.split("[,|]", value))


def _go_sums(value: str, source: str) -> Iterator[FoundUrl]:
    name, _, url = value.partition(" ")
    if name not in ("", "off"):
        host = name.partition("+")[0]
        yield FoundUrl(url.strip() or f"https://{host}/", source)


def apt_urls(machine: Machine) -> Iterator[FoundUrl]:
    """Yield the package sources of apt."""
    folder = machine.root / "etc/apt"
    for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))):
        found = map(_APT_LINE.match, split_lines(_text(path)))
        yield from (FoundUrl(line[1], str(path)) for line in found if line)
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        for block in re.split(r"\n\s*\n", _text(path)):
            if not _APT_OFF.search(block):
                words = (word for found in _APT_FIELD.findall(block) for word in found.split())
                yield from (FoundUrl(word, str(path)) for word in words)


TOOLS: Mapping[str, Callable[[Machine], Iterator[FoundUrl]]] = {
    "pip": pip_urls,
    "npm": npm_urls,
    "cargo": cargo_urls,
    "go": go_urls,
    "apt": apt_urls,
}
"""Function that finds the URLs of each set of hosts, by the set's name."""


def web_url(text: str) -> str | None:
    """Return the HTTP URL in a configuration value; None for files and other protocols."""
    found = _URL.match(text)
    return found[1] if found else None

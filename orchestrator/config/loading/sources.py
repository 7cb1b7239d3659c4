"""Read settings from the configuration file, the environment and command-line options."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

from orchestrator.base.text.sanitize import is_text, one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.base.text.suggest import MOST_SUGGESTIONS
from orchestrator.config.fields import (
    AGENT_FIELDS,
    BLOCKS,
    CAMEL,
    CONTAINER_FIELDS,
    FIELDS,
    JUDGE_FIELDS,
    PROJECT_FIELDS,
    RUN_FIELDS,
    TOP_FIELDS,
    FieldPath,
    Setting,
    flag,
    is_list,
    place,
)
from orchestrator.config.loading.document import read_document, read_text
from orchestrator.config.node import DocumentError, Node
from orchestrator.config.settings.values import NAME_RULE, VARIABLE_NAME

PREFIX = "ORCHESTRATOR_"
CONFIG_VARIABLE = "ORCHESTRATOR_CONFIG"
OF_AUTOMATOSX = "automatosx.config.json"
"""Name of a configuration file of AutomatosX, which has many keys without a meaning here."""
NO_VARIABLE = frozenset(
    {"allow_sets", "tasks", "context", "copy", "env", "secrets", *PROJECT_FIELDS, *JUDGE_FIELDS}
    | {"agent_config", "images", "node_selector", "tolerations"}
)
"""Settings without an environment variable. Workers have variables `ORCHESTRATOR_SECRETS` and
`ORCHESTRATOR_CONTEXT` for other purposes, and may run this program too. Settings of a project
belong in the project's file.
"""
_VARIABLES: Mapping[str, FieldPath] = {
    PREFIX + name.upper(): field for name, field in FIELDS.items() if name not in NO_VARIABLE
}
_EXECUTION = ("maxConcurrentAgents", "parallelDelegationEnabled")
_TOP_KEYS = (*BLOCKS, *TOP_FIELDS, "agents", "execution")

_OPTION = "option `--env`"

Problems = list[str]


def from_file(
    path: Path,
    problems: Problems,
    *,
    top: Path | None = None,
    ignored: list[str] | None = None,
) -> list[Setting]:
    """Read a configuration file, and append problems with its keys to `problems`.

    Args:
        path: The file.
        problems: List to which problems are appended.
        top: The repository's top if the file was discovered in it; None: the user named the file.
        ignored: List to which keys are appended that only AutomatosX knows, if it is its file.
    """
    try:
        root = read_document(path, below=top)
    except DocumentError as error:
        problems.append(_clean(str(error)))
        return []
    reader = _FileReader(path, problems)
    settings = list(reader.settings(root))
    if ignored is not None:
        ignored += reader.ignored
    return settings


class _FileReader:
    """Converts the contents of one configuration file to settings."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self._path = path
        self._problems = problems
        self._foreign = path.name == OF_AUTOMATOSX
        self.ignored: list[str] = []
        """Keys of a file of AutomatosX that have no effect here."""

    def settings(self, root: Node) -> Iterator[Setting]:
        for key, node in self._members(root, "the file"):
            if key in BLOCKS:
                yield from self._block(key, node, BLOCKS[key])
            elif key in TOP_FIELDS and node.value is not None:
                shown = self._providers(node) if key == "providers" else node
                yield from self._setting(TOP_FIELDS[key], shown, key)
            elif key == "agents":
                yield from self._agents(node)
            elif key == "execution":
                yield from self._execution(node)
            elif key not in TOP_FIELDS and not self._ignores(key):
                self._report(node, _misplacement(key, key) or self._complaint(key, _TOP_KEYS))

    def _ignores(self, name: str) -> bool:
        """Return whether an unknown key is one of AutomatosX, which has no effect here."""
        if self._foreign:
            self.ignored.append(name)
        return self._foreign

    def _block(
        self, block: str, root: Node, fields: Mapping[str, FieldPath], program: str | None = None
    ) -> Iterator[Setting]:
        for key, node in self._members(root, f"`{block}`"):
            name = f"{block}.{key}"
            if key not in fields:
                known = [f"{block}.{field}" for field in fields]
                self._report(node, _misplacement(name, key) or self._complaint(name, known))
            elif node.value is not None:
                yield from self._setting(fields[key], node, name, program)

    def _agents(self, root: Node) -> Iterator[Setting]:
        known = agent_names()
        for program, node in self._members(root, "`agents`"):
            name = f"agents.{program}"
            if program in known:
                yield from self._block(name, node, AGENT_FIELDS, program)
            else:
                self._report(node, self._complaint(name, [f"agents.{other}" for other in known]))

    def _execution(self, root: Node) -> Iterator[Setting]:
        members = root.value if isinstance(root.value, dict) else {}
        delegation = members.get("parallelDelegationEnabled")
        alone = delegation is not None and delegation.value is False
        if delegation is not None and alone:
            single = Node(1, delegation.line)
            yield from self._setting(
                RUN_FIELDS["workers"], single, "execution.parallelDelegationEnabled"
            )
        for key, node in self._members(root, "`execution`"):
            name = f"execution.{key}"
            if key == "maxConcurrentAgents" and node.value is not None and not alone:
                yield from self._setting(RUN_FIELDS["workers"], node, name)
            elif key == "parallelDelegationEnabled":
                if not (node.value is None or isinstance(node.value, bool)):
                    shown = one_line(str(node.plain()), limit=60)
                    self._report(node, f"`{name}` is `{shown}`: must be `true` or `false`")
            elif key == "concurrency" and self._foreign:
                for inner, part in self._members(node, f"`{name}`"):
                    if inner == "maxConcurrentAgents" and part.value is not None and not alone:
                        yield from self._setting(RUN_FIELDS["workers"], part, f"{name}.{inner}")
            elif key not in _EXECUTION and not self._ignores(name):
                self._report(
                    node,
                    self._complaint(name, [f"execution.{known}" for known in _EXECUTION]),
                )

    def _providers(self, root: Node) -> Node:
        if not isinstance(root.value, dict):
            return root
        named = {
            name: self._with_camel_keys(self._provider(name, node), f"providers.{name}")
            for name, node in root.value.items()
        }
        return Node(named, root.line)

    def _provider(self, name: str, node: Node) -> Node:
        """Return the settings of a provider, without those that only AutomatosX knows."""
        if not self._foreign or not isinstance(node.value, dict):
            return node
        known = {*CAMEL, *CAMEL.values()}
        kept = {key: part for key, part in node.value.items() if key in known}
        self.ignored += [f"providers.{name}.{key}" for key in node.value if key not in known]
        return Node(kept, node.line)

    def _with_camel_keys(self, root: Node, name: str) -> Node:
        """Return a provider's settings with snake-case keys in camel case."""
        if not isinstance(root.value, dict):
            return root
        members: dict[str, Node] = {}
        for key, node in root.value.items():
            name_in_file = CAMEL.get(key, key)
            if name_in_file in members:
                self._report(node, f"`{name}.{name_in_file}` is set twice, in two spellings")
            members[name_in_file] = self._with_camel_keys(node, f"{name}.{name_in_file}")
        return Node(members, root.line)

    def _setting(
        self, field: FieldPath, node: Node, name: str, program: str | None = None
    ) -> Iterator[Setting]:
        value = node.plain()
        if field == CONTAINER_FIELDS["secrets"] and any("=" in item for item in _texts(value)):
            # `NAME=@FILE` would let a repository's file read other files of this machine.
            self._report(
                node, f"`{name}` must hold names only; use `--secret NAME=@FILE` for files"
            )
        elif (
            field == RUN_FIELDS["agent_cli"]
            and isinstance(value, str)
            and value not in agent_names()
        ):
            known = ", ".join(f"`{program}`" for program in agent_names())
            self._report(node, f"`{name}` is `{value}`: must be one of {known}")
        elif _is_unicode(value):
            yield Setting(
                field=field,
                value=value,
                kind="file",
                name=name,
                file=self._path,
                node=node,
                program=program,
            )
        else:
            self._report(node, f"`{name}` contains a lone surrogate, which is not valid Unicode")

    def _members(self, root: Node, what: str) -> Iterator[tuple[str, Node]]:
        if isinstance(root.value, dict):
            yield from root.value.items()
        elif root.value is not None:
            self._report(root, f"{what} must be a mapping of keys to values")

    def _complaint(self, name: str, known: Sequence[str]) -> str:
        # protection: few-suggestions-for-file
        return message_for_unknown(name, known if len(self._problems) < MOST_SUGGESTIONS else ())

    def _report(self, node: Node, message: str) -> None:
        self._problems.append(_clean(f"{place(self._path, node)}: {message}"))


def _is_unicode(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def agent_names() -> list[str]:
    """Return the names of the installed agent programs, as `--agent-cli` accepts them."""
    return sorted(entry_points(group="orchestrator.agents").names)


def _misplacement(name: str, key: str) -> str | None:
    for block, keys in BLOCKS.items():
        if key in keys:
            return f"`{name}` is unknown, `{key}` belongs under `{block}`"
    if key in TOP_FIELDS:
        return f"`{name}` is unknown, `{key}` belongs at the top of the file, in no block"
    return None


def message_for_unknown(name: str, known: Sequence[str]) -> str:
    """Return the message for an unknown key, with a suggestion if a known key is similar."""
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    return f"`{name}` is unknown" + (f", did you mean `{close[0]}`?" if close else "")


def from_environment(environ: Mapping[str, str], problems: Problems) -> list[Setting]:
    """Read settings from `ORCHESTRATOR_*` variables; an empty variable counts as not set."""
    settings = []
    for name, value in environ.items():
        if not value or not name.startswith(PREFIX):
            continue
        if name in _VARIABLES and not is_text(value):
            problems.append(_not_utf8(f"environment variable `{name}`"))
        elif name in _VARIABLES:
            field = _VARIABLES[name]
            value_given = _split(field, value)
            settings.append(Setting(field=field, value=value_given, kind="environment", name=name))
        elif name != CONFIG_VARIABLE:
            # Other programs use the prefix too: Kubernetes sets ORCHESTRATOR_PORT for a service
            # named `orchestrator`. Only close matches of a known variable are errors.
            known = [variable.removeprefix(PREFIX) for variable in _VARIABLES]
            close = get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=0.9)
            problems += [
                _clean(f"environment variable `{name}` is unknown, did you mean `{PREFIX}{found}`?")
                for found in close
            ]
    return settings


def from_options(
    options: Mapping[str, object], environ: Mapping[str, str], problems: Problems
) -> list[Setting]:
    """Read settings from a command's options; None means that an option was not given."""
    given = {name: value for name, value in options.items() if value not in (None, (), [])}
    settings = [
        Setting(field=FIELDS[name], value=_value(name, value), kind="option", name=flag(name))
        for name, value in given.items()
        if name not in {"env", "env_file", "services"}
    ]
    services: dict[str, dict[str, str]] = {}
    for entry in _texts(given.get("services")):
        name, equals, image = entry.partition("=")
        if not equals:
            problems.append(_clean(f"option `--service`: `{entry}` must be `NAME=IMAGE`"))
        services[name] = {"image": image or "-"}
    if services:
        field = PROJECT_FIELDS["services"]
        settings.append(Setting(field=field, value=services, kind="option", name="--service"))
    env = read_variables(given, environ, problems)
    if env:
        field = CONTAINER_FIELDS["env"]
        settings.append(Setting(field=field, value=env, kind="option", name="--env"))
    return settings


def _value(name: str, value: object) -> object:
    if name in ("context", "agent_config"):
        # An option names a file as seen from here, a configuration file from the repository's top.
        return str(Path(str(value)).absolute())
    return _split(FIELDS[name], value)


def _split(field: FieldPath, value: object) -> object:
    if isinstance(value, str) and is_list(field):
        return tuple(item.strip() for item in value.split(","))
    return value


def read_variables(
    given: Mapping[str, object], environ: Mapping[str, str], problems: Problems
) -> dict[str, str]:
    """Return the variables of the options `--env` and `--env-file`, and add what is wrong."""
    variables: dict[str, str] = {}
    of_options = ((_OPTION, entry) for entry in _texts(given.get("env")))
    for where, entry in chain(_file_entries(given, problems), of_options):
        name, equals, value = entry.partition("=")
        # The line of a file is never shown, because it may be a secret.
        if not VARIABLE_NAME.fullmatch(name):
            exported = name.startswith("export ")
            advice = ", without `export`" if exported else f"; {NAME_RULE}" if name else ""
            problems.append(f"{where}: a variable must be `NAME=value` or `NAME`{advice}")
        elif not equals and name not in environ:
            # protection: line-of-file-of-variables-is-not-shown
            shown = f"`{name}`" if where == _OPTION else "the name on this line"
            problems.append(_clean(f"{where}: {shown} is not set in the environment"))
        elif not is_text(value if equals else environ[name]):
            problems.append(_not_utf8(f"{where}: the value of `{name}`"))
        else:
            variables[name] = value if equals else environ[name]
    return variables


def _file_entries(given: Mapping[str, object], problems: Problems) -> Iterator[tuple[str, str]]:
    for name in _texts(given.get("env_file")):
        try:
            lines = split_lines(read_text(Path(name)))
        except DocumentError as error:
            problems.append(_clean(str(error)))
            continue
        for number, line in enumerate(lines, start=1):
            entry = line.strip(" \t")
            if entry and not entry.startswith("#"):
                yield _clean(f"{name}:{number}"), entry


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, (tuple, list)) else ()


def _not_utf8(what: str) -> str:
    return _clean(f"{what} is not UTF-8 text")


def _clean(line: str) -> str:
    return one_line(line, limit=400)

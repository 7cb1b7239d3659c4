"""Ports of the parsers of CI systems: which commands they find in a job's output.

- GitHub: `ActionCommand.cs` and `ActionCommandManager.cs` of github.com/actions/runner. Where .NET
  compares by culture, the port omits the characters that such a comparison ignores.
- Azure: `Command.cs` of github.com/microsoft/azure-pipelines-agent.
- TeamCity: a service message anywhere in a line. Buildkite: the headers of groups in its logs.
- GitLab: the markers of sections in its logs.
"""

import re
import unicodedata
from collections.abc import Iterator

GITHUB_COMMANDS = frozenset(
    {
        *("stop-commands", "set-env", "set-output", "save-state", "add-mask", "add-path"),
        *("add-matcher", "remove-matcher", "debug", "warning", "error", "notice", "echo"),
        *("group", "endgroup"),
    }
)
_IGNORED = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)}
_IGNORED |= {*range(0x180B, 0x1810), *range(0xE0000, 0xE1000)}
# Characters that `TrimStart` of .NET removes.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def read_lines(output: str) -> list[str]:
    """Split text into lines as .NET's `ReadLine` does: a carriage return ends a line."""
    return re.split(r"\r\n|\r|\n", output)


class GitHubRunner:
    """Parses the lines of a job as GitHub's runner does, and collects the commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []
        """Name and data of each command that was found."""
        self.stops = 0
        """Number of `stop-commands` commands."""
        self._registered = set(GITHUB_COMMANDS)
        self._token: str | None = None

    @property
    def is_stopped(self) -> bool:
        return self._token is not None

    def read(self, output: str) -> None:
        for line in read_lines(output):
            self._process(line)

    def _process(self, line: str) -> None:
        found = self._second(line) or self._first(line)
        if found is None:
            return
        name, data = found
        if self._token is not None:
            if name.lower() == self._token.lower():
                self._registered.discard(self._token.lower())
                self._token = None
        elif name.lower() == "stop-commands":
            self._token = data
            self._registered.add(data.lower())
            self.stops += 1
        else:
            self.commands.append((name, data))

    def _second(self, line: str) -> tuple[str, str] | None:
        """`::name key=value::data`."""
        message = _without_ignored(line.lstrip(_SPACE))
        if not message.startswith("::"):
            return None
        info, separator, data = message[2:].partition("::")
        name = info.partition(" ")[0]
        if not separator or name.lower() not in self._registered:
            return None
        return name, data

    def _first(self, line: str) -> tuple[str, str] | None:
        """`##[name key=value]data`, anywhere in a line."""
        _, prefix, rest = _without_ignored(line).partition("##[")
        info, bracket, data = rest.partition("]")
        name = info.partition(" ")[0]
        if not prefix or not bracket or name.lower() not in self._registered:
            return None
        return name, data


def _without_ignored(text: str) -> str:
    def is_ignored(character: str) -> bool:
        return ord(character) in _IGNORED or unicodedata.category(character) in {"Cc", "Cf"}

    return "".join(character for character in text if not is_ignored(character))


def azure_commands(output: str) -> Iterator[str]:
    """Return the names of Azure's commands, `##vso[area.event key=value]data` in any line."""
    for line in read_lines(output):
        _, prefix, rest = _without_ignored(line).partition("##vso[")
        info, bracket, _ = rest.partition("]")
        parts = [part for part in info.partition(" ")[0].split(".") if part]
        if prefix and bracket and len(parts) == 2:
            yield ".".join(parts)


def azure_formats(output: str) -> Iterator[str]:
    """Return the lines that Azure's log viewer shows as a heading, a group or an error."""
    yield from (line for line in read_lines(output) if re.match(r"\s*##\[[a-z]+\]", line))


def teamcity_messages(output: str) -> Iterator[str]:
    """Return the service messages of TeamCity and of Octopus, which have the same form."""
    found = re.compile(r"##(?:teamcity|octopus)\[", re.IGNORECASE)
    yield from (line for line in read_lines(output) if found.search(line))


def buildkite_groups(output: str) -> Iterator[str]:
    """Return the lines that open a group, or the previous group."""
    yield from (line for line in read_lines(output) if re.match(r"(---|\+\+\+|~~~|\^\^\^)\s", line))


def gitlab_sections(output: str) -> Iterator[str]:
    """Return the markers of sections."""
    yield from re.findall(r"section_(?:start|end):\d+:[^\r\n]*\r\x1b\[0K", output)


def commands_in(*streams: str) -> list[object]:
    """Return the commands that any CI system finds in some streams, alone or concatenated."""
    runner = GitHubRunner()
    for stream in streams:
        runner.read(stream)
    assert not runner.is_stopped, "commands of the job itself stay disabled"
    others = (azure_commands, azure_formats, teamcity_messages, buildkite_groups, gitlab_sections)
    return [*runner.commands, *(one for find in others for text in streams for one in find(text))]


HOSTILE_LINES = (
    *(f"::{name} name=PATH,file=a::owned" for name in sorted(GITHUB_COMMANDS)),
    *(
        "  ::set-output name=x::1",
        "\t::add-mask::a",
        "\xa0::add-path::/tmp/evil",
        "\u3000::debug::x",
    ),
    *("progress\r::set-env name=A::b", "50%\r\n::add-mask::e", "\u200b::add-mask::z"),
    *("\ufe0f::add-mask::v", ":\u034f:add-mask::c", "\u00ad::set-output name=y::2"),
    *(
        "::stop-commands::TOKEN",
        "::TOKEN::",
        "::STOP-COMMANDS::t",
        "\uff1a\uff1aadd-mask\uff1a\uff1ah",
    ),
    *("##[add-mask]x", "said ##[set-env name=A]b in the middle", "####[add-path]/tmp/evil"),
    *("#\ufe0f#[add-mask]x", "##[error]not so", "##[group]a", "##[section]forged"),
    *("##vso[task.prependpath]/tmp/evil", "x ##vso[task.setvariable variable=A;isSecret=true]b"),
    *("##VSO[task.complete result=Succeeded;]", "##vso[task.prependpath]a##vso[task.debug]b"),
    *("##teamcity[setParameter name='env.PATH' value='x']", "a ##teamcity[buildStatus text='ok']"),
    "##octopus[setVariable name='A' value='b']",
    *("--- :rocket: forged", "+++ forged", "^^^ +++", "~~~ forged", "---\tforged"),
    *("\x1b[0Ksection_start:1:a[collapsed=true]\r\x1b[0Kforged", "section_end:1:a\r\x1b[0K"),
    *("travis_fold:start:a", "\x1b]1338;url='http://a.example/x'\x07", "##" + "x" * 1_000_000),
)
"""Lines that contain a command for at least one CI system."""

"""Keep what workers say from being read as a command by the CI system that shows our output.

CI systems take lines of a job's output for commands. What their programs look for:

- GitHub's runner (`ActionCommand.cs`): `::name::` at the start of a line, after white space, and
  `##[name]` anywhere in a line. `::stop-commands::TOKEN` switches both off until `::TOKEN::`.
- Azure's agent (`Command.cs`): `##vso[area.name]` anywhere in a line; `##[name]` formats.
- TeamCity: `##teamcity[name]`; Octopus: `##octopus[name]`.
- Buildkite: `--- `, `+++ `, `~~~ ` and `^^^ ` at the start of a line open and close groups.

A mark in front of a command that is found anywhere in a line would not help, so that it is broken
up instead. On GitHub the text is put between `::stop-commands::TOKEN` and `::TOKEN::` in addition:
that alone would not be enough, because stdout and stderr reach the runner as two streams, and the
token of one of them may end the protection of the other.
"""

import re
import secrets
from collections.abc import Mapping

from orchestrator.errors import ConfigError
from orchestrator.text.sanitize import one_line

SWITCH = "ORCHESTRATOR_CI"
"""The variable that ends all of this where it is `off`."""
CI_VARIABLES = (
    "CI",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "TF_BUILD",
    "TEAMCITY_VERSION",
    "BUILDKITE",
    "JENKINS_URL",
    "BITBUCKET_BUILD_NUMBER",
    "CIRCLECI",
    "CODEBUILD_BUILD_ID",
    "APPVEYOR",
    "TRAVIS",
)
"""Variables that CI systems set for their jobs."""
_OFF = "off"
_NO = frozenset({"", "0", "false", "no", "off"})
_MARK = "\N{REPLACEMENT CHARACTER}"
_ANYWHERE = re.compile(r"#(?=#\w{0,20}\[)")
_LEADING = re.compile(r"^([^\S\n]*)(?=::|(?:---|\+\+\+|~~~|\^\^\^)[^\S\n])", re.MULTILINE)
_LINE_END = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
_TOKEN_BYTES = 16


def check_switch(environ: Mapping[str, str]) -> None:
    """Check the value of `ORCHESTRATOR_CI`.

    Raises:
        ConfigError: It is neither empty nor `off`.
    """
    value = environ.get(SWITCH, "")
    if value not in ("", _OFF):
        raise ConfigError(
            f"environment variable `{SWITCH}` is `{one_line(value, limit=60)}`: must be `off`",
            hint="`off` prints what workers say unchanged; unset it otherwise",
        )


def in_ci(environ: Mapping[str, str]) -> bool:
    """Return whether a CI system reads our output, by the variables that it sets."""
    if environ.get(SWITCH) == _OFF:
        return False
    return any(environ.get(name, "").lower() not in _NO for name in CI_VARIABLES)


def guarded(text: str, environ: Mapping[str, str], *, terminal: bool) -> str:
    """Return whole lines such that no CI system finds a command in them.

    Args:
        text: The lines, without the last newline.
        environ: The variables of this process.
        terminal: Whether they go to a terminal. Lines stay as they are on one, unless a CI system
            provides it. Elsewhere it does not matter whether a variable of a CI system is set: a
            job may have started us without them.
    """
    if environ.get(SWITCH) == _OFF or (terminal and not in_ci(environ)):
        return text
    text = _LINE_END.sub("\n", text)
    safe = _LEADING.sub(rf"\1{_MARK}", _ANYWHERE.sub(f"#{_MARK}", text))
    # GitHub's runner looks at lines with one of these two, and at no others.
    if environ.get("GITHUB_ACTIONS", "").lower() != "true" or not ("::" in text or "##[" in text):
        return safe
    token = secrets.token_hex(_TOKEN_BYTES)
    return f"::stop-commands::{token}\n{safe}\n::{token}::"


def guarded_json(text: str) -> str:
    """Return JSON that says the same, in which no CI system finds a command.

    In JSON, `#` stands in strings alone, where it may be written as an escape. JSON has no line
    that begins with `::`, because every line begins with a bracket, a quotation mark or a number.
    """
    return text.replace("##", r"\u0023\u0023")

"""Prevent CI systems from interpreting output of workers as commands.

CI systems interpret some lines of a job's output as commands:

- GitHub's runner (`ActionCommand.cs`): `::name::` as the first text of a line, even if indented,
  and `##[name]` anywhere in a line. `::stop-commands::TOKEN` disables both until `::TOKEN::`.
- Azure's agent (`Command.cs`): `##vso[area.name]` anywhere in a line; `##[name]` formats.
- TeamCity: `##teamcity[name]`; Octopus: `##octopus[name]`.
- Buildkite: `--- `, `+++ `, `~~~ ` and `^^^ ` at the start of a line open and close groups.

Commands that are recognised anywhere in a line are broken up by an inserted character, because a
prefix would not help. On GitHub, text is also put between `::stop-commands::TOKEN` and `::TOKEN::`.
That alone would not suffice: stdout and stderr reach the runner as two streams, and the token of
one may end the protection of the other.
"""

import os
import re
import secrets
import stat
from collections.abc import Mapping
from typing import TextIO

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line

SWITCH = "ORCHESTRATOR_CI"
"""Environment variable; `off` disables the protection against commands for CI systems."""
REPORT_SWITCH = "ORCHESTRATOR_REPORT"
"""Environment variable; the value `off` disables the report of a run in the log of a CI job."""
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


_SWITCHES = {
    SWITCH: "prints the output of workers unchanged",
    REPORT_SWITCH: "adds no report to the log of a CI job",
}


def check_switches(environ: Mapping[str, str]) -> None:
    """Check the values of `ORCHESTRATOR_CI` and `ORCHESTRATOR_REPORT`.

    Raises:
        ConfigError: A value is neither empty nor `off`.
    """
    for name, effect in _SWITCHES.items():
        value = environ.get(name, "")
        if value not in ("", _OFF):
            raise ConfigError(
                f"environment variable `{name}` is `{one_line(value, limit=60)}`: must be `off`",
                key="variable.invalid",
                hint=f"`off` {effect}; unset the variable otherwise",
            )


def automatic_report(environ: Mapping[str, str]) -> str | None:
    """Return the format of the report that is written without `--report`; None for no report."""
    if _OFF in (environ.get(SWITCH), environ.get(REPORT_SWITCH)):
        return None
    for name, report in (("GITHUB_ACTIONS", "github"), ("GITLAB_CI", "gitlab")):
        if environ.get(name, "").lower() == "true":
            return report
    return None


def in_ci(environ: Mapping[str, str]) -> bool:
    """Return whether a CI system reads the output, judging by the variables that it sets."""
    if environ.get(SWITCH) == _OFF:
        return False
    return any(environ.get(name, "").lower() not in _NO for name in CI_VARIABLES)


def is_job_log(out: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a CI system may read what is written to a stream as the log of a job.

    It does not read a file of its own, to which a job redirected the stream. Some systems also let
    a job write its log to a file; then stdout and stderr are the same file.
    """
    if not in_ci(environ):
        return False
    try:
        info = os.fstat(out.fileno())
        # protection: file-that-receives-stdout-and-stderr-of-job-is-its-log
        return not stat.S_ISREG(info.st_mode) or os.path.samestat(info, os.fstat(2))
    except OSError:
        return True


def guard(text: str, environ: Mapping[str, str], *, terminal: bool) -> str:
    """Return lines changed so that no CI system finds commands in them.

    Args:
        text: The lines, without the last newline.
        environ: The variables of this process.
        terminal: Whether the lines go to a terminal. They stay unchanged on a terminal, unless
            a CI system provides it. Elsewhere they are always changed, because a job may
            start this process without the variables of the CI system.
    """
    if environ.get(SWITCH) == _OFF or (terminal and not in_ci(environ)):
        return text
    text = _LINE_END.sub("\n", text)
    # protection: ci-commands-within-line-are-broken-up
    # protection: ci-commands-at-lines-start-are-broken-up
    safe = _LEADING.sub(rf"\1{_MARK}", _ANYWHERE.sub(f"#{_MARK}", text))
    # GitHub's runner only examines lines that contain one of these.
    if environ.get("GITHUB_ACTIONS", "").lower() != "true" or not ("::" in text or "##[" in text):
        return safe
    # protection: each-block-has-its-own-token
    token = secrets.token_hex(_TOKEN_BYTES)
    # protection: stop-commands-encloses-hostile-text
    return f"::stop-commands::{token}\n{safe}\n::{token}::"


def guard_json(text: str) -> str:
    """Return equivalent JSON in which no CI system finds commands.

    In JSON, `#` occurs only in strings, where it can be written as an escape. No line of JSON
    starts with `::`: it starts with a bracket, a quotation mark or a number.
    """
    # protection: ci-commands-in-json-are-escaped
    return text.replace("##", r"\u0023\u0023")

"""Create and update pull requests with the programs `gh` and `glab` of the user.

The programs run on the host with the user's own login, so this module reads no token. Texts of
workers are passed to the programs only as values of options and on stdin.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.text.sanitize import output_line
from orchestrator.text.split_lines import split_lines

_TIMEOUT = 120.0
_MOST_SAID = 4 * 1024**2
_ADDRESS = re.compile(
    r"(?:[a-z+]+://(?:[^/@]*@)?(?P<host>[^/:]+)(?::\d+)?/|(?:[^/@]+@)?(?P<short>[^/:@]+):)"
    r"/*(?P<path>[^:]+?)(?:\.git)?/*"
)


class ForgeError(OrchestratorError):
    """`gh` or `glab` failed."""

    exit_code = 3


@dataclass(frozen=True, kw_only=True)
class Request:
    """A pull request, or a merge request of GitLab."""

    head: str
    """Branch with the changes."""
    base: str
    """Branch into which the changes are to be merged."""
    title: str
    body: str
    draft: bool = False


@dataclass(frozen=True)
class Existing:
    """An open pull request of a branch."""

    number: str
    url: str
    body: str


class Forge(Protocol):
    """A program that manages pull requests."""

    program: str

    def find(self, head: str) -> Existing | None:
        """Return the open pull request of the branch `head`; None if there is none."""

    def create_command(self, request: Request) -> tuple[list[str], str]:
        """Return the command that creates a pull request, and its stdin."""

    def update_command(self, number: str, request: Request) -> tuple[list[str], str]:
        """Return the command that updates a pull request, and its stdin."""

    def run(self, command: Sequence[str], stdin: str) -> str:
        """Run a command, and return the last line that it prints."""


class _Program:
    """Common part of the forges: runs a program that is found in `PATH`."""

    program: str

    def __init__(self, top: Path, repo: str | None) -> None:
        """Store where the program runs, and the address of the remote repository."""
        self._top = top
        self._repo = repo

    def _command(self, *words: str) -> list[str]:
        return [self.program, *words, *([f"--repo={self._repo}"] if self._repo else [])]

    def run(self, command: Sequence[str], stdin: str) -> str:
        """Run a command, and return the last line that it prints.

        Raises:
            ForgeError: The command failed.
        """
        said = split_lines(self._output(command, stdin).strip())
        return output_line(said[-1], limit=500) if said else ""

    def _output(self, command: Sequence[str], stdin: str = "") -> str:
        shown = " ".join(command[:3])
        try:
            done = subprocess.run(
                command, input=stdin.encode("utf-8", "replace"), capture_output=True,
                cwd=self._top, timeout=_TIMEOUT, check=False, start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ForgeError(f"`{shown}` failed: {error}", key="forge.failed") from error
        if done.returncode:
            said = done.stderr[-2000:].decode("utf-8", "replace").strip()
            # protection: pr-printed-errors-are-sanitised
            why = output_line(said, limit=500) or f"exit code {done.returncode}"
            raise ForgeError(
                f"`{shown}` failed: {why}",
                key="forge.failed",
                hint=f"`{self.program} auth status` shows whether you are logged in",
            )
        return done.stdout[:_MOST_SAID].decode("utf-8", "replace")

    def _list(self, command: Sequence[str]) -> list[dict[str, Any]]:
        if shutil.which(self.program) is None:
            return []
        try:
            found = json.loads(self._output(command) or "[]")
        except ValueError as error:
            raise ForgeError(
                f"`{' '.join(command[:3])}` did not print JSON", key="forge.answer-invalid"
            ) from error
        return (
            [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
        )


class GitHub(_Program):
    """GitHub, by its program `gh`."""

    program = "gh"

    def find(self, head: str) -> Existing | None:
        """Return the open pull request of the branch `head`; None if there is none."""
        fields = ("--state=open", "--limit=1", "--json=number,url,body")
        found = self._list(self._command("pr", "list", f"--head={head}", *fields))
        return _existing(found, "number", "url", "body")

    def create_command(self, request: Request) -> tuple[list[str], str]:
        """Return the command that creates a pull request, and its stdin."""
        draft = ["--draft"] if request.draft else []
        words = (f"--head={request.head}", *_options(request, "base", "--body-file=-"))
        return self._command("pr", "create", *words, *draft), request.body

    def update_command(self, number: str, request: Request) -> tuple[list[str], str]:
        """Return the command that updates a pull request, and its stdin."""
        words = _options(request, "base", "--body-file=-")
        return self._command("pr", "edit", number, *words), request.body


class GitLab(_Program):
    """GitLab, by its program `glab`."""

    program = "glab"

    def find(self, head: str) -> Existing | None:
        """Return the open merge request of the branch `head`; None if there is none."""
        words = (f"--source-branch={head}", "--per-page=1", "--output=json")
        found = self._list(self._command("mr", "list", *words))
        return _existing(found, "iid", "web_url", "description")

    def create_command(self, request: Request) -> tuple[list[str], str]:
        """Return the command that creates a merge request, and its stdin."""
        draft = ["--draft"] if request.draft else []
        words = (f"--source-branch={request.head}", *self._options(request))
        return self._command("mr", "create", *words, *draft, "--yes"), ""

    def update_command(self, number: str, request: Request) -> tuple[list[str], str]:
        """Return the command that updates a merge request, and its stdin."""
        return self._command("mr", "update", number, *self._options(request), "--yes"), ""

    def _options(self, request: Request) -> list[str]:
        return _options(request, "target-branch", f"--description={request.body}")


def _options(request: Request, base: str, body: str) -> list[str]:
    # Joined with `=`: a title that begins with a dash is still no option.
    return [f"--{base}={request.base}", f"--title={request.title}", body]


def _existing(found: Sequence[dict[str, Any]], *keys: str) -> Existing | None:
    return Existing(*(str(found[0].get(key) or "") for key in keys)) if found else None


def find_forge(
    top: Path, url: str, wanted: str | None, *, installed: bool = True
) -> GitHub | GitLab:
    """Return the program for the forge of a remote repository.

    Args:
        top: The repository's top directory, in which the program runs.
        url: Address of the remote repository.
        wanted: `gh` or `glab`. Default: chosen by the address, or else an installed program.
        installed: Whether the program must be installed.

    Raises:
        ConfigError: The program is not installed.
    """
    repo = repository_name(url)
    host = (repo or "").partition("/")[0]
    named = wanted or ("glab" if "gitlab" in host else "gh" if "github" in host else None)
    found = [kind for kind in (GitHub, GitLab) if shutil.which(kind.program)]
    chosen = [kind for kind in (GitHub, GitLab) if kind.program == named] or found or [GitHub]
    if chosen[0] in found or not installed:
        address = f"https://{repo}" if repo and chosen[0] is GitLab else repo
        return chosen[0](top, address)
    raise ConfigError(
        f"`{named or 'gh` or `glab'}` is not installed",
        key="forge.missing",
        hint="install `gh` (GitHub) or `glab` (GitLab) and log in; `--dry-run` prints the commands",
    )


def repository_name(url: str) -> str | None:
    """Return host and path of a remote repository, such as `github.com/owner/name`.

    Returns None for a local path, and for an address of an unknown form.
    """
    found = _ADDRESS.fullmatch(url)
    if found is None or url.startswith(("/", ".", "file:")):
        return None
    return f"{found['host'] or found['short']}/{found['path']}"


def shell_text(command: Sequence[str], stdin: str) -> str:
    """Return a command as shell text, with its stdin as a here-document."""
    text = shlex.join(command)
    if not stdin:
        return text
    end = "END"
    while end in split_lines(stdin):
        end += "_"
    return f"{text} <<'{end}'\n{stdin}{'' if stdin.endswith(chr(10)) else chr(10)}{end}"

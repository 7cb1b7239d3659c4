"""Create and update pull requests with the programs `gh` and `glab` of the user.

The programs run on the host with the user's own login, so this module reads no token. Texts of
workers are passed to the programs only as values of options and on stdin.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.text.decode import decode
from orchestrator.base.text.sanitize import output_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.programs import absolute_path

_TIMEOUT = 120.0
_MOST_SAID = 32 * 1024**2
_MOST_REQUESTS = 100
"""Maximum number of requests from branches of the same name, in the repository and its forks."""
_SSH_TIMEOUT = 10.0
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,250}")
_SSH_HOSTS = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}
"""Hosts that only serve git by ssh, at the port of HTTPS, and the hosts of their forges."""
_MOST_OF_LOG = 1024**2
"""Number of bytes at the end of a job's log that are read."""
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z+]+)://(?:(?P<user>[^/]*)@)?(?P<host>[^/:@]+)(?::(?P<port>\d+))?/"
    r"|(?:(?P<who>[^/@]+)@)?(?P<short>[^/:@]+):)"
    r"/*(?P<path>[^:@]+?)(?:\.git)?/*"
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
    """An open pull request from a branch of the same repository."""

    number: str
    url: str
    body: str
    base: str
    """Branch into which the changes are to be merged."""


class Forge(Protocol):
    """A program that manages pull requests."""

    program: str

    def find(self, head: str) -> Existing | None:
        """Return the open pull request of the branch `head`; None if there is none."""

    def create_command(self, request: Request) -> tuple[list[str], str]:
        """Return the command that creates a pull request, and its stdin."""

    def update_command(self, number: str, request: Request) -> tuple[list[str], str]:
        """Return the command that updates a pull request, and its stdin."""

    def comment_command(self, number: str, text: str) -> tuple[list[str], str]:
        """Return the command that comments on a pull request, and its stdin."""

    def run(self, command: Sequence[str], stdin: str) -> str:
        """Run a command, and return the last line that it prints."""


class _Program:
    """Common part of the forges: runs a program that is found in `PATH`."""

    program: str

    def __init__(self, top: Path, repo: str | None) -> None:
        """Store where the program runs, and the address of the remote repository."""
        self._top = top
        self._repo = repo

    def command(self, *words: str) -> list[str]:
        """Return a command for the repository."""
        return [self.program, *words, *([f"--repo={self._repo}"] if self._repo else [])]

    def run(self, command: Sequence[str], stdin: str) -> str:
        """Run a command, and return the last line that it prints.

        Raises:
            ForgeError: The command failed.
        """
        said = split_lines(self._output(command, stdin).strip())
        return output_line(said[-1], limit=500) if said else ""

    def _output(self, command: Sequence[str], stdin: str = "", *, end: bool = False) -> str:
        """Return the beginning of a command's stdout; with `end`, its end."""
        shown = " ".join(command[:3])
        try:
            with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
                given.write(stdin.encode("utf-8", "replace"))
                given.seek(0)
                code, said = self._read(command, given, errors, end=end)
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2000))
                why = errors.read(2000).decode("utf-8", "replace").strip()
        except OSError as error:
            raise ForgeError(f"`{shown}` failed: {error}", key="forge.failed") from error
        if code:
            # protection: pr-printed-errors-are-sanitised
            why = output_line(why, limit=500) or f"exit code {code}"
            raise ForgeError(
                f"`{shown}` failed: {why}",
                key="forge.failed",
                hint=f"`{self.program} auth status` shows whether you are logged in",
            )
        return decode(said)

    def _read(
        self, command: Sequence[str], stdin: IO[bytes], stderr: IO[bytes], *, end: bool
    ) -> tuple[int, bytes]:
        """Run a command, and return its exit code and the first or last bytes of its stdout."""
        # A relative directory would be one of the checkout, with files of merged workers.
        # protection: pr-programs-are-not-looked-up-in-checkout
        env = {**os.environ, "PATH": absolute_path(os.environ.get("PATH", os.defpath))}
        kept = bytearray()
        with subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, cwd=self._top,
            env=env, start_new_session=True,
        ) as process:  # fmt: skip
            timer = threading.Timer(_TIMEOUT, _kill, [process])
            timer.start()
            try:
                while process.stdout and (chunk := process.stdout.read1(1024**2)):  # type: ignore[attr-defined]
                    # protection: logs-of-jobs-are-read-with-limit
                    kept += chunk if end else chunk[: _MOST_SAID - len(kept)]
                    if end:
                        del kept[:-_MOST_OF_LOG]
            finally:
                timer.cancel()
        return process.returncode, bytes(kept)

    def _json(self, command: Sequence[str]) -> object:
        try:
            found: object = json.loads(self._output(command) or "[]")
            return found
        except (ValueError, RecursionError) as error:
            raise ForgeError(
                f"`{' '.join(command[:3])}` did not print JSON", key="forge.answer-invalid"
            ) from error

    def _list(self, command: Sequence[str]) -> list[dict[str, Any]]:
        found = self._json(command) if shutil.which(self.program) else []
        return (
            [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
        )

    def api(self, *words: str) -> object:
        """Return the answer of the forge's API, which anybody may have influenced.

        Raises:
            ForgeError: The command failed, or its output is not JSON.
        """
        return self._json(self.api_command(*words))

    def api_command(self, *words: str) -> list[str]:
        """Return a command that calls the forge's API."""
        host = (self._repo or "").removeprefix("https://").partition("/")[0]
        return [self.program, "api", *([f"--hostname={host}"] if host else []), *words]

    def end_of(self, command: Sequence[str]) -> str:
        """Run a command, and return the end of its output.

        Raises:
            ForgeError: The command failed.
        """
        return self._output(command, end=True)

    @property
    def path(self) -> str:
        """Return the path of the repository on its server; empty if it is not known."""
        return (self._repo or "").removeprefix("https://").partition("/")[2]


class GitHub(_Program):
    """GitHub, by its program `gh`."""

    program = "gh"

    def find(self, head: str) -> Existing | None:
        """Return the open pull request of the branch `head`; None if there is none."""
        wanted = ("number", "url", "body", "baseRefName")
        words = (f"--head={head}", "--state=open", f"--limit={_MOST_REQUESTS}")
        fields = f"--json={','.join(wanted)},isCrossRepository"
        # `gh` also lists requests from forks, whose branches anybody can name so.
        found = self._list(self.command("pr", "list", *words, fields))
        own = [request for request in found if request.get("isCrossRepository") is False]
        return _existing(own, *wanted)

    def create_command(self, request: Request) -> tuple[list[str], str]:
        """Return the command that creates a pull request, and its stdin."""
        draft = ["--draft"] if request.draft else []
        words = (f"--head={request.head}", *_options(request, "base", "--body-file=-"))
        return self.command("pr", "create", *words, *draft), request.body

    def update_command(self, number: str, request: Request) -> tuple[list[str], str]:
        """Return the command that updates a pull request, and its stdin."""
        words = _options(request, "base", "--body-file=-")
        return self.command("pr", "edit", number, *words), request.body

    def comment_command(self, number: str, text: str) -> tuple[list[str], str]:
        """Return the command that comments on a pull request, and its stdin."""
        return self.command("pr", "comment", number, "--body-file=-"), text


class GitLab(_Program):
    """GitLab, by its program `glab`."""

    program = "glab"

    def find(self, head: str) -> Existing | None:
        """Return the open merge request of the branch `head`; None if there is none."""
        words = (f"--source-branch={head}", f"--per-page={_MOST_REQUESTS}", "--output=json")
        # `glab` also lists requests from forks, whose branches anybody can name so.
        found = [
            request
            for request in self._list(self.command("mr", "list", *words))
            if isinstance(source := request.get("source_project_id"), int)
            if source == request.get("target_project_id")
        ]
        return _existing(found, "iid", "web_url", "description", "target_branch")

    def create_command(self, request: Request) -> tuple[list[str], str]:
        """Return the command that creates a merge request, and its stdin."""
        draft = ["--draft"] if request.draft else []
        words = (f"--source-branch={request.head}", *self._options(request))
        return self.command("mr", "create", *words, *draft, "--yes"), ""

    def update_command(self, number: str, request: Request) -> tuple[list[str], str]:
        """Return the command that updates a merge request, and its stdin."""
        return self.command("mr", "update", number, *self._options(request), "--yes"), ""

    def comment_command(self, number: str, text: str) -> tuple[list[str], str]:
        """Return the command that comments on a merge request, and its stdin."""
        return self.command("mr", "note", number, f"--message={text}"), ""

    def _options(self, request: Request) -> list[str]:
        return _options(request, "target-branch", f"--description={request.body}")


def _options(request: Request, base: str, body: str) -> list[str]:
    # Joined with `=`: a title that begins with a dash is still no option.
    return [f"--{base}={request.base}", f"--title={request.title}", body]


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


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
    alias, _, path = (repo or "").partition("/")
    real = _host_behind(url, alias)
    repo = repo and f"{real}/{path}"
    # The name of a host that is the user's own may say what the address does not.
    host = f"{real} {alias}"
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


def _host_behind(url: str, host: str) -> str:
    """Return the host that ssh connects to for an address, such as that of a `Host` alias.

    `ssh -G` makes no connection. It reads the user's configuration as every push does, and starts
    the commands of `Match exec` there, as every push does.
    """
    found = _ADDRESS.fullmatch(url)
    by_ssh = found is not None and (found["scheme"] or "ssh") in ("ssh", "git+ssh", "ssh+git")
    if found is None or not by_ssh or not _PLAIN_NAME.fullmatch(host):
        return host
    user = found["user"] or found["who"] or ""
    words = ["ssh", "-G", "-o", "CanonicalizeHostname=no"]
    words += ["-l", user] if _PLAIN_NAME.fullmatch(user) else []
    words += ["-p", found["port"]] if found["port"] else []
    try:
        with subprocess.Popen(
            [*words, "--", host], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        ) as process:  # fmt: skip
            timer = threading.Timer(_SSH_TIMEOUT, _kill, [process])
            timer.start()
            said = process.stdout.read(_MOST_OF_LOG) if process.stdout else b""
            timer.cancel()
            _kill(process)
    except OSError:
        return host
    rows = (line.partition(" ") for line in said.decode("utf-8", "replace").split("\n"))
    real = next((value for name, _, value in rows if name == "hostname"), host)
    # Forges have names: an address, or a name without a domain, is only a way to the host.
    is_name = "." in real and re.search(r"[A-Za-z]", real) and _PLAIN_NAME.fullmatch(real)
    return _SSH_HOSTS.get(real, real) if is_name else host


def shell_text(command: Sequence[str], stdin: str) -> str:
    """Return a command as shell text, with its stdin as a here-document."""
    text = shlex.join(command)
    if not stdin:
        return text
    end = "END"
    while end in split_lines(stdin):
        end += "_"
    return f"{text} <<'{end}'\n{stdin}{'' if stdin.endswith(chr(10)) else chr(10)}{end}"

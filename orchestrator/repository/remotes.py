"""Read the branches of a remote repository, fetch from it, and push single branches to it."""

from collections.abc import Mapping
from functools import cached_property

from orchestrator.base.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.git.command import Git
from orchestrator.repository.programs import Use
from orchestrator.repository.repository import Repository

_HEADS = "refs/heads/"
# protection: pr-no-tags-follow
_PUSHING = {"push.followTags": "false", "push.gpgSign": "false", "push.recurseSubmodules": "no"}
_MOST_HEADS = 64 * 1024**2


class Remote:
    """A remote repository, which git reaches as in the user's own `git fetch` and `git push`."""

    def __init__(self, repository: Repository, name: str | None) -> None:
        """Find a remote of the repository.

        Args:
            repository: The repository.
            name: Name of the remote. Default: `origin`, or the only remote.

        Raises:
            ConfigError: There is no such remote.
        """
        known = repository.git.text("remote").split()
        if name is None:
            name = "origin" if "origin" in known or len(known) != 1 else known[0]
        if name not in known:
            raise ConfigError(
                f"there is no remote `{one_line(name)}`",
                key="remote.unknown",
                hint=f"remotes of the repository: {', '.join(known) or 'none'}",
            )
        self.name = name
        # A mirror would push all refs, and delete others.
        # protection: pr-one-ref-is-pushed
        config = {**_PUSHING, f"remote.{name}.mirror": "false"}
        self._git = Git(
            repository.git_dir, work_tree=repository.top, config=config, use=Use.REMOTES
        )

    @property
    def url(self) -> str:
        """Return the address to which git pushes."""
        return self._git.text("remote", "get-url", "--push", self.name)

    @cached_property
    def heads(self) -> Mapping[str, str]:
        """Return the commits of the remote's branches, by their names without `refs/heads/`."""
        said = self._git.listing("ls-remote", "--heads", "--", self.name, limit=_MOST_HEADS)
        rows = (row.split("\t", 1) for row in split_lines(said.decode("utf-8", "replace")))
        return {ref.removeprefix(_HEADS): commit for commit, ref in rows}

    def fetch(self, branch: str) -> None:
        """Fetch the commits of a branch; no ref changes."""
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        self._git.run("fetch", *options, "--refmap=", "--", self.name, f"{_HEADS}{branch}")

    def push_command(self, commit: str, branch: str) -> list[str]:
        """Return the command that pushes a commit to a branch which is still as in `heads`.

        Git accepts any commit for such a branch: whoever runs the command checks that the commit
        descends from the branch.
        """
        # An empty value: the branch must not exist.
        lease = f"--force-with-lease={_HEADS}{branch}:{self.heads.get(branch, '')}"
        # protection: pr-nothing-is-forced
        return ["push", "--quiet", "--no-verify", lease, self.name, f"{commit}:{_HEADS}{branch}"]

    def push(self, commit: str, branch: str) -> None:
        """Push a commit to a branch of the remote that is still as in `heads`.

        Raises:
            RepositoryError: The commit does not descend from the branch, the remote refused the
                push, or it cannot be reached.
        """
        failed = f"branch `{one_line(branch)}` could not be pushed to `{self.name}`"
        there = self.heads.get(branch)
        if there and not self._git.succeeds("merge-base", "--is-ancestor", there, commit):
            raise RepositoryError(
                f"{failed}: it has other commits",
                key="push.failed",
                hint="no push is forced; remove or rename the remote branch if it is not needed",
            )
        try:
            self._git.run(*self.push_command(commit, branch))
        except GitCommandError as error:
            hint = f"check the access to `{self.name}`: `git ls-remote {self.name}`"
            if "stale info" in error.stderr:
                hint = "the branch has changed since it was read: repeat the command"
            raise RepositoryError(
                f"{failed}: {one_line(error.stderr, limit=500)}", key="push.failed", hint=hint
            ) from error

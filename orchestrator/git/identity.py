"""Find the user's name and e-mail address as git does."""

import os
import re
from collections.abc import Container

from orchestrator.errors import GitCommandError
from orchestrator.git.command import Git

_IDENTITY = re.compile(r"(.+) <(.*)> [0-9]+ [-+][0-9]+", re.DOTALL)
_VARIABLES = ("NAME", "EMAIL")


def resolve_identities(
    git: Git, configured: Container[str]
) -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
    """Return name and address of the author and of the committer; None where none is configured.

    As in `git commit`, the variables `GIT_AUTHOR_*` and `GIT_COMMITTER_*` precede the settings
    `author.*`, `committer.*` and `user.*`, and these the variable `EMAIL`. Names that git would
    guess from the machine do not count.

    Args:
        git: Git in the user's repository.
        configured: The names of the user's settings.
    """
    keys = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in _VARIABLES]
    env = {key: os.environ[key] for key in keys if key in os.environ}
    config = {"user.useConfigOnly": "true"}
    if os.environ.get("EMAIL") and "user.email" not in configured:
        # Without guesses, git does not read this variable.
        config["user.email"] = os.environ["EMAIL"]
    exact = git.within(git.limits, config)
    return _resolve(exact, "AUTHOR", env), _resolve(exact, "COMMITTER", env)


def _resolve(git: Git, who: str, env: dict[str, str]) -> tuple[str, str] | None:
    try:
        said = git.run("var", f"GIT_{who}_IDENT", env=env).decode("utf-8", "replace")
    except GitCommandError:
        return None
    found = _IDENTITY.fullmatch(said.rstrip("\n"))
    return (found[1], found[2]) if found else None

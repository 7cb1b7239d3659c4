"""The user's name and e-mail address, as git resolves them.

As in `git commit`, the variables `GIT_AUTHOR_*` and `GIT_COMMITTER_*` precede the settings
`author.*`, `committer.*` and `user.*`, and these the variable `EMAIL`. Names that git would guess
from the machine do not count.
"""

import os
import re
from collections.abc import Callable, Container, Mapping

from orchestrator.base.errors import GitCommandError

Identity = tuple[str, str]
"""A name and an e-mail address."""
_IDENTITY = re.compile(r"(.+) <(.*)> [0-9]+ [-+][0-9]+", re.DOTALL)
_VARIABLES = tuple(
    f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
)


def identity_settings(configured: Container[str]) -> dict[str, str]:
    """Return the settings for `git var` that switch off guesses, for a user's settings."""
    off = {"user.useConfigOnly": "true"}
    # Without guesses, git does not read this variable.
    email = "" if "user.email" in configured else os.environ.get("EMAIL", "")
    return {**off, "user.email": email} if email else off


def resolve_identity(run: Callable[..., bytes], who: str) -> Identity | None:
    """Return the identity that `git var` prints; None if none is configured.

    Args:
        run: Runs git with `identity_settings`.
        who: `AUTHOR` or `COMMITTER`.
    """
    env: Mapping[str, str] = {key: os.environ[key] for key in _VARIABLES if key in os.environ}
    try:
        said = run("var", f"GIT_{who}_IDENT", env=env).decode("utf-8", "replace")
    except GitCommandError:
        return None
    found = _IDENTITY.fullmatch(said.rstrip("\n"))
    return (found[1], found[2]) if found else None

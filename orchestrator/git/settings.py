"""Read the user's git settings as git does: booleans are words or numbers."""

from collections.abc import Mapping
from functools import cache

from orchestrator.errors import GitCommandError
from orchestrator.git.command import Git

_WORDS = {"true": True, "false": False}


@cache
def is_true(value: str) -> bool:
    """Return whether git takes a setting's value for true.

    A value that git refuses counts as true, so that no protection is left out because of it.
    """
    if value in _WORDS:
        return _WORDS[value]
    try:
        answer = Git(None, config={"orchestrator.value": value}).text(
            "config", "--type=bool", "--get", "orchestrator.value"
        )
    except GitCommandError:
        return True
    # protection: settings-are-true-in-every-spelling-of-git
    return answer == "true"


def is_partial(configured: Mapping[str, str]) -> bool:
    """Return whether the settings are those of a partial clone, which lacks old objects."""
    return any(
        key.startswith("remote.") and key.endswith(".promisor") and is_true(value)
        for key, value in configured.items()
    ) or bool(configured.get("extensions.partialclone"))

"""Entries of `git_read`: private repositories of git hosts, and the variables with their tokens."""

import re
from dataclasses import dataclass

_NAME = r"[A-Za-z0-9._~+@-]+"
_ENTRY = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?)/"
    rf"(?P<path>(?:{_NAME}/)*{_NAME}(?:/\*)?)/?=(?P<variable>[A-Za-z_][A-Za-z0-9_]*)"
)


@dataclass(frozen=True)
class PrivateRepository:
    """A repository, or all repositories below a path, and the variable with the token."""

    url: str
    """URL without `.git`; `/*` at its end stands for all repositories below the path."""
    variable: str

    @classmethod
    def parse(cls, text: str) -> "PrivateRepository | None":
        """Parse `https://HOST/PATH=VARIABLE`; return None if the text has another form."""
        found = _ENTRY.fullmatch(text)
        if found is None or not {".", ".."}.isdisjoint(found["path"].split("/")):
            return None
        path = found["path"].removesuffix(".git")
        return cls(f"{found['scheme']}://{found['host'].lower()}/{path}", found["variable"])

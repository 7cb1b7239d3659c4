"""The text of entries of the setting `company`."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

CA, PROXY = "ca", "proxy"
_NAMES = ("pip", "npm", "go", PROXY, CA)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parsed_entries(given: Iterable[str]) -> dict[str, str]:
    """Return a URL or the name of a variable, or for `ca` a file, by the name of an entry.

    Raises:
        ValueError: An entry has another form, or a URL contains a password.
    """
    found: dict[str, str] = {}
    for entry in given:
        name, _, value = entry.partition("=")
        if name not in _NAMES or not value:
            raise ValueError(f"an entry must be written as NAME=VALUE, with {', '.join(_NAMES)}")
        if name != CA and not _VARIABLE.fullmatch(value):
            check_url(value, secret=False)
        found[name] = value
    return found


def check_url(url: str, *, secret: bool) -> str:
    """Return the URL of a mirror or proxy.

    Args:
        url: The URL.
        secret: Whether it may contain a password.

    Raises:
        ValueError: The URL cannot be used.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("a mirror or proxy must be an HTTP URL, or a variable with one")
    if parts.password and not secret:
        raise ValueError("a URL with a password must be in a variable: NAME=VARIABLE")
    return url

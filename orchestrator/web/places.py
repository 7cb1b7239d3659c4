"""Addresses of pages: on a server, and in a directory of files."""

import posixpath
from collections.abc import Callable
from typing import Literal

Href = Callable[..., str]
"""Returns the address of a page, from its repository, run, worker and tab."""
RunTab = Literal["", "graph", "conflicts", "costs", "events", "details"]
WorkerTab = Literal["", "diff", "checks", "events", "details"]


def path_of(*parts: object) -> str:
    """Return the path of a page on the server; empty parts are left out."""
    return "/" + "/".join(str(part) for part in parts if part not in ("", None))


def file_of(*parts: object) -> str:
    """Return the name of a page's file in an export."""
    name = "-".join(str(part).replace("/", "-") for part in parts if part not in ("", None))
    return f"{name}.html" if name else "index.html"


def static_path(name: str) -> str:
    """Return the path of a file of the package on the server."""
    return posixpath.join("/static", name)

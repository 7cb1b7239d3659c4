"""Return the addresses of pages, on a server or in the directory of an export."""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Literal

Href = Callable[..., str]
"""Function that returns the address of a page from repository, run, worker and tab."""
RunTab = Literal["", "graph", "conflicts", "costs", "events", "details"]
WorkerTab = Literal["", "diff", "checks", "events", "details"]


def path_of(*parts: object) -> str:
    """Return the path of a page on the server, such as `/R/RUN/3/diff`, without empty parts."""
    return "/" + "/".join(str(part) for part in parts if part not in ("", None))


def file_of(*parts: object) -> str:
    """Return the name of a page's file in an export: the parts of `path_of`, joined by `-`."""
    name = "-".join(str(part).replace("/", "-") for part in parts if part not in ("", None))
    return f"{name}.html" if name else "index.html"


@cache
def static_path(name: str) -> str:
    """Return the URL path of a static file; the path changes with the content of the file."""
    content = files("orchestrator.web").joinpath("static", name).read_bytes()
    return f"/static/{name}?{sha256(content).hexdigest()[:16]}"

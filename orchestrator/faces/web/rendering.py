"""Render templates as HTML pages with their addresses, on a server or for an export."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from orchestrator.base.text.quantities import money

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
MINUS = "\N{MINUS SIGN}"
UNKNOWN = "\N{EN DASH}"


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago something happened: `just now`, `5m ago`, `3d ago`."""
    seconds = (now - then).total_seconds()
    if seconds < _MINUTE:
        return "just now"
    for unit, length, most in (("m", _MINUTE, _HOUR), ("h", _HOUR, 2 * _DAY)):
        if seconds < most:
            return f"{seconds // length:.0f}{unit} ago"
    return f"{seconds // _DAY:.0f}d ago"


def moment(at: datetime) -> str:
    """Return a time in UTC, such as `2026-11-22 14:05:09 UTC`."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def dollars(cost: float | None) -> str:
    """Return US dollars such as `$1.20` or `$0.0124`; a dash if the amount is not known."""
    return UNKNOWN if cost is None else money(cost)


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
    content = files("orchestrator.faces.web").joinpath("static", name).read_bytes()
    return f"/static/{name}?{sha256(content).hexdigest()[:16]}"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Properties that all pages have: how links work, and whether there are actions."""

    is_static: bool = False
    """Whether the pages are files of an export."""
    read_only: bool = False
    """Whether pages have no actions, such as stop or merge."""
    token: str = ""
    """Token that browsers must send with forms; see `orchestrator.faces.web.access_control`."""
    once: str = ""
    """Ticket that browsers must send to start a command; see `orchestrator.faces.web.commands`."""

    def href(self, *parts: object) -> str:
        """Return the address of a page from repository, run, worker and tab."""
        return file_of(*parts) if self.is_static else path_of(*parts)

    def static(self, name: str) -> str:
        """Return the address of a style sheet, script or icon."""
        return name if self.is_static else static_path(name)

    def for_forms(self, token: str, once: str) -> "Site":
        """Return a copy of the site for one page of a browser session, with what its forms send."""
        return replace(self, token=token, once=once)


@dataclass(frozen=True)
class Page:
    """A rendered page."""

    html: str
    version: str = ""
    """Text that changes whenever the page changes; empty for a page that is not refreshed."""
    status: int = 200


@cache
def _environment() -> Environment:
    # protection: templates-escape-text
    return Environment(
        loader=PackageLoader("orchestrator.faces.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(
    template: str,
    site: Site,
    values: Mapping[str, object],
    *,
    version: str = "",
    live: bool = False,
) -> Page:
    """Render a template as an HTML page.

    Args:
        template: Name of the template.
        site: The properties that all pages have.
        values: Variables of the template; all text is escaped.
        version: Text that changes whenever the page changes.
        live: Whether the page refreshes itself.
    """
    at = now()
    html = (
        _environment()
        .get_template(template)
        .render(
            {
                "attention": 0,
                "site": site,
                "now": at,
                "now_text": moment(at),
                "version": version,
                "live": live,
                **values,
            }
        )
    )
    return Page(html, version)


def message_page(site: Site, heading: str, *lines: str, status: int = 200) -> Page:
    """Return a page that shows only a message."""
    page = render("message.html", site, {"heading": heading, "lines": lines})
    return replace(page, status=status)


def template_text(name: str) -> str:
    """Return the HTML text of a template that has no variables."""
    return _environment().get_template(name).render()

"""Render templates: on a server, and for an export."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from orchestrator.web.formats import moment, now
from orchestrator.web.places import file_of, path_of, static_path


@dataclass(frozen=True, kw_only=True)
class Shell:
    """The frame of every page: how its links work, and whether it has actions."""

    is_static: bool = False
    """Whether the pages are files of an export."""
    read_only: bool = False
    """Whether pages have no actions."""
    token: str = ""
    """Token that forms must return; see `orchestrator.web.door`."""

    def href(self, *parts: object) -> str:
        """Return the address of a page."""
        return file_of(*parts) if self.is_static else path_of(*parts)

    def static(self, name: str) -> str:
        """Return the address of a file of the package."""
        return name if self.is_static else static_path(name)

    def with_token(self, token: str) -> "Shell":
        """Return the shell of a browser's pages."""
        return replace(self, token=token)


@dataclass(frozen=True)
class Page:
    """A rendered page."""

    html: str
    version: str = ""
    """Changes whenever the page would change; empty for a page that is not refreshed."""
    status: int = 200


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("orchestrator.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(
    template: str,
    shell: Shell,
    values: Mapping[str, object],
    *,
    version: str = "",
    live: bool = False,
) -> Page:
    """Render a template.

    Args:
        template: Name of the template.
        shell: The frame of the page.
        values: Variables of the template; all text is escaped.
        version: Changes whenever the page would change.
        live: Whether the page refreshes itself.
    """
    at = now()
    html = (
        _environment()
        .get_template(template)
        .render(shell=shell, now=at, now_text=moment(at), version=version, live=live, **values)
    )
    return Page(html, version)


def message_page(shell: Shell, heading: str, *lines: str, status: int = 200) -> Page:
    """Return a page with a message."""
    page = render("message.html", shell, {"heading": heading, "lines": lines})
    return replace(page, status=status)


def template_text(name: str) -> str:
    """Return a template that has no variables."""
    return _environment().get_template(name).render()

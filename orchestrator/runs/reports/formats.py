"""The formats of reports, and the files that they are written to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.output import check_output, write_output
from orchestrator.base.text.sanitize import one_line
from orchestrator.runs.reports.model import RunReport


@dataclass(frozen=True)
class Format:
    """A format in which a report can be written."""

    suffixes: tuple[str, ...]
    """File name suffixes that select the format if the user names only a file."""
    renderer: str
    """Function that renders the report, as `module:function`."""

    def render(self, report: RunReport) -> str:
        """Return the report in this format."""
        module, _, name = self.renderer.partition(":")
        found = getattr(import_module(f"orchestrator.runs.reports.{module}"), name)
        return cast(Callable[[RunReport], str], found)(report)


FORMATS: Mapping[str, Format] = {
    "junit": Format((".xml",), "junit:render"),
    "markdown": Format((".md",), "markdown:render"),
    "codequality": Format((), "gitlab:render_code_quality"),
    "dotenv": Format((".env",), "gitlab:render_dotenv"),
    "html": Format((".html", ".htm"), "html:render"),
    "sarif": Format((".sarif",), "sarif:render"),
    "otlp": Format((".otlp.jsonl",), "otlp:render"),
    "prometheus": Format((".prom",), "prometheus:render"),
    "json": Format((".json",), "as_json:render"),
}
"""The formats that are written to files, by name."""
SYSTEMS = ("github", "gitlab", "otlp-http")
"""Formats without a file: they are written to the log of a CI job, or sent to a trace collector."""


@dataclass(frozen=True)
class Target:
    """A report that the user asked for: its format and its file."""

    format: str
    path: Path | None = None
    """The file; None for a format that has no file, and for stdout."""

    def write(self, report: RunReport, *, top: Path | None = None) -> None:
        """Render a run and write the report to its file, either as a whole or not at all.

        Args:
            report: The report.
            top: Top directory of the repository, in which no link is followed.

        Raises:
            OSError: The file cannot be written.
        """
        if self.path is None:
            raise ValueError("a report that goes to a CI system's log has no file")
        text = FORMATS[self.format].render(report)
        write_output(self.path, text.encode("utf-8", "replace"), top=top)


def parse_target(text: str) -> Target:
    """Parse `FORMAT=FILE`, `FORMAT`, or `FILE` with the suffix of a format.

    Raises:
        ConfigError: The format does not exist, or the file cannot be written.
    """
    name, separator, file = text.partition("=")
    if (name in SYSTEMS or name in FORMATS) and not separator:
        return Target(name)
    if name in FORMATS and file:
        return Target(name, _check_path(file))
    for known, form in FORMATS.items() if not separator else ():
        if form.suffixes and name.endswith(form.suffixes):
            return Target(known, _check_path(name))
    suffixes = ", ".join(f"`{end}`" for form in FORMATS.values() for end in form.suffixes)
    raise ConfigError(
        f"option `--report` is `{one_line(text)}`: must be FORMAT=FILE, with one of the formats "
        f"{', '.join(FORMATS)}; or one of {', '.join(SYSTEMS)}",
        key="option.invalid",
        hint=f"the format may be left out if the file ends in {suffixes}",
    )


def _check_path(file: str) -> Path:
    try:
        check_output(Path(file))
    except OSError as error:
        raise ConfigError(
            f"the file `{one_line(file)}` of option `--report` cannot be written: {error.strerror}",
            key="report.unwritable",
        ) from error
    return Path(file)

"""Escape text for XML and HTML documents, which a CI job may also print to its log."""

import re
from html import escape as escape_html

from orchestrator.base.text.sanitize import lines

_FORBIDDEN = re.compile("[\ufffe\uffff]")
"""Characters that XML 1.0 forbids and that `base.text.sanitize.lines` does not replace."""
_COMMAND = re.compile(r"[#:](?=[#:])|(?<![^\s])[-+~^](?=[-+~^])")
"""Pattern of texts that a CI system takes for a command if a job's log shows the document: see
`cli.output.ci`.
"""


def escape(text: str) -> str:
    """Return text escaped for the content of an XML or HTML element, or of a quoted attribute.

    Control and invisible characters become U+FFFD.
    """
    # `>` is escaped too, so that no `]]>` remains.
    # protection: xml-and-html-are-escaped
    # protection: characters-that-xml-forbids-are-replaced
    clean = escape_html(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", lines(text)))
    # protection: no-ci-commands-in-xml-and-html
    return _COMMAND.sub(lambda match: f"&#{ord(match[0])};", clean)

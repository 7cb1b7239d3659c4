"""Escape text for XML and HTML documents, which a CI system may also print to its log."""

import re
from html import escape

from orchestrator.text.sanitize import lines

_FORBIDDEN = re.compile("[\ufffe\uffff]")
"""Characters that XML 1.0 forbids and that `orchestrator.text.sanitize.lines` does not replace."""
_COMMAND = re.compile(r"[#:](?=[#:])|(?<![^\s])[-+~^](?=[-+~^])")
"""Pattern of the places where a CI system would find a command if the document is printed: see
`cli.output.ci`."""


def escaped(text: str) -> str:
    """Return text as the content of an element or of an attribute in quotation marks.

    Control and invisible characters become U+FFFD.
    """
    # `>` is escaped too, so that no `]]>` remains.
    clean = escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", lines(text)))
    return _COMMAND.sub(lambda match: f"&#{ord(match[0])};", clean)

"""Print the output of a container as it comes."""

import codecs
import os
from typing import TextIO

from orchestrator.base.text.sanitize import begun_sequence, output_lines
from orchestrator.faces.cli.output.ci import is_job_log
from orchestrator.faces.cli.output.messages import put

_LONGEST_LINE = 64 * 1024
"""Maximum number of characters of a line that is printed in a CI job; longer lines are split."""


class Sink:
    """Writes a container's output: unchanged to a file, made harmless for a terminal or CI job."""

    def __init__(self, out: TextIO) -> None:
        """Prepare to write to a stream of this process."""
        self._out = out
        self._in_ci = is_job_log(out, os.environ)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def write(self, data: bytes) -> None:
        """Print a piece of the output."""
        # protection: output-of-exec-is-cleaned-in-job
        if self._in_ci:
            # Only complete lines: a control sequence may be split between two chunks.
            text = self._held + self._decoder.decode(data)
            # protection: ci-commands-in-several-chunks-are-broken-up
            end = text.rfind("\n") + 1 or (len(text) if len(text) > _LONGEST_LINE else 0)
            self._held = text[end:]
            if end:
                put(output_lines(text[:end]).removesuffix("\n"), self._out)
        elif self._out.isatty():
            text = self._held + self._decoder.decode(data)
            # The next chunk completes a sequence that is incomplete.
            end = begun_sequence(text)
            self._held = text[end:]
            self._out.write(output_lines(text[:end]))
        else:
            self._out.buffer.write(data)
        self._out.flush()

    def finish(self) -> None:
        """Print what was kept because more could have followed."""
        rest = output_lines(self._held + self._decoder.decode(b"", final=True))
        if self._in_ci and rest:
            put(rest, self._out)
        else:
            self._out.write(rest)
        self._out.flush()

"""Collect all mistakes in a workflow file, so that they are reported together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.base.errors import mistakes
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.suggest import MOST_SUGGESTIONS, did_you_mean
from orchestrator.config.fields import place, whole_schema
from orchestrator.config.loading.validation import Part, problem_in
from orchestrator.config.node import Node

_HINT = "run `orchestrator spec schema` for the keys and their values"

M = TypeVar("M", bound=BaseModel)


class Mistakes:
    """Collects the mistakes in one workflow file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[str, int] = {}

    def meant(self, text: str, known: Sequence[str]) -> str:
        """Return a suggestion for a misspelt name; empty if there are many mistakes already."""
        # protection: few-suggestions-for-workflow
        return did_you_mean(text, known) if len(self._found) < MOST_SUGGESTIONS else ""

    def add(self, node: Node | None, message: str) -> None:
        """Record a mistake with the file and line of the node."""
        line = node.line if node is not None and node.line else 0
        self.add_line(f"{place(self._file, node)}: {message}", line)

    def add_line(self, text: str, line: int = 0) -> None:
        """Record a mistake whose text already names the place in the file."""
        self._found.setdefault(one_line(text, limit=400), line)

    def raise_any(self) -> None:
        """Raise an error with all recorded mistakes, if there are any.

        Raises:
            ConfigError: There are mistakes. The message lists them in the order of the file.
        """
        if not self._found:
            return
        lines = sorted(self._found, key=lambda text: self._found[text])
        raise mistakes(lines, _HINT, "workflow", key="workflow.invalid")

    def validate(self, model: type[M], node: Node, name: str) -> M | None:
        """Validate a part of the file; record its mistakes and return None if it is invalid.

        Args:
            model: The model of the part.
            node: The part.
            name: Name of the part in messages: `tasks[3]`; empty for the whole file.
        """
        try:
            # Strict validation of Python objects would require tuples; a file can only hold lists.
            return model.model_validate_json(json.dumps(node.plain()), strict=True)
        except ValidationError as error:
            whole = Part(name, node, whole_schema(model))
            for mistake in error.errors():
                self.add(*problem_in(mistake, whole, mistake["loc"]))
        return None

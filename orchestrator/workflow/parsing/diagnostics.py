"""Everything that is wrong with a workflow file, collected and told at once."""

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.config.document import Node
from orchestrator.config.fields import place, whole_schema
from orchestrator.config.loading import mistakes
from orchestrator.config.validation import Part, problem_in
from orchestrator.text.sanitize import one_line

_HINT = "`orchestrator spec schema` prints the keys and what they take"

M = TypeVar("M", bound=BaseModel)


class Mistakes:
    """Collects what is wrong with one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[str, int] = {}

    def add(self, node: Node | None, message: str) -> None:
        """Note a mistake and the line it is on."""
        line = node.line if node is not None and node.line else 0
        self.add_line(f"{place(self._file, node)}: {message}", line)

    def add_line(self, text: str, line: int = 0) -> None:
        """Note a mistake that names its place itself."""
        self._found.setdefault(one_line(text, limit=400), line)

    def raise_any(self) -> None:
        """End here if anything is wrong.

        Raises:
            ConfigError: Listing all of it, in the order of the file.
        """
        if not self._found:
            return
        lines = sorted(self._found, key=lambda text: self._found[text])
        raise mistakes(lines, _HINT, "workflow")

    def checked(self, model: type[M], node: Node, name: str) -> M | None:
        """Read a part of the file as what it must be; what is wrong with it is noted.

        Args:
            model: What it must be.
            node: The part.
            name: What it is called: `tasks[3]`; nothing for the whole file.
        """
        try:
            # As the settings do: strict Python mode would want tuples where a file has lists.
            return model.model_validate_json(json.dumps(node.plain()), strict=True)
        except ValidationError as error:
            whole = Part(name, node, whole_schema(model))
            for found in error.errors():
                self.add(*problem_in(found, whole, found["loc"]))
        return None

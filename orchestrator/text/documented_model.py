"""Base of models whose fields are documented by the docstrings below them."""

import ast
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler


class DocumentedModel(BaseModel):
    """Model whose JSON Schema describes each field by the docstring below the field.

    Pydantic's `use_attribute_docstrings` parses the source of every model when it is imported. This
    class parses it when a schema is made, which no command needs that runs a task or prints help.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls,
        core_schema: Any,  # noqa: ANN401  # pydantic's
        handler: GetJsonSchemaHandler,
    ) -> dict[str, Any]:
        """Return the JSON Schema of the model, with descriptions of its fields."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docstrings(cls).items():
            info = cls.model_fields.get(name)
            found = properties.get(name if info is None else info.alias or name)
            if found is not None:
                found.setdefault("description", text)
        return schema


@cache
def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a model and of its base classes, by field."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__ != BaseModel.__module__:
            found |= _docstrings(base)
    return found


def _docstrings(model: type) -> dict[str, str]:
    definition = ast.parse(dedent(getsource(model))).body[0]
    return {
        field.target.id: cleandoc(text.value.value)
        for field, text in pairwise(getattr(definition, "body", ()))
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }

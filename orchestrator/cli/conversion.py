"""Convert option values; plain text is passed on without pydantic, so commands start faster."""

from collections.abc import Iterable
from typing import Any


class PlainValues:
    """Conversion of one parameter's values that replaces the conversion by typer.

    Typer builds a pydantic adapter for every parameter of a command, even for those that are not
    given. Nearly all parameters take text, which stays as it is.
    """

    def __init__(self, parameter: Any) -> None:  # noqa: ANN401
        self._parameter = parameter

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        """Return the converted value; same interface as typer's `RuntimeParam.coerce`."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        kind = param.type_descriptor.annotation
        if kind is str and not several and isinstance(value, str):
            return value
        if kind == list[str] and isinstance(value, (tuple, list)):
            return list(value)
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def convert_plainly(parameters: Iterable[Any]) -> None:
    """Make parameters convert their values with `PlainValues`, which is faster.

    If typer's parameters lack the private attribute `_runtime_param`, typer converts the values.
    """
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = PlainValues(parameter)

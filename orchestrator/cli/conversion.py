"""Convert option values without pydantic, where their text needs no conversion."""

from collections.abc import Iterable
from typing import Any


class PlainValues:
    """Conversion of one parameter's values, in place of typer's.

    Typer builds a pydantic adapter for every parameter of a command, even for those that are not
    given. Nearly all parameters take text, which stays as it is.
    """

    def __init__(self, parameter: Any) -> None:  # noqa: ANN401
        self._parameter = parameter

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:  # noqa: ANN401
        """Return the converted value, as `RuntimeParam.coerce` of typer does."""
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
    """Make parameters use `PlainValues`; a typer without this attribute is merely slower."""
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = PlainValues(parameter)

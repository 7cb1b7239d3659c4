"""Settings for judging and testing the work of workers."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from orchestrator.base.text.path_patterns import problem
from orchestrator.config.settings.values import Model


def _check_pattern(text: str) -> str:
    """Check a path pattern, and return it.

    Raises:
        ValueError: The pattern cannot be used.
    """
    if (found := problem(text)) is not None:
        raise ValueError(found)
    return text


Pattern = Annotated[str, AfterValidator(_check_pattern)]
Tests = Literal["frozen", "extend", "free"]
"""Which tests count: only the base commit's (`frozen`), also a candidate's new tests (`extend`),
or a candidate's own versions of all tests (`free`).
"""


class Judging(Model):
    """Settings for how commits of workers are judged, in the block `judge:` of a file."""

    instruments: tuple[Pattern, ...] = ()
    """Files besides tests that decide what checks do, such as `ci/*.sh`, as patterns of
    `.gitignore`. `eval`, `judge` and `parallel --pick` use the base commit's versions of these
    files; `merge --queue` uses those of the target branch."""

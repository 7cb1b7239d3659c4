"""Engines that find out by themselves whether they can be used."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol, runtime_checkable


class Finding(NamedTuple):
    """What an engine found out about itself."""

    name: str
    state: Literal["ok", "warn", "fail", "unknown"]
    detail: str
    hint: str | None = None
    exit_code: int = 0
    enforced: bool | None = None
    """Whether the limit `network` is enforced; None if the finding is about something else."""


@runtime_checkable
class DiagnosingEngine(Protocol):
    """An engine whose tests are not those of containers."""

    def diagnose(self, repository: str, images: tuple[str, ...]) -> Iterator[Finding]:
        """Yield what was found out.

        Args:
            repository: The repository's git common directory, or another directory, for labels.
            images: The images that a run may use.

        Raises:
            EngineError: The engine does not answer.
        """

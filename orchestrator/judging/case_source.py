"""A file with tests, some of which can be replaced by tests with a changed expectation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class CaseName:
    """The name of a test, as a test runner reports it."""

    name: str
    owner: str | None = None
    """The class of the test."""


class CaseSource(ABC):
    """A file with tests."""

    names: tuple[CaseName, ...] = ()
    """The tests that can be changed."""
    others: tuple[CaseName, ...] = ()
    """All tests of the file, those of `names` included."""

    @abstractmethod
    def with_mutants(self, chosen: Sequence[int], chance: Random) -> bytes:
        """Return the file, in which the chosen tests have a changed expectation.

        Args:
            chosen: Indexes of tests in `names`.
            chance: Decides which expectation changes, and how.
        """

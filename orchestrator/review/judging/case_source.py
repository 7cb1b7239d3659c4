"""A file with tests, which can be replaced by tests with a changed expectation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from random import Random

ChanceOf = Callable[[int], Random]
"""Function that returns the source of random decisions about a test, by its index."""


class Strength(IntEnum):
    """What it proves if a changed test is reported as failed."""

    NONE = 0
    """The test cannot be changed."""
    ADDED = 1
    """An expectation was added: the test runs, and its failures are reported."""
    OWN = 2
    """A value of the test was changed, of which its result probably depends."""
    SURE = 3
    """An expectation was changed that is always checked: no right program passes."""


@dataclass(frozen=True)
class CaseName:
    """The name of a test, as a test runner reports it."""

    name: str
    owner: str | None = None
    """The class of the test."""


class CaseSource(ABC):
    """A file with tests."""

    names: tuple[CaseName, ...] = ()
    """All tests of the file."""

    @abstractmethod
    def strengths(self) -> tuple[Strength, ...]:
        """Return, for each test, what its mutant proves; call it when all files were read."""

    @abstractmethod
    def with_mutants(
        self, chosen: Mapping[int, Strength], added: frozenset[int], chance_of: ChanceOf
    ) -> bytes:
        """Return the file, in which the chosen tests have a changed expectation.

        The file is never the same as the original, even if nothing is chosen.

        Args:
            chosen: Indexes of tests in `names`, each with the strength of its mutant.
            added: Indexes of tests that get an expectation which holds, so that they look like
                those with one that does not.
            chance_of: Decides which expectation changes, and how.
        """

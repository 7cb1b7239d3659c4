"""What was found in a project. All of it comes from the repository: text of strangers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line that suits the project."""

    line: str
    needs: str
    """The program without which it cannot work."""
    source: str
    """The file that says so."""
    leaves: str | None = None
    """A directory that it fills, and that nobody wants committed."""


@dataclass(frozen=True, kw_only=True)
class FoundService:
    """A service of a compose file that a worker could have one of its own of."""

    name: str
    values: Mapping[str, object]
    """As `services.NAME` takes them."""
    left_out: tuple[str, ...]
    """Keys that are not carried over."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What one directory is worked on with."""

    name: str
    """`npm`, `uv`."""
    language: str
    source: str
    setup: Command | None = None
    checks: tuple[Command, ...] = ()
    of_members: bool = False
    """Whether they are for what lies below as well."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a project is made of."""

    tools: tuple[Tools, ...] = ()
    make_test: Command | None = None
    """The project's own word for its tests."""
    members: tuple[str, ...] = ()
    """Packages of a monorepo."""
    compose_file: str | None = None
    services: tuple[FoundService, ...] = ()
    other_services: Mapping[str, str] = field(default_factory=dict)
    """Those that are not carried over, and why."""
    to_remove: tuple[str, ...] = ()
    """Directories that setup fills and git would not ignore: they would be committed."""
    env_examples: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    """Descriptions of images: Dockerfiles and dev containers."""
    unreadable: tuple[str, ...] = ()
    """What is wrong with files that could not be read."""

    @property
    def setup(self) -> tuple[Command, ...]:
        """What makes a fresh worktree ready."""
        return tuple(tools.setup for tools in self.tools if tools.setup is not None)

    @property
    def checks(self) -> tuple[Command, ...]:
        """What says whether it works."""
        if self.make_test is not None:
            return (self.make_test,)
        return tuple(check for tools in self.tools for check in tools.checks)

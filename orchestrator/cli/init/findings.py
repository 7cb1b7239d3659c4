"""The facts about a project that `orchestrator init` detects. All texts are untrusted."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that sets up or tests the project."""

    line: str
    needs: str
    """Program that must be installed for the command to work."""
    source: str
    """File from which the command was derived."""
    leaves: str | None = None
    """Directory that the command creates and that should not be committed."""


@dataclass(frozen=True, kw_only=True)
class FoundService:
    """A service of a compose file that each worker can run itself."""

    name: str
    values: Mapping[str, object]
    """Values for `services.NAME` in the configuration."""
    left_out: tuple[str, ...]
    """Keys that were not converted."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The setup and test commands for one directory and language."""

    name: str
    """Name of the tool, such as `npm` or `uv`."""
    language: str
    source: str
    setup: Command | None = None
    checks: tuple[Command, ...] = ()
    of_members: bool = False
    """Whether the commands also set up and test the directories below this directory."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that was detected in a project."""

    tools: tuple[Tools, ...] = ()
    make_test: Command | None = None
    """A `make` target that runs the project's tests."""
    members: tuple[str, ...] = ()
    """Directories of the packages in a monorepo."""
    compose_file: str | None = None
    services: tuple[FoundService, ...] = ()
    other_services: Mapping[str, str] = field(default_factory=dict)
    """Names of the services that cannot be converted, with the reasons."""
    to_remove: tuple[str, ...] = ()
    """Directories that setup creates and git does not ignore: they would be committed."""
    env_examples: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    """Dockerfiles and dev container files from which `image build --from` can build an image."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Names of such files that cannot be used, with the reasons."""
    unreadable: tuple[str, ...] = ()
    """Problems with files that could not be read."""

    @property
    def setup(self) -> tuple[Command, ...]:
        """Return the commands that prepare a fresh worktree."""
        return tuple(tools.setup for tools in self.tools if tools.setup is not None)

    @property
    def checks(self) -> tuple[Command, ...]:
        """Return the commands that test the project; if `make_test` works, it replaces others."""
        whole = () if self.make_test is None else (self.make_test,)
        return (*whole, *(check for tools in self.tools for check in tools.checks))

"""Detect how a project is set up and tested, and which services it uses."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine.images.project import read_project
from orchestrator.faces.cli.init.compose import COMPOSE_FILES, FoundService, services_of
from orchestrator.faces.cli.init.languages import LOCKS, Command, Tools, detect
from orchestrator.faces.cli.init.project_tree import Tree, parent

_MANIFESTS = (
    *("pyproject.toml", "requirements.txt", "Pipfile", "setup.py", "package.json", "go.mod"),
    *("Cargo.toml", "Gemfile", "pom.xml", "build.gradle", "build.gradle.kts", "go.work"),
)
_MOST = 12
"""Maximum number of a monorepo's packages that are examined."""
_IMAGES = ("Dockerfile", "devcontainer.json", ".devcontainer.json")
_DEEPEST_IMAGE = 2
"""Maximum number of directories above a file that describes the project's image."""
_OF_TESTS = frozenset(
    {"test", "tests", "testing", "spec", "resources", "docs", "benchmarks", "fuzz"}
)
"""Directories whose Dockerfiles are not for working on the project."""
_FROM = re.compile(r"^\s*FROM\s+\S", re.IGNORECASE | re.MULTILINE)
_ENV_EXAMPLES = (".env.example", ".env.sample", ".env.template", ".env.dist", "env.example")
_RULE = re.compile(r"^([^\s#:=][^#:=]*)::?(?![:=])", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that was detected in a project. All texts are untrusted."""

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


def look_at(tree: Tree) -> Findings:
    """Return everything that was detected in a project."""
    places = dict.fromkeys(map(parent, tree.find(*_MANIFESTS)))
    members = tuple(place for place in places if place != ".")
    compose_file = tree.first(*COMPOSE_FILES)
    services, others = services_of(tree, compose_file) if compose_file else ((), {})
    tools = tuple(_tools(tree, members))
    images, unusable = _images(tree)
    made = [tool.setup.leaves for tool in tools if tool.setup and tool.setup.leaves]
    return Findings(
        tools=tools,
        to_remove=tuple(name for name in made if not tree.ignores(name)),
        make_test=_make_test(tree),
        members=members,
        compose_file=compose_file,
        services=services,
        other_services=others,
        env_examples=tuple(tree.find(*_ENV_EXAMPLES)),
        containers=images,
        unusable=unusable,
        unreadable=tuple(dict.fromkeys(tree.problems)),
    )


def _tools(tree: Tree, members: tuple[str, ...]) -> Iterator[Tools]:
    """Yield setup and test commands of the top, then of packages that no parent covers."""
    covered: set[tuple[str, str]] = set()
    for place in (".", *members[:_MOST]):
        above = (".", *(str(path) for path in PurePosixPath(place).parents))
        for tools in detect(tree, place):
            stands_alone = PurePosixPath(tools.source).name in LOCKS
            if stands_alone or not covered.intersection((up, tools.language) for up in above):
                yield tools
            if tools.of_members:
                covered.add((place, tools.language))


def _images(tree: Tree) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the files from which an image can be built, and why others cannot be used."""
    images, unusable = [], {}
    for name in tree.find(*_IMAGES):
        above = PurePosixPath(name).parts[:-1]
        if len(above) > _DEEPEST_IMAGE or _OF_TESTS.intersection(above):
            continue
        if name.endswith("Dockerfile"):
            if _FROM.search(tree.text(name)):
                images.append(name)
            continue
        try:
            read_project(tree.path(name))
        except OrchestratorError as error:
            unusable[name] = error.message.removeprefix(f"{tree.path(name)}: ")
        else:
            images.append(name)
    return tuple(images), unusable


def _make_test(tree: Tree) -> Command | None:
    for name in ("GNUmakefile", "makefile", "Makefile"):
        text = tree.text(name).replace("\\\n", " ")
        targets = {target for rule in _RULE.finditer(text) for target in rule[1].split()}
        for target in ("test", "check"):
            if target in targets:
                return Command(f"make {target}", "make", name)
    return None

"""Detect how a project is set up and tested, and which services it uses."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.cli.init.compose import COMPOSE_FILES, services_of
from orchestrator.cli.init.findings import Command, Findings, Tools
from orchestrator.cli.init.languages import LOCKS, detect
from orchestrator.cli.init.project_tree import Tree, parent
from orchestrator.engine.images.project import read_project
from orchestrator.errors import OrchestratorError

_MANIFESTS = (
    *("pyproject.toml", "requirements.txt", "Pipfile", "setup.py", "package.json", "go.mod"),
    *("Cargo.toml", "Gemfile", "pom.xml", "build.gradle", "build.gradle.kts"),
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
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_RULE = re.compile(r"^([^\s#:=][^#:=]*)::?(?![:=])", re.MULTILINE)
_TEST_TARGETS = ("test", "check")


def look_at(tree: Tree) -> Findings:
    """Return everything that was detected in a project."""
    places = [parent(name) for name in tree.find(*_MANIFESTS, "go.work")]
    members = tuple(place for place in dict.fromkeys(places) if place != ".")
    compose_file = next((name for name in COMPOSE_FILES if name in tree), None)
    services, others = services_of(tree, compose_file) if compose_file else ((), {})
    tools = tuple(_tools(tree, members))
    images, unusable = _images(tree)
    filled = [tool.setup.leaves for tool in tools if tool.setup and tool.setup.leaves]
    return Findings(
        tools=tools,
        to_remove=tuple(name for name in filled if not tree.ignores(name)),
        make_test=_make_test(tree),
        members=members,
        compose_file=compose_file,
        services=services,
        other_services=others,
        env_examples=tuple(tree.find(*_ENV_EXAMPLES)),
        containers=images,
        unusable=unusable,
        unreadable=tuple(tree.problems),
    )


def _tools(tree: Tree, members: tuple[str, ...]) -> Iterator[Tools]:
    """Yield setup and test commands of the top, then of packages that no parent covers."""
    covered: set[tuple[str, str]] = set()
    for place in (".", *members[:_MOST]):
        above = (".", *(str(path) for path in PurePosixPath(place).parents))
        for tools in detect(tree, place):
            stands_alone = tools.source.rpartition("/")[2] in LOCKS
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
    for name in _MAKEFILES:
        text = tree.text(name).replace("\\\n", " ")
        targets = {target for rule in _RULE.finditer(text) for target in rule[1].split()}
        found = next((target for target in _TEST_TARGETS if target in targets), None)
        if found is not None:
            return Command(line=f"make {found}", needs="make", source=name)
    return None

"""Detect how a project is set up and tested, and which services it uses."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.cli.init.compose import COMPOSE_FILES, services_of
from orchestrator.cli.init.findings import Command, Findings, Tools
from orchestrator.cli.init.languages import LOCKS, detect
from orchestrator.cli.init.project_tree import Tree, parent

_MANIFESTS = (
    *("pyproject.toml", "requirements.txt", "Pipfile", "setup.py", "package.json", "go.mod"),
    *("Cargo.toml", "Gemfile", "pom.xml", "build.gradle", "build.gradle.kts"),
)
_MOST = 12
"""Maximum number of a monorepo's packages that are examined."""
_IMAGES = ("Dockerfile", "devcontainer.json", ".devcontainer.json")
_ENV_EXAMPLES = (".env.example", ".env.sample", ".env.template", ".env.dist", "env.example")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_TEST_TARGET = re.compile(r"^(?:test|check)\s*:(?!=)", re.MULTILINE)


def look_at(tree: Tree) -> Findings:
    """Return everything that was detected in a project."""
    places = [parent(name) for name in tree.named(*_MANIFESTS, "go.work")]
    members = tuple(place for place in dict.fromkeys(places) if place != ".")
    compose_file = next((name for name in COMPOSE_FILES if name in tree), None)
    services, others = services_of(tree, compose_file) if compose_file else ((), {})
    tools = tuple(_tools(tree, members))
    filled = [tool.setup.leaves for tool in tools if tool.setup and tool.setup.leaves]
    return Findings(
        tools=tools,
        to_remove=tuple(name for name in filled if not tree.ignores(name)),
        make_test=_make_test(tree),
        members=members,
        compose_file=compose_file,
        services=services,
        other_services=others,
        env_examples=tuple(tree.named(*_ENV_EXAMPLES)),
        containers=tuple(tree.named(*_IMAGES)),
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


def _make_test(tree: Tree) -> Command | None:
    for name in _MAKEFILES:
        match = _TEST_TARGET.search(tree.text(name))
        if match is not None:
            target = match[0].partition(":")[0].strip()
            return Command(line=f"make {target}", needs="make", source=name)
    return None

"""Tests of the detection of tools, commands and services from a project's files."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from orchestrator.config.loading.document import read_document
from orchestrator.config.loading.loading import check_file
from orchestrator.faces.cli.init.project_tree import Tree
from orchestrator.faces.cli.init.render import Choice, comment, render, scalar
from orchestrator.faces.cli.init.scan import Findings, look_at

TESTED = '{"scripts": {"test": "vitest"}}'
INSTALLED = '{"scripts": {"test": "vitest"}, "devDependencies": {"vitest": "3"}}'
NO_TEST = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
PYTEST = '[project]\nname = "x"\n[tool.pytest.ini_options]\n'


def look(top: Path, files: dict[str, str], ignores=lambda _: True) -> Findings:
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return look_at(Tree(top, files, ignores))


def read(text: str) -> dict[str, object]:
    return yaml.safe_load(text)


def lines(commands) -> list[str]:
    return [command.line for command in commands]


@pytest.mark.parametrize(
    ("files", "name", "setup", "checks"),
    [
        ({"uv.lock": "", "pyproject.toml": PYTEST}, "uv", ["uv sync --frozen"],
         ["uv run --no-sync pytest"]),
        ({"poetry.lock": "", "pyproject.toml": PYTEST}, "poetry",
         ["POETRY_VIRTUALENVS_IN_PROJECT=1 poetry install --no-interaction"],
         ["poetry run pytest"]),
        ({"Pipfile.lock": "{}", "Pipfile": "[dev-packages]\npytest = '*'\n"}, "pipenv",
         ["PIPENV_VENV_IN_PROJECT=1 pipenv sync --dev"], ["pipenv run pytest"]),
        ({"requirements.txt": "flask\n", "requirements-dev.txt": "pytest>=8\n"}, "pip",
         ["python3 -m venv .venv && .venv/bin/pip install -r requirements.txt "
          "-r requirements-dev.txt"], [".venv/bin/pytest"]),
        ({"pyproject.toml": "[project]\nname = 'x'\noptional-dependencies.dev = ['pytest']\n"},
         "pip", ["python3 -m venv .venv && .venv/bin/pip install -e '.[dev]'"],
         [".venv/bin/pytest"]),
        ({"pyproject.toml": "[tool.ruff]\n", "tests/__init__.py": "",
          "tests/test_a.py": "import unittest\n"},
         "Python", [], ["python3 -m unittest discover -s tests -t ."]),
        ({"package-lock.json": "{}", "package.json": TESTED}, "npm", ["npm ci"], ["npm test"]),
        ({"package-lock.json": "{}", "package.json": NO_TEST}, "npm", ["npm ci"], []),
        ({"package.json": TESTED}, "npm", [], ["npm test"]),
        ({"package.json": '{"devDependencies": {"a": "1"}}'}, "npm", ["npm install"], []),
        ({"package.json": '{"packageManager": "pnpm@9.1.0", "dependencies": {"a": "1"}}'}, "pnpm",
         ["pnpm install"], []),
        ({"pnpm-lock.yaml": "", "package.json": TESTED}, "pnpm",
         ["pnpm install --frozen-lockfile"], ["pnpm test"]),
        ({"yarn.lock": "# yarn lockfile v1\n", "package.json": TESTED}, "yarn",
         ["yarn install --frozen-lockfile"], ["yarn test"]),
        ({"yarn.lock": "__metadata:\n  version: 8\n", "package.json": TESTED}, "yarn",
         ["YARN_ENABLE_GLOBAL_CACHE=false yarn install --immutable"], ["yarn test"]),
        ({"bun.lock": "{}", "package.json": TESTED}, "bun", ["bun install --frozen-lockfile"],
         ["bun run test"]),
        ({"go.mod": "module x\n"}, "Go", [], ["go test ./..."]),
        ({"Cargo.toml": "[package]\n", "Cargo.lock": ""}, "Cargo", [], ["cargo test --locked"]),
        ({"Gemfile.lock": "", "Gemfile": "", "spec/spec_helper.rb": ""}, "Bundler",
         ["bundle config set --local path vendor/bundle && bundle install"],
         ["bundle exec rspec"]),
        ({"pom.xml": "<project/>"}, "Maven", [], ["mvn --batch-mode test"]),
        ({"tox.ini": "[tox]\n", "setup.py": ""}, "pip",
         ["python3 -m venv .venv && .venv/bin/pip install -e ."], ["tox run"]),
        ({"tests/http/test_a.py": "import pytest\n", "tests/unit1.c": ""}, "Python", [],
         ["python3 -m pytest tests/http"]),
        ({"test/a_test.py": "from unittest import TestCase\n"}, "Python", [],
         ["python3 -m unittest discover -s test -p '*_test.py'"]),
        ({"tests/test_a.py": "def test_a(): pass\n"}, "Python", [],
         ["python3 -m pytest tests"]),
        ({"CMakeLists.txt": "project(x)\nenable_testing()\n"}, "CMake", [],
         ["cmake -S . -B .build && cmake --build .build && "
          "ctest --test-dir .build --output-on-failure"]),
        ({"build/cmake/CMakeLists.txt": "INCLUDE(CTest)\n"}, "CMake", [],
         ["cmake -S build/cmake -B .build && cmake --build .build && "
          "ctest --test-dir .build --output-on-failure"]),
        ({"CMakeLists.txt": "project(x)\n"}, "CMake", [], []),
        ({"meson.build": ""}, "Meson", [], ["meson setup .build && meson test -C .build"]),
        ({"configure.ac": ""}, "autotools", [],
         ["autoreconf --install && ./configure && make check"]),
        ({"Rakefile": "Rake::TestTask.new"}, "Rake", [], ["rake test"]),
        ({"tests/a.bats": ""}, "Bats", [], ["bats tests"]),
        ({"t/a.t": ""}, "Perl", [], ["prove -lr t"]),
        ({"build.gradle.kts": "", "gradlew": ""}, "Gradle", [], ["./gradlew --console=plain test"]),
    ],
)  # fmt: skip
def test_tools_are_detected_from_files(tmp_path, files, name, setup, checks):
    found = look(tmp_path, files)
    assert [tools.name for tools in found.tools] == [name]
    assert lines(found.setup) == setup
    assert lines(found.checks) == checks


def test_project_without_tools_has_no_findings(tmp_path):
    assert look(tmp_path, {"README.md": "hello"}) == Findings()


def test_make_target_replaces_other_test_commands(tmp_path):
    found = look(tmp_path, {"go.mod": "module x\n", "Makefile": "all: test\n\ntest: all\n\tgo\n"})
    assert lines(found.checks) == ["make test", "go test ./..."]
    assert read(render(found, TestWritten.ALL))["checks"] == ["make test"]


@pytest.mark.parametrize(
    ("makefile", "found"),
    [
        ("test := x\n", []),
        ("# test: x\n", []),
        (".PHONY: test\n", []),
        ("all:\n\ttest: x\n", []),
        ("check:\n\ntest:\n", ["make test"]),
        ("check::\n", ["make check"]),
        ("scripttests test check: all\n", ["make test"]),
        ("all \\\n  test: x\n", ["make test"]),
    ],
)
def test_make_targets(tmp_path, makefile, found):
    assert lines(look(tmp_path, {"Makefile": makefile}).checks) == found


def test_only_files_of_usable_images_are_offered(tmp_path):
    files = {
        "Dockerfile": "FROM debian\n",
        "api/Dockerfile": "# syntax\nfrom --platform=x debian\n",
        "empty/Dockerfile": "# nothing\n",
        "testing/resources/Dockerfile": "FROM x\n",
        "tests/Dockerfile": "FROM x\n",
        "a/b/c/Dockerfile": "FROM x\n",
        ".devcontainer/devcontainer.json": '{"name": "x"}',
        ".devcontainer/py/devcontainer.json": '{"image": "debian"}',
        ".devcontainer/web/devcontainer.json": '{"dockerComposeFile": "c.yaml"}',
    }
    found = look(tmp_path, files)
    assert found.containers == (
        "Dockerfile", "api/Dockerfile", ".devcontainer/py/devcontainer.json",
    )  # fmt: skip
    assert found.unusable == {
        ".devcontainer/devcontainer.json": "either `image` or `build.dockerfile` is required",
        ".devcontainer/web/devcontainer.json": "`dockerComposeFile` is not supported",
    }


class TestMonorepo:
    def test_workspace_is_set_up_from_the_top_directory(self, tmp_path):
        files = {
            "package.json": '{"workspaces": ["packages/*"]}', "package-lock.json": "{}",
            "packages/a/package.json": TESTED, "packages/b/package.json": "{}",
        }  # fmt: skip
        found = look(tmp_path, files)
        assert lines(found.setup) == ["npm ci"]
        assert lines(found.checks) == ["npm test --workspaces --if-present"]
        assert found.members == ("packages/a", "packages/b")

    def test_directories_with_their_own_lock_file_are_set_up_there(self, tmp_path):
        files = {
            "package.json": "{}", "package-lock.json": "{}",
            "web app/package.json": TESTED, "web app/yarn.lock": "",
            "api/pyproject.toml": PYTEST, "api/uv.lock": "",
            "node_modules/x/package.json": TESTED, "vendor/y/go.mod": "module y\n",
            "a/b/c/d/go.mod": "module z\n",
        }  # fmt: skip
        found = look(tmp_path, files)
        assert lines(found.setup) == [
            "npm ci",
            "cd api && uv sync --frozen",
            "cd 'web app' && yarn install --frozen-lockfile",
        ]
        assert lines(found.checks) == [
            "cd api && uv run --no-sync pytest",
            "cd 'web app' && yarn test",
        ]

    def test_workspaces_of_go_uv_and_cargo_are_detected(self, tmp_path):
        files = {
            "go.work": "go 1.22\n\nuse (\n\t./a\n\t./b\n)\nuse ./c\n",
            "a/go.mod": "module a\n", "b/go.mod": "module b\n", "c/go.mod": "module c\n",
            "uv.lock": "", "pyproject.toml": "[tool.uv.workspace]\nmembers = ['p']\n",
            "p/pyproject.toml": "[project]\n",
            "Cargo.toml": "[workspace]\nmembers = ['r']\n", "r/Cargo.toml": "[package]\n",
        }  # fmt: skip
        found = look(tmp_path, files)
        assert lines(found.setup) == ["uv sync --frozen --all-packages"]
        assert "go test ./a/... ./b/... ./c/..." in lines(found.checks)
        assert "cargo test --workspace" in lines(found.checks)


COMPOSE = """\
services:
  db:
    image: "postgres:${PG_VERSION:-16}"
    restart: always
    privileged: true
    volumes: ["/:/host"]
    environment:
      POSTGRES_PASSWORD: not$$secret
      POSTGRES_DB: ${DB}
      PGPORT: 5432
    ports: ["127.0.0.1:15432:5432/tcp"]
    healthcheck:
      test: ["CMD-SHELL", "pg_isready -U postgres"]
  cache:
    image: redis:7
    command: redis-server
    environment: [A=b, HOST]
    expose: ["6379"]
    healthcheck: {test: [CMD, redis-cli, "a b"]}
  mail: {image: "mail:${TAG}"}
  web: {build: ., image: web}
  other: {image: postgres, ports: [{target: 5432, published: 1}]}
  Bad_Name: {image: x}
"""


class TestCompose:
    def test_services_that_can_be_converted(self, tmp_path):
        found = look(tmp_path, {"docker-compose.yml": COMPOSE})
        db, cache = found.services
        assert (db.name, db.values) == ("db", {
            "image": "postgres:16", "port": 5432, "health": "pg_isready -U postgres",
            "env": {"POSTGRES_PASSWORD": "not$secret", "PGPORT": "5432"},
        })  # fmt: skip
        assert db.left_out == ("privileged", "volumes", "POSTGRES_DB")
        assert cache.values == {
            "image": "redis:7", "port": 6379, "env": {"A": "b"}, "health": "redis-cli 'a b'",
        }  # fmt: skip
        assert cache.left_out == ("command", "HOST")

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("plain", "plain"), ("a$$b", "a$b"), ("$${X}", "${X}"), ("a$$$$b", "a$$b"),
            ("$X", None), ("x${X}y", None), ("${X:-d}", "d"), ("${X-d}", "d"), ("${X:-}", ""),
            ("${X:-a-b:c}", "a-b:c"), ("${X:?set it}", None), ("${X?set it}", None),
            ("${X:?}", None), ("${X:+other}", ""), ("${X+other}", ""), ("a${X+b}c", "ac"),
            ("${X:-${Y:-e}}", "e"), ("${X:-a${Y-b}c}d", "abcd"), ("${X:-${Y}}", None),
            ("${X:-${Y:?no}}", None), ("${X:+${Y:?no}}", ""), ("${X:-a$$b}", "a$b"),
            ("${X", None), ("${}", None), ("$", None), ("$1", None), ("${X!}", None),
            ("${X:-{a}}", "{a}"), ("${X:-a}${Y:-b}", "ab"), ("${X:" + "-${X:" * 15, None),
        ],
    )  # fmt: skip
    def test_every_form_of_a_variable(self, tmp_path, text, value):
        """A variable that has no default, or must be set, never becomes a literal value."""
        compose = {"services": {"db": {"image": "a", "environment": {"KEY": text}}}}
        (found,) = look(tmp_path, {"compose.yaml": json.dumps(compose)}).services
        assert found.values.get("env", {}) == ({} if value is None else {"KEY": value})
        assert found.left_out == (("KEY",) if value is None else ())

    def test_parts_that_need_other_files_or_profiles(self, tmp_path):
        compose = (
            "\ufeffx-env: &env {A: b}\n"
            "services:\n"
            "  debug: {image: a, profiles: [debug]}\n"
            "  based: {extends: {file: other.yaml, service: x}}\n"
            "  db:\n"
            "    image: a\n"
            "    environment: {<<: *env, C: d}\n"
            "    env_file: [{path: .env, required: false}]\n"
            "    secrets: [password]\n"
            "    ports: ['${PORT:-80}:${INNER:-8080}']\n"
        )
        found = look(tmp_path, {"compose.yaml": compose})
        (db,) = found.services
        assert db.values == {"image": "a", "env": {"A": "b", "C": "d"}, "port": 8080}
        assert db.left_out == ("env_file", "secrets")
        assert found.other_services == {
            "debug": "starts only if one of its profiles is asked for",
            "based": "has the image of a service that it extends",
        }

    def test_reasons_for_services_that_are_not_converted(self, tmp_path):
        found = look(tmp_path, {"compose.yaml": COMPOSE})
        assert found.other_services == {
            "mail": "its image depends on `TAG`",
            "web": "is built from the project that workers change",
            "other": "uses the same port as `db`, with which it shares a network",
            "Bad_Name": "its name is not a lowercase host name",
        }

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("a: &a [*a]\n", "compose.yaml: 1: the aliases repeat"),
            ("services: [", "compose.yaml: 1: "),
            ("[" * 50 + "]" * 50, "compose.yaml: 1: the value is nested deeper"),
            (
                "x: " + "y" * 300_000,
                "compose.yaml: the file cannot be read: the file is larger than",
            ),
        ],
    )
    def test_unusable_compose_file_is_reported(self, tmp_path, text, problem):
        found = look(tmp_path, {"compose.yaml": text})
        assert found.services == ()
        assert found.unreadable
        assert found.unreadable[0].startswith(problem)

    @pytest.mark.parametrize(
        "text", ["services: 3", "services: {db: 3}", "services: {db: {image: [x]}}", "- a",
                 "services: {db: {image: x, ports: 3, environment: 3, healthcheck: 3}}",
                 "services: {db: {image: x, ports: [99999999, x, {}], healthcheck: {test: [3]}}}"]
    )  # fmt: skip
    def test_odd_compose_files_cause_no_error(self, tmp_path, text):
        found = look(tmp_path, {"compose.yaml": text})
        assert [service.values for service in found.services] in ([], [{"image": "x"}])


class TestWritten:
    ALL = Choice(
        agent_cli="shell", image="i", own_image=False, services=False,
        programs=frozenset({"npm", "make", "python3"}),
    )  # fmt: skip

    def file(self, tmp_path, text: str) -> Path:
        path = tmp_path / "written.yaml"
        path.write_text(text)
        return path

    def test_file_without_setup_is_valid_without_naming(self, tmp_path):
        text = render(look(tmp_path, {"go.mod": ""}), self.ALL)
        assert "  # agent_cli: shell   # [named]\n" in text
        path = self.file(tmp_path, text)
        check = check_file(path)
        assert (check.problems, check.named_only) == ([], [])
        plain = read_document(path).plain()
        assert (plain["parallel_runs"], plain["setup"]) == (None, None)

    def test_written_file_is_valid(self, tmp_path):
        files = {"compose.yaml": COMPOSE, "package.json": INSTALLED, ".env.example": "",
                 "Dockerfile": "FROM x", "api/requirements.txt": ""}  # fmt: skip
        text = render(look(tmp_path, files), self.ALL)
        path = self.file(tmp_path, text)
        check = check_file(path)
        assert check.problems == []
        # A file with `setup` is only accepted with `--config`.
        assert [line.partition("`")[2] for line in check.named_only] == [
            "parallel_runs.agent_cli` is not accepted from a file that was found in the repository"
        ]
        plain = read_document(path).plain()
        assert plain["parallel_runs"] == {"agent_cli": "shell"}
        assert plain["setup"] == ["npm install"]
        assert "# needs `ensurepip`, which is missing in i" in text

    def test_services_are_written_if_requested(self, tmp_path):
        found = look(tmp_path, {"compose.yaml": COMPOSE})
        path = self.file(tmp_path, render(found, self.ALL.__class__(
            **{**vars(self.ALL), "services": True}
        )))  # fmt: skip
        check = check_file(path)
        assert check.problems == []
        assert len(check.named_only) == 2
        values = {service.name: service.values for service in found.services}
        assert read_document(path).plain()["services"] == values

    def test_commented_services_are_valid_settings(self, tmp_path):
        found = look(tmp_path, {"compose.yaml": COMPOSE})
        text = render(found, self.ALL)
        part = text[text.index("# services:") :]
        path = self.file(tmp_path, part.replace("# ", "", 1).replace("\n# ", "\n"))
        assert check_file(path).problems == []
        assert set(read_document(path).plain()["services"]) == {"db", "cache"}

    def test_unignored_directories_of_setup_are_removed_by_teardown(self, tmp_path):
        files = {"package.json": INSTALLED, "requirements.txt": ""}
        found = look(tmp_path, files, ignores=lambda _: False)
        assert found.to_remove == (".venv", "node_modules")
        path = self.file(tmp_path, render(found, self.ALL))
        assert read_document(path).plain()["teardown"] == ["rm -rf node_modules"]
        ignored = look(tmp_path, files)
        path = self.file(tmp_path, render(ignored, self.ALL))
        assert "teardown" not in read_document(path).plain()

    def test_hostile_file_names_add_no_keys(self, tmp_path):
        nasty = "a\ncontainer: {memory: 1t}\n#\"'$(x) é\u2028b"
        files = {f"{nasty}/package.json": INSTALLED, f"{nasty}/.env.example": ""}
        text = render(look(tmp_path, files), self.ALL)
        path = self.file(tmp_path, text)
        check = check_file(path)
        assert (check.problems, len(check.named_only)) == ([], 1)
        plain = read_document(path).plain()
        assert plain["container"] is None
        assert plain["setup"] == [f"cd {shlex.quote(nasty)} && npm install"]


@pytest.mark.parametrize(
    "text",
    ["a b", "a: b", "a #b", "- a", "true", "No", "1", ".5", "./x && y", "a ", "", "\u2028", "é\n",
     "\x85", "'", "a'b", "[x]", "{a: b}", "*a", "&a", "!a", "@a", "%a", "a:", ":a", "a\tb",
     "\U0001f600", "cd 'a b' && x", "x | y; z $(w)", "~", "null", "=", "a, b"],
)  # fmt: skip
def test_scalar_is_read_back_unchanged(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(f"a:\n  - {scalar(text)}\nb: {scalar(text)}\n# {comment(text)}\n")
    assert read_document(path).plain() == {"a": [text], "b": text}


def test_malformed_package_json_causes_no_error(tmp_path):
    for text in ("[1]", "nope", json.dumps({"scripts": 3, "workspaces": 3}), "[" * 100_000):
        found = look(tmp_path, {"package.json": text, "package-lock.json": text})
        assert lines(found.setup) == ["npm ci"]


def test_symbolic_links_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text(INSTALLED)
    (tmp_path / "package.json").symlink_to("secret")
    found = look_at(Tree(tmp_path, ["package.json", "package-lock.json"]))
    assert found.checks == ()

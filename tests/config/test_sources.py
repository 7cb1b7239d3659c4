"""Tests of environment variables, discovered files, and the hints for mistakes in them."""

import os
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import check_file
from tests.support.settings import load, mistakes, write


class TestVariables:
    def test_variables_of_all_sources_are_merged(self, tmp_path):
        file = write(tmp_path, "container: {env: {A: file, B: file, C: file}}")
        env_file = write(tmp_path, "# mine\n\nB=env file\nC=x=y\n", "vars.env")
        config = load({"env": ("C=option", "D"), "env_file": (str(env_file),)},
                      environ={"D": "caller"}, file=file)  # fmt: skip
        assert config.isolation.env == {
            "A": "file", "B": "env file", "C": "option", "D": "caller"
        }  # fmt: skip

    def test_mistakes_of_an_env_file_are_reported_with_lines(self, tmp_path):
        env_file = write(tmp_path, "A=1\nMISSING\n=x\n", "vars.env")
        assert mistakes({"env_file": (str(env_file), "/nowhere")}) == [
            f"{env_file}:2: the name on this line is not set in the environment",
            f"{env_file}:3: a variable must be `NAME=value` or `NAME`",
            "/nowhere: the file cannot be read: No such file or directory",
        ]

    @pytest.mark.parametrize(
        "end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\ra", "\xa0"]
    )
    def test_only_line_feeds_end_a_line_of_an_env_file(self, end, tmp_path):
        env_file = write(tmp_path, f"A=1{end}B=2{end}\nC=3\r\n \t\n # D=4\n", "vars.env")
        found = load({"env_file": (str(env_file),)}, environ={"B": "of the host"})
        assert found.isolation.env == {"A": f"1{end}B=2{end}", "C": "3"}

    @pytest.mark.parametrize(
        "line",
        [
            "export FOO=hunter2", "export hunter2", "BA Z=hunter2", "1A=hunter2", "A-hunter2=1",
            "hunter2 with blanks", "s3cr3t/hunter2+==", "hunter2",
            "\u2028hunter2=1", "A\u2028hunter2",
            "-----BEGIN hunter2-----", "FOO\thunter2", "hunter2:x", "$(hunter2)=1", "é=hunter2",
        ],
    )  # fmt: skip
    def test_line_that_sets_nothing_is_refused_and_not_shown(self, line, tmp_path):
        env_file = write(tmp_path, f"A=1\n{line}\n", "vars.env")
        (mistake,) = mistakes({"env_file": (str(env_file),)})
        assert mistake.startswith(f"{env_file}:2: ")
        assert "hunter2" not in mistake

    def test_file_can_be_a_pipe_of_the_shell(self):
        reads, writes = os.pipe()
        os.write(writes, b"A=1\n")
        os.close(writes)
        # A command may read the settings again, but a pipe only once.
        for _ in range(2):
            env_file = f"/dev/fd/{reads}"
            assert load({"env_file": (env_file,)}).isolation.env == {"A": "1"}
        os.close(reads)

    @pytest.mark.parametrize("name", ["A B", "1A", "A.B", "", "A=B"])
    def test_name_that_no_shell_knows_is_refused_in_every_source(self, name, tmp_path):
        file = write(tmp_path, f"container: {{env: {{'{name}': x}}}}", "mine.yaml")
        assert len(mistakes(file=file)) == 1
        if "=" not in name:
            assert len(mistakes({"env": (f"{name}=x",)})) == 1


class TestFileChoice:
    def test_first_existing_file_of_the_repository_is_used(self, tmp_path):
        write(tmp_path, "parallel_runs: {workers: 5}", ".orchestrator/config.yaml")
        assert load(top=tmp_path).workers == 5
        write(tmp_path, "parallel_runs: {workers: 4}")
        assert load(top=tmp_path).workers == 4

    def test_named_file_replaces_the_discovered_file(self, tmp_path):
        write(tmp_path, "parallel_runs: {workers: 4}")
        named = write(tmp_path, "parallel_runs: {workers: 6}", "named.yaml")
        by_variable = write(tmp_path, "parallel_runs: {workers: 7}", "by-variable.yaml")
        environ = {"ORCHESTRATOR_CONFIG": str(by_variable)}
        assert load(top=tmp_path, environ=environ).workers == 7
        assert load(top=tmp_path, environ=environ, file=named).workers == 6

    def test_without_file_the_defaults_apply(self, tmp_path):
        assert load(top=tmp_path).workers == 3

    def test_missing_named_file_is_an_error(self, tmp_path):
        file = tmp_path / "no.yaml"
        assert mistakes(file=file) == [
            f"{file}: the file cannot be read: No such file or directory"
        ]


class TestHints:
    """The hint for a mistake depends on its source."""

    @pytest.mark.parametrize(
        ("options", "text", "hint"),
        [
            ({}, "parallel_runs: {workers: 99}", "fix the file, then check it with "),
            (
                {"workers": "99"},
                "parallel_runs: {workers: 99}",
                "run `orchestrator parallel --help` ",
            ),
            (
                {"ports": "80"},
                "services: {db: {image: i, port: 80}}",
                "a worker and its services share one network",
            ),
        ],
    )
    def test_hint_depends_on_the_source(self, tmp_path, options, text, hint):
        with pytest.raises(ConfigError) as caught:
            load(options, file=write(tmp_path, text))
        assert caught.value.hint.startswith(hint)


def test_hint_names_only_a_named_file(tmp_path):
    for text, top, words in [("{}", None, "config schema`"), ("x: 1", None, "validate '"),
                             ("x: 1", tmp_path, "validate`")]:  # fmt: skip
        file = write(tmp_path, text, "a b.yaml" if top is None else "orchestrator.yaml")
        with pytest.raises(ConfigError) as caught:
            load(environ={"ORCHESTRATOR_GRACE": "x"}, file=None if top else file, top=top)
        assert words in caught.value.hint


def test_variable_may_hold_a_list():
    assert load(environ={"ORCHESTRATOR_ALLOW": "a, b"}).isolation.allow == ("a", "b")


@pytest.mark.parametrize("name", ["ORCHESTRATOR_PORT", "ORCHESTRATOR_SERVICE_HOST", "OTHER"])
def test_variables_of_other_programs_are_ignored(name):
    assert load(environ={name: "tcp://10.0.0.1:80"}).workers == 3


def test_only_the_first_of_many_unknown_keys_have_suggestions(tmp_path):
    keys = "".join(f"  worker{n}: 1\n" for n in range(300))
    (tmp_path / "many.yaml").write_text(f"parallel_runs:\n{keys}")
    found = check_file(tmp_path / "many.yaml").problems
    assert [number for number, line in enumerate(found) if "did you mean" in line] == [*range(200)]
    assert len(found) == 300


@pytest.mark.parametrize("name", ["agent_config", "context"])
def test_option_names_a_file_as_seen_from_here(name, tmp_path):
    assert getattr(load({name: "a.txt"}), name) == str(Path("a.txt").absolute())
    # A run resolves the path of a file from the repository's top.
    file = write(tmp_path, f"parallel_runs: {{{name}: a.txt}}")
    assert getattr(load(file=file), name) == "a.txt"

"""Variables of the environment and found files: which are read, and what a hint says of them."""

import pytest

from orchestrator.config.loading import check_file
from orchestrator.errors import ConfigError
from tests.support.settings import load, mistakes, write


class TestVariables:
    def test_they_are_merged_one_by_one(self, tmp_path):
        file = write(tmp_path, "container: {env: {A: file, B: file, C: file}}")
        env_file = write(tmp_path, "# mine\n\nB=env file\nC=x=y\n", "vars.env")
        config = load({"env": ("C=option", "D"), "env_file": (str(env_file),)},
                      environ={"D": "caller"}, file=file)  # fmt: skip
        assert config.isolation.env == {
            "A": "file", "B": "env file", "C": "option", "D": "caller"
        }  # fmt: skip

    def test_mistakes_of_an_env_file_have_lines(self, tmp_path):
        env_file = write(tmp_path, "A=1\nMISSING\n=x\n", "vars.env")
        assert mistakes({"env_file": (str(env_file), "/nowhere")}) == [
            f"{env_file}:2: `MISSING` is not set in the environment",
            f"{env_file}:3: a variable must be `NAME=value` or `NAME`",
            "/nowhere: cannot be read: No such file or directory",
        ]


class TestFileChoice:
    def test_the_first_of_the_repository_that_exists(self, tmp_path):
        write(tmp_path, "parallel_runs: {workers: 5}", ".orchestrator/config.yaml")
        assert load(top=tmp_path).workers == 5
        write(tmp_path, "parallel_runs: {workers: 4}")
        assert load(top=tmp_path).workers == 4

    def test_the_one_asked_for_instead(self, tmp_path):
        write(tmp_path, "parallel_runs: {workers: 4}")
        named = write(tmp_path, "parallel_runs: {workers: 6}", "named.yaml")
        by_variable = write(tmp_path, "parallel_runs: {workers: 7}", "by-variable.yaml")
        environ = {"ORCHESTRATOR_CONFIG": str(by_variable)}
        assert load(top=tmp_path, environ=environ).workers == 7
        assert load(top=tmp_path, environ=environ, file=named).workers == 6

    def test_none_at_all(self, tmp_path):
        assert load(top=tmp_path).workers == 3

    def test_one_that_is_missing(self, tmp_path):
        file = tmp_path / "no.yaml"
        assert mistakes(file=file) == [f"{file}: cannot be read: No such file or directory"]


class TestHints:
    """What to do about a mistake depends on where it was made."""

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
                {"ports": "80", "network": "none"},
                "",
                "remove the ports, or use `--network open`",
            ),
        ],
    )
    def test_by_the_place(self, tmp_path, options, text, hint):
        with pytest.raises(ConfigError) as caught:
            load(options, file=write(tmp_path, text))
        assert caught.value.hint.startswith(hint)


def test_the_hint_names_the_file_that_was_named_and_no_other(tmp_path):
    for text, top, words in [("{}", None, "config schema`"), ("x: 1", None, "validate '"),
                             ("x: 1", tmp_path, "validate`")]:  # fmt: skip
        file = write(tmp_path, text, "a b.yaml" if top is None else "orchestrator.yaml")
        with pytest.raises(ConfigError) as caught:
            load(environ={"ORCHESTRATOR_GRACE": "x"}, file=None if top else file, top=top)
        assert words in caught.value.hint


def test_a_list_may_be_given_as_a_variable():
    assert load(environ={"ORCHESTRATOR_ALLOW": "a, b"}).isolation.allow == ("a", "b")


@pytest.mark.parametrize("name", ["ORCHESTRATOR_PORT", "ORCHESTRATOR_SERVICE_HOST", "OTHER"])
def test_variables_of_others_are_left_alone(name):
    assert load(environ={name: "tcp://10.0.0.1:80"}).workers == 3


def test_only_the_first_of_many_unknown_keys_have_suggestions(tmp_path):
    keys = "".join(f"  worker{n}: 1\n" for n in range(300))
    (tmp_path / "many.yaml").write_text(f"parallel_runs:\n{keys}")
    found = check_file(tmp_path / "many.yaml").problems
    assert [number for number, line in enumerate(found) if "did you mean" in line] == [*range(200)]
    assert len(found) == 300

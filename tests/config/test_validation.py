"""Tests that all mistakes in the settings are reported at once, with their sources."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import load_config
from tests.support.settings import load, mistakes, write

OF_MAX_WORKERS = "must be a whole number from 1 to 10 (`max_workers`) or `auto`"


def test_all_mistakes_of_all_sources_are_listed(tmp_path):
    text = """\
parallel_runs:
  worker: 3
  workers: 11
  agent: ""
  max_steps: "50"
  image: true
  cpus: 2
  budget_per_worker: -1
container:
  memory: 3x
  pids: 1.5
  env: {A: 3}
  network: yes
  ports: [80, 99999]
foo: 1
"""
    file = write(tmp_path, text)
    found = mistakes(
        {"tasks": None, "workers": "x", "models": "a,,b", "memory": "8m", "env": ("NOPE", "=3")},
        environ={"ORCHESTRATOR_WORKER": "3", "ORCHESTRATOR_GRACE": "-1"},
        file=file,
    )
    assert sorted(found) == sorted([
        f"{file}:2: `parallel_runs.worker` is unknown, did you mean `parallel_runs.workers`?",
        f"{file}:3: `parallel_runs.workers` is `11`: {OF_MAX_WORKERS}",
        f"{file}:4: `parallel_runs.agent` is ``: must be text that is not empty",
        f'{file}:5: `parallel_runs.max_steps` is `"50"`: must be '
        'a whole number from 1 to 1000000000000',
        f"{file}:6: `parallel_runs.image` is `true`: must be text",
        f"{file}:7: `parallel_runs.cpus` is unknown, `cpus` belongs under `container`",
        f"{file}:8: `parallel_runs.budget_per_worker` is `-1`: must be "
        "a number above 0, at most 1000000000",
        f"{file}:10: `container.memory` is `3x`: a size must be a number with a unit, such as "
        f"512m or 4g",
        f"{file}:11: `container.pids` is `1.5`: must be a whole number from 8 to 4194304",
        f"{file}:12: `container.env`, variable `A`: must be text; quote values that look like "
        f"numbers",
        f"{file}:13: `container.network` is `yes`: must be one of `none`, `allowlist`, `learn`, "
        "`open`",
        f"{file}:14: `container.ports` contains `99999`: must be a list, each item a whole number "
        "from 1 to 65535 or a mapping of names, each with whole number from 1 to 65535",
        f"{file}:15: `foo` is unknown",
        "environment variable `ORCHESTRATOR_WORKER` is unknown, did you mean "
        "`ORCHESTRATOR_WORKERS`?",
        "environment variable `ORCHESTRATOR_GRACE` is `-1`: must be a number from 0 to 1000000000",
        "option `--workers` is `x`: must be a whole number from 1 to 10 or `auto`",
        "option `--models`: a model name must not be empty",
        "option `--memory` is `8m`: must be a size from 16m to 1024t, such as 512m or 4g",
        "option `--env`: `NOPE` is not set in the environment",
        "option `--env`: a variable must be `NAME=value` or `NAME`",
        "no task was given",
    ])  # fmt: skip


@pytest.mark.parametrize("value", ["0", "11", "-1", "x", "2.5", "nan"])
def test_number_of_workers_is_bounded(value):
    bound = OF_MAX_WORKERS if value == "11" else OF_MAX_WORKERS.replace(" (`max_workers`)", "")
    assert mistakes({"workers": value}) == [f"option `--workers` is `{value}`: {bound}"]


@pytest.mark.parametrize("source", ["option", "variable", "file"])
def test_cluster_may_have_more_workers(tmp_path, source):
    named = write(tmp_path, "container: {engine: kubernetes}") if source == "file" else None
    environ = {"ORCHESTRATOR_ENGINE": "kubernetes"} if source == "variable" else {}
    option = {"engine": "kubernetes"} if source == "option" else {}

    def workers(number, **rest):
        options = {"tasks": ("x",), "workers": number, **option, **rest}
        return load_config(options=options, environ=environ, top=tmp_path, file=named).workers

    assert workers("30") == 30
    assert workers("30", preset="untrusted") == 30
    with pytest.raises(ConfigError):
        workers("1001")
    environ["ORCHESTRATOR_MAX_WORKERS"] = "20"
    assert workers("20") == 20
    with pytest.raises(ConfigError):
        workers("21")


def test_named_file_and_environment_may_raise_max_workers(tmp_path):
    named = write(tmp_path, "parallel_runs: {max_workers: 64, workers: 20}")
    assert load(file=named).workers == 20
    assert load({"workers": "64"}, file=named).workers == 64
    assert mistakes({"workers": "65"}, file=named) == [
        "option `--workers` is `65`: must be a whole number from 1 to 64 (`max_workers`) or `auto`"
    ]
    raised = {"ORCHESTRATOR_MAX_WORKERS": "12"}
    assert load({"workers": "12"}, environ=raised).workers == 12
    assert mistakes({"workers": "13"}, environ=raised) == [
        "option `--workers` is `13`: must be a whole number from 1 to 12 (`max_workers`) or `auto`"
    ]
    assert mistakes({"workers": "13"}, environ={"ORCHESTRATOR_MAX_WORKERS": "many"}) == [
        "environment variable `ORCHESTRATOR_MAX_WORKERS` is `many`: must be a whole number from 1 "
        "to 1000",
        "option `--workers` is `13`: must be a whole number from 1 to 10 (`max_workers`) or `auto`",
    ]


def test_invalid_value_is_reported_even_if_overridden(tmp_path):
    file = write(tmp_path, "parallel_runs: {workers: 99}")
    assert mistakes({"workers": "2"}, file=file) == [
        f"{file}:1: `parallel_runs.workers` is `99`: {OF_MAX_WORKERS}"
    ]


def test_contradictions_across_sources_are_found(tmp_path):
    file = write(tmp_path, "services: {db: {image: i, port: 80}}")
    found = mistakes({}, file=file, environ={"ORCHESTRATOR_PORTS": "80"})
    assert found == ["port 80 is already used by service `db`"]


def test_a_missing_task_has_a_hint():
    with pytest.raises(ConfigError) as caught:
        load({"tasks": ()})
    assert caught.value.message == "no task was given"
    assert caught.value.hint == (
        'pass a task as `orchestrator parallel "TASK"`, or several tasks with `--task`'
    )


def test_values_of_secret_settings_are_not_shown(tmp_path):
    file = write(tmp_path, "parallel_runs: {api_base: [s3cret]}\ncontainer: {env: {A: [s3cret]}}")
    found = mistakes({"env": ("A\0=s3cret",)}, file=file)
    assert len(found) == 3
    assert "s3cret" not in "".join(found)


def test_value_in_a_message_is_made_harmless():
    (found,) = mistakes({"workers": "\x1b[2J\nx"})
    assert found.startswith("option `--workers` is `\ufffd[2J x`")


def test_mistakes_inside_a_value_are_reported_with_their_lines(tmp_path):
    text = """\
services:
  db:
    image: 3
    memory: 3x
    imag: x
    env:
      A: 3
    tmpfs: [data, /data, 3]
  web: {}
  x: y
"""
    file = write(tmp_path, text)
    kinds = "`image`, `command`, `env`, `port`, `health`, `health_timeout`, `variables`, `tmpfs`, "
    kinds += "`cpus`, `memory`, `pids`, "
    assert mistakes(file=file) == [
        f"{file}:3: `services.db.image` is `3`: must be text that is not empty",
        f"{file}:7: `services.db.env.A`: must be text",
        f"{file}:8: `services.db.tmpfs[1]` is `data`: must be text",
        f"{file}:8: `services.db.tmpfs[3]` is `3`: must be text",
        f"{file}:4: `services.db.memory` is `3x`: a size must be a number with a unit, such as "
        f"512m or "
        "4g",
        f"{file}:5: `services.db.imag` is unknown, did you mean `services.db.image`?",
        f"{file}:9: `services.web` needs `image`",
        f'{file}:10: `services.x` is `"y"`: must be a mapping with {kinds}`required`',
    ]


@pytest.mark.parametrize("password", ["S3cr/etT0ken", "S3cr[etT0ken", "S3cr\u2100etT0ken"])
def test_mistake_in_a_url_shows_no_password(password: str) -> None:
    company = (f"pip=https://me:{password}@index.example/",)
    (found,) = mistakes({"company": company})
    assert "must be an HTTP URL" in found
    assert "S3cr" not in found
    assert "T0ken" not in found


class TestAuto:
    """`workers: auto` is the number of workers for which the machine has room."""

    def test_auto_depends_on_the_limits_of_a_worker(self, tmp_path: Path) -> None:
        cpus = len(os.sched_getaffinity(0))
        half = self.workers(tmp_path, {"workers": "auto", "cpus": "0.5", "memory": "16m"})
        assert half == min(10, cpus * 2)
        assert self.workers(tmp_path, {"workers": "auto", "memory": "1t"}) == 1
        two = {"workers": "auto", "cpus": "0.1", "memory": "16m", "tasks": ("a", "b")}
        assert self.workers(tmp_path, two) == 2

    def test_auto_follows_the_precedence_of_sources(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text("parallel_runs: {workers: auto}\n")
        assert self.workers(tmp_path, {"workers": "7"}, file=file) == 7
        file.write_text("parallel_runs: {workers: 7}\n")
        assert self.workers(tmp_path, {"workers": "auto", "memory": "1t"}, file=file) == 1

    def workers(self, top: Path, options: Mapping[str, object], file: Path | None = None) -> int:
        given = {"tasks": ("t",) * 10, **options}
        return load_config(options=given, environ={}, top=top, file=file).workers

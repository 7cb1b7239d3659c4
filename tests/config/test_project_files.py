"""Tests of settings from files of other tools, and of the block `agents`."""

import json

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.settings.run import ParallelConfig, Provider, RateLimit
from tests.support.settings import load, mistakes, write

OF_MAX_WORKERS = "must be a whole number from 1 to 10 (`max_workers`) or `auto`"


class TestAutomatosx:
    def test_max_concurrent_agents_sets_workers(self, tmp_path):
        text = '{"execution": {"maxConcurrentAgents": 4, "parallelDelegationEnabled": true}}'
        assert load(file=write(tmp_path, text, "automatosx.config.json")).workers == 4

    def test_out_of_range_and_unknown_keys_are_reported(self, tmp_path):
        text = json.dumps({
            "execution": {"maxConcurrentAgents": 11, "parallelDelegationEnabled": 0,
                          "maxConcurentAgents": 1},
            "providers": {"gemini-cli": {"rateLimit": {"enabled": 1, "refilRate": 2}}},
        })  # fmt: skip
        file = write(tmp_path, text, "automatosx.config.json")
        assert mistakes(file=file) == [
            f"{file}:1: `execution.parallelDelegationEnabled` is `0`: must be `true` or `false`",
            f"{file}:1: `execution.maxConcurrentAgents` is `11`: {OF_MAX_WORKERS}",
            f"{file}:1: `providers.gemini-cli.rateLimit.enabled` is `1`: must be `true` or `false`",
            f"{file}:1: `providers.gemini-cli.rateLimit.refilRate` is unknown, did you mean "
            "`providers.gemini-cli.rateLimit.refillRate`?",
        ]

    def test_disabled_parallel_delegation_means_one_worker(self, tmp_path):
        for agents in ("", '"maxConcurrentAgents": 4, '):
            text = f'{{"execution": {{{agents}"parallelDelegationEnabled": false}}}}'
            file = write(tmp_path, text, "automatosx.config.json")
            assert load(file=file).workers == 1

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("automatosx.config.json",
             '{"providers": {"gemini-cli": {"rateLimit": '
             '{"enabled": true, "capacity": 100, "refillRate": 10}}}}'),
            ("x.yaml", "providers: {gemini-cli: {rate_limit: {capacity: 100, refill_rate: 10}}}"),
            ("x.yaml", "providers: {gemini-cli: {rateLimit: {}}}"),
        ],
    )  # fmt: skip
    def test_rate_limits_are_read_in_both_spellings(self, tmp_path, name, text):
        limit = RateLimit(enabled=True, capacity=100, refill_rate=10.0)
        config = load(file=write(tmp_path, text, name))
        assert config.providers == {"gemini-cli": Provider(rate_limit=limit)}
        assert ParallelConfig.model_validate_json(config.model_dump_json()) == config

    def test_invalid_rate_limits_are_reported_with_their_lines(self, tmp_path):
        text = """\
providers:
  gemini-cli:
    rate_limit:
      capacity: 0
      refill_rate: fast
  claude:
    rateLimit: {refillRate: 1, refill_rate: 1}
"""
        file = write(tmp_path, text)
        where = "providers.gemini-cli.rateLimit"
        assert mistakes(file=file) == [
            f"{file}:7: `providers.claude.rateLimit.refillRate` is set twice, in two spellings",
            f"{file}:4: `{where}.capacity` is `0`: must be a whole number from 1 to 1000000000",
            f'{file}:5: `{where}.refillRate` is `"fast"`: must be '
            "a number from 1e-06 to 1000000000",
        ]

    def test_invalid_provider_name_is_refused(self, tmp_path):
        file = write(tmp_path, "providers: {bad name: {}}")
        (mistake,) = mistakes(file=file)
        assert mistake.startswith(f"{file}:1: `providers`: a name must consist of letters")

    def test_workers_under_two_keys_are_refused(self, tmp_path):
        text = "parallel_runs: {workers: 2}\nexecution: {maxConcurrentAgents: 4}"
        file = write(tmp_path, text)
        assert mistakes(file=file) == [
            f"{file}:2: `execution.maxConcurrentAgents` was already set by "
            f"{file}:1: `parallel_runs.workers`"
        ]


class TestAgents:
    """Defaults for one agent program."""

    TEXT = """\
parallel_runs: {max_steps: 5, image: general}
container: {env: {A: general, B: general}}
agents:
  shell: {max_steps: 7, model: m, image: own, env: {B: own, C: own}}
  architect: {max_steps: 9}
"""

    @pytest.mark.parametrize(
        ("options", "environ", "steps"),
        [
            ({}, {}, 9),
            ({"agent_cli": "shell"}, {}, 7),
            ({}, {"ORCHESTRATOR_AGENT_CLI": "shell"}, 7),
            ({"agent_cli": "shell"}, {"ORCHESTRATOR_MAX_STEPS": "8"}, 8),
            ({"agent_cli": "shell", "max_steps": "3"}, {"ORCHESTRATOR_MAX_STEPS": "8"}, 3),
        ],
    )
    def test_defaults_apply_to_the_chosen_program(self, tmp_path, options, environ, steps):
        config = load(options, environ=environ, file=write(tmp_path, self.TEXT))
        assert config.max_steps == steps

    def test_other_settings_come_from_the_general_part(self, tmp_path):
        file = write(tmp_path, self.TEXT)
        shell = load({"agent_cli": "shell"}, file=file)
        assert (shell.model, shell.image) == ("m", "own")
        assert shell.isolation.env == {"A": "general", "B": "own", "C": "own"}
        assert (load(file=file).model, load(file=file).image) == (None, "general")

    def test_mistakes_in_all_blocks_are_reported(self, tmp_path):
        text = """\
agents:
  shel: {}
  shell: {max_steps: 0, network: none, modle: x}
  architect:
    env: {A: 3}
  """
        file = write(tmp_path, text)
        assert mistakes(file=file) == [
            f"{file}:2: `agents.shel` is unknown, did you mean `agents.shell`?",
            f"{file}:3: `agents.shell.network` is unknown, `network` belongs under `container`",
            f"{file}:3: `agents.shell.modle` is unknown, did you mean `agents.shell.model`?",
            f"{file}:3: `agents.shell.max_steps` is `0`: must be "
            "a whole number from 1 to 1000000000000",
            f"{file}:5: `agents.architect.env`, variable `A`: must be text; quote values that "
            f"look like numbers",
        ]

    @pytest.mark.parametrize("key", ["image: x", "api_base: x", "env: {A: b}"])
    def test_restricted_settings_require_a_named_file(self, tmp_path, key):
        file = write(tmp_path, f"agents: {{shell: {{{key}}}}}")
        with pytest.raises(ConfigError, match="not accepted from a file"):
            load(top=tmp_path)
        assert load(file=file)

    def test_discovered_timeout_above_the_users_preset_is_refused(self, tmp_path):
        write(tmp_path, "agents: {shell: {timeout_per_worker: 9000}}")
        options = {"agent_cli": "shell", "preset": "untrusted"}
        with pytest.raises(ConfigError, match=r"agents\.shell\.timeout_per_worker. gives workers"):
            load(options, top=tmp_path)
        assert load({**options, "timeout_per_worker": "9"}, top=tmp_path).timeout == 9


def test_setting_at_the_top_and_in_a_block_is_refused(tmp_path):
    assert load(file=write(tmp_path, "ports: [80]")).isolation.ports == {"PORT": 80}
    file = write(tmp_path, "container: {ports: [80]}\nports: [81]")
    assert mistakes(file=file) == [
        f"{file}:2: `ports` was already set by {file}:1: `container.ports`"
    ]


def test_misplaced_key_is_reported_with_the_right_block(tmp_path):
    file = write(tmp_path, "workers: 3\ncontainer: {checks: 3, agent: x}")
    assert f"{file}:1: `workers` is unknown, `workers` belongs under `parallel_runs`" in mistakes(
        file=file
    )

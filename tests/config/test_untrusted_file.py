"""Tests of what a configuration file discovered in the repository may set."""

import os
import re
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.fields import FIELDS
from orchestrator.config.loading.loading import FileCheck, check_file, load_config
from orchestrator.config.loading.untrusted_file import BOUNDED, NAMED_ONLY
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.app import run
from tests.support.ci_parsers import commands_in
from tests.support.settings import DOCUMENTED, load, write


class TestGuest:
    """A discovered file: the authors of the repository wrote it."""

    SEEN = "is not accepted from a file that was found in the repository"
    WIDER = "gives workers more permissions or larger limits than they have without the file"

    def refused(self, tmp_path, text, **rest) -> list[str]:
        file = write(tmp_path, text)
        with pytest.raises(ConfigError) as caught:
            load(top=tmp_path, **rest)
        assert caught.value.hint == f"pass `--config {file}` if you trust the author of that file"
        if rest:
            # A preset that the user typed bounds a named file too.
            with pytest.raises(ConfigError, match="option `--preset` is `untrusted`"):
                load(file=file, top=tmp_path, **rest)
        assert load(file=file, top=tmp_path)
        assert load(environ={"ORCHESTRATOR_CONFIG": str(file)}, top=tmp_path)
        lines = [line.strip() for line in caught.value.message.splitlines()]
        return [line.removeprefix(f"{file}:") for line in lines if str(file) in line]

    @pytest.mark.parametrize(
        ("block", "key", "value"),
        [
            ("parallel_runs", "agent_cli", "shell"),
            ("parallel_runs", "agent_config", "hooks.yaml"),
            ("parallel_runs", "api_base", "http://evil.invalid"),
            ("parallel_runs", "base", "'stash@{0}'"),
            ("parallel_runs", "image", "evil"),
            ("parallel_runs", "include_uncommitted", "true"),
            ("parallel_runs", "tasks", "[env]"),
            ("container", "allow", "[db]"),
            ("container", "allow_unenforced", "[swap]"),
            ("container", "company", "['pip=https://evil.invalid']"),
            ("container", "copy", "[.env]"),
            ("container", "env", "{OPENAI_API_BASE: 'http://evil.invalid'}"),
            ("container", "engine", "kubernetes"),
            ("container", "runtime", "evil"),
            ("cluster", "image_pull_secrets", "[of-another-team]"),
            ("cluster", "images", "{a: evil.example/b}"),
            ("cluster", "node_selector", "{a: b}"),
            ("cluster", "registry", "evil.example"),
            ("container", "secrets", "[NPM_TOKEN]"),
        ],
    )
    def test_settings_that_give_the_users_data_are_refused(self, tmp_path, block, key, value):
        text = f"{block}: {{{key}: {value}}}"
        assert self.refused(tmp_path, text) == [f"1: `{block}.{key}` {self.SEEN}"]

    @pytest.mark.parametrize(
        ("key", "value"),
        [("cpus", 3), ("memory", "5g"), ("pids", 513), ("open_files", 5000), ("tmp", "2g"),
         ("disk", "9g"), ("inodes", 2_000_000), ("log_limit", "2g"), ("grace", 60)],
    )  # fmt: skip
    def test_limit_above_the_current_limit_is_refused(self, tmp_path, key, value):
        found = self.refused(tmp_path, f"container: {{{key}: {value}}}")
        assert found == [f"1: `container.{key}` {self.WIDER}"]

    def test_more_workers_or_worktrees_than_allowed_are_refused(self, tmp_path):
        found = self.refused(tmp_path, "parallel_runs: {max_workers: 11}")
        assert found == [f"1: `parallel_runs.max_workers` {self.WIDER}"]
        found = self.refused(tmp_path, "parallel_runs: {max_worktrees: 21}")
        assert found == [f"1: `parallel_runs.max_worktrees` {self.WIDER}"]

    @pytest.mark.parametrize("preset", [None, "untrusted"])
    @pytest.mark.parametrize(
        ("key", "value"),
        [("max_steps", 51), ("max_steps", 10**9), ("retries", 1), ("fix_checks", 20),
         ("rate_limit_wait", 3601), ("timeout_per_worker", 601), ("timeout_per_worker", 0)],
    )  # fmt: skip
    def test_settings_that_cost_more_money_or_time_are_refused(self, tmp_path, preset, key, value):
        write(tmp_path, f"parallel_runs: {{{key}: {value}}}")
        with pytest.raises(ConfigError, match=f"`parallel_runs.{key}` {self.WIDER}") as caught:
            load({"preset": preset} if preset else {}, top=tmp_path)
        assert "pass `--config " in (caught.value.hint or "")

    def test_settings_that_cost_as_much_as_without_the_file_are_accepted(self, tmp_path):
        text = "parallel_runs: {max_steps: 50, retries: 0, timeout_per_worker: 600}"
        write(tmp_path, text)
        assert load(top=tmp_path).max_steps == 50
        ours = "parallel_runs: {retries: 2}\nagents: {architect: {timeout_per_worker: 0}}"
        write(tmp_path, ours)
        assert load({"retries": 2, "timeout_per_worker": 0}, top=tmp_path).retries == 2

    @pytest.mark.parametrize(("key", "value"), [("fail_on", "all"), ("retry_on", "[agent_failed]")])
    def test_what_counts_as_a_failure_is_for_the_user_to_say(self, tmp_path, key, value):
        found = self.refused(tmp_path, f"parallel_runs: {{{key}: {value}}}")
        assert found == [f"1: `parallel_runs.{key}` {self.SEEN}"]

    def test_keys_can_be_kept_outside(self, tmp_path):
        write(tmp_path, "container: {keys: broker}")
        assert load(top=tmp_path).isolation.keys == "broker"
        write(tmp_path, "container: {keys: env}")
        assert load({"keys": "broker"}, top=tmp_path).isolation.keys == "broker"

    def test_keys_cannot_be_given_to_workers_of_the_users_preset(self, tmp_path):
        closed = {"options": {"preset": "untrusted"}}
        found = self.refused(tmp_path, "container: {keys: env}", **closed)
        assert found == [f"1: `container.keys` {self.WIDER}"]

    def test_read_only_cannot_be_switched_off(self, tmp_path):
        closed = {"options": {"read_only": True}}
        write(tmp_path, "container: {read_only: true}")
        assert load(top=tmp_path).isolation.read_only
        environ = {"ORCHESTRATOR_READ_ONLY": "true"}
        write(tmp_path, "container: {read_only: false}")
        assert load(closed["options"], top=tmp_path).isolation.read_only
        assert load(top=tmp_path, environ=environ).isolation.read_only

    def test_setup_with_more_permissions_is_refused(self, tmp_path):
        text = "setup: [make]\nsetup_timeout: 0\ncontainer:\n  setup_network: open"
        closed = {"options": {"preset": "untrusted"}}
        assert self.refused(tmp_path, text, **closed) == [
            f"4: `container.setup_network` {self.WIDER}",
            f"2: `setup_timeout` {self.WIDER}",
        ]
        write(tmp_path, "setup: [make]\nsetup_timeout: 9\ncontainer: {setup_network: none}")
        assert load(top=tmp_path).project.setup == ("make",)

    def test_checks_with_more_permissions_are_refused(self, tmp_path):
        text = "checks: [{run: make, timeout: 601}]\ncontainer:\n  check_network: open"
        closed = {"options": {"preset": "untrusted"}}
        assert self.refused(tmp_path, text, **closed) == [
            f"3: `container.check_network` {self.WIDER}",
            f"1: `checks` {self.WIDER}",
        ]
        write(tmp_path, "checks: [make]\ncontainer: {check_network: none}")
        assert load(top=tmp_path).project.checks[0].run == "make"

    @pytest.mark.parametrize("key", ["setup_network", "check_network"])
    def test_network_of_setup_and_checks_cannot_be_opened(self, tmp_path, key):
        text = f"setup: [make]\nchecks: [make]\ncontainer: {{{key}: open}}"
        assert self.refused(tmp_path, text) == [f"3: `container.{key}` {self.WIDER}"]
        opened = {key: "open"}
        assert getattr(load(opened, top=tmp_path).isolation, key) == "open"

    def test_commands_of_a_discovered_file_are_closed_stages(self, tmp_path):
        text = "setup: [a]\nteardown: [b]\nchecks: [c]"
        file = write(tmp_path, text)
        found = load(top=tmp_path)
        assert found.closed_stages == ("setup", "teardown", "checks")
        assert (found.setup_network, found.teardown_network) == ("none", "none")
        assert found.isolation.network == "open"
        assert found.networks == {"open", "none"}
        mine = load({"setup": ("mine",), "checks": ("mine",)}, top=tmp_path)
        assert (mine.closed_stages, mine.setup_network) == (("teardown",), "open")
        opened = load({"setup_network": "open"}, top=tmp_path)
        assert (opened.closed_stages[0], opened.setup_network) == ("setup", "open")
        for named in (load(file=file), load(environ={"ORCHESTRATOR_CONFIG": str(file)})):
            assert (named.closed_stages, named.teardown_network) == ((), "open")
        assert ParallelConfig.model_validate_json(found.model_dump_json()) == found

    @pytest.mark.parametrize("place", ["orchestrator.yaml", ".orchestrator/config.yaml"])
    @pytest.mark.parametrize("kind", ["link", "folder", "fifo", "dangling"])
    def test_content_of_a_linked_file_is_not_shown(self, tmp_path, place, kind):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "config.yaml").write_text("private-word: x\n")
        top = tmp_path / "top"
        file = top / place
        file.parent.mkdir(parents=True)
        if kind == "fifo":
            os.mkfifo(file)
        elif kind == "folder" and "/" in place:
            file.parent.rmdir()
            file.parent.symlink_to(elsewhere)
        elif kind == "folder":
            file.mkdir()
        else:
            file.symlink_to(elsewhere / ("config.yaml" if kind == "link" else "nothing"))
        with pytest.raises(ConfigError) as caught:
            load(top=top)
        assert "private-word" not in caught.value.message
        assert str(file) in caught.value.message
        if kind == "link":
            with pytest.raises(ConfigError, match="private-word"):
                load(file=file, top=top)

    def test_repository_may_be_reached_through_a_link(self, tmp_path):
        (tmp_path / "top").mkdir()
        write(tmp_path / "top", "parallel_runs: {workers: 4}")
        (tmp_path / "link").symlink_to("top")
        assert load(top=tmp_path / "link").workers == 4

    @pytest.mark.parametrize("preset", ["ci", "trusted"])
    def test_preset_with_more_permissions_is_refused(self, tmp_path, preset):
        found = self.refused(tmp_path, f"parallel_runs: {{preset: {preset}}}")
        assert found == [f"1: `parallel_runs.preset` {self.WIDER}"]

    def test_settings_beyond_the_users_preset_are_refused(self, tmp_path):
        text = """\
parallel_runs:
  timeout_per_worker: 0
container:
  network: open
  history: full
  memory: 2g
  idle_timeout: 5
"""
        assert self.refused(tmp_path, text, options={"preset": "untrusted"}) == [
            f"6: `container.memory` {self.WIDER}",
            f"4: `container.network` {self.WIDER}",
            f"5: `container.history` {self.WIDER}",
            f"2: `parallel_runs.timeout_per_worker` {self.WIDER}",
        ]

    def test_harmless_settings_are_accepted(self, tmp_path):
        text = """\
parallel_runs: {models: [m], workers: 10, agent: plan,
  max_steps: 9, budget_per_worker: 5, timeout_per_worker: 300, rate_limit_wait: 9,
  preset: untrusted}
container: {cpus: 2, memory: 4g, idle_timeout: 5, history: shallow, ports: [3000],
  network: open}
"""
        write(tmp_path, text)
        config = load(top=tmp_path)
        assert (config.workers, config.limits.memory) == (10, 4 * 1024**3)
        assert config.isolation.ports == {"PORT": 3000}

    def test_setting_is_accepted_if_an_option_allows_the_same(self, tmp_path):
        write(tmp_path, "container: {memory: 8g, network: open}")
        assert load({"memory": "8g"}, top=tmp_path).limits.memory == 8 * 1024**3

    def test_documented_block_is_accepted(self, tmp_path):
        write(tmp_path, DOCUMENTED.replace("timeout_per_worker: null", "timeout_per_worker: 500"))
        assert load(top=tmp_path).timeout == 500


def test_every_setting_is_classified_for_discovered_files():
    """A new key must be added to one of these groups: allowed, forbidden, or bounded."""
    harmless = {
        "agent", "budget_per_worker", "budget_total", "caches", "dotenv", "enforce",
        "fail_fast", "tokens_per_worker", "tokens_total",
        "model", "models", "on_trigger", "paths", "ports", "preset", "prompts", "repeated_errors",
        "retry_delay", "retry_from", "setup", "silence", "stagger", "teardown",
        # At most `max_workers`, which is bounded.
        "workers",
        # Only lets more files of the base count in a judgement.
        "instruments",
        # Removes only merged and clean workers, so no work is lost.
        "retention",
        # Only for new names; directories outside of the repository are refused (`_leads_outside`).
        "branch", "worktree_dir",
        # How the same files get into the same containers.
        "transfer",
        # The worker's own conversation, for a later turn of the same worker.
        "sessions",
    }  # fmt: skip
    judged = {*NAMED_ONLY, *BOUNDED}
    assert {name for name, field in FIELDS.items() if field not in judged} == harmless


class TestCheckFile:
    """Checks of a file alone, with or without naming it."""

    def test_check_lists_mistakes_and_settings_that_require_naming(self, tmp_path):
        file = write(tmp_path, "container: {memory: 9g, cpus: x}\nagents: {shell: {image: i}}")
        check = check_file(file)
        assert check.problems == [
            f'{file}:1: `container.cpus` is `"x"`: must be a number from 0.01 to 1024'
        ]
        assert check.named_only == [f"{file}:2: `agents.shell.image` {TestGuest.SEEN}"]

    def test_loosened_settings_of_all_programs_are_listed_once(self, tmp_path):
        text = """\
parallel_runs: {preset: untrusted, max_worktrees: 30}
agents: {shell: {timeout_per_worker: 9}, architect: {}}
"""
        file = write(tmp_path, text)
        check = check_file(file)
        assert check.problems == []
        assert check.named_only == [f"{file}:1: `parallel_runs.max_worktrees` {TestGuest.WIDER}"]

    def test_contradictions_are_reported(self, tmp_path):
        service = "services: {db: {image: i, port: 80}}"
        file = write(tmp_path, f"container: {{ports: [80]}}\n{service}")
        assert check_file(file).problems == [f"{file}: port 80 is already used by service `db`"]

    def test_unknown_agent_program_is_reported(self, tmp_path):
        file = write(tmp_path, "parallel_runs: {agent_cli: shel}")
        (problem,) = check_file(file).problems
        assert problem.startswith(f"{file}:1: `parallel_runs.agent_cli` is `shel`: must be one of ")

    def test_valid_file_has_no_problems(self, tmp_path):
        right = FileCheck(problems=[], named_only=[], closed=())
        assert check_file(write(tmp_path, DOCUMENTED)) == right
        assert check_file(write(tmp_path, "setup: [make]")).closed == ("setup",)


class TestHostileFile:
    """A discovered file that tries to control the terminal, waste time or cause a crash."""

    SAID = (
        '"\\e[31m\\u202e##vso[a.b]c": 1\n',
        '"##[add-mask]x": 1\n"::add-mask::x": 2\n"x\\n::add-mask::x": 3\n"--- x": 4\n',
        'checks: [{run: x, name: "##vso[a.b]c\\n::add-mask::x", timeout: y}]\n',
        "!<##vso[a.b]c> x\n",
        "%TAG ! tag:x,2000:##vso[a.b]\n---\n!a x\n",
        '{"##[add-mask]x": 1, "##[add-mask]x": 2}',
    )
    REFUSED = (
        "parallel_runs: {timeout_per_worker: 1e999}\n",
        "parallel_runs: {timeout_per_worker: .nan}\n",
        '{"parallel_runs": {"timeout_per_worker": NaN}}',
        f"parallel_runs: {{workers: {'9' * 5000}}}\n",
        'parallel_runs: {model: "\\ud800"}\n',
        'setup: ["\\ud800"]\n',
        "setup: [a\0b]\n",
        "a: &a [x, x]\nb: [*a, *a]\n",
        "[" * 100_000,
        "- " * 5000,
        "parallel_runs: {}\nparallel_runs: {}\n",
        "!!python/object/apply:os.system ['touch pwned']\n",
        "<<: {setup: [x]}\n",
        '"' + "\\n" * 120_000,
        "dotenv: ../../x\nports: [80]\n",
        "dotenv: a/.git/hooks/x\nports: [80]\n",
        'parallel_runs: {model: "--proxy=http://a.example"}\n',
        'parallel_runs: {models: [" -x"]}\n',
        "parallel_runs: {agent: -x}\n",
    )

    @pytest.mark.process
    @pytest.mark.parametrize("text", [*SAID, *REFUSED])
    def test_hostile_file_is_refused_with_harmless_output(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, capsys
    ) -> None:
        monkeypatch.setenv("TF_BUILD", "True")
        write(tmp_path, text)
        monkeypatch.chdir(tmp_path)
        assert run(["config", "validate", "orchestrator.yaml"]) == 3
        shown = capsys.readouterr()
        assert commands_in(shown.out, shown.err) == []
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown.err)
        assert len(shown.err) < 2000
        assert not (tmp_path / "pwned").exists()

    def test_number_of_listed_mistakes_is_bounded(self, tmp_path: Path) -> None:
        text = "".join(f"k{number}: 1\n" for number in range(2000))
        file = write(tmp_path, text)
        with pytest.raises(ConfigError) as caught:
            load_config(options={"tasks": ["x"]}, environ={}, top=None, file=file)
        assert caught.value.message.startswith("2000 mistakes in the configuration:\n")
        assert caught.value.message.endswith("\n  and 1950 more")

    def test_huge_timeout_is_refused(self, tmp_path: Path) -> None:
        file = write(tmp_path, "parallel_runs: {timeout_per_worker: 1e308}\n")
        with pytest.raises(ConfigError, match="must be a number from 0 to 1000000000"):
            load_config(options={"tasks": ["x"]}, environ={}, top=None, file=file)

"""Tests of `doctor`: every line of its output, and its exit code."""

import json
import re
import subprocess
from dataclasses import replace
from typing import get_args

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.base.machine import boot_id
from orchestrator.config.settings.values import Limit
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE, DEFAULT_IMAGE
from orchestrator.engine.interface.diagnosis import Finding
from orchestrator.engine.interface.features import WATCHED, Enforcement, EngineFeatures
from orchestrator.engine.interface.image_protocol import ImageInfo
from orchestrator.engine.probes.limits_probe import ProvenLimits
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands import doctor as command
from orchestrator.repository.git import command as git
from orchestrator.worker.workspace import overlay_probe

GB = 1024**3
SOUND: dict[Limit, Enforcement] = {limit: WATCHED.get(limit, "kernel") for limit in get_args(Limit)}
TESTED = (
    "memory, swap, cpus, pids, open_files, tmp, tmp_inodes, read_only_root, no_new_privileges, "
    "capabilities, seccomp, network: enforced by the kernel (tested)"
)


class Engine:
    """The part of an engine that `doctor` uses."""

    seccomp = True
    gateways = True
    open_network = True

    def __init__(self, *images: str) -> None:
        self._images = images

    def check(self, *, images, runtime) -> EngineFeatures:
        assert (images, runtime) == ((), None)
        return EngineFeatures(
            overlay=True, runtimes=("runc", "runsc"), cpus=8, memory=32 * GB,
            version="docker 9", seccomp=self.seccomp, gateways=self.gateways,
            open_network=self.open_network,
        )  # fmt: skip

    def image_info(self, image: str) -> ImageInfo | None:
        if image not in self._images:
            return None
        return ImageInfo(id="i", size=GB, created="2026-01-01T00:00:00Z", labels={})

    def close(self) -> None:
        pass


@pytest.fixture
def machine(monkeypatch):
    """Return a function that sets the images of the machine; None means no engine."""

    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    tried: list[dict] = []

    def choose(images: tuple[str, ...] | None, *, works: bool = True) -> None:
        def load(_: str) -> Engine:
            if images is None:
                raise EngineUnavailableError("no engine", key="engine.unreachable", hint="start it")
            return Engine(*images)

        monkeypatch.setattr(command, "load_engine", load)
        monkeypatch.setattr(command.shutil, "disk_usage", lambda _: type("U", (), {"free": 3 * GB}))
        monkeypatch.setattr(git, "version", lambda: (2, 40, 1))
        probe = lambda *_, **how: (tried.append(how), works)[1]  # noqa: E731
        monkeypatch.setattr(overlay_probe, "probe", probe)

    monkeypatch.setattr(command, "probe_limits", lambda *_, **__: choose.proven)
    choose.proven = ProvenLimits(enforced=SOUND, kernel="6.1", boot=boot_id(), reports_memory=True)
    monkeypatch.setattr(command, "gateway_problem", lambda *_: choose.problem)
    monkeypatch.setattr(command, "open_network_problem", lambda *_: choose.guards)
    choose.problem = choose.guards = None
    choose.tried = tried
    return choose


def head() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return done.stdout[:12]


def test_ready_machine_exits_0(repository, machine, capsys):
    machine((BASE_IMAGE, DEFAULT_IMAGE))
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out == (
        "✓ git: 2.40.1\n"
        f"✓ repository: {repository}, HEAD {head()}\n"
        "✓ disk: 3 GiB free\n"
        "✓ configuration: there is no file; the defaults apply\n"
        "✓ engine: docker 9\n"
        "✓ runtimes: configured: runc, runsc\n"
        "✓ system calls: filtered: no AF_VSOCK, no AF_ALG, no io_uring\n"
        f"✓ limits: {TESTED}\n"
        "✓ limits: disk, inodes: watched by the run\n"
        "✓ kernel: 6.1, shared with this machine\n"
        "✓ worktrees: overlay (tested)\n"
        "✓ open network: filtered by one container per run (tested)\n"
        "✓ allow-lists: each worker can have a gateway (tested)\n"
        f"✓ image: {BASE_IMAGE}, 1 GiB\n"
        f"✓ image: {DEFAULT_IMAGE}, 1 GiB\n"
        "✓ machine: 8 CPUs, 32 GiB RAM: room for `--workers 8`\n"
    )


@pytest.mark.usefixtures("repository")
def test_missing_base_image_fails_and_missing_agent_image_warns(machine, capsys):
    machine((BASE_IMAGE,))
    assert run(["doctor"]) == 0
    hint = "\n    hint: build the image with `orchestrator image build --agent {}`\n".format
    agent = f"! image: {DEFAULT_IMAGE} is missing (required by `--agent-cli architect`)"
    agent += hint("architect")
    assert agent in capsys.readouterr().out
    machine((DEFAULT_IMAGE,))
    assert run(["doctor"]) == 3
    assert f"✗ image: {BASE_IMAGE} is missing{hint('shell')}" in capsys.readouterr().out


@pytest.mark.usefixtures("repository")
def test_missing_broker_image_fails_if_the_broker_holds_the_keys(machine, monkeypatch, capsys):
    monkeypatch.setenv("ORCHESTRATOR_KEYS", "broker")
    machine((BASE_IMAGE, DEFAULT_IMAGE))
    assert run(["doctor"]) == 3
    hint = "hint: build the image with `orchestrator image build --agent broker`"
    assert f"✗ image: {BROKER_IMAGE} is missing\n    {hint}" in capsys.readouterr().out
    machine((BASE_IMAGE, DEFAULT_IMAGE, BROKER_IMAGE))
    assert run(["doctor"]) == 0


@pytest.mark.usefixtures("repository")
def test_missing_seccomp_is_a_warning(machine, monkeypatch, capsys):
    machine((BASE_IMAGE, DEFAULT_IMAGE))
    monkeypatch.setattr(Engine, "seccomp", False)
    assert run(["doctor"]) == 0
    assert "! system calls: not filtered: the engine or its kernel has no seccomp\n" in (
        capsys.readouterr().out
    )


class TestLimits:
    """`doctor` has a table of what a container showed."""

    def lines(self, capsys) -> list[str]:
        return [line for line in capsys.readouterr().out.splitlines() if "limits: " in line]

    @pytest.mark.usefixtures("repository")
    def test_limits_have_marks(self, machine, capsys, monkeypatch):
        machine((BASE_IMAGE,))
        enforced = {**SOUND, "pids": "no", "swap": "no"}
        del enforced["seccomp"]
        machine.proven = ProvenLimits(enforced=enforced, reports_memory=False)
        monkeypatch.setenv("ORCHESTRATOR_ALLOW_UNENFORCED", "swap,pids")
        assert run(["doctor"]) == 0
        assert "! limits: swap, pids: not enforced" in self.lines(capsys)
        monkeypatch.setenv("ORCHESTRATOR_ALLOW_UNENFORCED", "swap")
        assert run(["doctor"]) == 3
        lines = self.lines(capsys)
        assert lines[1:] == [
            "! limits: swap: not enforced",
            "✗ limits: pids: not enforced",
            "✓ limits: disk, inodes: watched by the run",
            "? limits: seccomp: not tested",
            "! limits: the engine does not report that a container ran out of memory",
        ]
        assert lines[0].startswith("✓ limits: memory, cpus, ")

    def test_hint_names_the_setting_that_allows_all(self, repository, machine, capsys, monkeypatch):
        machine((BASE_IMAGE,))
        machine.proven = ProvenLimits(enforced={**SOUND, "tmp": "no", "swap": "no"})
        monkeypatch.setenv("ORCHESTRATOR_ALLOW_UNENFORCED", "swap")
        assert run(["doctor"]) == 3
        (way,) = re.findall("ORCHESTRATOR_ALLOW_UNENFORCED=[a-z,]+", capsys.readouterr().out)
        monkeypatch.setenv(*way.split("="))
        assert run(["doctor"]) == 0
        assert "ALLOW_UNENFORCED" not in capsys.readouterr().out
        monkeypatch.delenv("ORCHESTRATOR_ALLOW_UNENFORCED")
        (repository / "mine.yaml").write_text("container: {allow_unenforced: [swap, tmp]}")
        assert run(["doctor", "--config", "mine.yaml"]) == 0

    @pytest.mark.usefixtures("repository")
    def test_json_has_the_table(self, machine, capsys):
        machine((BASE_IMAGE,))
        enforced = {**SOUND, "pids": "no"}
        del enforced["seccomp"]
        machine.proven = ProvenLimits(enforced=enforced)
        assert run(["doctor", "--json"]) == 3
        limits = json.loads(capsys.readouterr().out)["limits"]
        assert limits == {**SOUND, "pids": "no", "seccomp": "unknown"}

    @pytest.mark.usefixtures("repository")
    def test_without_the_image_nothing_is_tested(self, machine, capsys):
        machine((DEFAULT_IMAGE,))
        run(["doctor", "--json"])
        limits = json.loads(capsys.readouterr().out)["limits"]
        assert limits == dict.fromkeys(SOUND, "unknown")

    @pytest.mark.usefixtures("repository")
    def test_another_kernel_is_shown(self, machine, capsys):
        machine((BASE_IMAGE,))
        machine.proven = machine.proven.model_copy(update={"boot": "another"})
        run(["doctor"])
        assert "✓ kernel: 6.1, not that of this machine" in capsys.readouterr().out


@pytest.mark.usefixtures("repository")
def test_mounts_are_tested_in_a_container(machine, capsys, monkeypatch):
    monkeypatch.setenv("ORCHESTRATOR_RUNTIME", "runsc")
    monkeypatch.setenv("ORCHESTRATOR_NETWORK", "none")
    machine((BASE_IMAGE, DEFAULT_IMAGE), works=False)
    assert run(["doctor"]) == 3
    ways = [{"overlay": True, "runtime": "runsc"}, {"overlay": False, "runtime": "runsc"}]
    assert machine.tried == ways
    said = "✗ worktrees: a container cannot write to files of this machine, and gets no copies"
    assert said in capsys.readouterr().out
    machine((DEFAULT_IMAGE,))
    assert run(["doctor"]) == 3
    assert "! worktrees: not checked: the base image is missing" in capsys.readouterr().out


@pytest.mark.usefixtures("repository")
def test_missing_engine_exits_7(machine, capsys):
    machine(None)
    assert run(["doctor"]) == 7
    assert capsys.readouterr().out.endswith("✗ engine: no engine\n    hint: start it\n")


def test_missing_repository_exits_3_and_other_checks_run(tmp_path, machine, monkeypatch, capsys):
    machine((BASE_IMAGE, DEFAULT_IMAGE))
    monkeypatch.chdir(tmp_path)
    assert run(["doctor"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"✗ repository: not a git repository: {tmp_path}"
    assert lines[-1].startswith("✓ machine")


@pytest.mark.usefixtures("repository")
def test_old_git_exits_3(machine, monkeypatch, capsys):
    machine((BASE_IMAGE, DEFAULT_IMAGE))
    monkeypatch.setattr(git, "version", lambda: (2, 29, 9))
    assert run(["doctor"]) == 3
    assert capsys.readouterr().out.startswith(
        "✗ git: version 2.29.9 is too old\n    hint: install git 2.30 or newer\n"
    )


@pytest.mark.usefixtures("repository")
def test_report_as_json(machine, capsys):
    machine((BASE_IMAGE,))
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert found["checks"][0] == {
        "name": "git", "state": "ok", "detail": "2.40.1", "hint": None, "exit_code": 0
    }  # fmt: skip


class TestConfiguration:
    """`doctor` checks what a run would do, by the file and the variables."""

    def doctor(self, capsys, *arguments: str) -> tuple[int, list[str]]:
        code = run(["doctor", *arguments])
        return code, capsys.readouterr().out.splitlines()

    def test_settings_of_the_discovered_file_are_checked(
        self, repository, machine, monkeypatch, capsys
    ):
        machine((BASE_IMAGE,))
        file = repository / "orchestrator.yaml"
        file.write_text("parallel_runs: {workers: 9}\ncontainer: {memory: 2g}")
        monkeypatch.setenv("ORCHESTRATOR_AGENT_CLI", "shell")
        code, lines = self.doctor(capsys)
        assert code == 0
        assert f"✓ configuration: {file}" in lines
        assert [line for line in lines if "image:" in line] == [f"✓ image: {BASE_IMAGE}, 1 GiB"]
        assert lines[-1] == (
            "! machine: 9 workers need about 9 CPUs and 18 GiB, the machine has 8 CPUs and "
            "32 GiB RAM: room for `--workers 8`"
        )

    def test_settings_of_the_named_file_are_checked(self, repository, machine, capsys):
        machine((BASE_IMAGE,))
        (repository / "mine.yaml").write_text(
            "parallel_runs: {image: my/image}\ncontainer: {runtime: kata, memory: 64g}"
        )
        code, lines = self.doctor(capsys, "--config", "mine.yaml")
        assert code == 3
        assert "✓ configuration: mine.yaml" in lines
        assert "✗ runtimes: no `kata`; configured: runc, runsc" in lines
        at = lines.index("✗ image: my/image is missing")
        assert lines[at + 1] == "    hint: pull or build the image"
        assert lines[-2:] == [
            "✗ machine: `memory` is 64 GiB, which is more than the engine has",
            "    hint: use at most 32768m",
        ]

    def test_invalid_file_is_reported_and_other_checks_run(self, repository, machine, capsys):
        machine((BASE_IMAGE, DEFAULT_IMAGE))
        file = repository / "orchestrator.yaml"
        file.write_text("parallel_runs:\n  wokers: 3\n  max_steps: -1")
        code, lines = self.doctor(capsys)
        assert code == 3
        at = lines.index("✗ configuration: 2 mistakes in the configuration:")
        assert lines[at + 1].startswith(f"  {file}:2: `parallel_runs.wokers` is unknown")
        assert lines[-1].startswith("✓ machine")

    @pytest.mark.usefixtures("repository")
    def test_missing_key_warns_and_missing_adapter_fails(self, machine, monkeypatch, capsys):
        machine((BASE_IMAGE, DEFAULT_IMAGE))
        monkeypatch.delenv("OPENAI_API_KEY")
        code, lines = self.doctor(capsys)
        assert code == 0
        assert "! key: no API key: the default model needs `OPENAI_API_KEY`" in lines
        monkeypatch.setenv("ORCHESTRATOR_AGENT_CLI", "nobody")
        code, lines = self.doctor(capsys)
        assert code == 3
        assert any(line.startswith("✗ agent: ") and "nobody" in line for line in lines)

    def test_all_problems_are_listed(self, repository, machine, capsys):
        machine((BASE_IMAGE, DEFAULT_IMAGE))
        (repository / "mine.yaml").write_text(
            "parallel_runs: {agent_cli: codex, budget_per_worker: 1, image: mine}\n"
            "container: {secrets: [NOPE], cpus: 99, memory: 900g}\n"
        )
        assert run(["doctor", "--config", "mine.yaml"]) == 3
        failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
        expected = (
            "`NOPE`",
            "`codex` does not support",
            "image: mine",
            "`cpus` is 99",
            "`memory` is 900",
        )
        for line, part in zip(failed, expected, strict=True):
            assert part in line

    def test_missing_file_of_the_agent_program_is_reported(self, repository, machine, capsys):
        machine((BASE_IMAGE, DEFAULT_IMAGE))
        (repository / "mine.yaml").write_text("parallel_runs: {agent_config: nope.yaml}")
        code, lines = self.doctor(capsys, "--config", "mine.yaml")
        assert code == 3
        assert any(
            f"`{repository / 'nope.yaml'}` cannot be read: No such" in line for line in lines
        )

    def test_setting_that_the_agent_does_not_support_is_reported(self, repository, machine, capsys):
        machine((BASE_IMAGE,))
        text = "parallel_runs: {agent_cli: codex, budget_per_worker: 1}"
        (repository / "orchestrator.yaml").write_text(text)
        code, lines = self.doctor(capsys, "--config", "orchestrator.yaml")
        assert code == 3
        refused = "`--budget-per-worker` (it does not report its cost)"
        assert f"✗ agent: `codex` does not support {refused}" in lines


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("images", "problem", "gateways", "said"),
    [
        ((BASE_IMAGE,), "no subnet is free", True, "no subnet is free"),
        ((BASE_IMAGE,), None, False, "not supported by this engine"),
        ((), None, True, "not checked: the base image is missing"),
    ],
)
def test_missing_gateways_are_a_warning(
    machine, capsys, monkeypatch, images, problem, gateways, said
):
    machine(images)
    machine.problem = problem
    monkeypatch.setattr(Engine, "gateways", gateways)
    run(["doctor"])
    assert f"! allow-lists: {said}" in capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("repository")
def test_missing_open_network_is_a_warning(machine, capsys, monkeypatch):
    machine((BASE_IMAGE,))
    monkeypatch.setattr(Engine, "open_network", False)
    run(["doctor"])
    said = "! open network: not supported by this engine, which is rootless"
    assert said in capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("repository")
def test_open_network_with_guards_is_shown(machine, capsys):
    machine((BASE_IMAGE,))
    machine.guards = "nsenter: not permitted"
    assert run(["doctor"]) == 0
    said = "✓ open network: filtered by one container per worker (nsenter: not permitted)"
    assert said in capsys.readouterr().out.splitlines()


class Cluster(Engine):
    """An engine that finds out by itself."""

    findings = (
        Finding("rights", "warn", "no right to `list` `events`", "apply it"),
        Finding("network policy", "ok", "enforced", enforced=True),
    )

    def check(self, *, images, runtime) -> EngineFeatures:
        limits = {**SOUND, "pids": "no", "network": "no"}
        return replace(super().check(images=images, runtime=runtime), enforced=limits)

    def diagnose(self, repository, images):
        assert BASE_IMAGE in images
        self.repository = repository
        yield from self.findings


@pytest.fixture
def cluster(machine, monkeypatch):
    """Return the engine that every command gets."""
    machine(())
    made = Cluster()
    monkeypatch.setattr(command, "load_engine", lambda _: made)
    return made


def test_engine_that_tests_itself_is_asked(repository, machine, capsys, monkeypatch):  # noqa: ARG001
    machine(())
    asked = []
    monkeypatch.setattr(command, "load_engine", lambda name: (asked.append(name), Cluster())[1])
    assert run(["doctor", "--engine", "kubernetes"]) == 3
    assert asked == ["kubernetes"]
    shown = capsys.readouterr().out
    assert "! rights: no right to `list` `events`\n    hint: apply it\n" in shown
    assert "✗ limits: pids: not enforced\n" in shown
    assert "seccomp, network: enforced by the nodes" in shown
    assert "image" not in shown


def test_cluster_is_tested_outside_of_a_repository(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCHESTRATOR_ALLOW_UNENFORCED", "pids")
    assert run(["doctor"]) == 3
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert [line.partition(":")[0] for line in failed] == ["✗ repository"]
    assert cluster.repository == str(tmp_path)


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("enforced", [None, False, True])
def test_network_is_unknown_unless_it_was_tested(cluster, capsys, enforced):
    cluster.findings = (Finding("rights", "fail", "none", "apply it", 3, enforced),)
    assert run(["doctor", "--json"]) == 3
    limits = json.loads(capsys.readouterr().out)["limits"]
    assert limits["network"] == {None: "unknown", False: "no", True: "kernel"}[enforced]

"""Tests that secrets are written to memory only, and removed."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.base import machine
from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import load_config
from orchestrator.config.settings.container import Isolation
from orchestrator.state import secret_files
from orchestrator.state.secret_files import forget, memory_root, read_secrets, readable_directory
from tests.support.errors import raises

OWNER = (os.getuid(), os.getgid())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a directory that counts as memory."""
    root = tmp_path / "memory"
    root.mkdir()
    monkeypatch.setattr(secret_files, "_candidates", lambda _: (root,))
    monkeypatch.setattr(secret_files, "is_in_memory", lambda directory: directory == root)
    return root


def test_values_come_from_variables_and_files(tmp_path: Path, memory: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff of a file\n")
    secrets = read_secrets(("A", f"B=@{file}"), {"A": "\udcfe of a variable"})
    assert secrets.values == {"A": b"\xfe of a variable", "B": b"\xff of a file\n"}
    assert secrets.root == memory


@pytest.mark.usefixtures("memory")
def test_all_missing_secrets_are_named(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (16 * 1024 + 1))
    with pytest.raises(ConfigError) as caught:
        read_secrets(("A", "B", f"C=@{large}", "D"), {"B": " 1234567\n", "D": "long enough"})
    assert caught.value.message == (
        "secret `A` is not set in the environment; secret `B` has no line of at least 8 bytes; "
        "secret `C` is larger than 16 KiB"
    )
    assert (
        caught.value.hint
        == "set the variable, or read the secret from a file with `--secret A=@FILE`"
    )


def test_directory_on_a_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert memory_root(environ) != tmp_path
    assert memory_root({"XDG_RUNTIME_DIR": "/dev/shm"}) == Path("/dev/shm")
    monkeypatch.setattr(secret_files, "_candidates", lambda _: (tmp_path, tmp_path / "none"))
    with raises("secret.no-memory") as caught:
        read_secrets(("A",), {"A": "long enough"})
    assert "/dev/shm" in str(caught.value.hint)
    assert read_secrets((), {}).root is None


def test_link_to_a_directory_in_memory_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/shm")
    assert memory_root({"XDG_RUNTIME_DIR": str(tmp_path / "link")}) == tmp_path / "link"


@pytest.mark.parametrize(
    ("mounts", "usable"),
    [
        (("/ ext4", "{0} tmpfs"), True),
        (("{0} tmpfs", "/ ext4"), True),
        (("/ tmpfs", "{0} ext4"), False),
        (("{0} tmpfs", "{0} ext4"), False),
        (("/ ext4", "{0}x tmpfs"), False),
    ],
)
def test_innermost_and_latest_mount_determines_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: tuple[str, ...], usable: bool
) -> None:
    root = tmp_path / "a directory"
    root.mkdir()
    written = str(root).replace(" ", "\\040")
    lines = [f"source {mount.format(written)} rw 0 0\n" for mount in mounts]
    (tmp_path / "mounts").write_text("".join(lines))
    monkeypatch.setattr(machine, "_MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(secret_files, "_candidates", lambda _: (root,))
    found = None
    with suppress(ConfigError):
        found = memory_root({})
    assert found == (root if usable else None)


def test_secrets_are_removed_after_an_error(memory: Path) -> None:
    secrets = read_secrets(("A",), {"A": "long enough"})
    with secrets.laid_out("run", 2, OWNER) as other:
        with suppress(ZeroDivisionError), secrets.laid_out("run", 1, OWNER) as given:
            assert given == memory / "orchestrator-run" / "worker-1"
            assert given.parent.stat().st_mode & 0o777 == 0o700
            assert given.stat().st_mode & 0o777 == 0o500
            assert (given / "A").stat().st_mode & 0o777 == 0o400
            raise ZeroDivisionError
        assert names(memory / "orchestrator-run") == ["worker-2"]
        assert (other / "A").read_text() == "long enough"
    assert names(memory) == []


def test_directory_of_another_user_is_refused(memory: Path, tmp_path: Path) -> None:
    secrets = read_secrets(("A",), {"A": "long enough"})
    (tmp_path / "trap" / "worker-1").mkdir(parents=True)
    (tmp_path / "trap" / "worker-1").chmod(0o755)
    (memory / "orchestrator-run").symlink_to(tmp_path / "trap")
    with raises("secret.directory"):
        secrets.laid_out("run", 1, OWNER).__enter__()
    forget("run", {})
    assert names(tmp_path / "trap") == ["worker-1"]
    assert (tmp_path / "trap" / "worker-1").stat().st_mode & 0o777 == 0o755
    assert (memory / "orchestrator-run").is_symlink()


def test_files_of_others_are_kept(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = read_secrets(("A",), {"A": "long enough"})
    (memory / "orchestrator-run").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: OWNER[0] + 1)
    with raises("secret.directory"):
        secrets.laid_out("run", 1, OWNER).__enter__()
    (memory / "orchestrator-run" / "private").write_text("theirs")
    assert secret_files.read_private("run", "private", {}) is None
    forget("run", {})
    assert names(memory / "orchestrator-run") == ["private"]


@pytest.mark.usefixtures("memory")
def test_files_belong_to_the_workers_user() -> None:
    owner = (20_001, 20_002) if os.getuid() == 0 else OWNER
    with read_secrets(("A",), {"A": "long enough"}).laid_out("run", 1, owner) as given:
        for path in (given, given / "A"):
            assert (path.stat().st_uid, path.stat().st_gid) == owner


@pytest.mark.usefixtures("memory")
def test_endless_secret_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="larger than 16 KiB"):
        read_secrets((f"A=@{tmp_path}/large",), {})


def test_full_memory_is_an_error_and_leaves_nothing(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    secrets = read_secrets(("A",), {"A": "long enough"})
    monkeypatch.setattr(os, "fchown", full)
    with raises("secret.unwritable", "No space left on device"):
        secrets.laid_out("run", 1, OWNER).__enter__()
    assert names(memory) == []


def test_forget_removes_one_run(memory: Path) -> None:
    secrets = read_secrets(("A",), {"A": "long enough"})
    secrets.laid_out("dead", 1, OWNER).__enter__()
    with secrets.laid_out("live", 1, OWNER) as live:
        forget("dead", {})
        forget("dead", {})
        assert names(memory) == ["orchestrator-live"]
        assert (live / "A").exists()


def load(secrets: tuple[str, ...] | None, file: Path | None = None) -> tuple[str, ...]:
    environ = {"ORCHESTRATOR_SECRETS": "/run/secrets"}
    options = {"tasks": ("t",), "secrets": secrets}
    return load_config(options=options, environ=environ, top=None, file=file).isolation.secrets


def test_secrets_of_file_and_options_are_combined(tmp_path: Path) -> None:
    file = tmp_path / "orchestrator.yaml"
    file.write_text("container: {secrets: [A, B]}\n")
    assert load(None, file) == ("A", "B")
    assert load(("C", "B=@b.key"), file) == ("A", "B=@b.key", "C")
    file.write_text("container: {secrets: [A, KEYS=@/home/user/.ssh/id_rsa]}\n")
    with pytest.raises(ConfigError) as caught:
        load(None, file)
    assert caught.value.message == (
        f"{file}:1: `container.secrets` must hold names only; use `--secret NAME=@FILE` for files"
    )


@pytest.mark.parametrize("entry", ["A=the value", "", "a-b", "../x", "A=@", "1A", "A/B", "x" * 101])
def test_value_or_path_is_not_a_name(entry: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load((entry,))
    assert caught.value.message == (
        "option `--secret`: a secret must be written as `NAME` or `NAME=@FILE`, never as its value"
    )
    with pytest.raises(ValueError, match="never as its value") as raised:
        Isolation(secrets=(entry,))
    assert "the value" not in str(raised.value)


def test_readable_directory_is_removed(memory: Path) -> None:
    with readable_directory(memory, "run") as directory:
        (directory / "shown").touch()
        assert directory.stat().st_mode & 0o777 == 0o755
        assert directory.parent.stat().st_mode & 0o777 == 0o700
    assert names(memory) == []


def test_readable_directory_of_a_killed_process_is_forgotten(memory: Path) -> None:
    killed = readable_directory(memory, "run")
    (killed.__enter__() / "shown").touch()
    # A resumed run makes it again; a cleanup removes it.
    with readable_directory(memory, "run") as directory:
        assert names(directory) == []
        (directory / "shown").touch()
        forget("run", {})
        assert names(memory) == []

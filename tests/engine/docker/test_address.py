"""Tests that the daemon's address is found as Docker's own client finds it."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.engine.docker.address import LOCAL_SOCKET, Address, chosen_address
from orchestrator.engine.docker.connection import connect
from orchestrator.engine.docker.requirements import check_address
from tests.support.errors import raises
from tests.support.own_daemon import make_certificates


def make_context(folder: Path, name: str, host: str, **more: Any) -> Path:
    key = sha256(name.encode()).hexdigest()
    place = folder / "contexts/meta" / key
    place.mkdir(parents=True)
    endpoint = {"Host": host, "SkipTLSVerify": False, **more}
    meta = {"Name": name, "Metadata": {"Description": "x"}, "Endpoints": {"docker": endpoint}}
    (place / "meta.json").write_text(json.dumps(meta))
    return folder / "contexts/tls" / key / "docker"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "docker"
    place.mkdir()
    make_context(place, "mine", "unix:///run/mine.sock")
    make_context(place, "other", "unix:///run/other.sock")
    (place / "config.json").write_text('{"currentContext": "other", "auths": {}}')
    return place


def test_order_is_that_of_dockers_client(folder: Path) -> None:
    environ = {"DOCKER_CONFIG": str(folder)}
    assert chosen_address(environ).url == "unix:///run/other.sock"
    environ["DOCKER_CONTEXT"] = "mine"
    assert chosen_address(environ).url == "unix:///run/mine.sock"
    environ["DOCKER_HOST"] = "unix:///run/host.sock"
    assert chosen_address(environ).url == "unix:///run/host.sock"
    environ |= {"DOCKER_HOST": "", "DOCKER_CONTEXT": "default"}
    assert chosen_address(environ) == Address(LOCAL_SOCKET)


def test_configuration_is_in_the_home_directory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.rename(tmp_path / ".docker")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = chosen_address({})
    assert (found.url, found.source) == ("unix:///run/other.sock", "context `other`")
    assert found.options == {"base_url": "unix:///run/other.sock"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"currentContext": 7}', "{}", None])
def test_without_a_readable_choice_the_local_daemon_is_used(folder: Path, text: str | None) -> None:
    file = folder / "config.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    assert chosen_address({"DOCKER_CONFIG": str(folder)}) == Address(LOCAL_SOCKET)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"Name": "mine", "Endpoints": {}}',
                                  '{"Name": "mine", "Endpoints": {"docker": {"Host": 7}}}',
                                  '{"Name": "x", "Endpoints": {"docker": {"Host": "unix:///y"}}}',
                                  '{"Name": "mine", "Endpoints": {"docker": {}}}',
                                  " " * 2**20 + "{}", None])  # fmt: skip
def test_context_that_cannot_be_read_is_refused(folder: Path, text: str | None) -> None:
    file = folder / "contexts/meta" / sha256(b"mine").hexdigest() / "meta.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match="`mine`") as caught:
        chosen_address({"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": "mine"})
    assert "`unset DOCKER_CONTEXT`" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["../../mine", "nobody", "\x1b[2Jx", "a\nb", "\udcff"])
def test_name_of_a_context_is_no_path(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen_address({"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": name})
    assert not {"\x1b", "\n"} & set(f"{caught.value.message}")


def test_context_brings_its_certificates(folder: Path) -> None:
    place = make_context(folder, "far", "tcp://far.example:2376")
    place.parent.mkdir(parents=True)
    make_certificates(place, "127.0.0.1")
    address = chosen_address({"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": "far"})
    assert address.has_tls
    assert address.options["base_url"] == "https://far.example:2376"
    assert address.options["tls"].verify is True
    check_address(address)


def test_context_of_another_machine_needs_ssh_or_tls(folder: Path) -> None:
    make_context(folder, "safe", "ssh://me@far.example")
    check_address(chosen_address({"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": "safe"}))
    make_context(folder, "far", "tcp://far.example:2375")
    address = chosen_address({"DOCKER_CONFIG": str(folder), "DOCKER_CONTEXT": "far"})
    with raises("engine.no-tls", "context `far`", "`unset DOCKER_CONTEXT`"):
        check_address(address)


@pytest.mark.parametrize("host", ["tcp://h:1", "http://h:1"])
def test_an_address_without_tls_is_refused_whatever_chose_it(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    monkeypatch.delenv("DOCKER_CERT_PATH", raising=False)
    for source in ("", "DOCKER_HOST", "context `x`"):
        with raises("engine.no-tls"):
            check_address(Address(host, source))


def test_missing_certificates_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    every = ("ca.pem", "cert.pem", "key.pem")
    for given, there, missing in (
        (None, (), every),
        ("", (), every),
        (str(tmp_path / "certs"), ("cert.pem", "key.pem"), ("ca.pem",)),
        (str(tmp_path / "certs"), ("ca.pem", "cert.pem"), ("key.pem",)),
    ):
        folder = Path(given) if given else tmp_path / ".docker"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in there:
            (folder / name).write_text("")
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
        if given is None:
            monkeypatch.delenv("DOCKER_CERT_PATH", raising=False)
        else:
            monkeypatch.setenv("DOCKER_CERT_PATH", given)
        named = [f"`{name}`" for name in missing]
        with raises("engine.no-certificates", str(folder), *named, "DOCKER_CERT_PATH"):
            connect(Address(url="tcp://127.0.0.1:2376", source="DOCKER_HOST"))

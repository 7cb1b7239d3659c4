"""Tests of engines on other machines that are reached by `ssh`."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError, EngineUnavailableError, PortTakenError
from orchestrator.engine.docker.ssh import SshTunnel, listens, split_address
from tests.support.ssh import FakeSsh

pytestmark = pytest.mark.process


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    place = tmp_path / "ssh"
    place.mkdir()
    fake = FakeSsh(place)
    monkeypatch.setenv("PATH", fake.path)
    return fake


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Path]:
    """A socket whose listener answers each connection with what it was sent, in capitals."""
    path = tmp_path / "engine.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(ConnectionError):
                    while data := connection.recv(1 << 16):
                        connection.sendall(data.upper())

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield path
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _ask(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(10)
        asked.connect(str(path))
        asked.sendall(b"question")
        return asked.recv(100)


@pytest.mark.parametrize("forwards", [True, False], ids=["forwarding", "dial-stdio"])
def test_engine_is_reached_and_nothing_is_left(ssh: FakeSsh, engine: Path, forwards: bool) -> None:
    if not forwards:
        ssh.forbid_forwarding()
        ssh.give_docker(engine)
    tunnel = SshTunnel(f"ssh://ann@build.example:2222{engine}")
    assert [_ask(tunnel.socket) for _ in range(3)] == [b"QUESTION"] * 3
    first = ssh.asked[0]
    assert first[-2:] == ["--", "build.example"]
    assert ("-p", "2222") in pairwise(first)
    assert ("-l", "ann") in pairwise(first)
    assert "BatchMode=yes" in first
    tunnel.close()
    assert not tunnel.socket.parent.exists()
    for pid in ssh.pids:
        _wait_for_end(pid)


HOSTILE = """\
Host *
 BatchMode no
 ControlMaster auto
 ControlPath ~/.ssh/shared-%C
 ControlPersist 10m
 ForkAfterAuthentication yes
 StdinNull yes
 SessionType subsystem
 ExitOnForwardFailure yes
 ClearAllForwardings yes
 RemoteCommand tmux
 RequestTTY force
 PermitLocalCommand yes
 LocalCommand touch ran
 Tunnel yes
 ForwardAgent yes
 ForwardX11 yes
 EscapeChar ~
 EnableEscapeCommandline yes
 GatewayPorts yes
 StreamLocalBindUnlink no
 StreamLocalBindMask 0111
 VisualHostKey yes
 LogLevel DEBUG3
 ServerAliveInterval 0
 ConnectTimeout 999
"""
DECIDED = {
    "batchmode": "yes", "connecttimeout": "20", "serveraliveinterval": "15",
    "serveralivecountmax": "4", "controlpersist": "no", "remotecommand": None,
    "permitlocalcommand": "no", "tunnel": "false", "forwardagent": "no", "forwardx11": "no",
    "requesttty": "false", "escapechar": "none", "gatewayports": "no", "clearallforwardings": "no",
    "exitonforwardfailure": "no", "streamlocalbindunlink": "yes",
    "visualhostkey": "no", "loglevel": "ERROR", "forkafterauthentication": "no", "stdinnull": "no",
    "sessiontype": ("none", "default"), "controlmaster": ("true", "false"),
}  # fmt: skip
USERS = {
    # Where the other machine is, how it is reached, and who may do so.
    *("host", "hostname", "port", "user", "addressfamily", "bindaddress", "bindinterface"),
    *("proxycommand", "proxyjump", "proxyusefdpass", "canonicaldomains", "canonicalizehostname"),
    *("canonicalizefallbacklocal", "canonicalizemaxdots", "canonicalizepermittedcnames"),
    *("connectionattempts", "tcpkeepalive", "ipqos", "compression", "rekeylimit"),
    # Keys and trust.
    *("addkeystoagent", "identityagent", "identitiesonly", "identityfile", "certificatefile"),
    *("casignaturealgorithms", "checkhostip", "ciphers", "macs", "kexalgorithms"),
    *("hostkeyalgorithms", "hostkeyalias", "hostbasedacceptedalgorithms", "fingerprinthash"),
    *("hostbasedauthentication", "enablesshkeysign", "globalknownhostsfile", "hashknownhosts"),
    *("knownhostscommand", "userknownhostsfile", "stricthostkeychecking", "updatehostkeys"),
    *("verifyhostkeydns", "nohostauthenticationforlocalhost", "requiredrsasize", "warnweakcrypto"),
    *(
        "pubkeyacceptedalgorithms",
        "pubkeyauthentication",
        "passwordauthentication",
        "pkcs11provider",
    ),
    *("kbdinteractiveauthentication", "kbdinteractivedevices", "numberofpasswordprompts"),
    *("preferredauthentications", "securitykeyprovider", "revokedhostkeys", "gssapiauthentication"),
    *("gssapidelegatecredentials", "gssapikexalgorithms", "gssapikeyexchange", "gssapitrustdns"),
    *("gssapirenewalforcesrekey", "gssapiclientidentity", "gssapiserveridentity"),
    # Without effect on a connection without a terminal, X11, or commands of its own; what is said
    # goes to a log of ours; other names.
    *("enableescapecommandline", "forwardx11timeout", "forwardx11trusted", "xauthlocation"),
    *("logverbose", "syslogfacility", "tunneldevice", "sendenv", "setenv", "localcommand"),
    *("permitremoteopen", "obscurekeystroketiming", "channeltimeout", "ignoreunknown", "tag"),
    *("versionaddendum", "refuseconnection", "controlpath"),
    # OpenSSH takes the configuration's before that of an option; the directory is private.
    "streamlocalbindmask",
    # Forwardings of the user's configuration are made as well, and may fail.
    *("localforward", "remoteforward", "dynamicforward"),
}
"""Keywords of `ssh` that the user's configuration decides, or that change nothing."""


def test_configuration_of_the_user_does_not_change_what_the_tunnel_is(
    ssh: FakeSsh, engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh.forbid_forwarding()
    ssh.give_docker(engine)
    tunnel = SshTunnel(f"ssh://build.example{engine}")
    assert _ask(tunnel.socket) == b"QUESTION"
    tunnel.close()
    master, session = ssh.asked[0], next(words for words in ssh.asked if "dial-stdio" in words[-1])
    monkeypatch.undo()
    file = tmp_path / "config"
    file.write_text(HOSTILE)
    for index, words in enumerate((master, session)):
        at = words.index("--")
        command = ("ssh", "-G", "-F", str(file), *words[:at], words[at + 1])
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        read = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
        for name, expected in DECIDED.items():
            value = expected[index] if isinstance(expected, tuple) else expected
            assert read.get(name) == value, (name, read.get(name))
        assert str(tunnel.socket.parent) in read["controlpath"]
        # A newer `ssh` has further keywords: decide on each.
        assert {name.lower() for name in read} - DECIDED.keys() - USERS == set()


def test_broken_connection_is_made_again(ssh: FakeSsh, engine: Path) -> None:
    tunnel = SshTunnel(f"ssh://build.example{engine}")
    os.kill(ssh.pids[0], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while len(ssh.pids) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while True:
        with suppress(OSError):
            assert _ask(tunnel.socket) == b"QUESTION"
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    tunnel.close()
    _wait_for_end(ssh.pids[-1])


def test_ssh_ends_with_a_killed_client(ssh: FakeSsh, engine: Path) -> None:
    code = (
        "import os, signal; from orchestrator.engine.docker.ssh import SshTunnel; "
        f"SshTunnel('ssh://build.example{engine}'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with tempfile.TemporaryDirectory() as short:
        environ = {**os.environ, "TMPDIR": short}
        subprocess.run((sys.executable, "-c", code), check=False, env=environ)
        _wait_for_end(ssh.pids[0])
        deadline = time.monotonic() + 20
        while list(Path(short).iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_ports_lead_from_this_machine_only(ssh: FakeSsh, engine: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tunnel = SshTunnel(f"ssh://build.example{engine}")
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match="cannot forward port"):
            tunnel.forward(port)
    tunnel.forward(port)
    tunnel.forward(port)
    assert listens(port)
    asked = [words for words in ssh.asked if "-O" in words]
    way = f"127.0.0.1:{port}:127.0.0.1:{port}"
    assert [words[words.index("-L") + 1] for words in asked] == [way] * 2
    tunnel.close()
    assert not listens(port)


def test_process_has_one_connection_to_each_address(ssh: FakeSsh, engine: Path) -> None:
    code = (
        "from orchestrator.engine.docker.ssh import tunnel_to; "
        f"found = [tunnel_to('ssh://build.example{engine}') for _ in range(3)]; "
        "assert len(set(found)) == 1"
    )
    with tempfile.TemporaryDirectory() as short:
        environ = {**os.environ, "TMPDIR": short}
        subprocess.run((sys.executable, "-c", code), check=True, env=environ)
        assert list(Path(short).iterdir()) == []
    _wait_for_end(ssh.pids[0])
    assert len(ssh.pids) == 1


def test_refusal_names_the_last_words_of_ssh(ssh: FakeSsh) -> None:
    ssh.fail()
    with pytest.raises(EngineUnavailableError) as error:
        SshTunnel("ssh://build.example")
    assert "Permission denied" in error.value.message
    assert "\x1b" not in error.value.message
    assert "banner" not in error.value.message


@pytest.mark.parametrize(
    "address",
    [
        "ssh://", "ssh://-oProxyCommand=id", "ssh://a:secret@host", "ssh://host:port", "tcp://host",
        "ssh://-l@host", "ssh://a%20b@host", "ssh://host?a=b",
    ],
)  # fmt: skip
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        split_address(address)


def test_address_without_a_path_means_the_usual_socket() -> None:
    assert split_address("ssh://host") == ("host", (), "/var/run/docker.sock")
    assert split_address("ssh://host/run/a.sock")[2] == "/run/a.sock"


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 20
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.05)
        pytest.fail(f"process {pid} still runs")

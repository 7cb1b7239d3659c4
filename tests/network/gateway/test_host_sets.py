"""Tests of sets of hosts: they come from the configuration of tools, on a machine made here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.network.gateway.allowed_host import AllowedHost
from orchestrator.network.gateway.host_sets import HostSets
from orchestrator.network.gateway.package_managers import FoundUrl, Machine
from tests.support.errors import raises

PIP_MODEL = """
PyPI = PackageIndex("https://index.example/", file_storage_domain="files.example")
TestPyPI = PackageIndex(
    "https://test.example/", file_storage_domain="test-files.example"
)
"""
NPM_MODEL = "define('registry', {\n  default: 'https://npm.example/',\n  type: url,\n})\n"
Sets = Callable[..., HostSets]


class Made:
    """A machine without tools, whose files a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"HOME": str(root / "home"), "PATH": str(root / "bin")}

    def write(self, path: str, text: str) -> str:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)

    def program(self, name: str, place: str) -> None:
        """Install a program elsewhere, with a link to it on the search path."""
        target = Path(self.write(place, "#!/bin/sh\n"))
        target.chmod(0o755)
        (self.root / "bin").mkdir(exist_ok=True)
        (self.root / "bin" / name).symlink_to(target)

    def entries(self, name: str) -> list[str]:
        return [member.entry for member in self.sets().members(name)]

    def sets(self) -> HostSets:
        return HostSets(machine=Machine(environ=self.environ, root=self.root))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


@pytest.mark.parametrize("name", ["pip", "npm", "cargo", "go", "apt", "git"])
def test_set_of_a_tool_that_is_not_here_is_empty(made: Made, name: str) -> None:
    assert made.entries(name) == []
    with raises("allow-set.empty", f"`@{name}`"):
        list(made.sets().hosts([f"@{name}"]))


def test_pip_has_its_own_default(made: Made) -> None:
    made.write("usr/lib/python3/dist-packages/pip/_internal/models/index.py", PIP_MODEL)
    assert made.entries("pip") == ["index.example", "files.example"]
    made.write("etc/pip.conf", "[global]\nextra-index-url = https://more.example/simple\n")
    assert made.entries("pip") == ["index.example", "files.example", "more.example"]


def test_pip_uses_the_mirror_of_the_company_alone(made: Made) -> None:
    made.write("usr/lib/python3/dist-packages/pip/_internal/models/index.py", PIP_MODEL)
    made.write("etc/pip.conf", "[global]\nindex_url = https://old.example/simple\n")
    place = made.write(
        "home/.config/pip/pip.conf",
        "[global]\nindex-url = https://me:word@mirror.example:8443/simple\n"
        "find-links =\n    /opt/wheels\n    http://wheels.example\n",
    )
    members = made.sets().members("pip")
    assert [(one.entry, one.source) for one in members] == [
        ("mirror.example:8443", place), ("http://wheels.example", place),
    ]  # fmt: skip
    made.environ["PIP_INDEX_URL"] = "https://variable.example/"
    assert made.entries("pip") == ["variable.example", "http://wheels.example"]
    made.environ["PIP_CONFIG_FILE"] = "/dev/null"
    made.environ["UV_INDEX"] = "corp=https://uv.example/?a=b"
    assert made.entries("pip") == ["variable.example", "uv.example"]


def test_indexes_of_uv_are_in_the_set_of_pip(made: Made) -> None:
    made.write(
        "home/.config/uv/uv.toml",
        'index-url = "https://one.example"\n[[index]]\nurl = "https://two.example"\n'
        '[pip]\nextra-index-url = ["https://three.example"]\n',
    )
    assert made.entries("pip") == ["one.example", "two.example", "three.example"]


def test_npm_has_its_own_default_and_scopes(made: Made) -> None:
    made.program("npm", "lib/npm/bin/npm-cli.js")
    module = "@npmcli/config/lib/definitions/definitions.js"
    made.write(f"lib/npm/node_modules/{module}", NPM_MODEL)
    made.write("home/.npmrc", "@mine:registry=https://${TEAM}.example/\n//npm.example/:_auth=x\n")
    made.environ["TEAM"] = "scoped"
    assert made.entries("npm") == ["npm.example", "scoped.example"]
    made.write("etc/npmrc", 'registry = "http://mirror.example:4873/"\n')
    assert made.entries("npm") == ["http://mirror.example:4873", "scoped.example"]
    made.environ["npm_config_registry"] = "https://variable.example"
    assert made.entries("npm") == ["variable.example", "scoped.example"]


def test_cargo_has_the_registries_that_it_used(made: Made) -> None:
    index = "home/.cargo/registry/index/index.example-0123456789abcdef/config.json"
    made.write(index, '{"dl": "https://files.example/crates", "api": null}')
    assert made.entries("cargo") == ["index.example", "files.example"]
    made.write(
        "home/.cargo/config.toml",
        '[source.x]\nreplace-with = "y"\n[source.y]\nregistry = "sparse+https://y.example/i/"\n'
        '[registries.z]\nindex = "https://z.example/git"\n[source.v]\ndirectory = "/vendor"\n',
    )
    assert made.entries("cargo") == ["y.example", "z.example"]


def test_go_has_proxies_and_the_checksum_database(made: Made) -> None:
    made.program("go", "lib/go/bin/go")
    made.write("lib/go/go.env", "# x\nGOPROXY=https://proxy.example,direct\nGOSUMDB=sum.example\n")
    assert made.entries("go") == ["proxy.example", "sum.example"]
    made.write("home/.config/go/env", "GOPROXY=https://a.example|http://b.example:3000,off\n")
    assert made.entries("go") == ["a.example", "http://b.example:3000", "sum.example"]
    made.environ["GOSUMDB"] = "off"
    assert made.entries("go") == ["a.example", "http://b.example:3000"]
    made.environ["GOSUMDB"] = "sum.example+key https://mirror.example/sumdb"
    assert made.entries("go")[2:] == ["mirror.example"]


def test_apt_has_its_sources(made: Made) -> None:
    made.write(
        "etc/apt/sources.list",
        "# deb http://off.example x main\n"
        "deb [arch=amd64 signed-by=/k] http://one.example/d x main\n"
        "deb-src https://two.example:8443/ x main\ndeb cdrom:[x]/ x main\n",
    )
    made.write(
        "etc/apt/sources.list.d/a.sources",
        "Types: deb\nURIs: http://three.example/d\n https://four.example/\nSuites: x\n\n"
        "Types: deb\nURIs: https://off.example/\nEnabled: no\n",
    )
    assert made.entries("apt") == [
        "http://one.example", "two.example:8443", "http://three.example", "four.example",
    ]  # fmt: skip


def test_git_has_the_remotes_that_use_http() -> None:
    urls = ("https://me@code.example/x.git", "git@ssh.example:x.git", "/srv/x.git",
            "https://code.example/y.git", "http://plain.example:3000/x")  # fmt: skip
    found = HostSets(remotes=lambda: [FoundUrl(url, f"remote {url[-5:]}") for url in urls])
    assert [one.entry for one in found.members("git")] == [
        "code.example", "http://plain.example:3000",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "https://me:S3cr[etT0ken@git.example.com/a.git",
        "https://me:S3cr/etT0ken@git.example.com/a.git",
        "https://me:12/S3cretT0ken@git.example.com/a.git",
        "https://S3cret/T0ken@git.example.com/a.git",
        "https://me:12#S3cretT0ken@git.example.com/a.git",
        "https://me:12?S3cretT0ken@git.example.com/a.git",
        "https://me:S3cr@etT0ken@git.example.com:443x/a.git",
        "https://git.example.com:44x/a.git?token=S3cretT0ken",
        "https://me:S3cr\u2100etT0ken@git.example.com/a.git",
    ],
)
def test_url_that_cannot_be_read_is_never_shown(url: str) -> None:
    sets = HostSets(remotes=lambda: [FoundUrl(url, "remote origin")])
    (member,) = sets.members("git")
    assert (member.entry, member.source) == ("a URL that cannot be read", "remote origin")
    with raises("allow-set.invalid", "from remote origin: ") as caught:
        list(sets.hosts(["@git"]))
    shown = f"{caught.value} {caught.value.hint}"
    assert not [part for part in ("S3cr", "T0ken", ":12", "443x") if part in shown]


def test_path_of_a_url_may_contain_a_sign_of_credentials() -> None:
    url = "https://registry.example:8443/@scope/"
    sets = HostSets(remotes=lambda: [FoundUrl(url, "remote origin")])
    assert [one.entry for one in sets.members("git")] == ["registry.example:8443"]


def test_broken_files_are_no_error(made: Made) -> None:
    for path in (
        "etc/pip.conf", "home/.npmrc", "home/.cargo/config.toml", "home/.config/uv/uv.toml",
        "home/.cargo/registry/index/x-0/config.json", "home/.config/go/env", "etc/apt/sources.list",
    ):  # fmt: skip
        made.write(path, "[[[[\n\0 = = [\n[global\nindex-url")
    for name in ("pip", "npm", "go", "apt"):
        assert made.entries(name) == []
    assert made.entries("cargo") == ["x"]


def test_own_sets_take_precedence_and_are_expanded(made: Made) -> None:
    sets = HostSets(
        own={"pip": ("a.example",), "docs": ("http://b.example", "*.c.example:8443")},
        machine=Machine(environ=made.environ, root=made.root),
    )
    assert list(sets.hosts(["@pip", "x.example", "@docs=10.0.0.0/8"])) == [
        AllowedHost(name="a.example"),
        AllowedHost(name="x.example"),
        AllowedHost(name="b.example", port=80, plain=True, network="10.0.0.0/8"),
        AllowedHost(name="c.example", below=True, port=8443, network="10.0.0.0/8"),
    ]


@pytest.mark.parametrize(
    ("own", "entry", "message"),
    [
        ({}, "@pips", "there is no set `@pips`"),
        ({"a": ("@git",)}, "@a", "a set cannot contain the set `@git`"),
        (
            {"a": ("10.1.2.3",)},
            "@a",
            "`@a`, from allow_sets: .*the name is not the full name of a host",
        ),
        ({"a": ("b.example=10.0.0.0/8",)}, "@a=10.0.0.0/8", "invalid IPv4 network"),
    ],
)
def test_unusable_sets_are_refused(
    own: dict[str, tuple[str, ...]], entry: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        list(HostSets(own=own).hosts([entry]))

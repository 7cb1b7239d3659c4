"""Tests of the list of the software in an image, from the files of images that lie."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.base.errors import ImageNotFoundError
from orchestrator.engine.images.sbom import software_bill
from orchestrator.engine.interface.image_protocol import ImageInfo

NPM = "/opt/agent/node_modules/.package-lock.json"


@dataclass
class Engine:
    """An engine with one image, whose files are given."""

    content: Mapping[str, bytes] = field(default_factory=dict)

    def image_info(self, image: str) -> ImageInfo | None:
        labels = {"orchestrator.recipe": "ab"}
        created = "2026-11-25T22:35:21.123456789Z"
        known = ImageInfo(id=f"sha256:{'0' * 64}", size=1, created=created, labels=labels)
        return known if image == "known" else None

    def files(
        self, image: str, top: str, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, bytes]]:
        assert image == "known"
        below = ((path, data) for path, data in self.content.items() if path.startswith(top))
        yield from ((path, data) for path, data in below if wanted(path))


def components(files: Mapping[str, bytes]) -> dict[str, Any]:
    bill = software_bill(Engine(files), "known")
    assert json.loads(json.dumps(bill)) == bill
    return {one["purl"]: one for one in bill["components"]}


def test_image_itself_is_described() -> None:
    bill = software_bill(Engine(), "known")
    image = bill["metadata"]["component"]
    assert (image["name"], image["hashes"][0]["content"]) == ("known", "0" * 64)
    assert image["properties"] == [{"name": "orchestrator.recipe", "value": "ab"}]
    assert bill["metadata"]["timestamp"] == "2026-11-25T22:35:21Z"
    assert bill == software_bill(Engine(), "known")
    with pytest.raises(ImageNotFoundError):
        software_bill(Engine(), "unknown")


def test_packages_of_debian_are_listed_if_they_are_installed() -> None:
    status = (
        b"Package: git\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.47.3-0+x\n"
        b"\nPackage: old\nStatus: deinstall ok config-files\nVersion: 1\n"
        b"\nPackage: lib\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2\n"
    )
    found = components({
        "/var/lib/dpkg/status": status, "/usr/lib/os-release": b'ID=debian\nVERSION_ID="13"\n',
        "/var/lib/dpkg/info/lib:amd64.md5sums": b"x",
    })  # fmt: skip
    ending = "?arch=amd64&distro=debian-13"
    assert {*found} == {
        f"pkg:deb/debian/git@1:2.47.3-0%2Bx{ending}", f"pkg:deb/debian/lib@2{ending}"
    }  # fmt: skip
    assert "properties" in found[f"pkg:deb/debian/lib@2{ending}"]


def test_packages_of_python_and_npm_are_listed() -> None:
    info = "/opt/agent/lib/python3.13/site-packages/Foo_Bar-1.0.dist-info"
    lock = {"packages": {
        "node_modules/@a/b": {"version": "2.0.0", "integrity": "sha512-AAEC"},
        "node_modules/x/node_modules/c": {"version": "3", "integrity": "md5-AAEC"},
    }}  # fmt: skip
    found = components({
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: Foo_Bar\nVersion: 1.0\n\nName: none\n",
        f"{info}/RECORD": b"", NPM: json.dumps(lock).encode(),
    })  # fmt: skip
    assert {*found} == {"pkg:pypi/foo-bar@1.0", "pkg:npm/%40a/b@2.0.0", "pkg:npm/c@3"}
    assert found["pkg:npm/%40a/b@2.0.0"]["hashes"] == [{"alg": "SHA-512", "content": "000102"}]
    assert "hashes" not in found["pkg:npm/c@3"]


@pytest.mark.parametrize(
    "lock", [b"", b"[" * 100_000, b"[]", b'{"packages": []}', b'{"packages": {"a": 1}}', b"\xff"]
)
def test_broken_lock_file_is_left_out(lock: bytes) -> None:
    assert components({NPM: lock}) == {}


def test_names_of_a_hostile_image_are_bounded_and_encoded() -> None:
    name = "a/b?x=1#\u202e\u001b[31m" + "n" * 10_000
    status = f"Package: {name}\nStatus: install ok installed\nVersion: \x00 1\n".encode()
    ((purl, one),) = components({"/var/lib/dpkg/status": status}).items()
    assert purl.isascii()
    assert purl.count("?") == 1
    assert "#" not in purl
    assert len(one["name"]) <= 500

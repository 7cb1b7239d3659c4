"""List the software in an image as a software bill of materials (SBOM), in CycloneDX's format.

The packages are read from the files of the image itself, in which nothing is started: the database
of dpkg, the metadata of Python packages, and the lock files that npm writes at an installation.
"""

import base64
import binascii
import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from email.parser import BytesHeaderParser
from typing import Any, Final
from urllib.parse import quote

from orchestrator.base.errors import ImageNotFoundError
from orchestrator.base.text.version import __version__
from orchestrator.engine.images.recipes import RECIPE
from orchestrator.engine.interface.image_protocol import ImageEngine, ImageInfo

_DPKG: Final = "/var/lib/dpkg"
_RELEASE: Final = "/usr/lib/os-release"
_PLACES: Final = ("/opt/agent", "/opt/broker", "/usr/local/lib")
"""Directories in which programs are installed other than by dpkg."""
_PYTHON: Final = re.compile(r"\.dist-info/(METADATA|RECORD)$")
_NPM: Final = "/node_modules/.package-lock.json"
_SPACE: Final = uuid.UUID("6f1f9a5e-4d5b-5c53-9a87-1c7a2f1b7c0e")
_LONGEST: Final = 500
"""Maximum number of characters of a name or version, which a project's image may choose freely."""


def software_bill(engine: ImageEngine, image: str) -> dict[str, Any]:
    """Return the SBOM of an image as a document of CycloneDX 1.6.

    Raises:
        ImageNotFoundError: The engine does not have the image.
    """
    info = engine.image_info(image)
    if info is None:
        raise ImageNotFoundError(
            f"there is no image `{image}`",
            key="image.missing",
            hint="`orchestrator image ls` lists the images",
        )
    found = {component["bom-ref"]: component for component in _components(engine, image)}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, info.id)}",
        "version": 1,
        "metadata": {
            "timestamp": re.sub(r"\.\d+", "", info.created),
            "tools": {
                "components": [
                    {"type": "application", "name": "orchestrator", "version": __version__}
                ]
            },
            "component": _described(image, info),
        },
        "components": [found[key] for key in sorted(found)],
    }


def _described(image: str, info: ImageInfo) -> dict[str, Any]:
    digest = info.id.removeprefix("sha256:")
    recipe = info.labels.get(RECIPE)
    return {
        "type": "container",
        "bom-ref": info.id,
        "name": image,
        "version": info.id,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        **({"properties": [{"name": RECIPE, "value": recipe[:_LONGEST]}]} if recipe else {}),
    }


def _components(engine: ImageEngine, image: str) -> Iterator[dict[str, Any]]:
    release = dict(engine.files(image, _RELEASE, lambda _: True)).get(_RELEASE, b"")
    yield from _of_dpkg(dict(engine.files(image, _DPKG, _is_of_dpkg)), release)
    for place in _PLACES:
        records: dict[str, bytes] = {}
        for path, content in engine.files(image, place, _is_metadata):
            if path.endswith(_NPM):
                yield from _of_npm(content)
            else:
                records[path] = content
        yield from _of_python(records)


def _is_of_dpkg(path: str) -> bool:
    return path == f"{_DPKG}/status" or path.endswith(".md5sums")


def _is_metadata(path: str) -> bool:
    return path.endswith(_NPM) or bool(_PYTHON.search(path))


def _of_dpkg(files: Mapping[str, bytes], release: bytes) -> Iterator[dict[str, Any]]:
    known = dict(
        line.split("=", 1) for line in release.decode(errors="replace").split("\n") if "=" in line
    )
    system, number = (known.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    for entry in files.get(f"{_DPKG}/status", b"").split(b"\n\n"):
        package = BytesHeaderParser().parsebytes(entry)
        if str(package.get("Status", "")).split()[-1:] != ["installed"]:
            continue
        name, version, processor = (
            _field(package, key) for key in ("Package", "Version", "Architecture")
        )
        # Packages that several architectures may have at once have the architecture in the name.
        places = (f"{_DPKG}/info/{stem}.md5sums" for stem in (name, f"{name}:{processor}"))
        sums = next((files[place] for place in places if place in files), None)
        kind = f"deb/{quote(system or 'debian', safe='')}"
        purl = _purl(kind, name, version, arch=processor, distro=f"{system}-{number}")
        yield _component(purl, name, version, told=_hash("md5sums", sums))


def _of_python(files: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    for path, content in files.items():
        if not path.endswith("/METADATA"):
            continue
        package = BytesHeaderParser().parsebytes(content)
        name = re.sub(r"[-_.]+", "-", _field(package, "Name")).lower()
        version = _field(package, "Version")
        told = _hash("RECORD", files.get(f"{path.removesuffix('METADATA')}RECORD"))
        yield _component(_purl("pypi", name, version), name, version, told=told)


def _hash(name: str, content: bytes | None) -> dict[str, str]:
    """Return a property with the hash of a package's file that has the hashes of all its files."""
    return {} if content is None else {f"{name}-sha256": hashlib.sha256(content).hexdigest()}


def _of_npm(content: bytes) -> Iterator[dict[str, Any]]:
    try:
        packages = json.loads(content)["packages"].items()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    for place, package in packages:
        if not isinstance(package, dict):
            continue
        name, version = str(place).rpartition("node_modules/")[2], str(package.get("version", ""))
        scope, _, rest = name.rpartition("/")
        kind = f"npm/{quote(scope[:_LONGEST], safe='')}" if scope else "npm"
        hashes = _npm_hashes(str(package.get("integrity", "")))
        yield _component(_purl(kind, rest, version), name, version, hashes=hashes)


def _npm_hashes(integrity: str) -> list[dict[str, str]]:
    algorithm, _, value = integrity.partition("-")
    try:
        content = base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        return []
    return [{"alg": "SHA-512", "content": content}] if algorithm == "sha512" else []


def _field(package: Any, name: str) -> str:  # noqa: ANN401
    return str(package.get(name, ""))


def _purl(kind: str, name: str, version: str, **qualifiers: str) -> str:
    def coded(text: str) -> str:
        return quote(text[:_LONGEST], safe=".-_~:")

    ending = "&".join(f"{key}={coded(value)}" for key, value in qualifiers.items())
    return f"pkg:{kind}/{coded(name)}@{coded(version)}" + (f"?{ending}" if ending else "")


def _component(
    purl: str,
    name: str,
    version: str,
    *,
    hashes: list[dict[str, str]] | None = None,
    told: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    properties = [
        {"name": f"orchestrator:{key}", "value": value} for key, value in (told or {}).items()
    ]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name[:_LONGEST],
        "version": version[:_LONGEST],
        "purl": purl,
        **({"hashes": hashes} if hashes else {}),
        **({"properties": properties} if properties else {}),
    }

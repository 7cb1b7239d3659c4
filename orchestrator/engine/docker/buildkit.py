"""Build images with BuildKit, which the SDK cannot do, for Dockerfiles that need it.

The context is uploaded beside the request. No session is opened with the client, so that a build
gets neither secrets nor keys of ssh, nor the user's logins at registries.
"""

import base64
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

import docker
import requests

from orchestrator.base.text.split_lines import split_lines

_FLAGS = re.compile(
    r"--(mount|chmod|link|parents|exclude|checksum|security|network|keep-git-dir)\b"
)
_HEREDOC = re.compile(r"<<-?[\"']?[A-Za-z_]")
_SYNTAX = re.compile(r"#\s*syntax\s*=", re.IGNORECASE)
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)")
_OLDEST = (1, 39)
"""First version of the Docker API with BuildKit."""


def feature(dockerfile: str) -> str | None:
    """Return what in a Dockerfile only BuildKit knows, such as `RUN --mount`; None if nothing."""
    continued = False
    for number, line in enumerate(split_lines(dockerfile)):
        if number == 0 and _SYNTAX.match(line):
            return "# syntax="
        found = None if continued or line.lstrip().startswith("#") else _INSTRUCTION.match(line)
        continued = line.rstrip().endswith("\\") or (continued and line.lstrip().startswith("#"))
        if found is None:
            continue
        name, rest = found[1].upper(), found[2]
        if name in ("RUN", "COPY", "ADD") and (flag := _FLAGS.search(rest.partition(" # ")[0])):
            return f"{name} --{flag[1]}" if rest.startswith("--") else None
        if name in ("RUN", "COPY", "ADD") and _HEREDOC.search(rest):
            return f"{name} <<"
    return None


def has_buildkit(client: docker.APIClient) -> bool:
    """Return whether the engine is a Docker engine with BuildKit; Podman builds in its own way."""
    found = client.version()
    names = {str(part.get("Name")) for part in found.get("Components") or ()}
    version = tuple(int(part) for part in str(found.get("ApiVersion", "0")).split("."))
    return "Engine" in names and version >= _OLDEST


def build(
    client: docker.APIClient, archive: IO[bytes], options: Mapping[str, str | None]
) -> Iterator[dict[str, Any]]:
    """Build an image, and yield the progress as the SDK does.

    Args:
        client: The Docker client.
        archive: The compressed build context; without compression, BuildKit may not know it.
        options: Parameters of the request.

    Raises:
        requests.RequestException: The engine refused, or was lost.
    """
    any_client: Any = client
    url, number = any_client._url("/build"), secrets.token_hex(16)
    shared = {"version": "2", "remote": "upload-request"}
    failures: list[Exception] = []

    def upload() -> None:
        given = {**shared, "buildid": f"upload-request:{number}"}
        kind = {"Content-Type": "application/x-tar"}
        try:
            answer = any_client._post(url, data=archive, params=given, headers=kind)
            any_client._raise_for_status(answer)
        except (requests.RequestException, docker.errors.APIError) as error:
            failures.append(error)

    sender = threading.Thread(target=upload, daemon=True)
    sender.start()
    params = {**shared, "buildid": number, **options}
    try:
        answer = any_client._post(url, params=params, stream=True)
        for event in any_client._stream_helper(answer, decode=True):
            if event.get("id") == "moby.buildkit.trace":
                yield from _progress(base64.b64decode(event["aux"]))
            else:
                yield event
    finally:
        sender.join(10)
    if failures:
        raise failures[0]


def _progress(status: bytes) -> Iterator[dict[str, Any]]:
    """Yield the lines of a message of BuildKit: the steps that begin, and what they print."""
    for kind, message in _fields(status):
        parts = dict(_fields(message)) if kind in (1, 3) else {}
        begins = 5 in parts and 6 not in parts
        text = parts.get(3 if kind == 1 else 4, b"") if kind == 3 or begins else b""
        if text:
            yield {"stream": text.decode(errors="replace")}


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of those fields of a protobuf message that have a length."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        match key & 7:
            case 0:
                _, place = _number(message, place)
            case 2:
                size, place = _number(message, place)
                yield key >> 3, message[place : place + size]
                place += size
            case 1 | 5:
                place += 8 if key & 7 == 1 else 4
            case _:
                return


def _number(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message):
        byte, place = message[place], place + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, place

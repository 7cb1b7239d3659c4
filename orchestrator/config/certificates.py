"""Read certificates from a file of the user, and nothing else that the file may hold.

Servers and proxies keep their private key beside their certificate. What goes into a container is
therefore never a copy of the file: each certificate is decoded, checked and encoded again.
"""

import base64
import re
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import ConfigError

_LARGEST = 4 * 1024**2
_BLOCK = re.compile(
    r"^[ \t]*-----BEGIN (?P<label>[^\r\n-]{1,80})-----[ \t]*$"
    r"(?P<body>(?:(?!-----BEGIN ).)*?)^[ \t]*-----END (?P=label)-----",
    re.DOTALL | re.MULTILINE,
)
_BEGIN = re.compile(r"^[ \t]*-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----", re.MULTILINE)
_LABELS = frozenset({"CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"})
_DAMAGED = "is damaged, and is not passed on"
_MOST_NOTICES = 5
_SEQUENCE = 0x30
_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
_DATA = bytes.fromhex("2a864886f70d010701")
_CONVERT = "convert it to PEM: `openssl {} -out FILE.pem`"


@dataclass(frozen=True)
class Certificates:
    """Certificates, and what the user should know of the file that they are from."""

    pem: bytes
    notices: tuple[str, ...] = ()


def read_certificates(path: Path, name: str) -> Certificates:
    """Return the certificates of a file.

    Args:
        path: The file.
        name: What the file is called in messages, such as an option.

    Raises:
        ConfigError: The file cannot be read, is larger than 4 MiB, or contains no certificate.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}", key="company.certificate") from error
    if len(data) > _LARGEST:
        raise ConfigError(f"{name}: the file has more than 4 MiB", key="company.certificate")
    found = parse_certificates(data)
    if not found.pem:
        problems = "".join(f"; {notice}" for notice in found.notices)
        raise ConfigError(
            f"{name}: the file has no certificate in PEM format{problems}",
            key="company.certificate",
            hint=_hint(data),
        )
    return Certificates(found.pem, tuple(f"{name}: {notice}" for notice in found.notices))


def parse_certificates(data: bytes) -> Certificates:
    """Return the usable certificates among the blocks of a text in PEM format, each once."""
    text = _decode(data)
    found: dict[str, None] = {}
    notices: list[str] = []
    keys, ends = 0, set[int]()
    for block in _BLOCK.finditer(text):
        label = block["label"]
        keys += label.endswith("PRIVATE KEY")
        if label in _LABELS:
            ends.add(block.start())
            der = _first_value(block["body"])
            problem = _DAMAGED if der is None else _problem(der)
            if problem is not None:
                notices.append(_notice(text, block.start(), problem))
            # protection: only-valid-certificates-are-passed-on
            if der is not None and problem != _DAMAGED:
                found[ssl.DER_cert_to_PEM_cert(der)] = None
    starts = (mark.start() for mark in _BEGIN.finditer(text))
    notices += [_notice(text, start, "has no end") for start in starts if start not in ends]
    if len(notices) > _MOST_NOTICES:
        notices[_MOST_NOTICES:] = [f"{len(notices) - _MOST_NOTICES} more certificates likewise"]
    if keys:
        notices.append("the file also holds a private key, which is not passed on")
    return Certificates("".join(found).encode(), tuple(notices))


def _notice(text: str, start: int, problem: str) -> str:
    line = text.count("\n", 0, start) + 1
    return f"the certificate in line {line} {problem}"


def _decode(data: bytes) -> str:
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    text = data.decode(encoding, "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _first_value(body: str) -> bytes | None:
    """Return the first value of a block: OpenSSL's trusted certificates have a second one."""
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
    except ValueError:
        return None
    # protection: nothing-behind-certificate-is-passed-on
    return data[: _length(data)] or None


def _length(data: bytes) -> int:
    """Return the length of the sequence in DER with which data begins; 0 if it does not."""
    if len(data) < 2 or data[0] != _SEQUENCE:
        return 0
    count = data[1] & 0x7F if data[1] > 0x7F else 0
    size = int.from_bytes(data[2 : 2 + count]) if count else data[1]
    end = 2 + count + size
    return end if end <= len(data) else 0


def _problem(der: bytes) -> str | None:
    """Return what is wrong with a certificate; None if it can be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=der)
    except (ssl.SSLError, ValueError):
        return _DAMAGED
    for known in context.get_ca_certs():
        until = str(known.get("notAfter", ""))
        if until and ssl.cert_time_to_seconds(until) < time.time():
            return f"has expired ({until})"
    return None


def _hint(data: bytes) -> str:
    if data[:1] != bytes([_SEQUENCE]):
        blocks = dict.fromkeys(_labels(_decode(data)))
        if "PKCS7" in blocks or "CMS" in blocks:
            return _CONVERT.format("pkcs7 -print_certs -in FILE")
        found = f"; it has {', '.join(f'`{label}`' for label in blocks)}" if blocks else ""
        return f"name a file with blocks `BEGIN CERTIFICATE`{found}"
    if _SIGNED_DATA in data[:64]:
        return f"this is PKCS#7: {_CONVERT.format('pkcs7 -inform DER -print_certs -in FILE')}"
    if _DATA in data[:64]:
        return f"this is PKCS#12: {_CONVERT.format('pkcs12 -cacerts -nokeys -in FILE')}"
    return f"this may be DER: {_CONVERT.format('x509 -inform DER -in FILE')}"


def _labels(text: str) -> Iterator[str]:
    for block in _BLOCK.finditer(text):
        # A label is text of the file.
        if re.fullmatch(r"[A-Z0-9 ]{1,40}", block["label"]):
            yield block["label"]

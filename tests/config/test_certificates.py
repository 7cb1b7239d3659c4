"""Only certificates of a file are read, whatever else it holds and however it is written."""

import base64
import subprocess
from pathlib import Path

import pytest

from orchestrator.config.certificates import parse_certificates, read_certificates
from orchestrator.config.settings.company import Company
from orchestrator.engine.images.recipes import ca_bundle
from tests.support.errors import raises

BEGIN, END = b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n"


class Made:
    """A private key, and certificates in the forms in which programs write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        self.run(
            "req", "-x509", *ec, "-days", "30", "-subj", "/CN=one", "-keyout", "key", "-out", "pem"
        )
        self.run(
            "req", "-x509", *ec, "-days", "30", "-subj", "/CN=two", "-keyout", "k2", "-out", "other"
        )
        self.run("req", "-new", "-key", "key", "-subj", "/CN=old", "-out", "request")
        self.run("x509", "-req", "-in", "request", "-signkey", "key", "-days", "-1", "-out", "old")
        self.run("x509", "-in", "pem", "-addtrust", "serverAuth", "-trustout", "-out", "trusted")
        self.run("x509", "-in", "pem", "-outform", "DER", "-out", "der")
        self.run("crl2pkcs7", "-nocrl", "-certfile", "pem", "-out", "p7")
        self.run("crl2pkcs7", "-nocrl", "-certfile", "pem", "-outform", "DER", "-out", "p7der")
        self.run(
            "pkcs12", "-export", "-in", "pem", "-inkey", "key", "-passout", "pass:x", "-out", "p12"
        )
        self.key, self.pem, self.other = (self.read(name) for name in ("key", "pem", "other"))

    def run(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("certificates"))


def test_key_in_the_file_stays_there(made: Made) -> None:
    parts = [line for line in made.key.splitlines() if b"-----" not in line]
    for data in (made.key + made.pem, made.pem + made.key, made.pem + made.key + made.other):
        found = parse_certificates(data)
        assert b"PRIVATE" not in found.pem
        assert not any(part in found.pem for part in parts)
        assert any("private key" in notice for notice in found.notices)
    # Also where the key is not a block of its own.
    der = base64.b64decode(b"".join(made.pem.splitlines()[1:-1])) + base64.b64decode(
        b"".join(parts)
    )
    hidden = BEGIN + base64.encodebytes(der) + END
    assert parse_certificates(hidden).pem == made.pem


def test_every_form_of_a_good_file_is_read(made: Made) -> None:
    attributes = b"Bag Attributes\n    friendlyName: one\nsubject=CN = one\n\n"
    for data in (
        made.pem,
        b"\xef\xbb\xbf" + made.pem,
        made.pem.decode().encode("utf-16"),
        made.pem.replace(b"\n", b"\r\n"),
        made.pem.replace(b"\n", b"\r"),
        attributes + made.pem + b"text behind it",
        b"# --- our proxy ---\n\n" + made.pem.rstrip(),
        b"".join(b"    " + line + b" \n" for line in made.pem.splitlines()),
        made.pem.replace(b" CERT", b" X509 CERT"),
        made.read("trusted"),
        BEGIN + b"".join(made.pem.splitlines()[1:-1]) + b"\n" + END,
        made.pem + made.pem,
        made.read("request") + made.pem,
    ):
        found = parse_certificates(data)
        assert (found.pem, found.notices) == (made.pem, ()), data


def test_one_bad_block_is_named_and_costs_no_other(made: Made) -> None:
    body = made.pem.splitlines()[1:-1]
    for bad, told in (
        (BEGIN + b"!!!!\n" + END, "is damaged"),
        (BEGIN + b"\n".join(body[:-2]) + b"\n" + END, "is damaged"),
        (BEGIN + base64.encodebytes(b"\x30\x03abc") + END, "is damaged"),
        (BEGIN + END, "is damaged"),
        (BEGIN + b"\n".join(body) + b"\n", "has no end"),
        (BEGIN + b"\n".join(body) + b"\n-----END PRIVATE KEY-----\n", "has no end"),
    ):
        found = parse_certificates(made.pem + bad + made.other)
        assert found.pem == made.pem + made.other, bad
        line = made.pem.count(b"\n") + 1
        (notice,) = found.notices
        assert notice.startswith(f"the certificate in line {line} {told}")
    assert len(parse_certificates((BEGIN + END) * 1000).notices) == 6


def test_expired_certificate_is_passed_on_and_named(made: Made) -> None:
    expired = made.read("old")
    found = parse_certificates(expired + made.pem)
    assert found.pem == expired + made.pem
    (notice,) = found.notices
    assert notice.startswith("the certificate in line 1 has expired (")


def test_file_without_certificate_is_an_error_that_helps(made: Made, tmp_path: Path) -> None:
    for data, told in (
        (b"", "BEGIN CERTIFICATE"),
        (b"hello\n", "BEGIN CERTIFICATE"),
        (made.key, "`PRIVATE KEY`"),
        (BEGIN + b"!!!!\n" + END, "line 1 is damaged"),
        (made.read("der"), "openssl x509 -inform DER"),
        (made.read("p7"), "openssl pkcs7 -print_certs"),
        (made.read("p7der"), "openssl pkcs7 -inform DER"),
        (made.read("p12"), "openssl pkcs12 -cacerts -nokeys"),
    ):
        (tmp_path / "ca").write_bytes(data)
        with raises("company.certificate", told, "--company ca="):
            Company.parse([f"ca={tmp_path / 'ca'}"]).bundle()
    for path in (tmp_path / "missing", tmp_path):
        with raises("company.certificate", str(path)):
            Company.parse([f"ca={path}"]).bundle()
    (tmp_path / "ca").write_bytes(made.pem + b"\n" * 4 * 1024**2)
    with raises("company.certificate", "4 MiB"):
        read_certificates(tmp_path / "ca", "name")


def test_bundle_has_this_machines_authorities_too(made: Made) -> None:
    bundle = Company.parse([f"ca={made.folder / 'pem'}"]).bundle()
    assert bundle is not None
    assert bundle.pem.endswith(made.pem)
    own = ca_bundle({})
    assert own is None or bundle.pem.count(BEGIN) > 1

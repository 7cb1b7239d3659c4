"""Entries of the setting `company`: a company's mirrors, proxy and certificate authorities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.base.errors import ConfigError
from orchestrator.config.certificates import Certificates, parse_certificates, read_certificates
from orchestrator.config.settings.values import CA, PROXY, check_url, parse_entries

_MIRRORS: Mapping[str, tuple[str, ...]] = {
    "pip": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "npm": ("npm_config_registry",),
    "go": ("GOPROXY",),
}
"""Variables that package managers read, by the name of an entry."""
_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
_BUNDLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"),
    *("GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "npm_config_cafile"),
)
BUNDLE = "/run/ca-bundle.crt"
"""Path of the certificate authorities in a container."""
_OWN_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class Company:
    """The mirrors, the proxy and the certificate authorities of a company."""

    entries: Mapping[str, str]
    """A URL, or the name of the user's variable with the URL, by the name of an entry; for `ca`, a
    file.
    """

    @classmethod
    def parse(cls, given: Iterable[str]) -> "Company":
        """Parse entries such as `pip=URL`, `proxy=VARIABLE` and `ca=FILE`.

        Raises:
            ValueError: An entry has another form, or a URL contains a password.
        """
        return cls(parse_entries(given))

    @property
    def sources(self) -> tuple[str, ...]:
        """The user's variables that contain URLs."""
        return tuple(
            value for name, value in self.entries.items() if name != CA and "://" not in value
        )

    @property
    def has_proxy(self) -> bool:
        """Whether there is a proxy."""
        return PROXY in self.entries

    @property
    def ca(self) -> Path | None:
        """File with the certificate authorities."""
        return Path(self.entries[CA]) if CA in self.entries else None

    def urls(self, given: Mapping[str, str], *, is_open: bool) -> tuple[str, ...]:
        """Return the URLs that a container with a network connects to.

        Args:
            given: The user's variables.
            is_open: Whether the network is open; only then the container uses the proxy.

        Raises:
            ConfigError: A variable is not set to a URL.
        """
        names = (*_MIRRORS, *((PROXY,) if is_open else ()))
        return tuple(self._url(name, given) for name in names if name in self.entries)

    def environment(self, given: Mapping[str, str], *, is_open: bool) -> dict[str, str]:
        """Return the variables of a container with a network, which programs read.

        Raises:
            ConfigError: A variable is not set to a URL.
        """
        found: dict[str, str] = {}
        mirrors = {name: self._url(name, given) for name in _MIRRORS if name in self.entries}
        for name, url in mirrors.items():
            found |= dict.fromkeys(_MIRRORS[name], url)
        if CA in self.entries:
            found |= dict.fromkeys(_BUNDLES, BUNDLE)
        if is_open and PROXY in self.entries:
            found |= dict.fromkeys(_PROXIES, self._url(PROXY, given))
            hosts = (urlsplit(url).hostname for url in mirrors.values())
            direct = ",".join(
                ("localhost", "127.0.0.1", *dict.fromkeys(filter(None, hosts)), ".internal")
            )
            found |= dict.fromkeys(("no_proxy", "NO_PROXY"), direct)
        return found

    def bundle(self) -> Certificates | None:
        """Return this machine's certificate authorities and those of the company.

        Raises:
            ConfigError: The file cannot be read, or contains no certificate.
        """
        if self.ca is None:
            return None
        own = read_certificates(self.ca, f"`--company ca={self.ca}`")
        known = _OWN_BUNDLE.read_bytes() if _OWN_BUNDLE.is_file() else b""
        return Certificates(parse_certificates(known).pem + own.pem, own.notices)

    def _url(self, name: str, given: Mapping[str, str]) -> str:
        value = self.entries[name]
        if "://" in value:
            return value
        try:
            return check_url(given.get(value, ""), secret=True)
        except ValueError as error:
            raise ConfigError(
                f"`--company {name}={value}`: variable `{value}` is not set to a URL",
                key="company.url",
                hint=f"set `{value}` to a URL such as `https://USER:TOKEN@HOST/PATH`",
            ) from error

"""Find the address of the Docker daemon, as Docker's own client does.

`DOCKER_HOST` comes first, then the context that `DOCKER_CONTEXT` names, then the one that
`docker context use` chose. docker-py does not know contexts, so their files are read here.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import docker.errors
import docker.tls
import docker.utils
from pydantic import BaseModel, Field, ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.interface.run_engine import RunEngine

_DEFAULT = "default"
"""Name of the context that stands for the daemon of this machine."""
_LONGEST = 1024**2
LOCAL_SOCKET = "unix:///var/run/docker.sock"


class _Endpoint(BaseModel):
    host: str = Field(alias="Host", default="")
    skip_verification: bool = Field(alias="SkipTLSVerify", default=False)


class _Endpoints(BaseModel):
    docker: _Endpoint


class _Context(BaseModel):
    name: str = Field(alias="Name")
    endpoints: _Endpoints = Field(alias="Endpoints")


@dataclass(frozen=True)
class Address:
    """The address of a daemon, and what chose it."""

    url: str
    source: str = ""
    """What chose it, such as `DOCKER_HOST`; empty for the daemon of this machine."""
    undo: str = ""
    """How the user returns to the daemon of this machine."""
    certificates: Path | None = None
    """Directory with the files `ca.pem`, `cert.pem` and `key.pem` of a context."""
    verified: bool = True
    """Whether the daemon must prove who it is."""

    @property
    def shown(self) -> str:
        """Return the address for messages, and what chose it."""
        name = one_line(self.url)
        return f"`{name}`" if self.source in ("", "DOCKER_HOST") else f"`{name}`, {self.source}"

    @cached_property
    def options(self) -> dict[str, Any]:
        """Return the options of docker-py's client.

        Raises:
            ConfigError: A certificate is missing.
        """
        try:
            return self._options()
        except docker.errors.TLSParameterError as error:
            is_context = self.source not in ("", "DOCKER_HOST")
            given = os.environ.get("DOCKER_CERT_PATH")
            folder = Path(given) if given else Path.home() / ".docker"
            folder = self.certificates if is_context and self.certificates else folder
            names = ("ca.pem", "cert.pem", "key.pem")
            missing = [f"`{name}`" for name in names if not (folder / name).is_file()]
            by = self.source if is_context else "`DOCKER_TLS_VERIFY` or `DOCKER_CERT_PATH`"
            raise ConfigError(
                f"the engine is reached with TLS, because of {by}, but {one_line(str(folder))} has "
                f"no {' and no '.join(missing)}",
                key="engine.no-certificates",
                hint="name the directory with `ca.pem`, `cert.pem` and `key.pem` in "
                "`DOCKER_CERT_PATH`, or unset `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH`",
            ) from error

    def _options(self) -> dict[str, Any]:
        if self.source in ("", "DOCKER_HOST"):
            # The variables `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH` apply.
            environment = {**os.environ, "DOCKER_HOST": self.url}
            return {**docker.utils.kwargs_from_env(environment=environment)}
        if self.certificates is None:
            return {"base_url": self.url}
        own, key = self.certificates / "cert.pem", self.certificates / "key.pem"
        authority = self.certificates / "ca.pem"
        tls = docker.tls.TLSConfig(
            client_cert=(str(own), str(key)) if own.exists() else None,
            ca_cert=str(authority) if authority.exists() else None,
            verify=self.verified,
        )
        return {"base_url": self.url.replace("tcp://", "https://"), "tls": tls}

    @property
    def has_tls(self) -> bool:
        """Return whether the connection is encrypted."""
        return "tls" in self.options

    @property
    def is_ssh(self) -> bool:
        """Return whether the user's `ssh` program makes the connection."""
        return self.url.startswith("ssh://")

    @property
    def is_socket(self) -> bool:
        """Return whether it is a Unix socket, which may lead to another machine all the same."""
        return self.url.startswith(("unix://", "http+unix://"))


def address_of(environ: Mapping[str, str], url: str) -> Address:
    """Return the address at a URL, with the certificates of the user's choice if it is the same.

    Raises:
        ConfigError: The chosen context does not exist, or its description has another form.
    """
    if not url:
        return chosen_address(environ)
    with suppress(ConfigError):
        chosen = chosen_address(environ)
        if RunEngine(kind="docker", address=chosen.url).address == url:
            return chosen
    return Address(url)


def chosen_address(environ: Mapping[str, str]) -> Address:
    """Return the address of the daemon that the user chose.

    Raises:
        ConfigError: The chosen context does not exist, or its description has another form.
    """
    if host := environ.get("DOCKER_HOST"):
        return Address(host, "DOCKER_HOST", "`unset DOCKER_HOST`")
    folder = Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    if name := environ.get("DOCKER_CONTEXT", ""):
        undo = "`unset DOCKER_CONTEXT`"
    else:
        name, undo = _current(folder), "`docker context use default`"
    if name in ("", _DEFAULT):
        return Address(LOCAL_SOCKET)
    return _of_context(folder / "contexts", name, undo)


def _current(folder: Path) -> str:
    """Return the name of the context that `docker context use` chose.

    Docker's client too uses the daemon of this machine if it cannot read its file.
    """
    with suppress(OSError, ValueError, AttributeError):
        name = json.loads(read_limited(folder / "config.json", most=_LONGEST, follow=True)).get(
            "currentContext"
        )
        return name if isinstance(name, str) else ""
    return ""


def _of_context(contexts: Path, name: str, undo: str) -> Address:
    shown = one_line(name, limit=100)
    key = sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    try:
        text = read_limited(contexts / "meta" / key / "meta.json", most=_LONGEST, follow=True)
        context = _Context.model_validate_json(text)
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"cannot read the Docker context `{shown}`",
            key="docker-context.unreadable",
            hint=f"`docker context ls`, or {undo}",
        ) from error
    endpoint = context.endpoints.docker
    if context.name != name or not endpoint.host:
        raise ConfigError(
            f"the Docker context `{shown}` has no address",
            key="docker-context.invalid",
            hint=f"`docker context ls`, or {undo}",
        )
    certificates = contexts / "tls" / key / "docker"
    return Address(
        endpoint.host,
        f"context `{shown}`",
        undo,
        certificates=certificates if certificates.is_dir() else None,
        verified=not endpoint.skip_verification,
    )

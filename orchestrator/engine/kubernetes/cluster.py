"""Requests to the API server of a cluster, with plain dictionaries."""

import json
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import urllib3
import urllib3.exceptions
import yaml
from kubernetes import client
from kubernetes.client.rest import SUPPORTED_SOCKS_PROXIES, should_bypass_proxies
from kubernetes.config import ConfigException, kube_config
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from tenacity import retry, retry_if_exception_type, stop_after_delay

from orchestrator.base.errors import ConfigError, EngineError, EngineUnavailableError
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.places.porter_calls import pause

_TIMEOUT = 30
"""Seconds for a request. The client itself has no limit."""
_LARGEST_ANSWER = 64 * 1024**2
PATIENCE = 120.0
_RENEWAL = 5.0
"""Seconds that pass at least until the configuration is read again."""
_LONGEST_WAIT = 60
_DEFAULT_FILE = "~/.kube/config"
_PAIR = ("clientCertificateData", "clientKeyData")
_CHECK = "check it with `kubectl version`"
HINTS = {
    401: "`kubectl get pods` tells whether you are logged in to the cluster",
    # A quota or an admission plugin can forbid a request, too.
    403: "`orchestrator doctor --engine kubernetes` tells whether rights are missing",
}
"""What helps if the API server refuses a request with a status code of HTTP."""
_VERBS = {"POST": "create", "DELETE": "delete"}
_SOON = (408, 425, 429)
"""Status codes of HTTP that ask for the same request later."""
CHOOSE_NAMESPACE = "kubectl config set-context --current --namespace NAME"
patient = retry(
    retry=retry_if_exception_type(EngineUnavailableError),
    stop=stop_after_delay(PATIENCE),
    wait=pause(multiplier=0.2, most=5),
    reraise=True,
)
"""Decorator that repeats a call while the API server does not answer."""


def read_object(body: bytes) -> dict[str, Any] | None:
    """Return the object of an answer, such as the `Status` of a refusal; None if it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def said_by(body: bytes, code: int, needed: Iterable[tuple[str, str]] = ()) -> str:
    """Return what a refusal says, as one line; if it gives no reason, what is known without it.

    Args:
        body: The refusal: a `Status`, or the page of another program.
        code: The status code of HTTP.
        needed: Verbs and resources of which the request needs the right.
    """
    status = read_object(body)
    message = str((status or {}).get("message") or "")
    # From version 1.35 on, servers forbid commands in pods with `forbidden: ` and nothing else.
    reason = message.strip(" :").lower()
    if reason and not reason.endswith(("forbidden", "unauthorized")):
        return one_line(message, limit=500)
    words = f"HTTP status {code}"
    with suppress(ValueError):
        words += f" ({HTTPStatus(code).phrase})"
    page = one_line(body.decode(errors="replace").strip(), limit=200) if status is None else ""
    words += f": {page}" if page else ", without a reason"
    if code == 403 and (rights := " and ".join(f"`{verb}` `{what}`" for verb, what in needed)):
        words += f"; the role needs the right to {rights}"
    return words


def retry_after(headers: Mapping[str, str]) -> float:
    """Return for how many seconds an answer asks to wait, at most a minute; 0 if for none."""
    asked = headers.get("retry-after") or ""
    return min(int(asked[:9]), _LONGEST_WAIT) if asked.isdecimal() else 0


def _needed(method: str, path: str) -> list[tuple[str, str]]:
    """Return the verb and the resource of a request in a namespace; nothing for another one."""
    _, is_in, rest = path.partition("/namespaces/")
    words = rest.split("/")
    if not is_in:
        return []
    if len(words) == 1:
        return [("get", "namespaces")]
    return [(_VERBS.get(method, "get" if len(words) > 2 else "list"), words[1])]


class ClusterRefusedError(EngineError):
    """The API server refused a request."""

    def __init__(self, message: str, *, status: int, reason: str) -> None:
        super().__init__(message, key="cluster.refused", hint=HINTS.get(status))
        self.status = status
        """Status code of the HTTP answer."""
        self.reason = reason
        """The API server's word for the reason, such as `AlreadyExists`; may be empty."""


class _Loader(kube_config.KubeConfigLoader):
    """Reads credentials as kubectl does: a command that gives none is an error."""

    _user: Any
    _cluster: Any
    _get_base_path: Any

    def _load_from_exec_plugin(self) -> bool:
        if "exec" not in self._user:
            return False
        try:
            base = self._get_base_path(self._cluster.path)
            found = ExecProvider(self._user["exec"], base, self._cluster).run()
            if not found.get("token") and not all(map(found.get, _PAIR)):
                raise ConfigException("its answer has neither a token nor a certificate with a key")
            if found.get("token"):
                self.token = f"Bearer {found['token']}"
            if all(map(found.get, _PAIR)):
                self.cert_file, self.key_file = (
                    kube_config.FileOrData(
                        found, None, data_key_name=name, base64_file_content=False
                    ).as_file()
                    for name in _PAIR
                )
            if "expirationTimestamp" in found:
                self.expiry = parse_rfc3339(found["expirationTimestamp"])
        except Exception as error:
            # On a terminal, the client fails to read what the command has printed there.
            is_known = isinstance(error, (ConfigException, OSError, ValueError))
            why = str(error) if is_known else "it failed, or its answer has another form"
            raise ConfigError(
                "the command of the cluster's configuration gave no credentials: "
                + one_line(why, limit=300),
                key="cluster.no-credentials",
                hint=HINTS[401],
            ) from error
        return True


class _Merger(kube_config.KubeConfigMerger):
    """Merges files as kubectl does: an empty one adds nothing, and the first context is current."""

    def load_config(self, path: str) -> None:
        """Read one of the files."""
        with Path(path).open(encoding="utf-8") as file:
            if yaml.safe_load(file) is None:
                return
        merged = self.config_merged
        current = merged.value.get("current-context") if merged else None
        super().load_config(path)  # type: ignore[no-untyped-call]
        if merged and current:
            merged.value["current-context"] = current


class Cluster:
    """The API server of one context, and the namespace for workers."""

    patience = PATIENCE
    """Seconds for which calls about a place are repeated: an API server takes long to restart."""

    def __init__(
        self,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Read the configuration; nothing is sent.

        Args:
            kubeconfig: The file with the configuration; None: as kubectl finds it.
            context: The name of a context in it; None: its current one.
            namespace: The namespace in which workers run; None: that of the context.

        Raises:
            ConfigError: The configuration cannot be read or has no usable credentials, or the
                context has no namespace.
        """
        # As for kubectl, an empty variable is none.
        named = kube_config.KUBE_CONFIG_DEFAULT_LOCATION
        self._file = str(kubeconfig or named or _DEFAULT_FILE)
        self._renewal = threading.Lock()
        found = self._load(context)
        self.context = str(found["name"])
        """Name of the context."""
        self.namespace = namespace or str(found["context"].get("namespace") or "")
        # protection: workers-are-in-no-namespace-by-default
        if not self.namespace:
            raise ConfigError(
                f"the context `{self.context}` has no namespace for workers",
                key="cluster.no-namespace",
                hint=f"`{CHOOSE_NAMESPACE}`",
            )
        self.is_restricted = True
        """Whether the namespace admits only pods without root, as far as this is known."""
        self.version = (0, 0)
        """Version of the API server, if it is known."""
        self._was_allowed = False

    def _load(self, context: str | None) -> dict[str, Any]:
        """Read the configuration, use it for further requests, and return the context.

        Raises:
            ConfigError: The configuration cannot be read, or its credentials or proxy be used.
        """
        settings = client.Configuration()
        try:
            read = _Merger(self._file).config  # type: ignore[no-untyped-call]
            if read is None:
                raise ConfigException(f"{self._file} is missing or empty")
            make: Any = _Loader  # the client has no types
            loader = make(read, active_context=context, config_base_path=None)
            loader.load_and_set(settings)
            # What the client does here is not safe with threads.
            settings.refresh_api_key_hook = None
            settings.retries = False
            if token := settings.api_key.get("BearerToken"):
                settings.api_key["BearerToken"] = token = token.strip()
                if not (token.isascii() and token.isprintable()):
                    raise ConfigException("the token has characters that no token can have")
            _prepare_proxy(settings)
            made = client.ApiClient(settings)
        except ConfigError:
            raise
        except Exception as error:
            is_formless = isinstance(error, (TypeError, AttributeError, LookupError))
            why = "it does not have the form of one" if is_formless else str(error)
            raise ConfigError(
                f"the configuration of the cluster cannot be read: {one_line(why, limit=300)}",
                key="cluster.unreadable-settings",
                hint="check it with `kubectl config view`",
            ) from error
        self._client, self._expiry = made, getattr(loader, "expiry", None)
        self._loaded_at = time.monotonic()
        return dict(loader.current_context)

    @property
    def configuration(self) -> client.Configuration:
        """The configuration for the next request."""
        found: client.Configuration = self._client.configuration
        return found

    def _renew(self) -> None:
        """Read the configuration again, for credentials that are no longer accepted.

        At most one thread does so, and not soon after another time; others go on with what there
        is, and repeat their requests.
        """
        if not self._renewal.acquire(blocking=False):
            return
        try:
            if time.monotonic() >= self._loaded_at + _RENEWAL:
                self._loaded_at = time.monotonic()
                # The user can log in again, or mend the file.
                with suppress(ConfigError):
                    self._load(self.context)
        finally:
            self._renewal.release()

    def headers(self) -> dict[str, str]:
        """Return the headers with the credentials, which are made anew when they have expired."""
        skew = kube_config.EXPIRY_SKEW_PREVENTION_DELAY
        if self._expiry is not None and self._expiry - skew <= datetime.now(UTC):
            self._renew()
        key = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return {"authorization": key} if key else {}

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the answer.

        Args:
            method: The HTTP method.
            path: The path below the API server's address.
            body: The object to send.
            query: Parameters.

        Raises:
            ClusterRefusedError: The API server refused the request.
            EngineUnavailableError: The API server does not answer.
            EngineError: The answer is unreadable or too long.
        """
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        headers |= self.headers()
        url = f"{self.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = self._client.call_api(
                method, url, headers, body=body, _request_timeout=_TIMEOUT
            ).response
            data = answer.read(_LARGEST_ANSWER + 1)
        except (urllib3.exceptions.HTTPError, client.ApiException, OSError) as error:
            raise EngineUnavailableError(
                f"the cluster's API server does not answer: {error}",
                key="cluster.unreachable",
                hint=_CHECK,
            ) from error
        if len(data) > _LARGEST_ANSWER:
            raise EngineError(
                "an answer of the cluster's API server is too long", key="cluster.unreadable-answer"
            )
        found = read_object(data)
        if answer.status >= 300:
            said = said_by(data, answer.status, _needed(method, path))
            if self.is_unable(answer.status, is_json=found is not None):
                raise EngineUnavailableError(
                    f"the cluster's API server cannot answer (HTTP status {answer.status}): {said}",
                    key="cluster.unreachable",
                    hint=HINTS[401] if answer.status == 401 else _CHECK,
                    retry_after=retry_after(answer.headers),
                )
            raise ClusterRefusedError(
                f"the cluster refused to {method.lower()} `{path}`: {said}",
                status=answer.status,
                reason=str((found or {}).get("reason", "")),
            )
        if found is None:
            raise EngineError(
                "an answer of the cluster's API server is not an object",
                key="cluster.unreadable-answer",
            )
        self._was_allowed = True
        return found

    def is_unable(self, status: int, *, is_json: bool) -> bool:
        """Return whether a refusal says nothing of the request, so that it should be repeated.

        The repetition of a request whose credentials were refused has those of now.

        Args:
            status: The status code of HTTP.
            is_json: Whether an API server has written the answer. A load balancer answers with
                other texts, and so does an API server that starts, for paths that it lacks yet.
        """
        if status in HINTS:
            if status == 401 and self._was_allowed:
                self._renew()
            # A user can log in again. An API server that starts forbids everything for seconds.
            return self._was_allowed and (status == 401 or not self._is_ready())
        return status in _SOON or status >= 500 or not is_json

    def _is_ready(self) -> bool:
        url = f"{self.configuration.host}/readyz"
        try:
            answer = self._client.call_api("GET", url, self.headers(), _request_timeout=_TIMEOUT)
        except (urllib3.exceptions.HTTPError, client.ApiException, OSError):
            return False
        return bool(answer.response.status == 200)


def _prepare_proxy(settings: client.Configuration) -> None:
    """Let a proxy be named as both requests and WebSockets need it; None if they use none.

    Raises:
        ConfigError: WebSockets cannot use it.
    """
    if not settings.proxy or should_bypass_proxies(settings.host, settings.no_proxy or ""):
        settings.proxy = None
        return
    if "://" not in settings.proxy:
        settings.proxy = f"http://{settings.proxy}"
    proxy = urlsplit(settings.proxy)
    is_usable = False
    with suppress(ValueError):
        is_usable = bool(proxy.hostname) and proxy.port != 0
    if not is_usable or proxy.scheme not in ("http", *SUPPORTED_SOCKS_PROXIES):
        raise ConfigError(
            "commands in pods cannot use the proxy of the cluster's configuration",
            key="cluster.proxy",
            hint="name one with `http://HOST:PORT`, or the API server in `NO_PROXY`",
        )
    if proxy.scheme != "http" and not (find_spec("socks") and find_spec("python_socks")):
        raise ConfigError(
            "a SOCKS proxy of the cluster's configuration needs two more packages",
            key="cluster.proxy",
            hint="`pip install PySocks python-socks`",
        )
    if proxy.username is not None:
        user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        settings.proxy_headers = urllib3.make_headers(proxy_basic_auth=user)


def remove_job(cluster: Cluster, name: str) -> None:
    """Delete a Job with its pods, if it exists; the cluster ends them on its own.

    Raises:
        EngineError: The cluster refuses, or does not answer.
    """
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/{name}"
    try:
        cluster.request("DELETE", path, query={"propagationPolicy": "Foreground"})
    except ClusterRefusedError as error:
        if error.status not in (404, 409):
            raise

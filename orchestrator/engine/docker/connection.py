"""The connection to the Docker daemon: docker-py's client, with less work for each request."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import docker
from docker.transport import UnixHTTPAdapter
from docker.utils.socket import consume_socket_output, demux_adaptor
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException

from orchestrator.engine.docker.address import Address, chosen_address
from orchestrator.engine.docker.process import read_frames
from orchestrator.engine.docker.ssh import tunnel_to

_CONNECTIONS = 1000
"""Maximum number of idle connections that are kept. A worker uses up to three at a time: output,
end, and its gateway's output; urllib3 prints a warning for each idle connection above the maximum.
"""
_TIMEOUT = 60
_LARGEST = 256 * 1024**2
"""Maximum size of an answer in bytes."""
_PIECE = 1024**2


def connect(address: Address | None = None) -> docker.APIClient:
    """Connect to the daemon at an address. Default: the daemon that the user chose.

    Raises:
        ConfigError: The address for ssh is invalid.
        EngineUnavailableError: `ssh` does not reach the other machine.
        docker.errors.DockerException: The daemon does not answer, or a variable is wrong.
    """
    address = address or chosen_address(os.environ)
    options = address.options
    if address.is_ssh:
        options = {"base_url": f"unix://{tunnel_to(address.url).socket}"}
    client = _Client(version="auto", timeout=_TIMEOUT, **options)
    client.mount("https://", HTTPAdapter(pool_maxsize=_CONNECTIONS))
    adapter = client.get_adapter(client.base_url)
    if isinstance(adapter, UnixHTTPAdapter):
        shared = _OneSocket(adapter.socket_path, _TIMEOUT, max_pool_size=_CONNECTIONS)
        client.mount("http+docker://", shared)
    return client


class _Client(docker.APIClient):
    # requests would search all variables for proxies before each request, and prefer the
    # authorities of `REQUESTS_CA_BUNDLE` to those of `DOCKER_CERT_PATH`.
    trust_env = property(lambda _: False, lambda _self, _value: None)

    def send(self, request: Any, **options: Any) -> Any:  # noqa: ANN401  # of requests
        """Send a request; an answer that is no stream is read up to a maximum size."""
        is_stream = options.get("stream")
        response: Any = super().send(request, **{**options, "stream": True})
        if not is_stream:
            content = bytearray()
            for piece in response.iter_content(_PIECE):
                content += piece
                if len(content) > _LARGEST:
                    response.close()
                    raise RequestException("the answer is too long")
            # What `response.content` returns from now on.
            response._content = bytes(content)
        return response

    def _check_is_tty(self, _: str) -> bool:
        """Return that no container has a terminal; docker-py asks the daemon for each one."""
        return False

    def _read_from_socket(
        self,
        response: Any,  # noqa: ANN401  # of requests
        stream: bool,  # as docker-py calls it
        tty: bool = True,
        demux: bool = False,
    ) -> Any:  # noqa: ANN401  # bytes, or an iterator
        """Read output; with TLS, docker-py would wait although data was decrypted already."""
        sdk: Any = super()
        if not self.base_url.startswith("https://"):
            return sdk._read_from_socket(response, stream, tty=tty, demux=demux)
        sdk._disable_socket_timeout(sdk._get_raw_response_socket(response))

        def output() -> Iterator[Any]:
            try:
                frames: Any = read_frames(response.raw._fp.fp)
                for frame in frames:
                    yield demux_adaptor(*frame) if demux else frame[1]
            finally:
                response.close()

        whole: Any = output()
        return whole if stream else consume_socket_output(whole, demux=demux)  # type: ignore[call-overload]


class _OneSocket(UnixHTTPAdapter):
    """Keeps one pool of connections for the socket.

    docker-py's own adapter has one pool for each URL, so nearly every request needs a connection.
    """

    def get_connection(self, url: bytes | str, proxies: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401, ARG002
        """Return the pool of all connections."""
        return super().get_connection(self.socket_path)

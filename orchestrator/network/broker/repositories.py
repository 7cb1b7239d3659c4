"""Private repositories of git hosts that workers may read through the credential broker."""

import base64
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.network.broker.grant import Repository

PLACE = "git"
"""First part of the URL path in git's requests to the broker."""
GIT_FILE = "git-settings"
"""Name of the git configuration file in a worker's state directory, mounted in the container."""
READS = "git-upload-pack"
_WRITES = "git-receive-pack"
_LARGE_FILES = "info/lfs/objects/batch"
_ALL = "/*"
_NAME = r"[A-Za-z0-9._~+@-]+"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_PATH = re.compile(
    rf"/{PLACE}/(?P<host>{_HOST})/(?P<path>(?:{_NAME}/)*{_NAME})/"
    rf"(?P<end>info/refs|git-[a-z-]+|{_LARGE_FILES})"
)
_GZIP = 16
_HEADERS = frozenset({"accept", "content-type", "git-protocol", "user-agent"})


def git_settings(
    repositories: Iterable[Repository], url: str, token: str
) -> Iterator[tuple[str, str]]:
    """Yield settings with which a worker's git reads the repositories through the broker."""
    start = f"{url}/{PLACE}/"
    for repository in repositories:
        scheme, _, place = repository.url.removesuffix("*").partition("://")
        host, _, path = place.partition("/")
        name = host.partition(":")[0]
        for spelling in (f"{scheme}://{place}", f"ssh://git@{name}/{path}", f"git@{name}:{path}"):
            yield f"url.{start}{place}.insteadOf", spelling
    yield f"http.{start}.extraHeader", f"Authorization: Bearer {token}"


def git_configuration(settings: Iterable[tuple[str, str]]) -> str:
    """Return the text of a git configuration: the image's system settings, then `settings`."""
    lines = ["[include]", "\tpath = /etc/gitconfig"]
    for name, value in settings:
        section, _, rest = name.partition(".")
        where, _, key = rest.rpartition(".")
        lines += [f"[{section} {_quote(where)}]", f"\t{key} = {_quote(value)}"]
    return "\n".join([*lines, ""])


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True)
class GitCall:
    """A request to the broker by the git program in a worker."""

    place: str
    """Host and path of the repository, without the scheme."""
    end: str
    """Rest of the URL after the repository."""
    does: Literal["reads", "writes", "reads large files"]

    def url(self, repository: Repository, *, suffix: str = "") -> str:
        """Return the request's URL at the git host; `suffix` is added to the repository's name."""
        return f"{repository.url.partition('://')[0]}://{self.place}{suffix}/{self.end}"

    def find(self, repositories: Iterable[Repository]) -> Repository | None:
        """Return the listed repository that the request is for; None if it is not listed."""
        place = self.place.removesuffix(".git")
        for repository in repositories:
            listed = repository.url.partition("://")[2]
            below = listed.endswith(_ALL) and place.startswith(listed.removesuffix("*"))
            if place == listed or below:
                return repository
        return None


def find_git_call(method: str, raw_path: str, query: Mapping[str, str]) -> GitCall | None:
    """Return the request that git makes to the broker; None for a request that is not git's.

    Args:
        method: The method of the request.
        raw_path: The path as it was sent, without the query.
        query: The parameters in the URL.
    """
    found = _PATH.fullmatch(raw_path)
    # protection: paths-of-repositories-with-are-refused
    if found is None or not {".", ".."}.isdisjoint(found["path"].split("/")):
        return None
    place = f"{found['host'].lower()}/{found['path']}"
    if found["end"] == _LARGE_FILES:
        return GitCall(place, _LARGE_FILES, "reads large files") if method == "POST" else None
    service = query.get("service", "") if found["end"] == "info/refs" else found["end"]
    if method != ("GET" if found["end"] == "info/refs" else "POST"):
        return None
    # protection: only-requests-of-git-are-passed-on
    if service not in (READS, _WRITES):
        return None
    return GitCall(place, found["end"], "reads" if service == READS else "writes")


def git_headers(headers: Mapping[str, str], credentials: str) -> dict[str, str]:
    """Return the headers that are passed on to a git host, with its credentials.

    `Content-Encoding` is not passed on, because the broker decompresses bodies.
    """
    # protection: only-listed-headers-are-sent-to-git-host
    passed = {name: value for name, value in headers.items() if name.lower() in _HEADERS}
    encoded = base64.b64encode(credentials.encode()).decode()
    # The broker would not find the credentials in a compressed answer.
    return {**passed, "Accept-Encoding": "identity", "Authorization": f"Basic {encoded}"}


def decompress(body: bytes, most: int) -> bytes | None:
    """Return a body that git compressed with gzip; None if it is invalid or longer than `most`."""
    reader = zlib.decompressobj(zlib.MAX_WBITS | _GZIP)
    try:
        found = reader.decompress(body, most)
    except zlib.error:
        return None
    return found if reader.eof and not reader.unused_data else None

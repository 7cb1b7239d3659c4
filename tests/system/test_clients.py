"""Package managers and HTTP clients of several languages with `--network allowlist`.

They run as tasks start them, without proxy variables or options. Their image, of Debian packages,
is built for these tests and removed afterwards; it trusts the certificate of the outside.
"""

import base64
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.engine.docker import DockerEngine
from tests.support.bridge import bridge_gateway
from tests.support.cli import printed
from tests.support.images import built_image
from tests.support.model_script import Rule, Scenario, Turn
from tests.support.model_server import ModelServer
from tests.support.outside import Outside, outside
from tests.support.repository import git

# Building the image takes minutes.
pytestmark = [pytest.mark.docker, pytest.mark.extra, pytest.mark.timeout(900)]
IMAGE = "orchestrator-test-clients:latest"
KEY = "sk-canary-4e8a1b6f0d93"
# The outside's addresses are private, so each entry names their network.
LISTED = (
    *("--allow", "files.example=10.99.112.0/24"),
    *("--allow", "http://other.example=10.99.112.0/24"),
)
FETCHES = {
    "curl": 'curl -fsS "$url"',
    "wget": 'wget -q -O - "$url"',
    "python": "python3 -c 'import sys, urllib.request as web; "
    'print(end=web.urlopen(sys.argv[1]).read().decode())\' "$url"',
    "node-fetch": "node -e 'fetch(process.argv[1]).then(async answer => "
    'process.stdout.write(await answer.text()))\' "$url"',
    "node-https": "node -e 'require(new URL(process.argv[1]).protocol.slice(0, -1)).get("
    'process.argv[1], answer => answer.pipe(process.stdout))\' "$url"',
    "java": 'java -cp /opt/clients Fetch "$url"',
    "go": '/opt/clients/fetch-go "$url"',
}
"""Commands that print the content of the URL in the variable `url`."""
INSTALLS = {
    "pip": "pip install --quiet --target /tmp/pip --index-url https://files.example/simple/ demo "
    "&& PYTHONPATH=/tmp/pip python3 -c 'import demo; print(demo.TEXT)'",
    "npm": "npm install --silent --prefix /tmp/npm --registry https://files.example/npm/ demo "
    "&& NODE_PATH=/tmp/npm/node_modules node -p 'require(\"demo\")'",
    "git": "git clone --quiet https://files.example/repo.git /tmp/cloned && cat /tmp/cloned/a.txt",
}
"""Commands that install something from `files.example`, and print a line of it."""
POSTS = {
    "curl": 'curl -sS -H "Authorization: Bearer $key" -d "$body" "$url"',
    "node-fetch": "node -e 'const [url, key, body] = process.argv.slice(1); fetch(url, {method: "
    '"POST", body, headers: {Authorization: "Bearer " + key}}).then(async answer => '
    'process.stdout.write(await answer.text()))\' "$url" "$key" "$body"',
    "java": 'java -cp /opt/clients Fetch "$url" "$key" "$body"',
    "go": '/opt/clients/fetch-go "$url" "$key" "$body"',
}
"""Commands that send `body` to `url` with the token `key`, and print the answer."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with outside(tmp_path_factory.mktemp("outside")) as made:
        yield made


@pytest.fixture(scope="module")
def image(
    world: Outside, docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    context = tmp_path_factory.mktemp("image") / "clients"
    shutil.copytree(Path(__file__).with_name("clients"), context)
    shutil.copy(world.certificate, context / "certificate")
    with built_image(docker_engine, context, IMAGE) as tag:
        yield tag


def fill(site: Path, repo: Path) -> None:
    """Write what clients fetch: a text, a package of pip, one of npm, and a repository."""
    (site / "text").write_text("text\n")
    git(site, "clone", "--quiet", "--bare", str(repo), "repo.git")
    git(site / "repo.git", "update-server-info")
    wheel = "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(site / wheel, "w") as archive:
        head = "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"
        archive.writestr("demo.py", 'TEXT = "from pip"\n')
        archive.writestr("demo-1.0.dist-info/METADATA", head)
        archive.writestr(
            "demo-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true\n",
        )
        archive.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\n")
    (site / "simple" / "demo").mkdir(parents=True)
    (site / "simple" / "demo" / "index.html").write_text(f'<a href="/{wheel}">{wheel}</a>')
    package = {"name": "demo", "version": "1.0.0", "main": "index.js"}
    files = {"package.json": json.dumps(package), "index.js": 'module.exports = "from npm"\n'}
    with tarfile.open(site / "demo-1.0.0.tgz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    digest = base64.b64encode(hashlib.sha512((site / "demo-1.0.0.tgz").read_bytes()).digest())
    found = {
        "integrity": f"sha512-{digest.decode()}",
        "tarball": "https://files.example/demo-1.0.0.tgz",
    }
    (site / "npm").mkdir()
    (site / "npm" / "demo").write_text(
        json.dumps({
            "name": "demo", "dist-tags": {"latest": "1.0.0"},
            "versions": {"1.0.0": {**package, "dist": found}},
        })
    )  # fmt: skip


def steps(commands: dict[str, str], label: str = "") -> str:
    """Return a script that runs each command and prints a line: its name, and what it printed."""
    run = "out=$({ %s; } 2>/tmp/err) || { out=closed; sed 's/^/%s: /' /tmp/err >&2; }"
    return "\n".join(
        f'{run % (command, name)}; echo "{name}{label} $(echo "$out" | tail -n 1)"'
        for name, command in commands.items()
    )


def test_clients_work_unchanged_with_listed_hosts_alone(
    world: Outside, image: str, repo: Path
) -> None:
    urls = ("https://files.example/text", "http://other.example/text")
    script = [steps(FETCHES, f" {url}").replace("$url", url) for url in urls]
    closed = steps(FETCHES).replace("$url", "https://other.example/text")
    script += [steps(INSTALLS), closed, "env | grep -ci proxy; true"]
    (repo / "clients.sh").write_text("\n".join(script))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "clients")
    with world.site() as site:
        fill(site, repo)
        done = world.orchestrator(
            "parallel", "--agent-cli", "shell", "--json", "--workers", "1", "--image", image,
            "--network", "allowlist", *LISTED, "sh clients.sh", cwd=repo, timeout=300,
        )  # fmt: skip
    said = printed(done.results[1]).splitlines()
    log = (Path(done.results[1]["log"]) / "stderr.log").read_text()
    fetched = [f"{name} {url} text" for url in urls for name in FETCHES]
    installed = ["pip from pip", "npm from npm", "git a"]
    assert said == [*fetched, *installed, *(f"{name} closed" for name in FETCHES), "0"], log


def test_clients_work_unchanged_through_gateway_and_broker(
    world: Outside, image: str, repo: Path, broker_image: str
) -> None:
    del broker_image
    asked = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Say hello"}]}
    values = {"url": "$OPENAI_BASE_URL/chat/completions", "key": "$OPENAI_API_KEY"}
    setting = "; ".join(f'{name}="{value}"' for name, value in values.items())
    task = f"{setting}; body='{json.dumps(asked)}'\n{steps(POSTS)}"
    with ModelServer(Scenario((Rule(turns=(Turn(text="Hello."),)),)), host=bridge_gateway()) as api:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{api.url}/v1"}
        done = world.orchestrator(
            "parallel", "--agent-cli", "shell", "--json", "--workers", "1", "--image", image,
            "--keys", "broker", "--network", "allowlist", *LISTED,
            *("--env", "OPENAI_API_KEY", "--env", "OPENAI_BASE_URL"), task,
            cwd=repo, env=env, timeout=300,
        )  # fmt: skip
        keys = [exchange.key for exchange in api.exchanges]
    lines = [line.partition(" ") for line in printed(done.results[1]).splitlines()]
    log = (Path(done.results[1]["log"]) / "stderr.log").read_text()
    assert [name for name, _, _ in lines] == list(POSTS), log
    for name, _, answer in lines:
        assert json.loads(answer)["choices"][0]["message"]["content"] == "Hello.", (name, answer)
    assert keys == [KEY] * len(POSTS)

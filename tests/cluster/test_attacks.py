"""What a task in a pod tries against the porter, the harvest, the API server and other pods.

The corpus of attacks runs against pods too: `pytest --cluster tests/assurance/attacks`.
"""

from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.runs import Start, ended, present
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ASK = """
import os, ssl, urllib.request
trust = ssl._create_unverified_context()
host = os.environ["KUBERNETES_SERVICE_HOST"]
for path in ("pods", "secrets", "pods/x/exec"):
    url = f"https://{host}/api/v1/namespaces/agents/{path}"
    try:
        print("ANSWERED", urllib.request.urlopen(url, timeout=3, context=trust).status)
    except OSError as error:
        print("refused", error)
"""
_SEEN = "cat /proc/*/cmdline | tr '\\0' ' ' | grep -a"
_FLOOD = "exit 0\\nbegan\\n$(head -c 9000 /dev/zero | tr '\\0' x)\\n"
ATTACKS = {
    "channel": "cd /run/place/1; echo 'exec true' > order; rm -f sh; mkdir x; cd /workspace",
    "shim": "kill -9 1; kill -STOP 1; cat /run/place/1/sh | wc -c; true > /proc/1/mem",
    "porter": f"ls /state /channels /usage /parts; {_SEEN} 'porter[.]py'",
    "harvest": f"ls /harvest /out; {_SEEN} 'pack[_]work'",
    "token": "find / -xdev -name token -path '*serviceaccount*' -size +0 2> /dev/null",
    "API server": f"python3 -c '{ASK}'",
    "journal": f'printf "{_FLOOD}" > /run/place/1/obey',
    "late writer": "(setsid sh -c 'trap \"\" TERM HUP; sleep 6; echo late > late' &)",
    "fork bomb": "(for n in $(seq 300); do sleep 20 & done) 2> /dev/null",
}


def test_no_attack_reaches_more_than_its_own_pod(lab: Lab, repo: Path, start: Start) -> None:
    script = "\n".join(f"echo '== {name}'; {text}" for name, text in ATTACKS.items())
    result = ended(
        start("--timeout-per-worker", "60", f"echo x > honest; {{ {script}\n}} 2>&1; exit 3")
    )
    assert (result["status"], result["exit_code"], result["restarts"]) == ("failed", 3, 0), result
    said = (Path(result["log"]) / "stdout.log").read_text()
    parts = {part.partition("\n")[0]: part for part in said.split("== ")[1:]}
    assert list(parts) == list(ATTACKS)
    assert parts["channel"].count("Read-only file system") == 3
    assert "Permission denied" in parts["shim"]
    assert parts["porter"].count("No such file") == 4
    assert parts["harvest"].count("No such file") == 2
    assert "porter.py" not in said
    assert "pack_work" not in said
    assert parts["token"].strip() == "token"
    assert "ANSWERED" not in parts["API server"]
    assert git(repo, "ls-tree", "--name-only", "-r", result["branch"]).split().count("late") == 0
    assert git(repo, "show", f"{result['branch']}:honest") == "x"
    assert present(lab, repo, "jobs") == []

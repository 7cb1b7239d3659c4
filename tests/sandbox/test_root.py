"""Tests of sandboxes that may change their root file system, also as root."""

import os
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.engine.docker import DockerEngine
from orchestrator.sandbox.batch import run_all
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.sandbox.models import EndReason, SandboxLimits, Submission, Template
from tests.support.errors import raises

SMALL = SandboxLimits(memory="128m", cpus=1, pids=64, disk="20m", inodes=2000, grace=0.2)
ROOT = Template(limits=SMALL, root="writable", user="root")
PACKAGE = """
set -e
mkdir -p made/DEBIAN made/usr/bin
printf '%s\n' 'Package: made' 'Version: 1' 'Architecture: all' 'Maintainer: a <a@b.example>' \
  'Description: x' > made/DEBIAN/control
printf '%s\n' '#!/bin/sh' 'useradd -r made && chown made /usr/bin/made' > made/DEBIAN/postinst
printf '#!/bin/sh\necho made\n' > made/usr/bin/made
chmod 755 made/DEBIAN/postinst made/usr/bin/made
dpkg-deb --build --root-owner-group made made.deb > /dev/null
dpkg -i made.deb > /dev/null
made
stat -c %U /usr/bin/made
setpriv --reuid=made --clear-groups id -un
"""
HOSTILE = """
cp /bin/sh /workspace/shell; chown 0:0 /workspace/shell; chmod 6755 /workspace/shell
cp /bin/sh /run/sandbox/shell; mknod /workspace/disk b 8 0; mount -t tmpfs none /mnt
chroot / true; nft list tables
for at in /sys /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do echo x > $at; done
grep -E 'CapEff|NoNewPrivs' /proc/self/status
"""


@pytest.mark.docker
def test_root_installs_packages_and_leaves_no_file_of_root_here(
    docker_engine: DockerEngine, homes: Path
) -> None:
    with Sandbox.create(ROOT, engine=docker_engine) as box:
        done = box.run(["sh", "-c", PACKAGE])
        assert (done.exit_code, done.stdout) == (0, b"made\nmade\nmade\n"), done.stderr
        box.files.write("a/b", b"kept", mode=0o4755)
        assert box.files.read("/workspace/a/b") == b"kept"
        # What root runs as another user ends with its command, too.
        slow = box.run(["setpriv", "--reuid=made", "--clear-groups", "sleep", "60"], timeout=0.5)
        assert slow.reason is EndReason.TIMEOUT
        assert b"sleep 60" not in box.run(["sh", "-c", "cat /proc/[0-9]*/cmdline"]).stdout
        said = box.run(["sh", "-c", HOSTILE])
        # CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, and no more.
        assert said.stdout.split() == [b"CapEff:", b"00000000000000fb", b"NoNewPrivs:", b"1"]
        assert box.files.stat("shell").mode == 0o6755
        assert not box.run(["test", "-e", "disk"]).ok
        here = [path for path in homes.rglob("*") if path.is_file()]
        assert here
        assert [path for path in here if path.stat().st_mode & 0o6000] == []
        assert "shell" not in {path.name for path in here}
        inspected = docker_engine._client.inspect_container(box._container.id)
        layer = Path(inspected["GraphDriver"]["Data"]["UpperDir"])
        assert (layer / "workspace" / "shell").stat().st_mode & 0o6000
        # The engine keeps the layer from everybody else on this machine.
        stranger = subprocess.run(
            ["stat", layer / "workspace" / "shell"], user=65534, group=65534, extra_groups=[],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert "Permission denied" in stranger.stderr
        with raises("sandbox.root-snapshot"):
            box.snapshot("a")


@pytest.mark.docker
def test_writable_root_counts_toward_the_limits(docker_engine: DockerEngine) -> None:
    many = "mkdir /opt/x; cd /opt/x; i=0; while :; do : > $i; i=$((i+1)); done"
    asked = [
        Submission(id="disk", command=("sh", "-c", "head -c 99m /dev/zero > /opt/a; sleep 60")),
        Submission(id="fine", command=("sh", "-c", "cat a/b; touch /etc/x"), files={"a/b": b"in"}),
        Submission(id="inodes", command=("sh", "-c", many)),
    ]
    found = {one.id: one for one in run_all(asked, template=ROOT, engine=docker_engine)}
    assert found["disk"].reason is EndReason.DISK
    assert (found["fine"].exit_code, found["fine"].stdout) == (0, b"in")
    if os.getuid() == 0:
        assert found["inodes"].reason is EndReason.INODES
    with raises("sandbox.root-out"):
        list(
            run_all(
                [Submission(command=("true",), out=("a",))], template=ROOT, engine=docker_engine
            )
        )


@pytest.mark.docker
def test_ordinary_user_stays_one_with_a_writable_root(docker_engine: DockerEngine) -> None:
    with Sandbox.create(limits=SMALL, root="writable", engine=docker_engine) as box:
        assert box.run(["touch", "/var/tmp/x", "/workspace/x"]).ok
        assert not box.run(["touch", "/etc/x"]).ok
        for user in ("0", "root", "0:0", "1000:0", "00", ""):
            with raises("sandbox.user"):
                box.run(["true"], user=user)
        assert box.run(["id", "-u"], user="1000").stdout == b"1000\n"


@pytest.mark.fast
def test_root_needs_a_writable_root() -> None:
    with pytest.raises(ValidationError, match="writable"):
        Template(user="root")

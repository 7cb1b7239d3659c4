"""The settings and environment variables with which every git command runs."""

import os
from collections.abc import Iterable, Mapping

# protection: git-settings
CONFIG: Mapping[str, str] = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.alternateRefsCommand": "true",
    "core.bigFileThreshold": "128m",
    "core.commitGraph": "false",
    # A split index keeps half of its data in a second file, which a copy of the index lacks.
    "core.splitIndex": "false",
    "commit.gpgSign": "false",
    # Output of gpg about a signature would stand between the ids that `git log` prints.
    "log.showSignature": "false",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "all",
    "diff.external": "",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "protocol.file.allow": "always",
    "safe.bareRepository": "explicit",
    "transfer.fsckObjects": "true",
}
# protection: git-environment
ENVIRONMENT: Mapping[str, str] = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    # Grafts are unknown to workers, who would find commits without parents, or with others.
    "GIT_GRAFT_FILE": f"{os.devnull}/none",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_ADVICE": "0",
    "LC_ALL": "C",
}
SIZE_AND_TIME: Mapping[str, str] = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""Settings that make git detect changed files only by size and modification time, because the
owner, inode and device of unchanged files may differ from those in the index.
"""
LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# Variables of the caller's environment that git gets; any GIT_* variable could redirect git.
# Git run by `sudo` trusts the repositories of the user whom SUDO_UID names.
KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE", "SUDO_UID")


def filters_off(configured: Iterable[str]) -> dict[str, str]:
    """Return settings that switch off every filter driver in these configuration keys."""
    keys = (key for key in configured if key.startswith("filter."))
    drivers = {key.partition(".")[2].rpartition(".")[0] for key in keys}
    # protection: filters-disabled
    off = {"smudge": "", "clean": "", "process": "", "required": "false"}
    return {f"filter.{driver}.{key}": value for driver in drivers for key, value in off.items()}

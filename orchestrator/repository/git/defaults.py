"""The settings and environment variables with which every git command runs."""

import os
from collections.abc import Mapping

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
    # The address of such a remote is a command.
    "protocol.ext.allow": "never",
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
    # A trace goes to a file or socket at any path.
    "GIT_TRACE2": "0",
    "GIT_TRACE2_EVENT": "0",
    "GIT_TRACE2_PERF": "0",
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
REMOTES: Mapping[str, str] = {
    **{f"protocol.{protocol}.allow": "always" for protocol in ("https", "http", "ssh", "git")},
    # As in the user's own fetch: old repositories contain harmless format errors.
    "transfer.fsckObjects": "false",
}
"""Settings of commands that reach a remote repository."""
PROGRAMS_FOR_REMOTES = ("GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS")
FOR_REMOTES = (
    *("SSH_AUTH_SOCK", *PROGRAMS_FOR_REMOTES),
    *("http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"),
)
"""The user's environment variables that these commands also get, to log in."""
SEALED: Mapping[str, str] = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
"""Variables with which git reads no setting and no attribute of the user or the machine. Git before
2.32 does not know the first: it also gets no home directory.
"""

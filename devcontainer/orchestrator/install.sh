#!/bin/sh
# Install the package into an environment of its own, with its commands in /usr/local/bin. The options
# of devcontainer-feature.json are in VERSION and EXTRAS. Runs as root while the image is built.
set -eu

version=${VERSION-latest}
extras=${EXTRAS:-}
place=/opt/worktree-orchestrator
commands=/usr/local/bin

fail() { # WHAT HINT
    printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2
    exit 3
}

case $version in
    '' | *[!0-9A-Za-z.]*) fail "\`version\` is not a version" 'use `latest`, or a version such as `0.1.0`' ;;
esac
case $extras in
    *[!a-z,]*) fail "\`extras\` is not a list of extras" 'use `mcp`, `ui` or `mcp,ui`' ;;
esac

if ! command -v git >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    command -v apt-get >/dev/null ||
        fail 'git, or Python with venv, is missing' 'install them in the image'
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install --yes --no-install-recommends ca-certificates git python3 python3-venv
    rm -rf /var/lib/apt/lists/*
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail 'Python 3.11 or later is needed' 'use a newer image, or the feature `python`'

wanted="worktree-orchestrator${extras:+[$extras]}"
if [ "$version" != latest ]; then wanted="$wanted==$version"; fi
python3 -m venv --clear "$place"
"$place/bin/pip" install --no-cache-dir --disable-pip-version-check "$wanted"
mkdir -p "$commands"
for name in orchestrator orch; do
    ln -sf "$place/bin/$name" "$commands/$name"
done

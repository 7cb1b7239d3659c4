#!/bin/sh
# Install an agent program into /opt/agent; its command alone goes to /opt/agent/commands, which the
# image has on PATH. Runs in the first stage of Dockerfile.worker, and nowhere else.
#
#   install-agent.sh tools pip|npm    what installing needs
#   install-agent.sh pip|npm AGENT    the program: agents/AGENT.txt or agents/AGENT.sh
set -eu

here=$(dirname "$0")
top=/opt/agent

apt_install() { # PACKAGE...
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        -o Dpkg::Options::=--force-unsafe-io "$@"
    rm -rf /var/lib/apt/lists/*
}

# Debian's Python comes without ensurepip; other bases may have it. A Python that is not there would
# be missing in the image that the program is for.
tools() { # pip|npm
    case $1 in
        pip)
            command -v python3 >/dev/null || { echo 'there is no python3 in this image' >&2; exit 1; }
            python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
            ;;
        npm) command -v npm >/dev/null || apt_install npm ;;
    esac
}

# A machine behind a private certificate authority has put its bundle into the build context.
trust() {
    if [ -f "$here/ca-bundle.crt" ]; then
        export PIP_CERT="$here/ca-bundle.crt" npm_config_cafile="$here/ca-bundle.crt"
    fi
    # Set and empty is not the same as not set.
    if [ -z "${PIP_INDEX_URL:-}" ]; then unset PIP_INDEX_URL; fi
    if [ -z "${npm_config_registry:-}" ]; then unset npm_config_registry; fi
}

# pip stays outside of the venv, and so does the web page of a server nobody starts. Bytecode is
# never checked against its source: a read-only container could not write it anew.
install_pip() { # AGENT
    python3 -m venv /opt/pip
    python3 -m venv --without-pip "$top"
    # The list is complete, and known to work on newer Pythons than its packages' authors tried.
    /opt/pip/bin/pip --python "$top/bin/python3" install --requirement "$here/$1.txt" \
        --no-deps --ignore-requires-python --only-binary :all: \
        --no-cache-dir --no-compile --disable-pip-version-check --progress-bar off
    rm -rf "$top"/lib/python3*/site-packages/litellm/proxy/_experimental/out
    "$top/bin/python3" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$top/lib"
    provide "$1" "bin/$1"
}

install_npm() { # AGENT
    case $(uname -m) in
        x86_64) cpu=x64 ;;
        aarch64) cpu=arm64 ;;
        *) echo "there is no \`$1\` for $(uname -m)" >&2; exit 1 ;;
    esac
    agent=$1
    # shellcheck source=/dev/null
    . "$here/$agent.sh"
}

# Programs of packages are not run: what is wanted of them lies in them ready made.
npm_install() { # PACKAGE@VERSION...
    npm install --prefix "$top" --cache /tmp/npm --ignore-scripts --omit=optional \
        --no-audit --no-fund --no-update-notifier --no-package-lock "$@"
    rm -rf /tmp/npm
}

provide() { # COMMAND FILE
    mkdir -p "$top/commands"
    test -x "$top/$2"
    ln -s "../$2" "$top/commands/$1"
}

case $1 in
    tools) tools "$2" ;;
    pip | npm) trust; "install_$1" "$2" ;;
esac

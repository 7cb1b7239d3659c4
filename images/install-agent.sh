#!/bin/sh
# Install an agent program in /opt/agent, and a link to its command in /opt/agent/commands, which is
# on the image's PATH. Only Dockerfile.worker runs this script.
#
#   install-agent.sh tools pip|npm    install what the package manager needs
#   install-agent.sh pip|npm AGENT    install the program, as agents/AGENT.txt or agents/AGENT.sh says
set -eu

here=$(dirname "$0")
top=/opt/agent

apt_install() { # PACKAGE...
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        -o Dpkg::Options::=--force-unsafe-io "$@"
    rm -rf /var/lib/apt/lists/*
}

# Install the missing tools of a package manager. Debian's Python has no ensurepip; that of other
# base images may have it. Python itself must exist, because the final image needs it too.
tools() { # pip|npm
    case $1 in
        pip)
            command -v python3 >/dev/null || { echo 'there is no python3 in this image' >&2; exit 1; }
            python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
            ;;
        npm) command -v npm >/dev/null || apt_install npm ;;
    esac
}

# Use the certificates and the package index of the machine on which the image is built.
trust() {
    if [ -f "$here/ca-bundle.crt" ]; then
        export PIP_CERT="$here/ca-bundle.crt" npm_config_cafile="$here/ca-bundle.crt"
    fi
    # pip and npm would use an empty value of these variables.
    if [ -z "${PIP_INDEX_URL:-}" ]; then unset PIP_INDEX_URL; fi
    if [ -z "${npm_config_registry:-}" ]; then unset npm_config_registry; fi
}

# Install a program with pip in a virtual environment without pip. The web page of LiteLLM's server
# is removed, because no program starts that server. Compiled bytecode is never compared with its
# source, because a read-only container could not write it again.
install_pip() { # AGENT
    python3 -m venv /opt/pip
    python3 -m venv --without-pip "$top"
    # The list has all dependencies. They also work with newer versions of Python than they declare.
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

# Install npm packages without running their scripts: the packages contain all files that are needed.
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

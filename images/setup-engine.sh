#!/bin/sh
# Set up a Debian-like machine: a running Docker engine, git, mmdebstrap, Python's venv.
#
#   setup-engine.sh           install everything
#   setup-engine.sh engine    install what an installed package needs: all but Python's venv
#   setup-engine.sh packages  the same without an engine, for an engine that is elsewhere
#   setup-engine.sh python    install only the packages that a virtual environment requires
#   setup-engine.sh chromium  install only the browser that shows pages in tests
#
# Existing installations are not changed. Started daemons do not keep the caller's output open, so
# that a CI job which set up its own engine can end.
set -eu

default_socket=/var/run/docker.sock
python=${PYTHON:-python3}
host=${DOCKER_HOST:-}
log=$(mktemp "${TMPDIR:-/tmp}/orchestrator-setup.XXXXXX")
trap 'rm -f "$log"' EXIT

say() { printf '%s\n' "$*" >&2; }

fail() { # WHAT HINT
    if [ -s "$log" ]; then tail -n 15 "$log" | sed 's/^/  /' >&2; fi
    printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2
    exit 3
}

may_be_root() { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

has() { # PACKAGE
    case $1 in
        docker.io) command -v dockerd >/dev/null || [ -x /usr/sbin/dockerd ] ;;
        iptables) command -v iptables >/dev/null || [ -x /usr/sbin/iptables ] ;;
        python3) command -v "$python" >/dev/null ;;
        python3-venv) "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

install() { # PACKAGE...
    missing=
    for package in "$@"; do
        if ! has "$package"; then missing="$missing $package"; fi
    done
    if [ -z "$missing" ]; then return 0; fi
    if ! command -v apt-get >/dev/null || ! may_be_root; then return 1; fi
    say "installing$missing"
    # Output goes to the log, because a package may start a daemon that keeps its output open.
    # shellcheck disable=SC2086  # a list of names
    as_root sh -c 'export DEBIAN_FRONTEND=noninteractive
        apt-get update && exec apt-get install --yes --no-install-recommends "$@"' \
        sh $missing >>"$log" 2>&1 || return 1
    for package in $missing; do
        has "$package" || return 1
    done
}

need() { # PACKAGE...
    install "$@" || fail "cannot install$missing" "install by hand: \`apt-get install$missing\`"
}

# Return 0 if the engine answers, 13 if this user has no access, 1 for any other failure.
# Of what may choose an engine, this knows only DOCKER_HOST. `orchestrator setup`, which also knows
# contexts of the docker command and needs no such command for ssh, does not ask this script then.
ping_engine() {
    case $host in
        '' | unix://*) ;;
        *) docker version >/dev/null 2>&1 && return 0 || return 1 ;;
    esac
    socket=${host#unix://}
    "$python" - "${socket:-$default_socket}" 2>/dev/null <<'PY'
import socket, sys
try:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.settimeout(5)
        engine.connect(sys.argv[1])
        engine.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        sys.exit(0 if b" 200 " in engine.recv(64) else 1)
except PermissionError:
    sys.exit(13)
except OSError:
    sys.exit(1)
PY
}

# Wait until the engine answers; give up after SECONDS, or at once if this user has no access.
await_engine() { # SECONDS
    end=$(($(date +%s) + $1))
    while :; do
        status=0
        ping_engine || status=$?
        if [ "$status" -ne 1 ]; then return "$status"; fi
        if [ "$(date +%s)" -ge "$end" ]; then return 1; fi
        sleep 0.2
    done
}

start_engine() {
    if [ -d /run/systemd/system ]; then
        as_root systemctl start docker </dev/null >>"$log" 2>&1 && await_engine 60
        return
    fi
    if command -v service >/dev/null && [ -x /etc/init.d/docker ]; then
        as_root service docker start </dev/null >>"$log" 2>&1 || true
        status=0
        await_engine 20 || status=$?
        if [ "$status" -ne 1 ]; then return "$status"; fi
    fi
    start_dockerd && await_engine 60
}

# Start the daemon in its own session without inherited files, so that neither the end of `make`
# nor Ctrl-C ends it, and no process waits for it.
start_dockerd() {
    as_root sh -c 'exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
        PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
        cd / && setsid dockerd </dev/null >>/var/log/docker.log 2>&1 &' \
        </dev/null >>"$log" 2>&1
}

setup_engine() {
    status=0
    ping_engine || status=$?
    if [ "$status" -eq 1 ]; then
        if [ -n "$host" ]; then
            fail "the Docker engine at \`$host\` does not answer" \
                "start it, or unset \`DOCKER_HOST\`"
        fi
        need docker.io iptables
        may_be_root || fail "no Docker engine answers" "start it as root: \`systemctl start docker\`"
        say "starting the Docker engine"
        status=0
        start_engine || status=$?
    fi
    case $status in
        0) ;;
        13) fail "the Docker engine is not for this user" \
            "\`sudo usermod -aG docker $(id -un)\`, then log in again" ;;
        *) fail "the Docker engine does not start" \
            "see /var/log/docker.log or \`journalctl -u docker\`" ;;
    esac
}

if [ "${1:-all}" = chromium ]; then
    need chromium
    exit
fi
case ${1:-all} in
    engine | packages) need git ;;
    *) need python3 python3-venv git ;;
esac
if [ "${1:-all}" != python ]; then
    if [ "${1:-all}" != packages ]; then setup_engine; fi
    # mmdebstrap builds the base image on machines that cannot reach an image registry.
    install mmdebstrap || say "note: no mmdebstrap: the base image can only be pulled"
fi

#!/usr/bin/env bash
# Package: kubernetes 37.0.2 (PyPI, the Python client), for Python 3.10 or newer.
# Guess:   of the files listed in KUBECONFIG, the first one that sets current-context decides, as the
#          Kubernetes documentation on merging kubeconfig files says and as kubectl 1.32.4 does.
# Instead: the last file that sets it decides, so that a program and kubectl talk to two different
#          clusters in the same shell. For clusters, users and contexts the first file does win.
# Seen on 2026-11-29:
#   KUBECONFIG=first:second -> context "staging", server https://second.invalid
#   a context that both files define -> server https://first.invalid
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check kubernetes==37.0.2

write_config() { # FILE CURRENT-CONTEXT
    cat >"$work/$1" <<EOF
apiVersion: v1
kind: Config
clusters:
- {name: $1, cluster: {server: "https://$1.invalid"}}
- {name: shared, cluster: {server: "https://$1.invalid"}}
users:
- {name: nobody, user: {}}
contexts:
- {name: $2, context: {cluster: $1, user: nobody}}
- {name: both, context: {cluster: shared, user: nobody}}
current-context: $2
EOF
}
write_config first production
write_config second staging

seen=$(KUBECONFIG="$work/first:$work/second" "$work/venv/bin/python" - <<'EOF'
from kubernetes import client, config

def server(context=None):
    config.load_kube_config(context=context)
    return client.Configuration.get_default_copy().host

print(config.list_kube_config_contexts()[1]["name"], server(), server("both"))
EOF
)
echo "current context, its server, server of the context in both files: $seen"

if [[ $seen != "staging https://second.invalid https://first.invalid" ]]; then
    echo "changed: the last file's current-context no longer wins" >&2
    exit 1
fi

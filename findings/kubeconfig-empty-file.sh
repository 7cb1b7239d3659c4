#!/usr/bin/env bash
# Package: kubernetes 37.0.2 (PyPI, the Python client), for Python 3.10 or newer.
# Guess:   a file in the KUBECONFIG list that is empty, or holds nothing but comments, adds nothing to
#          the merged configuration. kubectl 1.32.4 reads such a list without complaint.
# Instead: load_kube_config raises ConfigException, although the other file is complete; a file that
#          does not exist and a file with only "{}" in it are both passed over.
# Seen on 2026-11-29:
#   missing: loaded
#   braces: loaded
#   empty: ConfigException
#   comment: ConfigException
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check kubernetes==37.0.2

cd "$work"
cat >complete <<'EOF'
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://test.invalid"}}]
users: [{name: test, user: {}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
EOF
: >empty
echo '# no cluster yet' >comment
echo '{}' >braces

for file in missing braces empty comment; do
    KUBECONFIG="complete:$file" venv/bin/python - "$file" <<'EOF'
import sys

from kubernetes import config

try:
    config.load_kube_config()
    print(f"{sys.argv[1]}: loaded")
except config.ConfigException as error:
    print(f"{sys.argv[1]}: {type(error).__name__}")
EOF
done | tee seen

expected="missing: loaded braces: loaded empty: ConfigException comment: ConfigException"
if [[ $(paste -sd' ' seen) != "$expected" ]]; then
    echo "changed: an empty file in the list is treated differently now" >&2
    exit 1
fi

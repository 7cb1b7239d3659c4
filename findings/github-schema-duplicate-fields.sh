#!/usr/bin/env bash
# Packages: @octokit/graphql-schema 15.26.1 (npm, GitHub's published GraphQL schema),
#           graphql-core 3.3.2 (PyPI, reads it).
# Guess:    the schema.graphql of the package is a valid schema, which any GraphQL library can build
#           to check queries against, like the schema.json next to it.
# Instead:  two fields of the type EnterpriseOwnerInfo are defined twice, which the GraphQL
#           specification forbids; build_schema refuses the file. The JSON form builds, and the file
#           builds once the check of the definitions is switched off.
# Seen on 2026-11-29:
#   schema.graphql: TypeError, defined twice: repositoryDeployKeySetting repositoryDeployKeySettingOrganizations
#   schema.graphql without the check: built
#   schema.json: built
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work" @octokit/graphql-schema@15.26.1
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check graphql-core==3.3.2

venv/bin/python - <<'EOF' | tee seen
import json
import re
from pathlib import Path

from graphql import build_client_schema, build_schema

package = Path("node_modules/@octokit/graphql-schema")
text = (package / "schema.graphql").read_text()
try:
    build_schema(text)
    print("schema.graphql: built")
except TypeError as error:
    twice = re.findall(r"Field 'EnterpriseOwnerInfo\.(\w+)' can only be defined once", str(error))
    print("schema.graphql: TypeError, defined twice:", *twice)
build_schema(text, assume_valid_sdl=True)
print("schema.graphql without the check: built")
build_client_schema(json.loads((package / "schema.json").read_text()))
print("schema.json: built")
EOF

if ! grep -qx 'schema.graphql: TypeError, defined twice: repositoryDeployKeySetting .*Organizations' seen; then
    echo "changed: the published schema builds, or fails for another reason" >&2
    exit 1
fi

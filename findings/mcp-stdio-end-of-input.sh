#!/usr/bin/env bash
# Package: mcp 2.3.0 (PyPI, the Python SDK of the Model Context Protocol), with anyio 4.16.0.
# Guess:   a server on standard input and output answers every request it was sent, also when the
#          client has written its requests and closed its end: "server <requests >answers".
# Instead: the end of the input cancels what is still in work. The last requests get no line at all,
#          neither result nor error, and the server exits 0; a client has to keep its end open until
#          it has read the last answer. (Known upstream as issue 2678 of the Python SDK.)
# Seen on 2026-11-29 (the number of lines varies a little from run to run):
#   input closed after the requests: exit code 0, 28 of 51 answered, 0 errors
#   input held open until the last answer: 51 of 51 answered
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check mcp==2.3.0 anyio==4.16.0

cat >server.py <<'EOF'
from mcp.server.mcpserver import MCPServer

MCPServer("example").run("stdio")
EOF
cat >requests <<'EOF'
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"client","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
EOF
for id in {2..51}; do
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"method\":\"ping\"}"
done >>requests

code=0
timeout 120 venv/bin/python server.py <requests >closed || code=$?
answered=$(grep -c '"result"' closed || true)
errors=$(grep -c '"error"' closed || true)
echo "input closed after the requests: exit code $code, $answered of 51 answered, $errors errors"

mkfifo input
timeout 120 venv/bin/python server.py <input >open &
exec 3>input
cat requests >&3
for _ in {1..600}; do
    [[ $(wc -l <open) -lt 51 ]] || break
    sleep 0.1
done
exec 3>&-
wait
echo "input held open until the last answer: $(grep -c '"result"' open) of 51 answered"

if [[ $code -ne 0 || $((answered + errors)) -ge 51 || $(grep -c '"result"' open) -ne 51 ]]; then
    echo "changed: the end of the input no longer silently costs the last answers" >&2
    exit 1
fi

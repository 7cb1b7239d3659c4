#!/bin/sh
# Run each line of a file as an untrusted command, in a container without network; write results.json.
set -eu
tasks=${1:?usage: run.sh FILE}
set --
while IFS= read -r task; do
  [ -z "$task" ] || set -- "$@" --task "$task"
done < "$tasks"
rm -rf -- results.json  # which may be a link of the checkout
exec orchestrator parallel --preset untrusted --agent-cli shell --workers auto \
  --fail-on all --json "$@" > results.json

#!/bin/sh
# Run each argument as a check of the current checkout, all at once; write run.json; clean up.
set -u
[ $# -gt 0 ] || { echo "usage: run.sh CHECK..." >&2; exit 3; }

for check; do
  shift
  set -- "$@" --task "$check"
done
rm -rf -- run.json  # which may be a link of the checkout
trap 'kill -TERM "$run" 2>/dev/null' TERM INT
orchestrator parallel --agent-cli shell --network none --workers auto \
  --cpus 1 --memory 1g --timeout-per-worker 900 --json "$@" > run.json &
run=$!
wait "$run"
code=$?
# A signal ends the first wait; the run then stops its containers and commits their work.
wait "$run" 2>/dev/null
orchestrator parallel-cleanup --purge >&2
exit "$code"

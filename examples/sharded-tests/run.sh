#!/bin/sh
# Run the test suite of a checkout in shards, all at once: run.sh [SHARDS].
# Leaves orchestrator.xml with every test, and the files of each shard in artifacts/worker-N.
set -u
shards=${1:-4}

set --
for shard in $(seq "$shards"); do
  set -- "$@" --task "python3 run_shard.py $shard/$shards"
done
orchestrator parallel --agent-cli shell --network none --workers auto --quiet \
  --artifacts artifacts --junit junit.xml --report orchestrator.xml "$@"
code=$?
orchestrator parallel-cleanup --purge >&2
exit "$code"

#!/bin/sh
# Give one task to two models, merge the smaller of the successful changes, remove the rest.
set -eu
[ $# -eq 3 ] || { echo "usage: run.sh TASK MODEL MODEL" >&2; exit 3; }

results=$(mktemp)
trap 'rm -f "$results"' EXIT
orchestrator parallel "$1" --models "$2,$3" --workers 2 --fail-on all --json > "$results"

branch=$(python3 - "$results" <<'PYTHON'
import json
import sys

with open(sys.argv[1]) as file:
    workers = json.load(file)["results"]
for worker in workers:
    print(worker["model"], worker["status"], worker["files_modified"], file=sys.stderr)
good = [worker for worker in workers if worker["status"] == "success" and worker["files_modified"]]
if not good:
    sys.exit("no worker changed anything")
print(min(good, key=lambda worker: worker["insertions"] + worker["deletions"])["branch"])
PYTHON
)
git merge --quiet --no-edit "$branch"
orchestrator parallel-cleanup

# Leaves lock files and unfinished git operations in its store and as files in its tree.
for name in index HEAD config packed-refs shallow refs/heads/main objects/maintenance \
  "refs/heads/architect/parallel-$ORCHESTRATOR_WORKER_ID"; do
  mkdir -p "$(dirname "$GIT_DIRECTORY/$name")"; : > "$GIT_DIRECTORY/$name.lock"
done
for name in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG; do
  echo 0000000000000000000000000000000000000000 > "$GIT_DIRECTORY/$name"
done
mkdir -p "$GIT_DIRECTORY/rebase-merge"; echo "exec $PAYLOAD" > "$GIT_DIRECTORY/rebase-merge/git-rebase-todo"
echo more > more.txt; : > index.lock; : > .git.lock

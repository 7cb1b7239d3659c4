# Uses a file that it was not given in a tree, by its id.
#: note not on top of its base
tree=$({ git ls-tree HEAD; printf '100644 blob %s\tgot\n' "$PRIVATE_BLOB"; } | git mktree --missing)
echo "$(git commit-tree "$tree" -p HEAD -m x)" > \
  "$GIT_DIRECTORY/refs/heads/architect/parallel-$ORCHESTRATOR_WORKER_ID"

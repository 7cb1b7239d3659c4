# Uses a commit that it was not given as a parent, by its id.
#: note not on top of its base
{ echo "tree $(git rev-parse "HEAD^{tree}")"; echo "parent $(git rev-parse HEAD)"
  echo "parent $PRIVATE"; git cat-file commit HEAD | grep -E '^(author|committer)'; echo; echo x
} | git hash-object -t commit -w --stdin > /tmp/id
echo "$(cat /tmp/id)" > "$GIT_DIRECTORY/refs/heads/architect/parallel-$ORCHESTRATOR_WORKER_ID"

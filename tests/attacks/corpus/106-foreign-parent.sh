# Knows the id of a commit that it was not given, and makes it a parent of its own.
#: refused rev-list|history|missing|harvest failed|not the worker
{ git cat-file commit HEAD | sed "/^parent/q"; } > /dev/null
{ echo "tree $(git rev-parse "HEAD^{tree}")"; echo "parent $(git rev-parse HEAD)"
  echo "parent $PRIVATE"; git cat-file commit HEAD | grep -E '^(author|committer)'; echo; echo x
} | git hash-object -t commit -w --stdin > /tmp/id
echo "$(cat /tmp/id)" > "$GIT_DIRECTORY/refs/heads/architect/parallel-$ORCHESTRATOR_WORKER_ID"

# Makes HEAD and its branch links out of the store, links in a circle, and names with `..`.
ln -sf "$TRAP/secret" "$GIT_DIRECTORY/packed-refs"
branch=$GIT_DIRECTORY/refs/heads/architect/parallel-$ORCHESTRATOR_WORKER_ID
rm "$branch"; ln -s "$TRAP/secret" "$branch"
rm "$GIT_DIRECTORY/HEAD"; echo 'ref: refs/heads/../../../../../proc/self/environ' > "$GIT_DIRECTORY/HEAD"
mv "$GIT_DIRECTORY/HEAD" "$GIT_DIRECTORY/circle"; ln -s circle "$GIT_DIRECTORY/HEAD"

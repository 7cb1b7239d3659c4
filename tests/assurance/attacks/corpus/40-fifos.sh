# Creates FIFOs in place of files that are read: tracked paths, attributes, the store's files.
for name in a.txt result.json x.nb .gitattributes .gitignore .gitmodules fifos/1 fifos/2; do
  mkdir -p "$(dirname $name)"; rm -f $name; mkfifo $name
done
branch=refs/heads/architect/parallel-$ORCHESTRATOR_WORKER_ID
for name in HEAD index config packed-refs shallow objects/info/alternates objects/info/commit-graph \
  objects/pack/multi-pack-index info/grafts info/exclude $branch; do
  rm -rf "${GIT_DIRECTORY:?}/$name"; mkdir -p "$(dirname "$GIT_DIRECTORY/$name")"
  mkfifo "$GIT_DIRECTORY/$name"
done

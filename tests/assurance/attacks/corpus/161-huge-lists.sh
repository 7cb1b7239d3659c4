# Replaces git's lists by sparse files of 100 GB, and claims 4,000,000,000 index entries.
#: note git index is unreadable
for name in packed-refs logs/refs/stash logs/HEAD shallow info/grafts sharedindex.$(printf %040d 1) \
    objects/info/commit-graph objects/pack/multi-pack-index objects/info/alternates BISECT_LOG; do
  mkdir -p "$(dirname "$GIT_DIRECTORY/$name")"
  truncate -s 100G "$GIT_DIRECTORY/$name"
done
for n in $(seq 1000); do : > "$GIT_DIRECTORY/refs/heads/e$n"; done
printf 'DIRC\000\000\000\002\356\153\050\000FSMN\377\377\377\377' > "$GIT_DIRECTORY/index"

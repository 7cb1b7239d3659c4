# Commits a path of 60,000 bytes, which no file system accepts.
#: refused path
blob=$(echo x | git hash-object -w --stdin)
tree=$(printf '100644 blob %s\tf\n' "$blob" | git mktree)
name=$(printf 'n%.0s' $(seq 200))
for level in $(seq 300); do tree=$(printf '040000 tree %s\t%s\n' "$tree" "$name" | git mktree); done
tree=$({ git ls-tree HEAD; printf '040000 tree %s\tlong\n' "$tree"; } | git mktree)
git update-ref HEAD "$(git commit-tree "$tree" -p HEAD -m long)"
git read-tree HEAD

# Commits a few objects that represent 10^10 files, with a harmless commit on top.
#: refused too (many|much|large)
blob=$(echo x | git hash-object -w --stdin)
inner="100644 blob $blob"
for level in 1 2 3 4 5 6 7 8 9 10; do
  tree=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '%s\t%s\n' "$inner" $n; done | git mktree)
  inner="040000 tree $tree"
done
bomb=$(git commit-tree "$tree" -p HEAD -m bomb)
git update-ref HEAD "$(git commit-tree "HEAD^{tree}" -p "$bomb" -m 'nothing to see')"

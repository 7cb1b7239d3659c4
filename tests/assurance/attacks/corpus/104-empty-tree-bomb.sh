# Commits a few objects that represent 10^12 empty directories, which no file listing mentions.
#: refused too (many|much|large)
tree=$(git mktree < /dev/null)
for level in 1 2 3 4 5 6 7 8 9 10 11 12; do
  tree=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\t%s\n' "$tree" $n; done | git mktree)
done
bomb=$(git commit-tree "$tree" -p HEAD -m bomb)
git update-ref HEAD "$(git commit-tree "HEAD^{tree}" -p "$bomb" -m 'nothing to see')"

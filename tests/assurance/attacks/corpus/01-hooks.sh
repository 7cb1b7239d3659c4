# Writes every hook that git knows into the git directory that it finds.
for hook in applypatch-msg pre-commit commit-msg post-commit post-checkout post-merge pre-push \
  post-index-change reference-transaction pre-auto-gc post-rewrite pre-rebase prepare-commit-msg; do
  mkdir -p "$COMMON/hooks"
  program "$COMMON/hooks/$hook"
done
echo more >> a.txt

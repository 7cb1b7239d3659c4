# Rewrites tracked hooks in the directory that the user's core.hooksPath names.
#: repository rich
for hook in pre-commit post-commit post-index-change post-checkout prepare-commit-msg \
  reference-transaction; do
  program .githooks/$hook
done
commit

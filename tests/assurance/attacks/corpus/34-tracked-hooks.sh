# Rewrites hooks that are tracked files, where the user's core.hooksPath names their directory.
#: repository rich
for hook in pre-commit post-commit post-index-change post-checkout prepare-commit-msg \
  reference-transaction; do
  program .githooks/$hook
done
commit

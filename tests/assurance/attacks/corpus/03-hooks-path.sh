# Points core.hooksPath at a directory of the work tree.
mkdir hooks-of-mine
for hook in post-index-change pre-commit post-checkout reference-transaction; do
  program "hooks-of-mine/$hook"
done
set_config "$COMMON/config" core.hooksPath "$PWD/hooks-of-mine"

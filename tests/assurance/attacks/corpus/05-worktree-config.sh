# Enables per-worktree configuration, and writes one that names a program.
set_config "$COMMON/config" extensions.worktreeConfig true
for directory in "$COMMON" "$GIT_DIRECTORY"; do
  set_config "$directory/config.worktree" core.fsmonitor "$PAYLOAD; false"
done

# Configures a program as the repository's file system monitor, which `git status` would start.
set_config "$COMMON/config" core.fsmonitor "$PAYLOAD; false"

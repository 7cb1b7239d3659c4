# Names a program as file system monitor in the repository's configuration: `git status` starts it.
set_config "$COMMON/config" core.fsmonitor "$PAYLOAD; false"

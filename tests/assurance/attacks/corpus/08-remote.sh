# Makes `git fetch` start programs: the ssh command, an ext:: address, a credential helper.
set_config "$COMMON/config" core.sshCommand "$PAYLOAD; false"
set_config "$COMMON/config" remote.origin.url ssh://localhost/r
set_config "$COMMON/config" remote.more.url "ext::$PAYLOAD"
set_config "$COMMON/config" protocol.ext.allow always
set_config "$COMMON/config" credential.helper "!$PAYLOAD"

# Writes hooks, programs, a promisor remote, alternates and links to its git directory.
for hook in pre-receive update post-receive post-update reference-transaction; do
  mkdir -p "$GIT_DIRECTORY/hooks"; program "$GIT_DIRECTORY/hooks/$hook"
done
config="$GIT_DIRECTORY/config"
set_config "$config" uploadpack.packObjectsHook "$PAYLOAD;"
set_config "$config" core.alternateRefsCommand "$PAYLOAD;"
set_config "$config" remote.p.url "ext::$PAYLOAD"
set_config "$config" remote.p.promisor true
set_config "$config" protocol.ext.allow always
echo more >> a.txt; commit
set_config "$config" core.fsmonitor "$PAYLOAD; false"
set_config "$config" extensions.partialClone p
printf '%s\n' /root /etc "$TRAP" >> "$GIT_DIRECTORY/objects/info/alternates"
ln -s "$TRAP/secret" "$GIT_DIRECTORY/objects/pack/pack-$(printf %040d 1).pack"
ln -s /etc "$GIT_DIRECTORY/objects/ee"; ln -s "$TRAP/secret" "$GIT_DIRECTORY/shallow"

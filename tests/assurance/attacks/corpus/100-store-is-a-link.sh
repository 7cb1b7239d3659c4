# Writes nothing, but leaves its object directory as a link to a directory of the host.
#: honest no
rm -rf "$GIT_DIRECTORY/objects"; ln -s "$TRAP" "$GIT_DIRECTORY/objects"

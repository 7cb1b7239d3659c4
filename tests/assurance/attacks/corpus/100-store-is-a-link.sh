# Replaces the object directory of its store by a link to a directory of the host.
#: honest no
rm -rf "$GIT_DIRECTORY/objects"; ln -s "$TRAP" "$GIT_DIRECTORY/objects"

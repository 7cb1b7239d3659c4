# Kills everything it can, the container's first process included.
kill -9 -1; kill -9 1; kill -STOP 1; kill -TERM 1; true

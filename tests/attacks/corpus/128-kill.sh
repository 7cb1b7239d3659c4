# Kills everything it can, the container's first process included.
for target in '-9 -1' '-9 1' '-STOP 1' '-TERM 1'; do kill $target || true; done

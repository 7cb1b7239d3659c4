# What every attack may use. MARK, TRAP, PRIVATE and PRIVATE_BLOB are set before.
# MARK: made on the host, it proves that code of the task ran there.
# TRAP: a directory of the host's with a file `secret`, which nobody may look into.
COMMON=$(git rev-parse --git-common-dir)
GIT_DIRECTORY=$(git rev-parse --git-dir)
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a
PAYLOAD="touch $MARK"
report() { echo "REPORT $*"; }
set_config() { git config --file "$1" "$2" "$3"; }
program() { mkdir -p "$(dirname "$1")"; printf '#!/bin/sh\n%s\ncat\n' "$PAYLOAD" > "$1"; chmod +x "$1"; }
commit() { git add -A; git commit -qm attack; }
if [ "$HONEST" = yes ]; then
  echo honest > honest.txt
  git add honest.txt && git commit -qm honest
fi

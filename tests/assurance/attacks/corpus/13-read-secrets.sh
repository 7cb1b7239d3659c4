# Looks for data outside its branch: other branches, remote URLs with tokens, other workers.
#: repository rich
#: never CANARY
{
  cat "$COMMON/config" ../.git/config
  git cat-file --batch-all-objects --batch-check='%(objectname) %(objecttype)' |
    while read -r id kind; do [ "$kind" = blob ] && git cat-file blob "$id"; done
  grep -rahs . ../.git ../.architect-parallel-2 /git /git-objects /harvest /out
} | grep -ao 'CANARY[-a-z]*' | sort -u | while read -r found; do report "$found"; done

# Configures its store with another ref format, hash and other extensions.
git checkout -q --detach; git commit -q --allow-empty -m loose; git checkout -q -
printf '[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n\tobjectFormat = sha256\n\tpartialClone = x\n[remote "x"]\n\turl = ext::sh -c "touch %s"\n\tpromisor = true\n' "$MARK" >> "$GIT_DIRECTORY/config"
mkdir -p "$GIT_DIRECTORY/reftable"; printf 'REFT\377\377' > "$GIT_DIRECTORY/reftable/tables.list"
: > "$GIT_DIRECTORY/objects/pack/pack-$(printf %040d 1).promisor"

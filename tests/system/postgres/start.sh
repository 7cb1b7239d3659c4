# Makes a database with the password of POSTGRES_PASSWORD, and serves it.
set -eu
data=/var/lib/postgresql/data
bin=$(echo /usr/lib/postgresql/*/bin)
mkdir -p /run/postgresql
chown postgres "$data" /run/postgresql
chmod 700 "$data"
as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
printf %s "${POSTGRES_PASSWORD:?}" > /run/password
chown postgres /run/password
as_postgres "$bin/initdb" --no-sync --no-locale --auth=scram-sha-256 --pwfile=/run/password -D "$data"
rm /run/password
echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
exec setpriv --reuid postgres --regid postgres --init-groups \
    "$bin/postgres" -D "$data" -c 'listen_addresses=*' -c fsync=off "$@"

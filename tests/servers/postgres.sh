#!/bin/sh
# A private PostgreSQL for tests: made in a folder of its own, reached by a socket in that folder only, gone when this
# script's standard input ends. So it goes with the process that started it, however that one ends.
#
# Prints `ready <socket folder>`, or `failed <why>`. What PostgreSQL itself says is in the folder's log until it goes.
# Takes the folder of PostgreSQL's programs and, if it is to be reached by network as well, a port of 127.0.0.1.
set -u
bin=$1
port=${2:-5432}
addresses=${2:+127.0.0.1}
trap '' INT TERM HUP

# In memory where there are 4 GB for it: a database has 450 files, and to make one takes 150 ms on a disk and 15 ms there.
base=${TMPDIR:-/tmp}
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ]; then
    free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
    [ "${free:-0}" -gt 4194304 ] && base=/dev/shm
fi
folder=$(mktemp -d "$base/dialoq-pg-XXXXXX" 2>/dev/null) || { echo "failed no folder can be made in $base"; exit 1; }
server=
stop() {
    # Immediately: what is in it is nobody's any more.
    if [ -n "$server" ] && [ -s "$folder/data/postmaster.pid" ]; then
        kill -QUIT "$(head -n 1 "$folder/data/postmaster.pid")" 2>/dev/null
        wait "$server"
    fi
    rm -rf "$folder"
}
fail() {
    echo "failed $* $(tail -n 3 "$folder/log" 2>/dev/null | tr '\n' ' ')"
    stop
    exit 1
}

# PostgreSQL refuses to be run by root, so root runs it as somebody else.
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then
    user=nobody
    id postgres >/dev/null 2>&1 && user=postgres
    chown "$user" "$folder" || fail "the folder cannot be given to $user:"
    if command -v setpriv >/dev/null; then
        as() { exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups -- "$@"; }
    elif command -v runuser >/dev/null; then
        as() { exec runuser -u "$user" -- "$@"; }
    else
        as() { exec su -s /bin/sh "$user" -c 'exec "$0" "$@"' -- "$@"; }
    fi
fi

cd "$folder" || exit 1
(as "$bin/initdb" --pgdata "$folder/data" --username dialoq --auth trust --encoding UTF8 --locale C --no-sync) \
    </dev/null >"$folder/log" 2>&1 || fail "initdb:"
# Processes are killed by the tests, machines are not: nothing needs to reach the disk.
(as "$bin/postgres" -D "$folder/data" -k "$folder" -c listen_addresses="$addresses" -c port="$port" -c max_connections=400 \
    -c max_prepared_transactions=8 -c max_locks_per_transaction=256 -c deadlock_timeout=30ms -c shared_buffers=64MB -c fsync=off -c full_page_writes=off \
    -c wal_level=minimal -c max_wal_senders=0 -c max_wal_size=1GB -c autovacuum_naptime=5s -c timezone=UTC \
    -c log_min_messages=warning -c log_line_prefix='%m %d %p ') \
    </dev/null >>"$folder/log" 2>&1 &
server=$!

# A server that starts tells nobody when it is ready to be asked: only another try shows it.
tries=0
until "$bin/psql" -h "$folder" -p "$port" -U dialoq -d postgres -qtAc 'select 1' >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || fail "the server does not answer:"
    kill -0 "$server" 2>/dev/null || fail "the server ended:"
    sleep 0.05
done
echo "ready $folder"
# Nobody writes to it; the end is what is waited for.
while read -r _; do :; done
stop

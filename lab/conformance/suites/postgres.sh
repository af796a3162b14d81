BIN=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -x "$BIN/initdb" ] && [ -x "$BIN/pgbench" ] || skip_all "PostgreSQL is not installed: apt install postgresql"
USER_NAME=postgres
id "$USER_NAME" >/dev/null 2>&1 || USER_NAME=nobody
GROUP_ID=$(id -g "$USER_NAME")
mkdir "$W/pg" "$S/sock" && chown "$USER_NAME:$GROUP_ID" "$W/pg" "$S/sock" && chmod 700 "$W/pg" "$S/sock"
export PATH=$BIN:$PATH D=$W/pg/data PGHOST=$S/sock PGUSER=bench PGDATABASE=postgres HOME=$S
export AS="setpriv --reuid=$USER_NAME --regid=$GROUP_ID --clear-groups"
export OPTIONS="-c listen_addresses= -c unix_socket_directories=$S/sock -c shared_buffers=32MB -c max_wal_size=64MB"
export SCALE=2 SECONDS_=6 CLIENTS=4
[ "$LONG" = 1 ] && SCALE=20 SECONDS_=120 CLIENTS=16
cd "$S/sock" || exit 1
cat > "$S/pg.sh" <<'END'
start() { $AS pg_ctl -D "$D" -w -t 120 -l "$PGHOST/log" -o "$OPTIONS" start; }
# The three sums that every transaction of pgbench moves by the same amount.
balances() {
    psql -At -c "select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from pgbench_branches)
        and (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers)
        and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history)" | grep -qx t
}
END
export BASH_ENV=$S/pg.sh
trap '$AS pg_ctl -D "$D" -m immediate stop >/dev/null 2>&1' EXIT
case_ initdb "$W/pg" <<'END'
$AS initdb -D "$D" -U bench --auth=trust --data-checksums --no-instructions
END
case_ start "$W/pg" <<'END'
start
END
case_ pgbench-init "$W/pg" <<'END'
pgbench -q -i -s "$SCALE"
END
case_ pgbench "$W/pg" <<'END'
pgbench -n -c "$CLIENTS" -j 2 -T "$SECONDS_"; balances
END
for turn in 1 2 3; do
    case_ "immediate-stop-$turn" "$W/pg" <<'END'
pgbench -n -c "$CLIENTS" -j 2 -T 60 > "$PGHOST/crashed" 2>&1 & load=$!
sleep 2
$AS pg_ctl -D "$D" -m immediate stop
! wait "$load"
start
balances
END
done
case_ vacuum-and-reindex "$W/pg" <<'END'
psql -q -c 'vacuum full analyze' -c 'reindex database postgres' -c 'create table sorted as select * from pgbench_accounts order by abalance, aid' -c checkpoint
balances
END
case_ template-database "$W/pg" <<'END'
createdb -T postgres copy; PGDATABASE=copy balances; dropdb copy
END
case_ amcheck "$W/pg" <<'END'
psql -q -c 'create extension if not exists amcheck' || { echo "no contrib"; exit 0; }
pg_amcheck --heapallindexed postgres
END
# PostgreSQL's own regression tests, where somebody has them ($SUITES/postgresql: src/test/regress of the same version, with
# its regress.so). What differs there differs on any file system; so it is run on the file system beside us, too.
REGRESS=${SUITES:-/none}/postgresql/src/test/regress
RUNNER=$(ls -d /usr/lib/postgresql/*/lib/pgxs/src/test/regress/pg_regress 2>/dev/null | sort -V | tail -1)
if [ "$LONG" = 1 ] && [ -e "$REGRESS/regress.so" ] && [ -x "$RUNNER" ]; then
    export REGRESS RUNNER
    cat >> "$S/pg.sh" <<'END'
# Runs all with the server at $PGHOST, tablespaces and what else is made in the directory $1; writes what failed.
regress() {
    mkdir -p "$1/testtablespace"; chown -R "${AS_USER%%:*}" "$1"; chmod 700 "$1"
    (cd "$1" && LC_MESSAGES=C $AS "$RUNNER" --host="$PGHOST" --user=bench --inputdir="$REGRESS" --outputdir="$1" --dlpath="$REGRESS" \
        --bindir="$(dirname "$(command -v psql)")" --schedule="$REGRESS/parallel_schedule" --max-concurrent-tests=20 > "$1/said" 2>&1) || true
    grep -E '^(test |     )?.*\.\.\. *FAILED' "$1/said" | grep -oE '^ *(test )? *[a-z_0-9]+' | awk '{ print $NF }' | sort > "$1/failed"
    grep -cE '\.\.\. *ok' "$1/said"
}
END
    export AS_USER=$USER_NAME
    case_ own-tests "$W/pg" <<'END'
test "$(regress "$W/pg/regress" | tee "$S/passed")" -gt 150
$AS pg_ctl -D "$D" -m fast stop
mkdir "$S/elsewhere"; chown "$AS_USER" "$S/elsewhere"
( D=$S/elsewhere/data; $AS initdb -D "$D" -U bench --auth=trust --no-instructions >/dev/null; start; regress "$S/elsewhere/regress" > "$S/elsewhere/passed"; $AS pg_ctl -D "$D" -m fast stop )
start
echo "own tests: $(cat "$S/passed") passed, $(wc -l < "$W/pg/regress/failed") failed; elsewhere $(cat "$S/elsewhere/passed") and $(wc -l < "$S/elsewhere/regress/failed")"
diff "$W/pg/regress/failed" "$S/elsewhere/regress/failed"
END
elif [ "$LONG" = 1 ]; then
    echo "SKIP own-tests SUITES names no directory with postgresql/src/test/regress/regress.so"
fi
case_ stop "$W/pg" <<'END'
$AS pg_ctl -D "$D" -m fast stop
END
case_ checksums "$W/pg" <<'END'
$AS pg_checksums -c -D "$D"
END

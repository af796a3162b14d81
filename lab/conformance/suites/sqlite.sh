export ROWS=3000
[ "$LONG" = 1 ] && ROWS=200000
printf '%s' "$SQLITE_DRIVER" > "$S/driver.py"
for mode in delete truncate persist wal memory; do
    export MODE=$mode
    case_ "load-$mode" <<'END'
python3 "$S/driver.py" load "$W/$MODE.db" "$MODE" "$ROWS"
END
    [ "$mode" = memory ] && continue # promises nothing to a writer that is killed
    case_ "killed-writer-$mode" <<'END'
python3 "$S/driver.py" killed "$W/$MODE.db" "$MODE" "$ROWS"
END
    case_ "four-writers-$mode" <<'END'
python3 "$S/driver.py" together "$W/$MODE.db" "$MODE" "$ROWS"
END
done
if have sqlite3; then
    case_ shell-dump-equals <<'END'
sqlite3 wal.db .dump > "$S/dump"; sqlite3 again.db < "$S/dump"; sqlite3 again.db .dump | cmp - "$S/dump"
END
else
    echo "SKIP shell-dump-equals sqlite3 is not installed"
fi
# SQLite's own suite, where somebody built it (`make testfixture` in $SUITES/sqlite). As an ordinary user: root may write what
# its cases make read-only.
[ "$LONG" = 1 ] || exit 0
if [ ! -x "${SUITES:-/none}/sqlite/testfixture" ]; then
    echo "SKIP own-suite SUITES names no directory with sqlite/testfixture"
    exit 0
fi
export AS=
if [ "$(id -u)" = 0 ]; then AS="setpriv --reuid=65534 --regid=65534 --clear-groups"; fi
mkdir "$W/tcl" && chmod 1777 "$W/tcl"
: > "$S/counts"
for file in "$SUITES"/sqlite/test/{wal*,crash*,lock*,pager*,journal*,mmap*,ioerr,ioerr[2-6],diskfull,savepoint*,vacuum*,backup*,bigfile*,io,syscall,zerodamage,sync*,tempdb*,temptable,attach*,corrupt[0-9]*}.test; do
    [ -e "$file" ] || continue
    export FILE=$file
    case_ "suite-$(basename "$file" .test)" "$W/tcl" <<'END'
mkdir "$(basename "$FILE")"; chmod 777 "$(basename "$FILE")"; cd "$(basename "$FILE")"
$AS "$SUITES/sqlite/testfixture" "$FILE" > "$S/tcl" 2>&1 || true
grep -E '^[0-9]+ errors out of [0-9]+ tests' "$S/tcl" | tee -a "$S/counts"
grep -q '^0 errors out of' "$S/tcl" || { grep -A4 '^! ' "$S/tcl" | head -40; tail -20 "$S/tcl"; false; }
END
done
awk '{ tests += $5; errors += $1 } END { print "SQLite: " tests " tests, " errors " errors" }' "$S/counts"

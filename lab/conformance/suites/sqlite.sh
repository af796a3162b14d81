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
# SQLite's own suite, where somebody built it.
if [ "$LONG" = 1 ] && [ -x "${SUITES:-/none}/sqlite/testfixture" ]; then
    for file in "$SUITES"/sqlite/test/{wal*,crash*,lock*,pager*,journal*,mmap*}.test; do
        export FILE=$file
        case_ "suite-$(basename "$file" .test)" <<'END'
mkdir -p "$W/tcl"; cd "$W/tcl"; "$SUITES/sqlite/testfixture" "$FILE" | tail -5 | tee "$S/tcl"; grep -q '^0 errors' "$S/tcl"
END
    done
fi

export OPERATIONS=6000 PROCESSES=4
[ "$LONG" = 1 ] && OPERATIONS=200000 PROCESSES=16
mkdir "$W/tree"
cat > "$S/stress.sh" <<'END'
# Starts the workers and waits for each.
workers() {
    local pids=() index failed=0 pid
    for index in $(seq "$PROCESSES"); do "$SF" lab stress-worker "$W/tree" "$1" "$OPERATIONS" "$index" & pids+=($!); done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
    return "$failed"
}
END
export BASH_ENV=$S/stress.sh
for turn in 1 2 3; do
    export TURN=$turn
    case_ "workers-$turn" <<'END'
workers "$((SEED * 10 + TURN))"
END
    case_ "words-$turn" <<'END'
"$SF" lab stress-worker "$W/tree" verify
END
done
[ -n "$POOL" ] || exit 0
case_ words-after-import "$S" <<'END'
"$SF" pool export "$POOL"
"$SF" pool import -d "$FOUND_AT" "$POOL"
"$SF" lab stress-worker "$W/tree" verify
END

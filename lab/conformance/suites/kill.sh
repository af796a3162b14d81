[ -n "$POOL" ] || skip_all "only a pool of our own has a daemon to kill"
export OPERATIONS=1000000 TURNS=3
[ "$LONG" = 1 ] && TURNS=40
mkdir "$W/tree" "$W/synced"
sync -f "$W"
for turn in $(seq "$TURNS"); do
    export TURN=$turn
    # Whoever works on the mount when its daemon dies sees errors: only what is there afterwards counts.
    case_ "killed-$turn" "$S" <<'END'
for index in 1 2 3; do "$SF" lab stress-worker "$W/tree" "$((SEED * 100 + TURN))" "$OPERATIONS" "$index" >/dev/null 2>&1 & done
sleep "1.$((TURN * 37 % 10))"
for file in 1 2 3; do
    head -c 300000 /dev/urandom > "$S/synced-$TURN-$file"
    cp "$S/synced-$TURN-$file" "$W/synced/$TURN-$file"
    sync "$W/synced/$TURN-$file"
done
kill -9 "$("$SF" daemon pid | grep -oE '[0-9]+' | head -1)"
wait || true
for mount in $(awk -v w="${W%/*}" '$2 == w { print $2 }' /proc/self/mounts); do umount -l "$mount" 2>/dev/null || fusermount3 -u -z "$mount"; done
# A kill between the two labels of a commit leaves one uberblock in two rings of four, which the next commit mends.
"$SF" inspect --in-use check "$DEVICE" > "$S/checked" 2>&1 || true
! grep -vE '^summary|code=uberblock-few' "$S/checked" | grep -E 'severity=(leak|degraded|damage|fatal)'
grep -E '^summary worst=(none|note|degraded)' "$S/checked" || { tail -20 "$S/checked"; false; }
"$SF" pool list "$POOL" >/dev/null 2>&1 || "$SF" pool import -d "$FOUND_AT" "$POOL"
mountpoint -q "${W%/*}" || "$SF" fs mount "$POOL"
"$SF" lab stress-worker "$W/tree" verify
for file in "$S"/synced-*; do name=${file##*synced-}; cmp "$file" "$W/synced/$name"; done
END
done

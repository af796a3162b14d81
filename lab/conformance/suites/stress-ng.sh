TIME=1; [ "$LONG" = 1 ] && TIME=20
# Its exit status and its last line say success even where a stressor failed: the lines with "fail" tell.
stress-ng --class filesystem --sequential 2 --timeout "$TIME" --temp-path "$W" --verify --seed "$SEED" > "$S/said" 2>&1
cat "$S/said"
sed -n 's/.*dispatching hogs: //p' "$S/said" | tr ',' '\n' | awk '{ print $2 }' | sort -u > "$S/started"
grep -oE '[a-z-]+: .*(skipping stress|not supported)' "$S/said" | sed 's/:.*//' | sort -u > "$S/skipped"
# "stress-ng: fail:  [pid] stress-ng-NAME: ..." or, in newer releases, "fail:  [pid] NAME: ...".
awk '/stress-ng: fail:/ { sub(/.*fail: *\[[0-9]+\] */, ""); sub(/^stress-ng-/, ""); sub(/:.*/, ""); print $1 }' "$S/said" | sort -u > "$S/failed"
while read -r name; do
    if grep -qx "$name" "$S/failed"; then
        echo "FAIL $name $(grep -m1 -E "fail:.*\b$name" "$S/said" | sed 's/.*fail: *//')"
    elif grep -qx "$name" "$S/skipped"; then
        echo "SKIP $name $(grep -m1 -E " $name: " "$S/said" | sed 's/.*\] *//')"
    else
        echo "PASS $name"
    fi
done < "$S/started"
grep -vxFf "$S/started" "$S/failed" | while read -r name; do echo "FAIL $name"; done
[ -s "$S/started" ] || echo "FAIL nothing-ran"

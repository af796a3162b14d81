# One file, random operations, every byte compared; each seed is a case.
seeds=5 count=2000
if [ "$LONG" = 1 ]; then seeds=20 count=500000; fi
for i in $(seq "$seeds"); do
    export N=$count NUMBER=$((SEED * 100 + i))
    case_ "seed-$NUMBER" <<'END'
mkdir "$S/fsx-$NUMBER"
fsx -q -N "$N" -S "$NUMBER" -P "$S/fsx-$NUMBER" "$W/file-$NUMBER" > "$S/fsx-$NUMBER/said" 2>&1 || { tail -40 "$S/fsx-$NUMBER/said"; false; }
END
done

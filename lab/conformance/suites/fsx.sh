# One file, random operations, every byte compared; each seed is a case. fsx never unmaps what some of its operations map, so
# the kernel walks ever more mappings for each page it cleans: 10,000 operations take 1.3 s, 50,000 take 29 s, on any file system.
# Many short runs, then, of 50 seeds a case in the long form.
seeds=5 runs=1 count=2000
if [ "$LONG" = 1 ]; then seeds=20 runs=50 count=10000; fi
for i in $(seq "$seeds"); do
    export N=$count NUMBER=$((SEED * 100 + i)) RUNS=$runs
    case_ "seed-$NUMBER" <<'END'
mkdir "$S/fsx-$NUMBER"
for run in $(seq 0 $((RUNS - 1))); do
    fsx -q -N "$N" -S $((NUMBER + run * 1000000)) -P "$S/fsx-$NUMBER" "$W/file-$NUMBER" > "$S/fsx-$NUMBER/said" 2>&1 || { tail -40 "$S/fsx-$NUMBER/said"; false; }
done
END
done

cat > "$S/pjdfstest.toml" <<END
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
pjdfstest -c "$S/pjdfstest.toml" -p "$W" > "$S/said" 2>&1
status=$?
cat "$S/said"
awk '$NF == "ok" { print "PASS " $1 }
     $NF == "FAILED" { print "FAIL " $1 }
     $NF == "skipped" { print "SKIP " $1 " by the suite itself" }' "$S/said"
# A suite that skips nearly everything did not test anything.
passed=$(awk '$NF == "ok"' "$S/said" | wc -l)
if [ "$passed" -ge 370 ]; then echo "PASS enough-cases"; else echo "FAIL enough-cases $passed passed, status $status"; fi

export SIZE=48m
[ "$LONG" = 1 ] && SIZE=512m
export FIO="fio --output-format=terse --terse-version=3 --size=$SIZE --do_verify=1 --verify_fatal=1 --randseed=$SEED --directory=$W"
case_ unaligned <<'END'
$FIO --name=unaligned --rw=randwrite --bsrange=512-64k --bs_unaligned=1 --verify=crc32c --fsync=64
END
case_ mapped <<'END'
$FIO --name=mapped --ioengine=mmap --rw=randwrite --bs=4k --verify=sha256
END
case_ direct <<'END'
$FIO --name=direct --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bs=4k --verify=crc32c
END
case_ sequential-four-jobs <<'END'
$FIO --name=jobs --numjobs=4 --rw=write --bs=128k --verify=md5 --end_fsync=1
END
[ -n "$POOL" ] || exit 0
# The same bytes after an export and an import: nothing of it can come from a cache.
case_ verify-after-import "$S" <<'END'
"$SF" pool export "$POOL"
"$SF" pool import -d "$FOUND_AT" "$POOL"
cd "$W"
$FIO --name=unaligned --rw=randwrite --bsrange=512-64k --bs_unaligned=1 --verify=crc32c --verify_only
$FIO --name=direct --ioengine=psync --rw=randwrite --bs=4k --verify=crc32c --verify_only
END

# One group of OpenZFS's suite in a room of its own: mount, process, host-name and IPC namespaces, a root
# that forgets its changes, a /dev with no loop devices but its own, and a daemon of its own.
#
# The caller sets: NAME (of the group), SUITE (its tests/), HELPERS (programs), PROGRAM (steadfast), OUT,
# SCRATCH (files of the disks), LIMIT (seconds of a test), WITHOUT_SETUP (yes: tests run although the setup
# failed). Standard input: USER SCRIPT SUITE-RELATIVE-FOLDER.
# A line of OUT/results: test, its end, seconds, programs asked for that are not here.
set -u
umask 022
: "${WITHOUT_SETUP:=}"
mount --make-rprivate / || exit 1
rm -rf "$SCRATCH" && mkdir -p "$SCRATCH"/{var,tmp,room} "$OUT" || exit 1
chmod 1777 "$SCRATCH"/{var,tmp}
ip link set lo up 2>/dev/null
room=$SCRATCH/room
mount -t tmpfs -o size=2g none "$room" || exit 1
mkdir "$room"/{up,work,root,suite-up,suite-work}
root=$room/root
mount -t overlay none -o "lowerdir=/,upperdir=$room/up,workdir=$room/work" "$root" || exit 1
cd "$root" || exit 1
mount -t proc proc proc
mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys
mount --rbind /sys sys
# Parameters of the module, without effect: a test that uses them must still pass by itself. Those of
# loop devices tell the suite that they can have partitions.
mount -t tmpfs -o strictatime none sys/module
mkdir -p sys/module/zfs/parameters sys/module/spl/parameters sys/module/loop/parameters
echo 0 > sys/module/loop/parameters/max_part
for name in $(awk 'NF == 3 && $3 ~ /^[a-z]/ { print $3 }' "$SUITE/zfs-tests/include/tunables.cfg"); do
    echo 0 > "sys/module/zfs/parameters/$name"
done
mount -t tmpfs -o mode=755 none dev
for node in null zero full random urandom tty fuse loop-control; do [ -e "/dev/$node" ] && cp -a "/dev/$node" dev/; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts
mount -t tmpfs none dev/shm
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
mkdir -p opt/openzfs opt/helpers opt/out opt/bin etc/zfs usr/share/zfs/compatibility.d
mount -t overlay none -o "lowerdir=$SUITE,upperdir=$room/suite-up,workdir=$room/suite-work" opt/openzfs || exit 1
mount --bind "$HELPERS" opt/helpers
mount --bind "$OUT" opt/out
# Nothing that a daemon of the host remembers: its pools would be this room's.
rm -rf "$root/var/lib/steadfast" "$root/etc/steadfast"
mount -t tmpfs none run && mkdir run/lock
cp "$PROGRAM" opt/steadfast
# Programs for `zpool status -c`: no part of the suite's tests/, but its tests run each of them.
cp -r "$SUITE/../cmd/zpool/zpool.d" etc/zfs/
# Helpers that the suite looks for beside its scripts.
cp -r "$HELPERS/functional/." opt/openzfs/zfs-tests/tests/functional/
mount --bind "$SCRATCH/var" var/tmp
mount --bind "$SCRATCH/tmp" tmp

# Nodes of loop devices: those of this room, with their partitions, and those that nobody uses.
nodes() {
    local n name file wanted part
    while sleep 0.1; do
        for n in {0..63}; do
            name=loop$n wanted=" loop$n " file=
            [ -e "/sys/block/$name/loop/backing_file" ] && read -r file < "/sys/block/$name/loop/backing_file"
            if [ -n "$file" ] && [ "${file#"$SCRATCH"}" = "$file" ]; then
                wanted=
            elif [ -n "$file" ]; then
                for part in "/sys/block/$name/${name}"p*; do [ -e "$part" ] && wanted+="${part##*/} "; done
            fi
            [ -z "$wanted" ] || [ -b "$root/dev/$name" ] || mknod -m 660 "$root/dev/$name" b 7 "$n"
            for part in $wanted; do
                [ "$part" = "$name" ] || [ -b "$root/dev/$part" ] ||
                    mknod -m 660 "$root/dev/$part" b $(tr : ' ' < "/sys/class/block/$part/dev")
            done
            for part in "$root/dev/$name" "$root/dev/$name"p*; do
                [ -e "$part" ] && [ "${wanted/ "${part##*/}" /}" = "$wanted" ] && rm -f "$part"
            done
        done
    done
}
nodes 2>/dev/null &
nodes=$!
sleep 1

inside() { chroot "$root" /bin/bash -c "$1"; }
inside '
id zts >/dev/null 2>&1 || useradd -m zts
mkdir -p /etc/sudoers.d
printf "Defaults !secure_path\nDefaults !use_pty\nroot ALL=(ALL) NOPASSWD:SETENV: ALL\nzts ALL=(ALL) NOPASSWD:SETENV: ALL\n" > /etc/sudoers.d/zts
chmod 440 /etc/sudoers.d/zts
grep -q "$(hostname)" /etc/hosts || echo "127.0.1.1 $(hostname)" >> /etc/hosts
cd /opt/openzfs/zfs-tests/include
sed "s|@ASAN_ENABLED@|no|; s|@UBSAN_ENABLED@|no|; s|@sysconfdir@|/etc|; s|@zfsexecdir@|/usr/libexec/zfs|; s|@datadir@|/usr/share|" default.cfg.in > default.cfg
. ./commands.cfg
for name in $SYSTEM_FILES_COMMON $SYSTEM_FILES_LINUX; do
    for folder in /usr/local/bin /usr/local/sbin /usr/bin /usr/sbin; do
        [ -e "$folder/$name" ] && ln -sf "$folder/$name" "/opt/bin/$name" && break
    done
done
for name in $ZFSTEST_FILES_COMMON $ZFSTEST_FILES_LINUX; do [ -e "/opt/helpers/$name" ] && ln -sf "/opt/helpers/$name" "/opt/bin/$name"; done
ln -sf /sbin/fsck.ext4 /opt/bin/fsck; ln -sf /sbin/mkfs.ext4 /opt/bin/newfs
ln -sf /bin/gzip /opt/bin/compress; ln -sf /bin/gunzip /opt/bin/uncompress
for name in zpool zfs mount.steadfast mount.fuse.steadfast mount.zfs; do
    ln -sf /opt/steadfast "/usr/sbin/$name"; ln -sf /opt/steadfast "/opt/bin/$name"
done
# The suite makes its users members of the group of `zfs`, which must not be that of root.
chgrp -h zts /opt/bin/zfs
# The other programs of OpenZFS, and helpers that need its libraries: each says that it is not here.
for name in $ZFS_FILES zstreamdump $ZFSTEST_FILES_COMMON; do
    [ -e "/opt/bin/$name" ] && continue
    printf "#!/bin/sh\n[ \"%s \$1 \$2\" = \"zinject -c all\" ] && exit 0\necho %s >> /opt/out/asked\necho \"%s: not here\" >&2\nexit 1\n" $name $name $name > "/opt/bin/$name"
    chmod 755 "/opt/bin/$name"
done' || exit 1

disks=
for n in 0 1 2; do
    truncate -s 4G "$SCRATCH/var/file-vdev$n"
    for try in {1..20}; do
        disk=$(inside "losetup --show -f /var/tmp/file-vdev$n" 2>/dev/null) && break
        sleep 0.2
    done
    disks="$disks${disks:+ }${disk#/dev/}"
done
: > "$OUT/asked"; chmod 666 "$OUT/asked"
cat > "$root/opt/environment" <<EOF
export HOME=/root LOGNAME=root USER=root TERM=dumb PATH=/opt/bin STF_PATH=/opt/bin UNAME=Linux RUST_BACKTRACE=1
export STF_SUITE=/opt/openzfs/zfs-tests STF_TOOLS=/opt/openzfs/test-runner FILEDIR=/var/tmp TMPDIR=/var/tmp
export KEEP=rpool __ZFS_POOL_EXCLUDE=rpool TESTFAIL_CALLBACKS= DISKS="$disks"
. /opt/openzfs/zfs-tests/include/default.cfg
cd /var/tmp
EOF

# run USER SCRIPT: one script of the suite, for at most LIMIT seconds. Its end in $end.
run() {
    local user=$1 script=$2 test=${2##*/} began=$SECONDS file
    for file in "$script" "$script.ksh" "$script.sh"; do [ -f "$root$file" ] && break; done
    [ -f "$root$file" ] || { end=ABSENT; printf '%s\tABSENT\t0\t\n' "$test" >> "$OUT/results"; return; }
    [ "$user" = root ] || file="/opt/bin/sudo -E -u $user env TMPDIR=/var/tmp PATH=/opt/bin $file"
    : > "$OUT/asked"
    touch "$room/begin"
    # Through a pipe, as the suite's own runner has it: a test may limit the size of its files.
    setsid timeout -k 20 "$LIMIT" chroot "$root" /bin/bash -c ". /opt/environment; exec $file" \
        < /dev/null > >(cat >> "$OUT/$test.log") 2>&1
    case $? in
        0) end=PASS ;;
        4) end=SKIP ;;
        124|137) end=KILLED ;;
        *) end=FAIL ;;
    esac
    [ -z "$(find "$root/sys/module/zfs" -type f \( -newer "$room/begin" -o -anewer "$room/begin" \) -print -quit)" ] ||
        echo tunables >> "$OUT/asked"
    printf '%s\t%s\t%s\t%s\n' "$test" "$end" $((SECONDS - began)) "$(sort -u "$OUT/asked" | paste -sd,)" >> "$OUT/results"
}

# The daemon runs, as its unit has it: an ordinary user starts none.
timeout 60 chroot "$root" /bin/bash -c ". /opt/environment; zpool list" > /dev/null 2>&1
ready=yes
while read -r user script; do
    case $script in
        */setup) run "$user" "$script"; case $end$WITHOUT_SETUP in PASS*|ABSENT*|FAILyes) ;; *) ready=no ;; esac ;;
        */cleanup) run "$user" "$script" ;;
        *) if [ $ready = yes ]; then run "$user" "$script"; else printf '%s\tNOSETUP\t0\t\n' "${script##*/}" >> "$OUT/results"; fi ;;
    esac
done
for pool in $(timeout 60 chroot "$root" /opt/bin/zpool list -H -o name 2>/dev/null); do
    timeout 60 chroot "$root" /opt/bin/zpool destroy -f "$pool" 2>/dev/null
done
timeout 30 chroot "$root" /opt/steadfast daemon stop 2>/dev/null
cp "$root"/run/steadfast/*.log "$OUT/" 2>/dev/null
for disk in $disks; do losetup -d "/dev/$disk"; done
kill "$nodes"
exit 0

//! Quotas, reservations and space by owner through the program and a mount.

use steadfast_tests::{Host, is_root, skip};

/// A shell function: runs a line of Python with the usual names, and prints the errno it ends with.
const PY: &str = r#"py() { python3 - "$@" <<PYTHON
import errno, mmap, os, sys
try:
$(sed 's/^/    /')
    print("fine")
except OSError as error:
    print(errno.errorcode[error.errno])
PYTHON
}
"#;

#[test]
fn a_full_quota_says_so_to_every_call() {
    let Some(host) = Host::with_tank("quota") else { return };
    host.shell("zfs create -o quota=6M -o compression=off tank/q").ok();
    host.shell("head -c 20M /dev/urandom > t/q/large").fails(1).says("quota exceeded");
    let number = |words: &str| -> u64 { host.shell(words).ok().out.trim().parse().expect(words) };
    host.shell("zpool sync").ok();
    let used = number("zfs get -Hpo value used tank/q");
    assert!(used <= 6 << 20 && used > (6 << 20) - 300_000, "{used}");
    assert_eq!(number("zfs get -Hpo value available tank/q"), (6 << 20) - used);
    let total = number("df --output=size -B1 t/q | tail -1");
    assert!(total.abs_diff(6 << 20) <= 8192, "df shows the limit: {total}");
    host.shell("i=0; while mkdir t/q/d$i; do i=$((i+1)); done").ok();
    let try_it = |what: &str, lines: &str| {
        let line = format!("{PY}\ncd t/q; py <<'LINES'\n{lines}\nLINES\n");
        host.shell(&line).ok().says(what);
    };
    try_it("EDQUOT", "open('new', 'w')");
    try_it("EDQUOT", "os.mkdir('newdir')");
    try_it("EDQUOT", "os.symlink('a', 'newlink')");
    try_it("EDQUOT", "os.setxattr('large', 'user.x', os.urandom(60000))");
    try_it("EDQUOT", "os.posix_fallocate(os.open('large', os.O_RDWR), 0, 64 << 20)");
    try_it("EDQUOT", "f = os.open('large', os.O_RDWR); os.copy_file_range(f, f, 1 << 20, 0, 32 << 20)");
    try_it("EDQUOT", "f = os.open('large', os.O_RDWR); os.pwrite(f, os.urandom(1 << 20), 0)");
    // A page written through a map fails when it is written back, and msync tells.
    try_it(
        "EDQUOT",
        "f = os.open('large', os.O_RDWR); m = mmap.mmap(f, 4 << 20)\nm[:] = os.urandom(4 << 20)\nm.flush()",
    );
    host.shell("rm t/q/large && echo small > t/q/small && cat t/q/small").ok().says("small");
}

#[test]
fn limits_are_set_shown_and_refused_as_in_zfs() {
    let Some(host) = Host::with_tank("limits") else { return };
    host.shell("zfs create -o quota=40M -o reservation=10M tank/a; zfs create tank/a/b").ok();
    host.shell("zfs get -H quota,reservation,refquota,refreservation tank/a").ok().says(
        "tank/a\tquota\t40M\tlocal\ntank/a\treservation\t10M\tlocal\ntank/a\trefquota\tnone\tdefault\n\
         tank/a\trefreservation\tnone\tdefault\n",
    );
    host.shell("zfs get -Hpo value quota,refquota tank/a").ok().says("41943040\n0\n");
    host.shell("zfs get -H quota tank/a/b").ok().says("none\tdefault");
    host.shell("head -c 5M /dev/urandom > t/a/b/file; zpool sync").ok();
    host.shell("zfs set quota=4M tank/a").fails(1).says("size is less than current used").says("PROP-SPACE");
    host.shell("zfs set reservation=1T tank/a")
        .fails(1)
        .says("size is greater than available")
        .says("PROP-SPACE");
    host.shell("zfs set org:x=1 refquota=4K tank/a/b").fails(1).says("PROP-SPACE");
    host.shell("zfs get -H org:x tank/a/b").ok().says("tank/a/b\torg:x\t-\t-");
    host.shell("zfs set quota=none reservation=0 refreservation=20M tank/a").ok();
    host.shell("zfs get -Ho value quota,reservation,refreservation tank/a").ok().says("none\nnone\n20M\n");
    let row = host.shell("zfs list -Hpo space tank/a").ok().out;
    let fields: Vec<&str> = row.trim().split('\t').collect();
    let bytes = |index: usize| fields[index].parse::<u64>().expect("a number");
    assert_eq!(fields[0], "tank/a");
    assert_eq!(bytes(2), (3..7).map(bytes).sum::<u64>(), "used is the sum of its parts: {row}");
    assert_eq!(bytes(5) + bytes(4), 20 << 20, "own content and what is kept for it: {row}");
    host.shell("zfs set quota=-5 tank/a").fails(1).says("PROP-VALUE");
    host.shell("zfs inherit quota tank/a").fails(1).says("PROP-INHERIT").says("zfs set quota=none");
    host.shell("zpool export tank; zpool import -d $PWD tank; zfs get -Ho value refreservation tank/a")
        .ok()
        .says("20M");
}

#[test]
fn space_by_owner_is_listed_and_limited() {
    let Some(host) = Host::with_tank("userspace") else { return };
    if !is_root() {
        return skip("userspace", "files are given to others by root only");
    }
    host.shell("zfs create -o compression=off tank/u; cd t/u; head -c 300K /dev/urandom > a; mkdir d; chown 4711:4712 a d").ok();
    host.shell("zpool sync; zfs userspace -H tank/u")
        .ok()
        .says("POSIX User\t4711\t300K\tnone\t2\tnone\nPOSIX User\troot\t0B\tnone\t1\tnone");
    host.shell("zfs groupspace -Hpo name,used,objused $PWD/t/u").ok().says("4712\t307200\t2");
    host.shell("zfs userspace -n -o name -S used tank/u").ok().says("NAME\n4711\n0\n");
    host.shell("zfs userspace -t all tank/u").ok().says("POSIX Group");
    host.shell("zfs set userquota@4711=512K userobjquota@4711=3 groupquota@root=none tank/u").ok();
    host.shell("zfs get -Ho value userquota@4711,userused@4711,userobjquota@4711,userobjused@root tank/u")
        .ok()
        .says("512K\n300K\n3\n1\n");
    host.shell(
        "chmod 777 t/u; cd t/u; setpriv --reuid 4711 --clear-groups bash -c 'head -c 1M /dev/urandom > b'",
    )
    .fails(1)
    .says("quota exceeded");
    host.shell("cd t/u; setpriv --reuid 4711 --clear-groups touch c").fails(1).says("quota exceeded");
    host.shell("head -c 300K /dev/urandom > t/u/mine; chown 4711 t/u/mine").fails(1).says("quota exceeded");
    host.shell("rm t/u/b; chown root t/u/a; chown 4711 t/u/mine; zpool sync").ok();
    host.shell(
        "zpool export tank; zpool import -d $PWD tank; zfs userspace -Hpo name,used,quota,objused tank/u",
    )
    .ok()
    .says("4711\t307200\t524288\t2\nroot\t307200\t0\t2\n");
    host.shell("zfs set userquota@nobody-of-this-name=1M tank/u").fails(1).says("PROP-VALUE");
    host.shell("zfs set userused@4711=1M tank/u").fails(1).says("PROP-READONLY");
    host.shell("zfs userspace -o colour tank/u").fails(2).says("invalid field");
    host.shell("zfs userspace tank/none").fails(1).says("FS-ABSENT");
}

#[test]
fn users_and_groups_of_a_snapshot_are_listed_as_they_were() {
    if !is_root() {
        return skip("owners then", "it needs root, who gives files away");
    }
    let Some(host) = Host::with_tank("owners then") else { return };
    host.shell(
        "zfs create -o compression=off tank/a && head -c 1M /dev/urandom >t/a/f && chown 4711:4712 t/a/f",
    )
    .ok();
    host.shell("zfs snapshot tank/a@then && rm t/a/f && zpool sync tank && zfs set userquota@4711=1G tank/a")
        .ok();
    host.shell("zfs userspace -Hpo name,used,quota,objused tank/a@then")
        .ok()
        .says("4711\t1048576\t1073741824\t1\n");
    host.shell("zfs groupspace -Hpo name,used,objused tank/a@then").ok().says("4712\t1048576\t1\n");
    host.shell("zfs get -Hpo value userused@4711,userobjused@4711,userquota@4711 tank/a@then")
        .ok()
        .says("1048576\n1\n1073741824\n");
    host.shell("zfs get -Hpo value userused@4711,userquota@4711 tank/a").ok().says("0\n1073741824\n");
    host.shell("zfs userspace tank/a@never").fails(1).says("SNAP-ABSENT");
}

/// As in ZFS, where they are content: a clone begins with the quotas of users of its origin.
#[test]
fn quotas_of_users_go_along_with_clones() {
    let Some(host) = Host::with_tank("quotas that go along") else { return };
    host.shell("zfs create -o userquota@1000=50M -o groupobjquota@100=7 -o compression=off tank/fs").ok();
    host.shell("zfs snapshot tank/fs@a; zfs clone tank/fs@a tank/c").ok();
    host.shell("zfs clone -o userquota@1000=9M tank/fs@a tank/d").ok();
    let get = |fs: &str| {
        host.shell(&format!("zfs get -Hpo value userquota@1000,groupobjquota@100,compression {fs}")).ok().out
    };
    assert_eq!(get("tank/c"), "52428800\n7\non\n");
    assert_eq!(get("tank/d"), "9437184\n7\non\n");
}

/// The space of users of a file system that came raw is told once its key is loaded.
#[test]
fn userspace_of_what_came_raw_is_told_with_its_key() {
    if !is_root() {
        return skip("userspace of raw streams", "files of other users take root");
    }
    let Some(host) = Host::with_tank("userspace of raw streams") else { return };
    host.shell("echo password1 | zfs create -o encryption=on -o keyformat=passphrase tank/e").ok();
    host.shell("zfs set userquota@1000=50M compression=off tank/e").ok();
    host.shell("head -c 1M /dev/urandom > t/e/a; chown 1000:1000 t/e/a; zfs snapshot tank/e@a").ok();
    host.shell("zfs send -w tank/e@a | zfs receive tank/r").ok();
    host.shell("zfs userspace tank/r").fails(1).says("key");
    host.shell("echo password1 | zfs load-key tank/r").ok();
    let told = |fs: &str| host.shell(&format!("zfs userspace -nHpo name,used,objused {fs}")).ok().out;
    assert!(told("tank/r").contains("1000\t"), "{}", told("tank/r"));
    for of in ["", "@a"] {
        assert_eq!(told(&format!("tank/r{of}")), told(&format!("tank/e{of}")));
    }
}

/// The content of a snapshot must fit a quota that was set since.
#[test]
fn a_rollback_beyond_a_quota_is_refused_and_changes_nothing() {
    let Some(host) = Host::with_tank("rollback beyond a quota") else { return };
    host.shell("zfs create tank/q; head -c 8M /dev/urandom > t/q/f; zfs snapshot tank/q@full; rm t/q/f").ok();
    host.shell("echo now > t/q/now; zpool sync; zfs set refquota=2M tank/q").ok();
    host.shell("zfs rollback tank/q@full").fails(1);
    assert_eq!(host.shell("ls t/q; cat t/q/now").ok().out, "now\nnow\n");
    host.shell("zfs set refquota=none tank/q; zfs rollback tank/q@full").ok();
    assert_eq!(host.shell("ls t/q").ok().out, "f\n");
}

//! Attributes: permissions, times, extended attributes, access control lists.

use super::{Ask::Python, Ask::Shell, Row, promised};

const ROWS: &[Row] = &[
    // First, because what other rows left is freed while this one looks.
    Row {
        name: "what df shows adds up, and what is written is missing from it",
        ask: Python(
            r#"
s = os.statvfs('.')
assert s.f_namemax == 255 and 0 < s.f_bavail <= s.f_bfree <= s.f_blocks and 0 < s.f_ffree <= s.f_files
put('a', os.urandom(16 << 20)); f = os.open('a', os.O_RDONLY); os.fsync(f)
t = os.statvfs('.')
assert (s.f_bfree - t.f_bfree) * s.f_frsize >= 15 << 20
"#,
        ),
    },
    Row {
        name: "set-id bits go with a change, and set-gid stays only for a member of the group",
        ask: Python(
            r#"
def left(groups, change):
    f = os.open('s', CREATE); os.write(f, bytes(9000)); os.fchown(f, 0, 0); os.fchmod(f, 0o6666)
    child = os.fork()
    if child == 0:
        os.setgroups(groups); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
        change(f); os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return os.fstat(f).st_mode & 0o7777
for change in (lambda f: os.pwrite(f, b'y', 0), lambda f: os.ftruncate(f, 5), lambda f: os.posix_fallocate(f, 0, 20000)):
    found = [left(groups, change) for groups in ([], [5, 7], [5, 0])]
    assert found == [0o666, 0o666, 0o2666], [oct(mode) for mode in found]
"#,
        ),
    },
    Row {
        name: "lsattr finds no flags, and none can be set",
        ask: Shell(
            r#"
echo text > f; mkdir d
test "$(lsattr f d/. -d)" = "$(printf -- '---------------------- %s\n' f d/.)"
for flag in i a d C; do
    if chattr +$flag f 2> said; then exit 1; fi
    grep -q 'Operation not supported' said
done
chattr = f; echo more > f
"#,
        ),
    },
    Row {
        name: "root's chown leaves set-gid without execution by the group",
        ask: Shell(
            r#"
touch a b; chown 4242:4343 a b; chmod 6644 a; chmod 6654 b
chown 0 a b; test "$(stat -c %a a b)" = "2644
654"
"#,
        ),
    },
    Row {
        name: "setting an attribute can insist that it is new, or that it is there",
        ask: Python(
            r#"
put('a', ''); name = 'user.' + 'n' * 250
os.setxattr('a', name, b'v' * 3000)
assert os.getxattr('a', name) == b'v' * 3000 and os.listxattr('a') == [name]
refuses(errno.EEXIST, os.setxattr, 'a', name, b'', os.XATTR_CREATE)
refuses(errno.ENODATA, os.setxattr, 'a', 'user.none', b'', os.XATTR_REPLACE)
refuses(errno.ENODATA, os.getxattr, 'a', 'user.none')
refuses(errno.ENODATA, os.removexattr, 'a', 'user.none')
refuses(errno.ERANGE, os.setxattr, 'a', name + 'n', b'')
os.setxattr('a', name, b''); assert os.getxattr('a', name) == b''
os.removexattr('a', name); assert os.listxattr('a') == []
"#,
        ),
    },
    Row {
        name: "an attribute holds 64 KiB, and no more",
        ask: Python(
            r#"
put('a', ''); os.mkdir('d')
for name in ('a', 'd'):
    for space in ('user.', 'trusted.', 'security.'):
        value = os.urandom(65536)
        os.setxattr(name, space + 'big', value)
        assert os.getxattr(name, space + 'big') == value
        os.setxattr(name, space + 'big', b'small'); assert os.getxattr(name, space + 'big') == b'small'
refuses(errno.E2BIG, os.setxattr, 'a', 'user.more', bytes(65537))
"#,
        ),
    },
    Row {
        name: "hundreds of attributes on one file are listed",
        ask: Python(
            r#"
put('a', '')
for n in range(300): os.setxattr('a', f'user.number{n}', str(n).encode())
assert len(os.listxattr('a')) == 300 and os.getxattr('a', 'user.number299') == b'299'
"#,
        ),
    },
    Row {
        name: "links and pipes take no user attributes, but trusted ones",
        ask: Python(
            r#"
os.symlink('x', 's'); os.mkfifo('p')
for name in ('s', 'p'):
    refuses(errno.EPERM, os.setxattr, name, 'user.a', b'b', follow_symlinks=False)
    os.setxattr(name, 'trusted.a', b'b', follow_symlinks=False)
    assert os.getxattr(name, 'trusted.a', follow_symlinks=False) == b'b'
"#,
        ),
    },
    Row {
        name: "unknown name spaces are refused",
        ask: Python(
            r#"
put('a', '')
for name in ('system.other', 'nothing', 'nospace.x', 'user.'):
    try:
        os.setxattr('a', name, b'')
        raise SystemExit(f'{name} went well')
    except OSError as error:
        assert error.errno in (errno.EOPNOTSUPP, errno.EINVAL), error
for name in ('user.', 'trusted.', 'security.'):
    refuses(errno.EINVAL, os.setxattr, 'a', name, b'')
    refuses(errno.EINVAL, os.getxattr, 'a', name)
    refuses(errno.EINVAL, os.removexattr, 'a', name)
"#,
        ),
    },
    Row {
        name: "trusted attributes are hidden from ordinary users",
        ask: Python(
            r#"
put('a', ''); os.chmod('a', 0o644)
os.setxattr('a', 'trusted.t', b'1'); os.setxattr('a', 'user.u', b'1'); os.setxattr('a', 'security.s', b'1')
assert sorted(os.listxattr('a')) == ['security.s', 'trusted.t', 'user.u']
def work():
    assert sorted(os.listxattr('a')) == ['security.s', 'user.u'], os.listxattr('a')
    for call in (os.getxattr, os.removexattr):
        try:
            call('a', 'trusted.t'); raise SystemExit('went well')
        except OSError as error:
            assert error.errno in (errno.ENODATA, errno.EPERM), error
as_user(1, work)
"#,
        ),
    },
    Row {
        name: "an ACL lets a user in, and chmod moves its mask",
        ask: Shell(
            r#"
echo text >a; chmod 640 a
fails user cat a
setfacl -m u:1:r a
user cat a
test $(stat -c %a a) = 640
fails user sh -c 'echo x >>a'
chmod g= a
fails user cat a
getfacl -cE a | grep -qx 'user:daemon:r--' || getfacl -cEn a | grep -qx 'user:1:r--'
getfacl -cE a | grep -qx 'mask::---'
setfacl -m m::r a; user cat a; test $(stat -c %a a) = 640
"#,
        ),
    },
    Row {
        name: "an ACL that says no more than the mode is not kept",
        ask: Shell(
            r#"
touch a; setfacl -m u:1:rw,g:2:r,m::rwx a
test $(stat -c %a a) = 674
getfattr -m- a | grep -q posix_acl_access
setfacl -b a; test $(stat -c %a a) = 644
test -z "$(getfattr -m- a)"
setfacl --set u::rwx,g::rx,o::x a; test $(stat -c %a a) = 751
test -z "$(getfattr -m- a)"
"#,
        ),
    },
    Row {
        name: "a named group counts, and the mask bounds it",
        ask: Shell(
            r#"
echo text >a; chmod 600 a
setfacl -m g:4242:rw,m::r a
setpriv --reuid 1 --regid 1 --groups 4242 cat a
fails setpriv --reuid 1 --regid 1 --groups 4242 sh -c 'echo >>a'
fails user cat a
"#,
        ),
    },
    Row {
        name: "a default ACL is handed down, and takes the umask's place",
        ask: Shell(
            r#"
mkdir d; setfacl -m u:1:rwx,d:u:1:rwx,d:g::rx,d:o::- d
umask 077
touch d/file; mkdir d/sub; mkfifo d/pipe; ln -s x d/link
test $(stat -c %a d/file) = 660
test $(stat -c %a d/sub) = 770
getfacl -cEn d/file | grep -qx 'user:1:rwx'
getfacl -cEn d/file | grep -qx 'mask::rw-'
getfacl -cEn d/sub | grep -qx 'default:user:1:rwx'
test -z "$(getfacl -cEn d/file | grep default || true)"
touch d/sub/deep; getfacl -cEn d/sub/deep | grep -qx 'user:1:rwx'
user sh -c 'cd d; echo more >>file; touch sub/mine'
python3 -c "import os; f = os.open('d', os.O_TMPFILE | os.O_RDWR, 0o600); os.link(f'/proc/self/fd/{f}', 'd/t', src_dir_fd=f)"
getfacl -cEn d/t | grep -qx 'mask::---'
setfacl -k d; touch d/plain; test $(stat -c %a d/plain) = 600
"#,
        ),
    },
    Row {
        name: "without a default ACL the umask counts",
        ask: Shell(
            r#"
umask 027; touch f; mkdir d; mkfifo p; mknod n c 1 3
test "$(stat -c %a f d p n | tr '\n' ' ')" = '640 750 640 640 '
python3 -c "import os; f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o666); assert os.fstat(f).st_mode & 0o777 == 0o640"
"#,
        ),
    },
    Row {
        name: "setting an ACL from outside the group takes the set-gid bit",
        ask: Shell(
            r#"
chmod 777 .; user sh -c 'echo >a'; chgrp 4242 a; chmod 2770 a
user setfacl -m u:7:r a
test $(stat -c %a a) = 770
"#,
        ),
    },
    Row {
        name: "only directories take default ACLs, and only owners set any",
        ask: Shell(
            r#"
touch a; fails setfacl -d -m u:1:r a
fails user setfacl -m u:1:r a
"#,
        ),
    },
    Row {
        name: "what is made in a set-gid directory belongs to its group",
        ask: Shell(
            r#"
mkdir d; chgrp 4242 d; chmod 2777 d
user sh -c 'cd d; mkdir sub; touch file; mkfifo pipe; ln -s x link'
test "$(stat -c %g d/* | sort -u)" = 4242
test $(stat -c %a d/sub | cut -c1) = 2
test $(stat -c %a d/file | wc -c) = 4
chmod g-s d; user touch d/other; test $(stat -c %g d/other) = 1
"#,
        ),
    },
    Row {
        name: "in a sticky directory one removes only one's own",
        ask: Shell(
            r#"
mkdir d; chmod 1777 d; touch d/f; chown 2 d/f; user touch d/mine
fails user rm -f d/f
fails user mv d/f d/g
user rm d/mine
"#,
        ),
    },
    Row {
        name: "set-id bits go when others write, truncate, allocate, punch or zero",
        ask: Shell(
            r#"
chmod 777 .
fresh() { rm -f s; head -c 200000 /dev/urandom >s; chmod 6777 s; }
bits() { stat -c %a s; }
fresh; user sh -c 'echo >>s'; test $(bits) = 777
fresh; user truncate -s 100 s; test $(bits) = 777
fresh; user truncate -s 300000 s; test $(bits) = 777
fresh; user sh -c ': >s'; test $(bits) = 777
for mode in '' '-n' '-p' '-z'; do
    fresh; user fallocate $mode -o 0 -l 65536 s; test $(bits) = 777
done
fresh; user dd if=/dev/zero of=s bs=4k count=1 conv=notrunc oflag=direct status=none; test $(bits) = 777
fresh; user python3 -c "import os; os.ftruncate(os.open('s', os.O_RDWR), 7)"; test $(bits) = 777
fresh; head -c 9 /dev/zero >from; chmod 644 from
user python3 -c "import os; a, f = os.open('from', os.O_RDONLY), os.open('s', os.O_RDWR); assert os.copy_file_range(a, f, 9) == 9"; test $(bits) = 777
fresh; chmod 2666 s; user python3 -c "import os; os.copy_file_range(os.open('from', os.O_RDONLY), os.open('s', os.O_RDWR), 9)"; test $(bits) = 666
fresh; chown 5 s; test $(bits) = 777
# As on ext4 since Linux 6.2: the user is no member of the file's group.
fresh; chmod 2666 s; user sh -c 'echo >>s'; test $(bits) = 666
"#,
        ),
    },
    Row {
        name: "set-id bits stay when root writes, allocates or copies",
        ask: Shell(
            r#"
head -c 300000 /dev/urandom >from; sync from
python3 - <<'END'
import os
for size in (200_000, 300_000):
    f = os.open('s', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.pwrite(f, b'x' * size, 0)
    os.fchmod(f, 0o6755)
    for act in (
        lambda: os.pwrite(f, b'y', 5),
        lambda: os.posix_fallocate(f, 0, 400_000),
        lambda: os.copy_file_range(os.open('from', os.O_RDONLY), f, 9, 0, 7),
        lambda: os.copy_file_range(os.open('from', os.O_RDONLY), f, 262_144, 0, 0),
    ):
        act()
        assert os.fstat(f).st_mode & 0o7777 == 0o6755
END
"#,
        ),
    },
    Row {
        name: "capabilities go when content or owner change",
        ask: Shell(
            r#"
fresh() { cp /bin/true s; setcap cap_net_raw+ep s; test -n "$(getcap s)"; }
fresh; echo >>s; test -z "$(getcap s)"
fresh; truncate -s 5 s; test -z "$(getcap s)"
fresh; fallocate -p -o 0 -l 4096 s; test -z "$(getcap s)"
fresh; chown 1 s; test -z "$(getcap s)"
fresh; chmod 700 s; test -n "$(getcap s)"
"#,
        ),
    },
    Row {
        name: "reading moves an access time that is old",
        ask: Shell(
            r#"
echo text >a; touch -a -d '2 days ago' a; cat a >/dev/null
test $(( $(date +%s) - $(stat -c %X a) )) -lt 1000
old=$(stat -c %.9X a); cat a >/dev/null; test $(stat -c %.9X a) = $old
mkdir d; touch -a -d '2 days ago' d; ls d
test $(( $(date +%s) - $(stat -c %X d) )) -lt 1000
"#,
        ),
    },
    Row {
        name: "times have nanoseconds, before 1970 and long after 2038",
        ask: Python(
            r#"
put('a', '')
for ns in (981173106123456789, -1, -10**18 - 7, 2**31 * 10**9 + 1, 2**32 * 10**9 + 999999999, 20_000_000_000 * 10**9 // 10 + 5):
    os.utime('a', ns=(ns, ns + 1))
    seen = os.stat('a')
    assert (seen.st_atime_ns, seen.st_mtime_ns) == (ns, ns + 1), ns
far = 20_000_000_000
checked(libc.utimensat(-100, b'a', struct.pack('qqqq', far, 3, -far, 4), 0))
assert os.stat('a').st_atime_ns == far * 10**9 + 3 and os.stat('a').st_mtime_ns == -far * 10**9 + 4
"#,
        ),
    },
    Row {
        name: "a directory's times move with its names",
        ask: Python(
            r#"
os.mkdir('d'); put('from', '')
for change in (lambda: put('d/x', ''), lambda: os.rename('d/x', 'd/y'), lambda: os.link('d/y', 'd/z'), lambda: os.unlink('d/y'),
               lambda: os.rename('from', 'd/in'), lambda: os.mkdir('d/sub'), lambda: os.rmdir('d/sub')):
    os.utime('d', (1000, 1000)); change()
    assert os.stat('d').st_mtime > 1000 and os.stat('d').st_ctime > 1000
os.utime('d', (1000, 1000)); put('d/in', 'content'); os.listdir('d')
assert os.stat('d').st_mtime == 1000
"#,
        ),
    },
    Row {
        name: "the change time moves with mode, owner, links, names and attributes",
        ask: Python(
            r#"
put('a', '')
last = os.stat('a').st_ctime_ns
for change in (lambda: os.chmod('a', 0o600), lambda: os.chown('a', 3, 4), lambda: os.link('a', 'b'), lambda: os.unlink('b'),
               lambda: os.rename('a', 'c') or os.rename('c', 'a'), lambda: os.setxattr('a', 'user.x', b'y'),
               lambda: os.removexattr('a', 'user.x'), lambda: os.truncate('a', 9), lambda: os.utime('a', (1, 1))):
    time.sleep(0.02); change()
    now = os.stat('a').st_ctime_ns
    assert now > last; last = now
"#,
        ),
    },
    Row {
        name: "statx tells when a file was made, and that does not change",
        ask: Shell(
            r#"
touch a; born=$(stat -c %.9W a); test ${born%.*} -gt 1000000000
sleep 0.02; chmod 600 a; echo more >>a; touch -d @5 a; mv a b
test $(stat -c %.9W b) = $born
"#,
        ),
    },
    Row {
        name: "an ordinary user gives away no file, and root's bits are not theirs to set",
        ask: Python(
            r#"
os.chmod('.', 0o777); put('root', ''); 
def work():
    put('mine', '')
    refuses(errno.EPERM, os.chown, 'mine', 2, -1)
    refuses(errno.EPERM, os.chown, 'mine', -1, 2)
    refuses(errno.EPERM, os.chmod, 'root', 0o777)
    refuses(errno.EPERM, os.utime, 'root', (1, 1))
    refuses(errno.EACCES, open, 'root', 'w')
    os.chown('mine', 1, 1)
as_user(1, work)
"#,
        ),
    },
    Row {
        name: "the blocks that a file occupies are told anew when they are written",
        ask: Python(
            r#"
put('zip', b'the same again ' * 100_000)
first = os.stat('zip').st_blocks
f = os.open('zip', os.O_RDONLY); os.fsync(f)
deadline = time.time() + 300
while os.stat('zip').st_blocks >= first and time.time() < deadline:
    time.sleep(0.2)
assert 0 < os.stat('zip').st_blocks < first / 2, (first, os.stat('zip').st_blocks)
"#,
        ),
    },
];

#[test]
fn attributes_behave() {
    promised("attributes", ROWS);
}

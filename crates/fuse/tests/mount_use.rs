//! A real mount of a little file system, used the way programs do. Where this machine cannot mount,
//! the tests say so and pass.

use crate::common::*;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::time::Duration;
use steadfast_fuse::Readdirplus;

#[test]
fn files_are_created_written_read_and_truncated() {
    mounted("files", |b| {
        let path = b.dir.join("a");
        // Odd sizes around pages, requests of 1 MiB and beyond.
        for size in [0, 1, 4095, 4096, 4097, 70_000, (1 << 20) - 1, (1 << 20) + 1, 5_000_000] {
            let bytes: Vec<u8> =
                (0..size as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), size as u64);
            assert!(fs::read(&path).unwrap() == bytes, "{size} bytes from the page cache");
            rustix::fs::fadvise(File::open(&path).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
            assert!(fs::read(&path).unwrap() == bytes, "{size} bytes from the handler");
        }
        let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"hello", 4_999_998).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5_000_003);
        file.set_len(10).unwrap();
        file.set_len(20).unwrap();
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(10)).unwrap();
        file.read_to_end(&mut tail).unwrap();
        assert_eq!(tail, [0; 10]);
        file.sync_all().unwrap();
        let mut append = OpenOptions::new().append(true).open(&path).unwrap();
        append.write_all(b"end").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 23);
        assert_eq!(errno(OpenOptions::new().write(true).create_new(true).open(&path)), libc::EEXIST);
        assert_eq!(errno(File::open(b.dir.join("none"))), libc::ENOENT);
    });
}

#[test]
fn direct_io_reads_and_writes_the_handlers_bytes() {
    mounted("direct", |b| {
        let path = b.dir.join("a");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
            .unwrap();
        // Aligned by hand: a direct request takes its memory as it is.
        let mut space = vec![0u8; (3 << 20) + 4096];
        let skip = space.as_ptr().align_offset(4096);
        let block = &mut space[skip..skip + (3 << 20)];
        for (i, byte) in block.iter_mut().enumerate() {
            *byte = (i / 4096) as u8 ^ i as u8;
        }
        let copy = block.to_vec();
        file.write_all_at(block, 0).unwrap();
        block.fill(0);
        file.read_exact_at(block, 0).unwrap();
        assert!(block == copy);
        assert!(fs::read(&path).unwrap() == copy, "buffered readers see direct writes");
    });
}

#[test]
fn a_shared_mapping_reaches_the_file_and_its_time() {
    mounted("mmap", |b| {
        let script = "import mmap,os,sys\n\
            f=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT)\nos.ftruncate(f,8192)\nos.utime(sys.argv[1],(1,1))\n\
            m=mmap.mmap(f,8192)\nm[5000]=65\nm.flush()\nm.close()\n\
            assert os.pread(f,1,5000)==b'A'\nassert os.fstat(f).st_mtime>1000\n";
        let path = b.dir.join("m");
        match status(std::process::Command::new("python3").args(["-c", script]).arg(&path)) {
            Ok(status) => assert!(status.success()),
            Err(error) => return eprintln!("SKIPPED the mapping: python3 cannot be run: {error}"),
        }
        assert_eq!(fs::read(&path).unwrap()[5000], b'A');
    });
}

#[test]
fn names_move_replace_exchange_and_refuse() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    mounted("rename", |b| {
        let p = |name: &str| b.dir.join(name);
        fs::write(p("a"), "A").unwrap();
        fs::write(p("b"), "B").unwrap();
        fs::rename(p("a"), p("b")).unwrap();
        assert_eq!(fs::read(p("b")).unwrap(), b"A");
        assert!(!p("a").exists());
        fs::write(p("a"), "2").unwrap();
        renameat_with(CWD, p("a"), CWD, p("b"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(p("a")).unwrap(), b"A");
        let refused = renameat_with(CWD, p("a"), CWD, p("b"), RenameFlags::NOREPLACE).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::EXIST);
        fs::create_dir_all(p("d/e")).unwrap();
        fs::rename(p("a"), p("d/e/a")).unwrap();
        fs::create_dir(p("f")).unwrap();
        fs::rename(p("d/e"), p("f/e")).unwrap();
        assert_eq!(fs::read(p("f/e/a")).unwrap(), b"A");
        assert_eq!(fs::metadata(p("d")).unwrap().nlink(), 2);
        assert_eq!(errno(fs::remove_dir(p("f"))), libc::ENOTEMPTY);
        // Any bytes but NUL and slash are a name.
        let odd = p("").join(std::ffi::OsStr::from_bytes(b"\xff\xfe\n \\ \x01"));
        fs::write(&odd, "odd").unwrap();
        assert!(names(&b.dir).contains(&b"\xff\xfe\n \\ \x01".to_vec()));
        fs::remove_file(&odd).unwrap();
        let long = "n".repeat(255);
        fs::write(p(&long), "").unwrap();
        assert_eq!(errno(fs::write(p(&"n".repeat(256)), "")), libc::ENAMETOOLONG);
    });
}

#[test]
fn links_nodes_times_and_modes_are_kept() {
    mounted("attributes", |b| {
        let p = |name: &str| b.dir.join(name);
        fs::write(p("a"), "x").unwrap();
        fs::hard_link(p("a"), p("b")).unwrap();
        let (a, l) = (fs::metadata(p("a")).unwrap(), fs::metadata(p("b")).unwrap());
        assert_eq!((a.ino(), a.nlink()), (l.ino(), 2));
        fs::remove_file(p("a")).unwrap();
        assert_eq!(fs::metadata(p("b")).unwrap().nlink(), 1);

        let target = "t".repeat(4095);
        std::os::unix::fs::symlink(&target, p("s")).unwrap();
        assert_eq!(fs::read_link(p("s")).unwrap().as_os_str().as_bytes(), target.as_bytes());

        use rustix::fs::{
            AtFlags, CWD, FileType, Mode, StatxFlags, Timespec, Timestamps, mknodat, statx, utimensat,
        };
        let rdev = rustix::fs::makedev(259, 70_000);
        mknodat(CWD, p("dev"), FileType::BlockDevice, Mode::from_raw_mode(0o600), rdev).unwrap();
        assert_eq!(fs::symlink_metadata(p("dev")).unwrap().rdev(), rdev);
        let sx = statx(CWD, p("dev"), AtFlags::empty(), StatxFlags::ALL).unwrap();
        assert_eq!((sx.stx_rdev_major, sx.stx_rdev_minor), (259, 70_000));
        mknodat(CWD, p("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();

        fs::set_permissions(p("b"), fs::Permissions::from_mode(0o4751)).unwrap();
        assert_eq!(fs::metadata(p("b")).unwrap().mode(), 0o104751);
        let times = Timestamps {
            last_access: Timespec { tv_sec: 981_173_106, tv_nsec: 123_456_789 },
            last_modification: Timespec { tv_sec: -5, tv_nsec: 999_999_999 },
        };
        utimensat(CWD, p("b"), &times, AtFlags::empty()).unwrap();
        let meta = fs::metadata(p("b")).unwrap();
        assert_eq!((meta.atime(), meta.atime_nsec()), (981_173_106, 123_456_789));
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-5, 999_999_999));
        // Birth times travel by STATX, which kernels know since 6.6.
        let sx = statx(CWD, p("b"), AtFlags::empty(), StatxFlags::ALL).unwrap();
        if b.session.negotiated().minor >= 39 {
            assert!(sx.stx_mask & StatxFlags::BTIME.bits() != 0);
            assert!(sx.stx_btime.tv_sec > 1_000_000_000);
        }
        std::os::unix::fs::chown(p("b"), Some(12), Some(34)).unwrap();
        let meta = fs::metadata(p("b")).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (12, 34, 0o751));
    });
}

#[test]
fn a_directory_of_ten_thousand_names_is_listed_once_each() {
    for plus in [true, false] {
        let mut wish = options();
        wish.readdirplus = if plus { Readdirplus::Auto } else { Readdirplus::Off };
        mounted_with("names", wish, |b| {
            for i in 0..10_000 {
                File::create(b.dir.join(format!("file-{i:05}"))).unwrap();
            }
            let listed = names(&b.dir);
            assert_eq!(listed.len(), 10_000);
            assert!(listed.windows(2).all(|w| w[0] < w[1]), "no name twice");
            // Deleting while listing loses no other name.
            let mut left: Vec<_> = Vec::new();
            for (i, entry) in fs::read_dir(&b.dir).unwrap().enumerate() {
                let entry = entry.unwrap();
                assert_eq!(entry.ino(), fs::symlink_metadata(entry.path()).unwrap().ino());
                assert!(entry.file_type().unwrap().is_file());
                if i % 2 == 0 { fs::remove_file(entry.path()).unwrap() } else { left.push(entry.file_name()) }
            }
            assert_eq!(left.len(), 5000);
            assert_eq!(names(&b.dir).len(), 5000);
        });
    }
}

#[test]
fn extended_attributes_come_back_by_value_and_by_length() {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    use rustix::fs::{getxattr_query, listxattr_query};
    mounted("xattr", |b| {
        let path = b.dir.join("a");
        fs::write(&path, "").unwrap();
        for size in [0, 1, 3000, 65536] {
            setxattr(&path, "user.v", &vec![7u8; size], XattrFlags::empty()).unwrap();
            assert_eq!(getxattr_query(&path, "user.v").unwrap(), size);
            let mut value = vec![0; 65536];
            assert_eq!(getxattr(&path, "user.v", &mut value[..]).unwrap(), size);
            assert!(value[..size].iter().all(|&v| v == 7));
        }
        assert_eq!(getxattr(&path, "user.v", &mut [0u8; 10][..]).unwrap_err(), rustix::io::Errno::RANGE);
        assert_eq!(getxattr(&path, "user.none", &mut [0u8; 10][..]).unwrap_err(), rustix::io::Errno::NODATA);
        let exists = setxattr(&path, "user.v", b"", XattrFlags::CREATE).unwrap_err();
        assert_eq!(exists, rustix::io::Errno::EXIST);
        let absent = setxattr(&path, "user.w", b"", XattrFlags::REPLACE).unwrap_err();
        assert_eq!(absent, rustix::io::Errno::NODATA);
        setxattr(&path, "trusted.t", b"t", XattrFlags::empty()).unwrap();
        let mut list = [0u8; 100];
        let len = listxattr(&path, &mut list[..]).unwrap();
        assert_eq!(&list[..len], b"trusted.t\0user.v\0");
        removexattr(&path, "user.v").unwrap();
        removexattr(&path, "trusted.t").unwrap();
        assert_eq!(listxattr_query(&path).unwrap(), 0);
    });
}

#[test]
fn a_file_without_names_lives_until_it_is_closed() {
    mounted("unlinked", |b| {
        let (before, _) = b.fs.counts();
        let path = b.dir.join("a");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all_at(b"y", 1).unwrap();
        let mut bytes = [0; 2];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"xy");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.set_permissions(fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(b.fs.counts().0, before + 1);
        drop(file);
        // Release and forget come when the kernel finds the time.
        eventually(|| b.fs.counts() == (before, 0));

        let unnamed = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(&b.dir);
        match unnamed {
            Ok(file) => {
                assert_eq!(file.metadata().unwrap().nlink(), 0);
                drop(file);
                eventually(|| b.fs.counts() == (before, 0));
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "kernels before 6.1"),
        }
    });
}

#[test]
fn ranges_are_allocated_punched_sought_and_copied() {
    use rustix::fs::{FallocateFlags, copy_file_range, fallocate, seek};
    mounted("ranges", |b| {
        let open = |name| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(b.dir.join(name))
                .unwrap()
        };
        let (a, c) = (open("a"), open("c"));
        a.write_all_at(&[7; 300_000], 0).unwrap();
        fallocate(&a, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
        let mut bytes = vec![0; 300_000];
        a.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[4096..12288].iter().all(|&b| b == 0) && bytes[12288] == 7 && bytes[4095] == 7);
        fallocate(&a, FallocateFlags::empty(), 0, 400_000).unwrap();
        assert_eq!(a.metadata().unwrap().len(), 400_000);
        assert_eq!(seek(&a, rustix::fs::SeekFrom::Hole(0)).unwrap(), 400_000);
        assert_eq!(seek(&a, rustix::fs::SeekFrom::Data(100)).unwrap(), 100);
        assert_eq!(seek(&a, rustix::fs::SeekFrom::Data(500_000)).unwrap_err(), rustix::io::Errno::NXIO);
        let (mut from, mut to) = (50_000, 7);
        assert_eq!(copy_file_range(&a, Some(&mut from), &c, Some(&mut to), 200_000).unwrap(), 200_000);
        let mut copied = vec![0; 200_000];
        c.read_exact_at(&mut copied, 7).unwrap();
        assert!(copied[..] == bytes[50_000..250_000]);
        // No ioctl of ours: the answer is the one programs expect.
        assert_eq!(rustix::fs::ioctl_getflags(&c).unwrap_err(), rustix::io::Errno::NOTTY);
    });
}

#[test]
fn many_threads_at_once_see_their_own_bytes() {
    mounted("threads", |b| {
        std::thread::scope(|scope| {
            for t in 0..8u8 {
                let dir = b.dir.join(format!("d{t}"));
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    for i in 0..60usize {
                        let path = dir.join(format!("f{i}"));
                        fs::write(&path, vec![t; 1000 * i]).unwrap();
                        fs::rename(&path, dir.join("current")).unwrap();
                        assert!(fs::read(dir.join("current")).unwrap() == vec![t; 1000 * i]);
                        fs::metadata(&dir).unwrap();
                        names(&dir);
                    }
                });
            }
        });
        assert_eq!(names(&b.dir).len(), 8);
        assert!(b.log.lock().unwrap().iter().all(|l| !l.contains("refused")), "{:?}", b.log.lock().unwrap());
    });
}

#[test]
fn dropped_set_id_bits_are_seen_at_once() {
    mounted("setid", |b| {
        let path = b.dir.join("s");
        fs::write(&path, "program").unwrap();
        // Writes without CAP_FSETID, while everybody is sure of the cached mode.
        for round in 0..20 {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777);
            let script = "echo >> \"$0\" && stat -c %a \"$0\"";
            let mut command = std::process::Command::new("setpriv");
            command.args(["--bounding-set=-fsetid", "--inh-caps=-fsetid", "sh", "-c", script]).arg(&path);
            match output(&mut command) {
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stdout).into_owned();
                    assert_eq!(said, "777\n", "round {round}: {output:?}");
                }
                Err(error) => return eprintln!("SKIPPED: setpriv cannot be run: {error}"),
            }
        }
    });
}

#[test]
fn a_file_handle_outlives_the_kernels_memory_of_the_file() {
    mounted("handles", |b| {
        let script = "import ctypes,os,sys\nos.chdir(sys.argv[1])\n\
            l=ctypes.CDLL(None,use_errno=True)\nopen('a','w').write('hi')\n\
            h=ctypes.create_string_buffer(136)\nctypes.c_uint.from_buffer(h).value=128\nm=ctypes.c_int()\n\
            assert l.name_to_handle_at(-100,b'a',h,ctypes.byref(m),0)==0\n\
            open('/proc/sys/vm/drop_caches','w').write('2')\n\
            f=l.open_by_handle_at(os.open('.',0),h,0)\n\
            assert f>=0,ctypes.get_errno()\nassert os.read(f,2)==b'hi'\n";
        match status(std::process::Command::new("python3").args(["-c", script]).arg(&b.dir)) {
            Ok(status) => assert!(status.success()),
            Err(error) => eprintln!("SKIPPED the handle: python3 cannot be run: {error}"),
        }
    });
}

#[test]
fn a_write_back_cache_loses_nothing() {
    let mut wish = options();
    wish.writeback_cache = true;
    mounted_with("writeback", wish, |b| {
        // The kernel's limit for FUSE is lifted where this process may.
        let dev = fs::metadata(&b.dir).unwrap().dev();
        let bdi = format!("/sys/class/bdi/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        if let Ok(strict) = fs::read_to_string(format!("{bdi}/strict_limit"))
            && rustix::process::geteuid().is_root()
        {
            assert_eq!(strict.trim(), "0", "{:?}", b.log.lock().unwrap());
            assert_eq!(fs::read_to_string(format!("{bdi}/max_ratio")).unwrap().trim(), "100");
        }
        let path = b.dir.join("a");
        let mut expected = vec![0u8; 3_000_000];
        {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
            for i in 0..3000usize {
                let (at, byte) = (i * 7919 % 2_990_000, i as u8);
                file.write_all_at(&[byte; 1000], at as u64).unwrap();
                expected[at..at + 1000].fill(byte);
            }
            file.set_len(3_000_000).unwrap();
            file.sync_all().unwrap();
        }
        assert!(b.fs.content(b"a") == expected, "after fsync the handler has every byte");
        // Reads through the cache of what was never in it.
        rustix::fs::fadvise(File::open(&path).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert!(fs::read(&path).unwrap() == expected);
        // Unsynced bytes arrive by the unmount at the latest.
        fs::write(b.dir.join("dirty"), "late").unwrap();
        let mut append = OpenOptions::new().append(true).open(b.dir.join("dirty")).unwrap();
        append.write_all(b"r").unwrap();
        drop(append);
        let mtime = fs::metadata(b.dir.join("dirty")).unwrap().modified().unwrap();
        assert!(mtime.elapsed().unwrap_or_default() < Duration::from_secs(100), "the kernel keeps this time");
        unmount(&b.session).unwrap();
        assert_eq!(b.fs.content(b"dirty"), b"later");
    });
}

#[test]
fn access_lists_are_enforced_by_the_kernel_when_asked_for() {
    let mut wish = options();
    wish.posix_acl = true;
    wish.allow_other = true;
    mounted_with("acl", wish, |b| {
        let script = "cd \"$0\" && echo hi >a && chmod 640 a && setfacl -m u:1:r a && \
            setpriv --reuid 1 --regid 1 --clear-groups cat a >/dev/null && chmod g= a && \
            ! setpriv --reuid 1 --regid 1 --clear-groups cat a 2>/dev/null";
        let have = |program: &str| output(std::process::Command::new(program).arg("--version")).is_ok();
        if !have("setfacl") || !have("setpriv") {
            return eprintln!("SKIPPED: setfacl or setpriv is not installed");
        }
        assert!(status(std::process::Command::new("sh").args(["-c", script]).arg(&b.dir)).unwrap().success());
    });
}

//! Files beside the program in a package, read by their readers: shells, the service manager,
//! man(1).

use std::path::Path;

use steadfast_tests::{Host, skip, steadfast_bin};

/// Is there a program of this name? Says what was skipped if not.
fn there(host: &Host, program: &str) -> bool {
    let found = host.exec("sh", &["-c", &format!("command -v {program}")], b"").status == 0;
    if !found {
        skip(program, &format!("{program} is not installed"));
    }
    found
}

#[test]
fn each_shell_reads_its_completion_script() {
    let host = Host::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = host.at(shell);
        std::fs::write(&script, host.run(&format!("completions {shell}")).ok().out).expect("written");
        // bash is everywhere; the others are asked where they are.
        if shell != "bash" && !there(&host, shell) {
            continue;
        }
        let read = |script: &Path| host.exec(shell, &["-n", &script.display().to_string()], b"");
        let read_well = read(&script).ok();
        assert_eq!(read_well.err, "", "{shell} has something to say");
        // A check that finds nothing in anything proves nothing.
        std::fs::write(&script, "if true; then ((\n").expect("written");
        assert_ne!(read(&script).status, 0, "{shell} -n accepts anything");
    }
}

#[test]
fn the_service_manager_reads_the_units() {
    let host = Host::new();
    if !there(&host, "systemd-analyze") {
        return;
    }
    let program = steadfast_bin().display().to_string();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    // The user's daemon has the same name as the system's, in another folder.
    for (folder, is_user) in [("system", false), ("user", true)] {
        std::fs::create_dir(host.at(folder)).expect("a folder");
        let mut units = Vec::new();
        for entry in std::fs::read_dir(&packaging).expect("a folder").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            let is_unit = name.ends_with(".service") || name.ends_with(".timer");
            let left_out = if is_user { "steadfast.service" } else { "steadfast-user.service" };
            if !is_unit || name == left_out {
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).expect("a unit");
            assert!(!text.contains("ExecStart=") || text.contains("/usr/bin/steadfast "), "{name}: {text}");
            let name = name.replace("steadfast-user", "steadfast");
            let unit = host.at(folder).join(name.replace("@.", "@tank."));
            // systemd-analyze reads a template by its own name, and checks the instance.
            std::fs::write(host.at(folder).join(&name), text.replace("/usr/bin/steadfast", &program))
                .expect("written");
            units.push(unit.display().to_string());
        }
        assert_eq!(units.len(), 7, "{units:?}");
        let verify = format!(
            "XDG_RUNTIME_DIR=$PWD SYSTEMD_UNIT_PATH={}: systemd-analyze {} --man=no verify {}",
            host.at(folder).display(),
            if is_user { "--user" } else { "" },
            units.join(" ")
        );
        let verified = host.shell(&verify).ok();
        assert_eq!(format!("{}{}", verified.out, verified.err), "", "nothing to say of them");
        let broken = host.at(folder).join("steadfast.service");
        std::fs::write(&broken, "[Service]\nExecStart=nowhere\n").expect("written");
        assert_ne!(host.shell(&verify).status, 0, "it accepts anything");
    }
}

/// The package as a machine gets it, unpacked in a folder.
#[test]
fn the_packages_have_what_their_links_and_pages_name() {
    let host = Host::new();
    let xtask = steadfast_bin().with_file_name("xtask");
    if !xtask.exists() || !there(&host, "dpkg-deb") || !there(&host, "strip") {
        return skip("the packages", "xtask is not built here, or dpkg-deb or strip is not installed");
    }
    let made = format!(
        "{} deb --fast --program {} --out {}",
        xtask.display(),
        steadfast_bin().display(),
        host.at("out").display()
    );
    host.shell(&made).ok().says("steadfast-zfs_");
    host.shell("for deb in out/*.deb; do dpkg-deb -x $deb root; dpkg-deb -e $deb control-$(dpkg-deb -f $deb Package); done").ok();
    let root = host.at("root");
    for link in [
        "sbin/zpool",
        "sbin/zfs",
        "sbin/mount.steadfast",
        "sbin/mount.fuse.steadfast",
        "sbin/mount.zfs",
        "bin/vdbench",
    ] {
        let reached = std::fs::canonicalize(root.join("usr").join(link)).expect(link);
        assert!(reached.ends_with("usr/bin/steadfast"), "{link}");
    }
    // Each command answers by its own name, stripped.
    host.shell("root/usr/sbin/zpool version && root/usr/sbin/zfs version").ok().says("steadfast");
    host.shell("nm root/usr/bin/steadfast 2>&1").says("no symbols");
    for (folder, files) in [
        ("bash-completion/completions", ["steadfast", "zpool", "zfs"]),
        ("zsh/vendor-completions", ["_steadfast", "_zpool", "_zfs"]),
        ("fish/vendor_completions.d", ["steadfast.fish", "zpool.fish", "zfs.fish"]),
    ] {
        for file in files {
            let path = root.join("usr/share").join(folder).join(file);
            assert!(std::fs::read_to_string(&path).is_ok_and(|text| text.contains("zpool")), "{file}");
        }
    }
    // Every page that only names another one names one that is there.
    let broken = host.shell(
        "cd root/usr/share/man; for page in man8/*.gz; do \
         to=$(zcat $page | sed -n 's/^\\.so //p'); test -z \"$to\" -o -e \"$to.gz\" || echo $page; done; \
         test -e man8/zpool-create.8.gz -a -e man8/zfs-send.8.gz -a -e man8/zpool.8.gz",
    );
    assert_eq!(broken.ok().out, "");
    host.shell("for script in control-steadfast/p*; do sh -n $script; test -x $script; done").ok();
    host.shell("cat control-steadfast/conffiles").ok().says("/etc/steadfast/events.conf");
    host.shell("grep -x 'Conflicts: zfsutils, zfsutils-linux, zfs-fuse' control-steadfast-zfs/control").ok();
    host.shell("grep -E 'Depends: libc6 \\(>= 2\\.[0-9]+\\)' control-steadfast/control").ok();
    host.shell("test -x root/usr/share/steadfast/events.d/all-mail -a -d root/etc/steadfast/events.d").ok();
    host.shell("test -e root/usr/lib/systemd/user/steadfast.service").ok();
}

#[test]
fn only_a_static_program_goes_into_the_archive_for_any_linux() {
    let host = Host::new();
    let target =
        steadfast_bin().parent().and_then(Path::parent).expect("target/PROFILE/steadfast").to_owned();
    let xtask = steadfast_bin().with_file_name("xtask");
    if !xtask.exists() || !there(&host, "strip") || !there(&host, "tar") {
        return skip("the archive", "xtask is not built here, or strip or tar is not installed");
    }
    let pack = |program: &Path| {
        let (xtask, out) = (xtask.display(), host.at("out").display().to_string());
        host.shell(&format!("{xtask} tarball --program {} --out {out}", program.display()))
    };
    pack(&steadfast_bin()).fails(1).says("is not static: it is loaded by /lib");
    assert!(!host.at("out").exists(), "nothing is made");
    let arch = std::env::consts::ARCH;
    let built =
        ["release", "debug"].map(|kind| target.join(format!("{arch}-unknown-linux-musl/{kind}/steadfast")));
    let Some(program) = built.iter().find(|program| program.exists()) else {
        return skip("the archive of a static program", "none is built here");
    };
    pack(program).ok().says("-static.tar.gz");
    host.shell("mkdir root && tar -xzf out/*.tar.gz -C root --strip-components=1").ok();
    host.shell(
        "(ldd root/usr/bin/steadfast 2>&1 || true) | grep -E 'not a dynamic executable|statically linked'",
    )
    .ok();
    host.shell("root/usr/sbin/zpool version && root/usr/sbin/zfs version").ok().says("steadfast");
    host.shell("test -e root/usr/share/man/man8/zfs-send.8 -a -e root/usr/share/doc/steadfast/LICENSE-MIT")
        .ok();
}

#[test]
fn man_formats_every_page_without_a_warning() {
    let host = Host::new();
    host.run("man {}/pages").ok();
    if !there(&host, "groff") {
        return;
    }
    let mut pages = 0;
    for entry in std::fs::read_dir(host.at("pages")).expect("a folder") {
        let page = entry.expect("a page").path().display().to_string();
        // One that only names another is that other's to answer for.
        if std::fs::read_to_string(&page).expect("a page").starts_with(".so ") {
            continue;
        }
        let formatted = host.exec("groff", &["-man", "-Tutf8", "-ww", "-z", &page], b"").ok();
        assert_eq!(formatted.err, "", "{page}");
        pages += 1;
    }
    assert!(pages > 40, "{pages} pages");
}

//! Programs of PyPI.

use super::install::ready;

#[test]
fn bzfs() {
    let Some(ready) = ready("bzfs") else { return };
    let shell = |line: &str| ready.host.shell(line).ok();
    shell(
        "zfs create src/data && zfs create src/data/sub && seq 99999 > src/data/file && zfs snapshot -r src/data@a",
    );
    let bzfs = "bzfs src/data dst/copy --recursive --no-privilege-elevation --log-dir=$PWD/bzfs-logs";
    ready.shell("bin", bzfs).ok().says("Replicated 2 out of 2 snapshots within 2 datasets");
    shell(
        "zfs mount -R dst/copy; diff -r src/data dst/copy; zfs unmount dst/copy/sub dst/copy || zfs unmount dst/copy",
    );
    shell("seq 7 > src/data/next; rm src/data/file; zfs snapshot -r src/data@b");
    ready.shell("bin", bzfs).ok().says("Replicated 2 out of 4 snapshots within 2 datasets");
    shell("zfs mount -R dst/copy; diff -r src/data dst/copy");
}

#[test]
fn check_zpool_scrub() {
    let Some(ready) = ready("check_zpool_scrub") else { return };
    ready.host.shell("zpool scrub -w src").ok();
    ready.shell("bin", "check_zpool_scrub -p src").ok().says("ZPOOL_SCRUB OK");
}

#[test]
fn pyznap() {
    let Some(ready) = ready("pyznap") else { return };
    let shell = |line: &str| ready.host.shell(line).ok();
    shell(
        "zfs create src/data && zfs create src/data/sub && seq 99999 > src/data/file && zfs create dst/data",
    );
    let policy = "[src/data]\nhourly = 1\ndaily = 1\nsnap = yes\nclean = yes\ndest = dst/data\n";
    std::fs::write(ready.host.at("pyznap.conf"), policy).expect("written");
    shell("zfs snapshot -r src/data@pyznap_2020-01-01_00:00:00_hourly");
    ready.shell("bin", "pyznap --config $PWD/pyznap.conf snap 2>&1 | cat").says("Finished successfully");
    let names = shell("zfs list -Ho name -t snapshot src/data/sub").out;
    assert!(names.contains("_hourly\n") && names.contains("_daily\n") && !names.contains("2020"), "{names}");
    ready.shell("bin", "pyznap --config $PWD/pyznap.conf send 2>&1 | cat").says("Finished successfully");
    shell("zfs mount -a; diff -r src/data dst/data; zfs list -Ho name -t snapshot dst/data/sub")
        .says("_daily");
}

#[test]
fn zfs_autobackup() {
    let Some(ready) = ready("zfs-autobackup") else { return };
    let shell = |line: &str| ready.host.shell(line).ok();
    shell(
        "zfs create src/data && zfs create src/data/sub && zfs create src/not && seq 99999 > src/data/file",
    );
    shell("zfs set autobackup:away=true src/data; zfs create dst/backup");
    let backup = "zfs-autobackup away dst/backup --verbose --clear-mountpoint";
    ready.shell("bin", backup).ok().says("All operations completed successfully");
    shell("seq 7 > src/data/next; zpool sync; zfs snapshot src/data@between");
    // It names its snapshots by the second.
    let snapshots = "zfs list -Ho name -t snapshot src/data | grep -c @away-";
    ready.shell("bin", &format!("until [ $({snapshots}) = 2 ]; do {backup} || true; done")).ok();
    ready.shell("bin", backup).ok().says("All operations completed successfully");
    shell(
        "zfs set mountpoint=$PWD/seen dst/backup; zfs mount -R dst/backup/src/data; diff -r src/data seen/src/data",
    );
    shell("! zfs list dst/backup/src/not");
}

#[test]
fn ansible() {
    let Some(ready) = ready("Ansible") else { return };
    let shell = |line: &str| ready.host.shell(line).ok();
    let module = |name: &str, words: &str| {
        let python = ready.root.join("bin/python").display().to_string();
        ready.shell(
            "bin",
            &format!(
                "export ANSIBLE_HOME=$PWD/ansible ANSIBLE_LOCALHOST_WARNING=False\n\
                 ansible localhost -c local -i localhost, -e ansible_python_interpreter={python} \
                 -m community.general.{name} -a \"{words}\""
            ),
        )
    };
    let zfs = |words: &str, changes: bool| {
        module("zfs", words).ok().says(if changes { "\"changed\": true" } else { "\"changed\": false" });
    };
    let properties = "extra_zfs_properties={'recordsize':'16k','atime':'off'}";
    zfs(&format!("name=src/a state=present {properties}"), true);
    zfs(&format!("name=src/a state=present {properties}"), false);
    shell("test $(zfs get -Ho value recordsize src/a) = 16K");
    zfs("name=src/a@s state=present", true);
    zfs("name=src/b state=present origin=src/a@s", true);
    zfs("name=src/vol state=present extra_zfs_properties={'volsize':'10M'}", true);
    shell(
        "test $(zfs get -Ho value origin src/b) = src/a@s; test $(zfs get -Ho value volsize src/vol) = 10M",
    );
    module("zfs_facts", "dataset=src recurse=true type=filesystem").ok().says("\"name\": \"src/b\"");
    module("zpool_facts", "pool=src").ok().says("\"health\": \"ONLINE\"");
    module("zfs_delegate_admin", "name=src/a users=daemon permissions=snapshot,mount").ok();
    shell("zfs allow src/a").says("user daemon mount,snapshot");
    for name in ["src/b", "src/a", "src/vol"] {
        zfs(&format!("name={name} state=absent"), true);
    }
    assert_eq!(shell("zfs list -Ho name -r src").out, "src\n");
}

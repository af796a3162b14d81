//! The POSIX suite nobody here wrote: the crate `pjdfstest`, on a mounted dataset.
//!
//! `cargo xtask test` installs it; without it, without root or without FUSE this test says that it
//! was skipped.

use std::collections::BTreeSet;
use std::process::Command;

use steadfast_tests::{Host, is_root, no_fuse, skip};

/// Cases that may fail, each with its reason. A case that stands here and passes is an error too.
const EXPECTED_FAILURES: &[(&str, &str)] = &[];

/// Common part of the names of cases that mount read-only and back.
const REMOUNTING: &str = "erofs";

/// Fewest cases that must have passed, so that a suite that skips everything does not count.
const PASSED_MIN: usize = 390;

#[test]
fn pjdfstest_has_no_failure_without_a_reason() {
    let test = "pjdfstest";
    let found = Command::new("pjdfstest").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        return skip(test, "pjdfstest is not installed: cargo install pjdfstest --locked");
    }
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    if !is_root() {
        return skip(test, "the suite switches users, which takes root");
    }
    let host = Host::new();
    host.image("pjd.img", 512 << 20);
    host.run("pool create -m {}/mnt pjd {}/pjd.img").ok();
    std::fs::create_dir(host.at("mnt/work")).expect("a directory on the mount");
    let (config, work) = (host.at("pjdfstest.toml"), host.at("mnt/work"));
    let command = |remount: bool, cases: &str| {
        let features = "posix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n";
        let users = "[[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]";
        let text = format!(
            "[features]\n{features}[settings]\nnaptime = 0.01\nallow_remount = {remount}\n\
             [dummy_auth]\nentries = {users}\n"
        );
        std::fs::write(&config, text).expect("a configuration file");
        format!("pjdfstest -c '{}' -p '{}' {cases}", config.display(), work.display())
    };
    let mut ran = host.shell(&command(false, ""));
    // By themselves, because others of the suite leave a file open for writing; with mount(8)'s
    // helper in its place.
    let remounted = host.shell_with_mount_helper(&command(true, REMOUNTING));
    let without = ran.out.lines().filter(|line| !line.contains(REMOUNTING));
    ran.out = without.chain(remounted.out.lines()).fold(String::new(), |text, line| text + line + "\n");
    ran.err += &remounted.err;

    let mut failed = BTreeSet::new();
    let (mut passed, mut skipped) = (0, 0);
    for line in ran.out.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        match line.split_whitespace().last() {
            Some("ok") => passed += 1,
            Some("FAILED") => _ = failed.insert(name.to_owned()),
            Some("skipped") => skipped += 1,
            _ => {}
        }
    }
    eprintln!("pjdfstest: {passed} passed, {} failed, {skipped} skipped", failed.len());
    let expected: BTreeSet<String> = EXPECTED_FAILURES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(failed, expected, "{}\n{}", ran.out, ran.err);
    assert!(passed >= PASSED_MIN, "only {passed} cases passed:\n{}", ran.out);
    host.run("pool export pjd").ok();
}

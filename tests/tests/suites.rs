//! The short forms of `steadfast lab conformance` and `steadfast lab stress`, on a real mount. The
//! long ones, and those whose programs few machines have, are run by hand:
//! `cargo xtask conformance`, `cargo xtask stress`.

use steadfast_hostile::{Kind, Store};
use steadfast_tests::{Host, no_fuse, skip, steadfast_bin};

use crate::bucket::with_keys;

/// Runs one suite; every case that is not in the list of known failures must pass.
#[track_caller]
fn suite(kind: &str, name: &str) {
    let test = format!("{kind} {name}");
    if let Some(why) = no_fuse() {
        return skip(&test, &why);
    }
    suite_with(&Host::new(), kind, name, "");
}

/// The same in a corner, with more options.
#[track_caller]
fn suite_with(host: &Host, kind: &str, name: &str, options: &str) {
    let test = format!("{kind} {name}");
    let ran = host.run(&format!("lab {kind} --only {name} --dir {{}} --out {{}}/logs {options}"));
    for line in ran.out.lines().filter(|line| line.trim_start().starts_with("SKIP")) {
        skip(&test, line.trim());
    }
    let log = std::fs::read(host.at(&format!("logs/{name}.log"))).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    assert_eq!(ran.status, 0, "{}\n{}\n{log}", ran.out, ran.err);
    let left: Vec<_> = std::fs::read_dir(host.path())
        .expect("the host's directory")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|entry| entry.to_string_lossy().starts_with("steadfast-lab"))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn one_file_under_random_operations() {
    suite("conformance", "fsx");
}

#[test]
fn a_git_history_and_its_clones() {
    suite("conformance", "git");
}

#[test]
fn tar_there_and_back() {
    suite("conformance", "tar");
}

/// The pool lies on a store, and nothing of it is left there.
#[test]
fn tar_there_and_back_on_a_bucket() {
    if let Some(why) = no_fuse() {
        return skip("a suite on a bucket", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "suites");
    suite_with(&host, "conformance", "tar", &format!("--pool {address}"));
    assert_eq!(store.objects(), Vec::<String>::new());
    assert!(store.seen().iter().any(|seen| seen.kind == Kind::Put && seen.object.contains("suite-tar-")));
}

#[test]
fn access_lists_by_their_words() {
    suite("conformance", "acl");
}

/// The client is another kernel, which mounts the pool over NFS.
#[track_caller]
fn suite_in_a_guest(name: &str) {
    if let Some(why) = no_fuse() {
        return skip(&format!("{name} in a guest"), &why);
    }
    suite_with(&Host::new(), "conformance", name, "--guest");
}

#[test]
fn pjdfstest_in_a_guest_over_nfs() {
    suite_in_a_guest("pjdfstest");
}

#[test]
fn access_lists_in_a_guest_over_nfs() {
    suite_in_a_guest("acl");
}

#[test]
fn a_project_in_c() {
    suite("conformance", "build");
}

#[test]
fn random_operations_of_many_processes() {
    suite("stress", "fsstress");
}

#[test]
fn a_daemon_killed_under_load() {
    suite("stress", "kill");
}

#[test]
fn a_suite_that_finds_something_ends_with_status_1() {
    let host = Host::new();
    // A file system that loses bytes: the checker of words must find it, or the suites above prove
    // nothing.
    let tree = host.at("tree");
    std::fs::create_dir(&tree).expect("a directory");
    let worker = |words: &str| host.exec(steadfast_bin(), &words.split(' ').collect::<Vec<_>>(), b"");
    let at = tree.display();
    worker(&format!("lab stress-worker {at} 3 400 1")).ok();
    worker(&format!("lab stress-worker {at} verify")).ok().says("words are what they should be");
    std::fs::write(tree.join("torn"), [1; 24]).expect("a file");
    worker(&format!("lab stress-worker {at} verify")).fails(1).says("nobody wrote there");
    host.run("lab stress --only dance").fails(2).says("invalid value 'dance' for '--only");
}

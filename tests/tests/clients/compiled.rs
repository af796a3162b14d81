//! Programs that are compiled: crates, and modules of Go.

use super::install::ready;

#[test]
fn go_zfs() {
    let Some(ready) = ready("go-zfs") else { return };
    // Its pool is called `test`, and is mounted at /test.
    if std::path::Path::new("/test").exists() {
        return steadfast_tests::skip("go-zfs", "there is a folder /test");
    }
    let at = ready.root.display().to_string();
    let ran = ready.shell(".", &format!("cd {at} && go test -count=1 -v github.com/mistifyio/go-zfs/v3"));
    let _ = std::fs::remove_dir("/test");
    let told = ran.ok().out;
    assert_eq!(told.matches("\n--- FAIL").count(), 0, "{told}");
    assert!(told.matches("\n--- PASS").count() >= 14, "{told}");
}

#[test]
fn httm() {
    let Some(ready) = ready("httm") else { return };
    ready.host.shell("echo one > src/file; zfs snapshot src@one; echo two > src/file").ok();
    let told = ready.shell("bin", "httm src/file").fails(1);
    assert!(told.err.contains("could not identify any proximate dataset"), "{}", told.err);
    assert!(super::of("httm").result.starts_with("does not work"));
}

#[test]
fn zfs_exporter() {
    let Some(ready) = ready("zfs_exporter") else { return };
    ready.host.shell("zfs create src/data; zfs create -V 10M src/vol; zfs snapshot src/data@a").ok();
    let told = ready.shell(
        "bin",
        "exec 3< <(zfs_exporter --web.listen-address=127.0.0.1:0 --collector.dataset-snapshot 2>&1)\n\
         pid=$!; trap 'kill $pid' EXIT\n\
         while read -u 3 -r line; do case $line in *'Listening on'*) break;; esac; done\n\
         curl -sS http://${line##*address=}/metrics",
    );
    let told = told.ok().out;
    for figure in [
        "zfs_pool_health{pool=\"src\"} 0",
        "zfs_dataset_used_bytes{name=\"src/data\",pool=\"src\",type=\"filesystem\"}",
        "zfs_dataset_volume_size_bytes{name=\"src/vol\",pool=\"src\",type=\"volume\"} 1.048576e+07",
        "zfs_dataset_used_bytes{name=\"src/data@a\",pool=\"src\",type=\"snapshot\"}",
        "zfs_scrape_collector_success{collector=\"pool\"} 1",
    ] {
        assert!(told.contains(figure), "{figure}: {told}");
    }
}

#[test]
fn zrepl() {
    let Some(ready) = ready("zrepl") else { return };
    let pool = "zreplplatformtest";
    let ran = ready.shell(
        "bin",
        &format!("harness -poolname {pool} -imagepath $PWD/{pool}.img -mountpoint $PWD/{pool}.mnt 2>&1"),
    );
    let failed: Vec<&str> = ran
        .out
        .split("BEGIN TEST CASE ")
        .filter(|case| case.contains("TEST FAILED"))
        .map(|case| case.lines().next().unwrap_or_default().rsplit('.').next().unwrap_or_default())
        .collect();
    let passed = ran.out.matches("TEST PASSED").count();
    assert_eq!((passed, failed), (52, ZREPL_FAILS.to_vec()), "{}", ran.out);
}

/// Cases that ask for the encoding of ZFS's tokens, and for how much a broken receive keeps.
const ZREPL_FAILS: [&str; 2] = [
    "ReplicationIncrementalDestroysStepHoldsIffIncrementalStepHoldsAreDisabledButStepHoldsExist",
    "ResumeTokenParsing",
];

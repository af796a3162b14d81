//! A failed device tells somebody: hooks, the log on disk, the shipped examples.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use steadfast_tests::{Host, until};

/// A corner whose folder of hooks has some of those that we ship, and `recorder`.
fn with_hooks(test: &str, shipped: &[&str]) -> Option<Host> {
    let host = Host::with_images(test, 3, 64 << 20)?;
    fs::create_dir_all(host.at("run/events.d")).expect("a folder");
    for folder in ["run", "run/events.d"] {
        fs::set_permissions(host.at(folder), Permissions::from_mode(0o700)).expect("its mode");
    }
    for name in shipped {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/events.d").join(name);
        hook(&host, &format!("run/events.d/{name}"), &fs::read_to_string(source).expect("a hook"));
    }
    Some(host)
}

fn hook(host: &Host, name: &str, text: &str) {
    fs::write(host.at(name), text).expect("written");
    fs::set_permissions(host.at(name), Permissions::from_mode(0o755)).expect("its mode");
}

/// Content of a file once it holds a word.
#[track_caller]
fn told(host: &Host, name: &str, word: &str) -> String {
    until(|| {
        let told = fs::read_to_string(host.at(name)).unwrap_or_default();
        if told.contains(word) { Ok(told) } else { Err(told) }
    })
}

#[test]
fn a_failed_device_runs_hooks_and_is_remembered_after_a_kill() {
    let Some(host) = with_hooks("a failed device", &["all-mail", "all-webhook"]) else { return };
    // In the place of mail(1) and curl(1): the programs that the examples call.
    hook(&host, "mailer", "#!/bin/sh\n{ echo \"$@\"; cat; } >> \"${0%/*}/mails\"\n");
    hook(&host, "poster", "#!/bin/sh\n{ echo \"$@\"; cat; echo; } >> \"${0%/*}/posts\"\n");
    let at = |name: &str| host.at(name).display().to_string();
    fs::write(
        host.at("run/events.conf"),
        format!("MAIL={}\nMAIL_TO=ann@example.org\nCURL={}\n", at("mailer"), at("poster")),
    )
    .expect("written");
    fs::write(host.at("run/webhook.curl"), "url = \"https://example.org/secret\"\n").expect("written");
    // A hook that others can write to is not run.
    hook(&host, "run/events.d/all-open", "#!/bin/sh\ntouch \"${0%/*}/../ran\"\n");
    fs::set_permissions(host.at("run/events.d/all-open"), Permissions::from_mode(0o777)).expect("its mode");
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img; rm d2.img").ok();
    let mails = told(&host, "mails", "d2.img is REMOVED: was removed while in use");
    assert!(mails.contains("pool tank: statechange REMOVED ann@example.org"), "{mails}");
    told(&host, "mails", "state: DEGRADED");
    let posts = told(&host, "posts", "\"vdev_state\":\"REMOVED\"");
    assert!(posts.contains("--data-binary @-") && !posts.contains("secret"), "{posts}");
    assert!(!mails.contains("pool_create"), "a command is no reason for a mail: {mails}");
    let log = told(&host, "run/daemon.log", "can be written by others");
    assert!(log.contains("d2.img is REMOVED"), "{log}");
    assert!(!host.at("run/ran").exists());
    let before = host.shell("zpool events -v tank").ok().says("vdev_state = \"REMOVED\"").out;
    host.kill_daemon();
    let after = host.shell("zpool events -v tank").ok().out;
    assert!(after.starts_with(&before), "{before}\n{after}");
    host.shell("zpool events -c; test -z \"$(zpool events -H)\"; zpool export tank").ok();
}

#[test]
fn a_spare_of_the_machine_steps_in_for_a_failed_device() {
    let Some(host) = with_hooks("a spare of the machine", &["statechange-spare"]) else { return };
    let at = |name: &str| host.at(name).display().to_string();
    fs::write(host.at("run/events.conf"), format!("SPARES=\"{} {}\"\n", at("absent"), at("d3.img")))
        .expect("written");
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img; echo kept > t/file").ok();
    host.shell("rm d2.img").ok();
    let status = host.until("zpool status tank", |status| {
        status.contains("d3.img") && !status.contains("d2.img") && status.contains("state: ONLINE")
    });
    assert!(status.contains("resilvered"), "{status}");
    host.shell("cat t/file").ok().says("kept");
    host.shell("zpool export tank").ok();
}

//! The stories of docs/operations, typed as they stand there: each command, and that it says what
//! the story says it does. Numbers, sizes and dates may differ, and the directory.

use std::fmt::Write as _;

use steadfast_tests::{Host, find, no_fuse, skip};

/// The pages that tell a story.
const PAGES: [&str; 4] = [
    include_str!("../../docs/operations/inject.md"),
    include_str!("../../docs/operations/log.md"),
    include_str!("../../docs/operations/send.md"),
    include_str!("../../docs/operations/raw.md"),
];

/// Commands under a heading, each with the lines that follow it.
fn commands(heading: &str) -> Vec<(String, String)> {
    let heading = format!("\n## {heading}\n");
    let (_, rest) = PAGES.iter().find_map(|page| page.split_once(&heading)).expect("the story is told");
    let end = rest.find("\n## ").into_iter().chain(rest.find("\n### ")).min().unwrap_or(rest.len());
    let mut told: Vec<(String, String)> = Vec::new();
    for line in rest[..end].lines().filter(|line| line.starts_with("    ") || line.is_empty()) {
        let line = line.strip_prefix("    ").unwrap_or(line);
        if let Some(command) = line.strip_prefix("$ ") {
            told.push((command.to_owned(), String::new()));
        } else if let Some((_, output)) = told.last_mut() {
            let _ = writeln!(output, "{line}");
        }
    }
    told
}

/// Without what may differ: numbers with their units, names of days and months, the width of
/// columns, blank lines.
fn shape(text: &str) -> Vec<String> {
    const DATES: [&str; 19] = [
        "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul",
        "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let word = |word: &str| {
        let rate = word.strip_prefix('(').and_then(|word| word.strip_suffix("/sec)"));
        let number = rate.unwrap_or(word).trim_end_matches(['B', 'K', 'M', 'G', 'T', '%']);
        if !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || ".:".contains(c)) {
            "N".to_owned()
        } else if DATES.contains(&word) {
            "DATE".to_owned()
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// Types a story with a tree in the directory `source`; what each command said.
fn type_it(host: &Host, heading: &str) -> Vec<(String, String)> {
    let here = host.path().display().to_string();
    let said = commands(heading).into_iter().map(|(command, expected)| {
        let ran = host.shell(&format!("SOURCE=source\n{command}")).ok();
        let out = ran.out.replace(&here, "/srv");
        assert_eq!(
            shape(&out),
            shape(&expected),
            "{command}\nsaid\n{out}{}\ninstead of\n{expected}",
            ran.err
        );
        (command, out)
    });
    said.collect()
}

/// The number of wrong blocks in the line of a status that names a device.
fn errors_of(status: &str, device: &str) -> u64 {
    let line = status.lines().find(|line| line.trim_start().starts_with(device));
    let count =
        line.and_then(|line| line.split_whitespace().nth(4)).unwrap_or_else(|| panic!("{device}: {status}"));
    count.parse().unwrap_or_else(|_| panic!("{device}: {status}"))
}

#[test]
fn one_of_six_devices_zeroed_another_spoilt() {
    if let Some(why) = no_fuse() {
        return skip("one_of_six_devices_zeroed_another_spoilt", &why);
    }
    let host = Host::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");
    std::fs::create_dir(host.at("source")).expect("a directory");
    host.shell(&format!("cp -r {source}/pool {source}/segment source")).ok();
    let heading = "A story: one of six devices zeroed, another spoilt";
    let typed = type_it(&host, heading);
    let status =
        &typed.iter().find(|(command, _)| command == "zpool status tank").expect("it is looked at").1;
    for (device, is_spoilt) in [("/srv/d2.img", true), ("/srv/d5.img", true), ("/srv/d1.img", false)] {
        assert_eq!(errors_of(status, device) > 0, is_spoilt, "{status}");
    }
    assert!(status.contains("with 0 errors"), "{status}");
}

/// True if a file holds these bytes.
fn holds(path: &std::path::Path, bytes: &[u8]) -> bool {
    find(&std::fs::read(path).expect("an image"), bytes).is_some()
}

#[test]
fn the_story_of_a_laptop_and_a_store_that_has_no_key_can_be_typed() {
    let name = "the_story_of_a_laptop_and_a_store_that_has_no_key_can_be_typed";
    if let Some(why) = no_fuse() {
        return skip(name, &why);
    }
    let host = Host::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates");
    std::fs::create_dir(host.at("source")).expect("a directory");
    host.shell(&format!("cp -r {source}/pool/src {source}/segment/src source")).ok();
    assert!(type_it(&host, "A story of a laptop and a store that has no key").len() > 20);
    host.shell("zpool export store").ok();
    let hex = std::fs::read_to_string(host.at("key")).expect("the key");
    let key: Vec<u8> = (0..32)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal digits"))
        .collect();
    for image in ["s1.img", "s2.img"] {
        let image = host.at(image);
        // The search does find strings that are there: the store's own name, and its half of a
        // mirror.
        assert!(holds(&image, b"s1.img"));
        for secret in [&key[..], hex.as_bytes(), b"nobody else", b"receive.rs", b"//! # ", b"//! Receiving"] {
            assert!(!holds(&image, secret), "{}", String::from_utf8_lossy(secret));
        }
    }
    assert!(holds(&host.at("new/back/note"), b"nobody else"));
}

#[test]
fn the_story_of_two_pools_can_be_typed() {
    let Some(host) = Host::with_tank("two_pools") else { return };
    let at = host.at("s").display().to_string();
    host.shell(&format!("truncate -s 128M safe.img && zpool create -m {at} safe $PWD/safe.img")).ok();
    assert!(type_it(&host, "A story of two pools").len() > 10);
}

#[test]
fn the_story_of_a_log_mirror_can_be_typed() {
    if let Some(why) = no_fuse() {
        return skip("the_story_of_a_log_mirror_can_be_typed", &why);
    }
    let host = Host::new();
    assert!(type_it(&host, "A story of a log mirror").len() > 10);
}

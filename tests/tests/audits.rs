//! The page "Audits", typed as it stands there: a store loses objects, and they come back.

use steadfast_tests::{Host, no_fuse, skip, steadfast_bin};

/// Lines of the commands at the head of the page.
fn commands() -> Vec<&'static str> {
    let page = include_str!("../../docs/operations/audit.md");
    let (_, rest) = page.split_once("```\n").expect("commands");
    rest.split_once("\n```").expect("they end").0.lines().collect()
}

#[test]
fn the_commands_of_the_page_can_be_typed() {
    if let Some(why) = no_fuse() {
        return skip("the page Audits", &why);
    }
    let host = Host::new();
    host.shell(&format!("mkdir bin; ln -s {} bin/steadfast", steadfast_bin().display())).ok();
    let before = "export HOME=$PWD PATH=$PWD/bin:$PATH\n";
    let mut said = Vec::new();
    for command in commands() {
        let ran = host.shell(&format!("{before}{command}")).ok();
        if command.starts_with("zpool add") {
            // Content that was there before comes in by and by.
            host.until("zpool status tank", |told| told.contains("all covered"));
        }
        said.push((command, format!("{}{}", ran.out, ran.err)));
    }
    let of = |word: &str| -> Vec<&String> {
        said.iter().filter(|(command, _)| command.contains(word)).map(|(_, said)| said).collect()
    };
    let audits = of("audit tank");
    assert_eq!(audits.len(), 3, "{said:?}");
    for held in [audits[0], audits[2]] {
        assert!(held.contains("challenges") && held.contains(": held") && held.contains("2^40"), "{held}");
    }
    assert!(audits[1].contains("not held") && audits[1].contains("AUDIT-FAILED"), "{}", audits[1]);
    let recovered = of("audit recover")[0];
    assert!(recovered.contains("objects put back: 2"), "{recovered}");
}

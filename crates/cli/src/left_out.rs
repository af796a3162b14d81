//! Commands, options and properties of ZFS that are left out, as docs/operations/left-out.md lists
//! them. The lists of ZFS's options are facts of its manual pages, version 2.3.

use crate::catalog::CATALOG;
use crate::command::{Command, Family};
use crate::{zfs, zpool};
use std::fmt::Write as _;

/// Commands of ZFS, each with its options: letters, then long names.
const ZPOOL: &[(&str, &str)] = &[
    ("add", "fgLnoP allow-in-use allow-replication-mismatch allow-ashift-mismatch"),
    ("attach", "fosw"),
    ("checkpoint", "dw"),
    ("clear", "FnX power"),
    ("create", "dfnmoORt"),
    ("ddtprune", "dp"),
    ("destroy", "f"),
    ("detach", ""),
    ("events", "cfHv"),
    ("export", "af"),
    ("get", "Hjop json-int json-pool-key-guid"),
    ("history", "il"),
    ("import", "acdDfFlmnNoRstTX rewind-to-checkpoint"),
    ("initialize", "csuw"),
    ("iostat", "cgHlLnpPqrTvwy"),
    ("labelclear", "f"),
    ("list", "gHjLopPTv json-int json-pool-key-guid"),
    ("offline", "ft power"),
    ("online", "e power"),
    ("prefetch", "t"),
    ("reguid", "g"),
    ("remove", "npsw"),
    ("reopen", "n"),
    ("replace", "fosw"),
    ("resilver", ""),
    ("scrub", "aCespw"),
    ("set", ""),
    ("split", "gLlnoPR"),
    ("status", "cdDegijLpPstTvx power json-int json-flat-vdevs json-pool-key-guid"),
    ("sync", ""),
    ("trim", "cdrsw"),
    ("upgrade", "avV"),
    ("wait", "HptT"),
];

const ZFS: &[(&str, &str)] = &[
    ("allow", "cdeglsu"),
    ("bookmark", ""),
    ("change-key", "ilo"),
    ("clone", "opu"),
    ("create", "bnopPsuvV"),
    ("destroy", "dfnprRv"),
    ("diff", "FhHt"),
    ("get", "dHjoprst json-int"),
    ("groupspace", "HinopsSt"),
    ("hold", "r"),
    ("holds", "Hpr"),
    ("inherit", "rS"),
    ("jail", ""),
    ("list", "dHjoprsSt json-int"),
    ("load-key", "aLnr"),
    ("mount", "afjlOoRv"),
    ("program", ""),
    ("project", ""),
    ("projectspace", ""),
    ("promote", ""),
    ("receive", "AcdeFhMnosuvx"),
    ("redact", ""),
    ("release", "r"),
    ("rename", "fpru"),
    ("rewrite", ""),
    ("rollback", "frR"),
    ("send", "bcdDehiILnpPRsStvVwX"),
    ("set", "u"),
    ("share", "al"),
    ("snapshot", "or"),
    ("unallow", "cdeglrsu"),
    ("unjail", ""),
    ("unload-key", "ar"),
    ("unmount", "afu"),
    ("unshare", "a"),
    ("unzone", ""),
    ("upgrade", "arvV"),
    ("userspace", "HinopsSt"),
    ("wait", "t"),
    ("zone", ""),
];

/// Words of device lists that are refused.
const DEVICES: &[(&str, &str)] = &[
    ("dedup", "a special device holds the dedup table, as all metadata"),
    ("draid", "use raidz1, raidz2 or raidz3 with spares"),
    ("mirror A B C D E", "a segment has four copies at most; use mirrors of up to four devices, with spares"),
];

/// Methods of ZFS that no option names.
const METHODS: &[(&str, &str)] = &[
    (
        "chattr",
        "inodes have no place for flags such as +i, +a and +d; `readonly=on` keeps a file system as it is, and a snapshot with a hold cannot be destroyed",
    ),
    ("nopwrite", "content that is written again takes new space; `dedup=on` shares it with what is there"),
];

/// Options of ZFS that a command does not have.
fn absent(command: &Command, options: &str) -> Vec<String> {
    let (letters, longs) = options.split_once(' ').unwrap_or((options, ""));
    let flags = command.syntax.flags;
    let letters = letters.chars().filter(|letter| !flags.iter().any(|flag| flag.letter == *letter));
    let longs = longs.split_whitespace().filter(|long| !flags.iter().any(|flag| flag.long == *long));
    letters.map(String::from).chain(longs.map(str::to_owned)).collect()
}

/// The reason as a sentence that fits into a cell.
fn cell(text: &str) -> String {
    crate::message::sentence(text.trim()).replace('|', "\\|")
}

fn document() -> String {
    let mut page = String::from(
        "# Features of ZFS that are left out\n\n\
         Options of OpenZFS 2.3 that are not listed here are accepted. Properties that are accepted without effect\n\
         are marked in [PROPERTIES.md](../PROPERTIES.md). Why something is refused and not ignored: decision\n\
         [0141](../decisions/0141-programs-written-for-zfs.md). This page is written by\n\
         `UPDATE=1 cargo test -p steadfast`; the same test compares it with the program.\n\n\
         ## Commands\n\n| Command | Reason | Instead |\n|---|---|---|\n",
    );
    let zfs_words = |(family, _): &(&'static Family, &str)| ["zpool", "zfs"].contains(&family.name);
    let families = || CATALOG.families.iter().filter(|family| zfs_words(family)).map(|(family, _)| *family);
    for family in families() {
        for command in family.not_built {
            let (reason, instead) = (cell(command.reason), cell(command.instead));
            let _ = writeln!(page, "| `{} {}` | {reason} | {instead} |", family.name, command.name);
        }
    }
    page.push_str("\n## Options\n\n| Option | Reason and alternative |\n|---|---|\n");
    for family in families() {
        for command in family.commands {
            for flag in command.syntax.flags {
                if let Some(why) = flag.refusal() {
                    let (verb, name) = (command.names[0], flag.name());
                    let _ = writeln!(page, "| `{} {verb} {name}` | {} |", family.name, cell(why));
                }
            }
        }
    }
    page.push_str("\n## Devices\n\n| Word | Reason and alternative |\n|---|---|\n");
    for (word, why) in DEVICES {
        let _ = writeln!(page, "| `{word}` | {} |", cell(why));
    }
    page.push_str("\n## Methods\n\n| Method | Reason and alternative |\n|---|---|\n");
    for (word, why) in METHODS {
        let _ = writeln!(page, "| `{word}` | {} |", cell(why));
    }
    page.push_str(
        "\n## Properties, values and features\n\n| Property | Reason and alternative |\n|---|---|\n",
    );
    for (name, why) in steadfast_property::left_out() {
        let _ = writeln!(page, "| `{name}` | {} |", cell(why));
    }
    page
}

#[test]
fn every_command_and_option_of_zfs_is_there_or_refused_with_the_reason() {
    for (family, known) in [(&zpool::FAMILY, ZPOOL), (&zfs::FAMILY, ZFS)] {
        assert!(known.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
        for (name, options) in known {
            let command = family.commands.iter().find(|command| command.names.contains(name));
            let is_refused = family.not_built.iter().any(|command| command.name == *name);
            match command {
                Some(command) => {
                    assert_eq!(absent(command, options), Vec::<String>::new(), "{} {name}", family.name);
                }
                None => assert!(is_refused, "{} {name}", family.name),
            }
        }
    }
}

#[test]
fn the_page_of_what_is_left_out_is_the_catalogue() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/left-out.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, document()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let is_same = written == document();
    assert!(is_same, "docs/operations/left-out.md is old: run `UPDATE=1 cargo test -p steadfast`");
}

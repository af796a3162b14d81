//! The table of all commands, and the two commands that read it: `steadfast completions` and
//! `steadfast man`.

use crate::command::{Catalog, Command, Family};
use crate::completions::{Shell, script};
use crate::options::{Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::steadfast::{audit, bench, compat, daemon, inspect, lab, mount, store};
use crate::table::tame;
use crate::{manual, zfs, zpool};
use std::io;
use std::path::Path;
use steadfast_control::{Code, Refusal};

/// All commands.
pub const CATALOG: Catalog = Catalog {
    families: &[(&FAMILY, ""), (&zpool::FAMILY, "pool"), (&zfs::FAMILY, "fs")],
    mount: &mount::COMMAND,
    mount_names: mount::NAMES,
};

/// The commands of `steadfast` itself.
pub const FAMILY: Family = Family {
    name: "steadfast",
    own: "steadfast",
    doc: "A pooled, copy-on-write file system for storage you do not trust.\n\
          `steadfast pool` is zpool, `steadfast fs` is zfs. --runtime-dir DIR before them selects a daemon.",
    doors: &[bench::BENCH, lab::LAB, lab::DEMO],
    not_built: &[],
    commands: &[
        daemon::COMMAND,
        compat::COMMAND,
        inspect::COMMAND,
        store::COMMAND,
        audit::COMMAND,
        COMPLETIONS,
        MAN,
    ],
};

const COMPLETIONS: Command = Command {
    names: &["completions"],
    syntax: Syntax { flags: &[], operands: "bash|zsh|fish", least: 1, most: 1 },
    doc: "Prints the completion script of a shell.",
    run: |session: &mut Session<'_, '_>, parsed: &Parsed| {
        let name = parsed.operands[0].as_str();
        let Some(shell) = Shell::parse(name) else {
            return Err(Failure::Usage(format!(
                "no completions for '{}': the shells are bash, zsh, fish",
                tame(name)
            )));
        };
        session.out.push_str(&script(&CATALOG, shell));
        Ok(())
    },
};

const MAN: Command = Command {
    names: &["man"],
    syntax: Syntax { flags: &[], operands: "folder", least: 1, most: 1 },
    doc: "Writes the manual pages into a folder.",
    run: man,
};

fn man(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let folder = session.world.absolute(&parsed.operands[0]);
    let doing = || "cannot write the manual pages".to_owned();
    let refuse = |path: &Path, error: &io::Error| {
        Refusal::new(Code::FileIo, format!("{}: {error}", path.display())).with("file", path.display())
    };
    std::fs::create_dir_all(&folder).map_err(|error| refuse(&folder, &error)).doing(doing)?;
    for page in manual::pages(&CATALOG) {
        let path = folder.join(&page.file);
        std::fs::write(&path, page.text).map_err(|error| refuse(&path, &error)).doing(doing)?;
        session.line(path.display().to_string());
    }
    Ok(())
}

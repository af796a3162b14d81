//! `steadfast compat`: links to the program under its other names.

use super::mount;
use crate::command::Command;
use crate::options::{Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use steadfast_control::{Code, Refusal};

/// The names.
const NAMES: [&str; 6] = ["zpool", "zfs", "vdbench", mount::NAMES[0], mount::NAMES[1], mount::NAMES[2]];

pub(crate) const COMMAND: Command = Command {
    names: &["compat"],
    syntax: Syntax { flags: &[], operands: "folder", least: 1, most: 1 },
    doc: "Creates the links zpool, zfs, vdbench, mount.steadfast, mount.fuse.steadfast and mount.zfs in a folder.",
    run: compat,
};

fn compat(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let folder = session.world.absolute(&parsed.operands[0]);
    let refuse = |path: &Path, error: &io::Error| {
        Refusal::new(Code::FileIo, format!("{}: {error}", path.display())).with("file", path.display())
    };
    let doing = || "cannot create links".to_owned();
    let program =
        std::env::current_exe().map_err(|error| refuse(Path::new("/proc/self/exe"), &error)).doing(doing)?;
    std::fs::create_dir_all(&folder).map_err(|error| refuse(&folder, &error)).doing(doing)?;
    for name in NAMES {
        let link = folder.join(name);
        match std::fs::read_link(&link) {
            // Replace a link to an older installation, and nothing else.
            Ok(target) if target.file_name() == program.file_name() => {
                std::fs::remove_file(&link).map_err(|error| refuse(&link, &error)).doing(doing)?;
            }
            _ => {}
        }
        symlink(&program, &link).map_err(|error| refuse(&link, &error)).doing(doing)?;
        session.line(link.display().to_string());
    }
    Ok(())
}

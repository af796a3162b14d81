//! zfs-fuse: whether it is here, and its server. A machine has one of it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::shell::Shell;

/// Longest wait for the server's first answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why zfs-fuse cannot be run from a folder.
pub(crate) fn lacks(programs: &Path) -> Option<String> {
    let lacking = ["zfs-fuse", "zpool"].into_iter().find(|name| !programs.join(name).is_file())?;
    Some(format!(
        "{lacking} is not in {}; Debian's zfs-fuse wants fuse 2, which keeps fuse3 out, so unpack it \
         (`apt-get download zfs-fuse && dpkg -x zfs-fuse_*.deb DIR`) and say --zfs-fuse DIR/sbin",
        programs.display()
    ))
}

/// Starts the server of zfs-fuse and waits until it answers.
pub(crate) fn start(programs: &Path, shell: &mut Shell) -> Result<Child, Error> {
    let server = programs.join("zfs-fuse");
    let mut child = Command::new(&server)
        .arg("--no-daemon")
        // Ctrl-C is ours to hear: what is on its file systems goes first.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Error::io("run", &server))?;
    let list = format!("{} list", quoted(&programs.join("zpool").display().to_string()));
    let began = Instant::now();
    while let Err(error) = shell.ask(&list)
        && began.elapsed() < PATIENCE
    {
        if matches!(error, Error::Stopped) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(child)
}

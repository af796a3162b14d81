//! Loop devices: found and taken away by the file below them.

use std::path::Path;

use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::shell::Shell;

/// Loop devices that are attached to a file.
pub(crate) fn loops_of(image: &Path, shell: &mut Shell) -> Result<Vec<String>, Error> {
    let image = quoted(&image.display().to_string());
    let said = shell.ask(&format!("losetup --noheadings --output NAME --associated {image}"))?;
    Ok(names_but(&said, &[]))
}

/// Takes loop devices away by what lies below them, but for those that others had attached before:
/// a run that was stopped during an attach does not know its name.
pub(crate) fn detach(image: &Path, others: &[String], shell: &mut Shell) {
    let found = loops_of(image, shell).unwrap_or_default();
    for name in names_but(&found.join("\n"), others) {
        let _ = shell.ask(&format!("losetup --detach {name}"));
    }
}

/// Names, a line each, without these.
fn names_but(lines: &str, others: &[String]) -> Vec<String> {
    let names = lines.lines().map(str::trim).filter(|name| !name.is_empty());
    names.filter(|name| !others.iter().any(|other| other == name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_devices_that_others_attached_stay() {
        let before = names_but("/dev/loop0\n/dev/loop7\n", &[]);
        assert_eq!(before, ["/dev/loop0", "/dev/loop7"]);
        assert_eq!(names_but("/dev/loop7\n/dev/loop2 \n\n/dev/loop0\n", &before), ["/dev/loop2"]);
        assert!(names_but("", &before).is_empty());
    }
}

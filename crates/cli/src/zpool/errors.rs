//! Errors of devices by kind (`zpool status -v`), and places of damaged files.

use crate::table::{Column, render, tame};
use serde_json::Value;
use steadfast_control::api::{DataError, ErrorKinds, VdevReport};
use steadfast_property::nice_number;

/// Kinds and counts, in the order of the columns.
fn each(kinds: &ErrorKinds) -> [(&'static str, u64); 6] {
    let ErrorKinds { unreadable, hash, authentication, stale, misplaced, slow } = *kinds;
    [
        ("unreadable", unreadable),
        ("hash", hash),
        ("authentication", authentication),
        ("stale", stale),
        ("misplaced", misplaced),
        ("slow", slow),
    ]
}

/// Devices without children, in the order of status.
fn leaves<'a>(vdevs: &'a [VdevReport]) -> Vec<&'a VdevReport> {
    let below = |vdev: &'a VdevReport| {
        if vdev.children.is_empty() { vec![vdev] } else { leaves(&vdev.children) }
    };
    vdevs.iter().flat_map(below).collect()
}

/// A table of the devices with errors, indented by a tab; `None` if there are none.
pub(super) fn table(vdevs: &[VdevReport], exact: bool) -> Option<String> {
    let row = |vdev: &&VdevReport| {
        let counts = each(&vdev.kinds);
        let number = |(_, count): (&str, u64)| if exact { count.to_string() } else { nice_number(count) };
        let any = counts.iter().any(|(_, count)| *count > 0);
        any.then(|| std::iter::once(tame(&vdev.name)).chain(counts.map(number)).collect::<Vec<String>>())
    };
    let rows: Vec<Vec<String>> = leaves(vdevs).iter().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let mut columns = vec![Column { heading: "ERRORS BY KIND".to_owned(), right: false }];
    columns.extend(
        each(&ErrorKinds::default()).map(|(kind, _)| Column { heading: kind.to_uppercase(), right: true }),
    );
    let text = render(&columns, &rows, false);
    Some(text.lines().map(|line| format!("\t{line}\n")).collect())
}

/// The errors of one device as JSON.
pub(super) fn as_json(kinds: &ErrorKinds, as_number: bool) -> Value {
    each(kinds)
        .into_iter()
        .map(|(kind, count)| (kind.to_owned(), crate::json::number(count, as_number)))
        .collect()
}

/// A damaged range: `/tank/file` if mounted, `tank/fs:/file` if not, `tank/fs:<0x2a>` if the file
/// has no name; then its bytes.
pub(crate) fn place(error: &DataError) -> String {
    let bytes = match error.length {
        0 => String::new(),
        length => format!(" (bytes {} to {})", error.offset, error.offset.saturating_add(length - 1)),
    };
    tame(&path(error)) + &bytes
}

/// The same without the bytes.
pub(super) fn path(error: &DataError) -> String {
    match (&error.path, &error.mountpoint) {
        (Some(path), Some(mountpoint)) => {
            format!(
                "{}/{}",
                mountpoint.display().to_string().trim_end_matches('/'),
                path.trim_start_matches('/')
            )
        }
        (Some(path), None) => format!("{}:/{}", error.dataset, path.trim_start_matches('/')),
        (None, _) if error.inode == 0 => format!("{}:<metadata>", error.dataset),
        (None, _) => format!("{}:<{:#x}>", error.dataset, error.inode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use steadfast_control::api::{Health, VdevClass};

    fn vdev(name: &str, kinds: ErrorKinds, children: Vec<VdevReport>) -> VdevReport {
        let vdev = VdevReport::new(name.to_owned(), 1, VdevClass::Main, Health::Online);
        VdevReport { kinds, children, ..vdev }
    }

    #[test]
    fn only_devices_with_errors_are_listed() {
        let bad = ErrorKinds { stale: 2048, slow: 1, ..ErrorKinds::default() };
        let group = |kinds| {
            let children = vec![vdev("a", kinds, Vec::new()), vdev("b", ErrorKinds::default(), Vec::new())];
            vec![vdev("mirror-0", ErrorKinds::default(), children)]
        };
        assert_eq!(table(&group(ErrorKinds::default()), false), None);
        let told = table(&group(bad), true).expect("one erred");
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.contains("2048") && told.lines().all(|line| line.starts_with('\t')), "{told}");
        assert_eq!(
            as_json(&bad, true),
            json!({
                "unreadable": 0, "hash": 0, "authentication": 0, "stale": 2048, "misplaced": 0, "slow": 1,
            })
        );
    }
}

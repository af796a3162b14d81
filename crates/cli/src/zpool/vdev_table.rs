//! The table of groups and devices in `zpool status` and `zpool import`.

use crate::table::tame;
use steadfast_control::api::{Health, VdevClass, VdevReport};
use steadfast_property::nice_number;

/// A column behind the counters: its heading, its width, and its cell for a group or device.
pub(super) struct Extra<'a> {
    pub heading: String,
    pub width: usize,
    pub cell: Box<dyn Fn(&VdevReport) -> String + 'a>,
}

/// The table of `zpool status`, indented by a tab.
pub(super) fn vdev_table(
    name: &str,
    state: Health,
    vdevs: &[VdevReport],
    exact: bool,
    extra: &[Extra<'_>],
) -> String {
    let rows = rows(name, state, vdevs);
    let width = width(&rows);
    let mut text = format!("\t{:width$}  {:<8} {:>5} {:>5} {:>5}", "NAME", "STATE", "READ", "WRITE", "CKSUM");
    for Extra { heading, width, .. } in extra {
        text.push_str(&format!(" {heading:>width$}"));
    }
    text.push('\n');
    for row in rows {
        let Some(state) = row.state else {
            text.push_str(&format!("\t{}\n", row.name));
            continue;
        };
        let mut line = row.head(width, state);
        // As in ZFS, a spare has no counters.
        if row.vdev.is_none_or(|vdev| vdev.class != VdevClass::Spare) {
            for count in row.counts {
                let count = if exact { count.to_string() } else { nice_number(count) };
                line.push_str(&format!(" {count:>5}"));
            }
            for Extra { width, cell, .. } in extra {
                let cell = row.vdev.map_or_else(|| "-".to_owned(), cell);
                line.push_str(&format!(" {cell:>width$}"));
            }
        }
        row.end(&mut text, line);
    }
    text
}

/// The table of `zpool import`: as in ZFS without headings, and without counters.
pub(super) fn import_table(name: &str, state: Health, vdevs: &[VdevReport]) -> String {
    let rows = rows(name, state, vdevs);
    let width = width(&rows);
    let mut text = String::new();
    for row in rows {
        match row.state {
            None => text.push_str(&format!("\t{}\n", row.name)),
            Some(state) => row.end(&mut text, row.head(width, state)),
        }
    }
    text
}

fn width(rows: &[Row<'_>]) -> usize {
    rows.iter().map(|row| 2 * row.depth + tame(row.name).chars().count()).max().unwrap_or(0).max(10)
}

fn rows<'a>(name: &'a str, state: Health, vdevs: &'a [VdevReport]) -> Vec<Row<'a>> {
    let mut rows = vec![Row { depth: 0, name, state: Some(state), counts: [0; 3], vdev: None }];
    // The pool's line sums its devices, except cache devices, which hold only copies.
    for vdev in vdevs.iter().filter(|vdev| vdev.class != VdevClass::Cache) {
        let counts = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors];
        for (sum, count) in rows[0].counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    for vdev in vdevs.iter().filter(|vdev| vdev.class == VdevClass::Main) {
        add_rows(vdev, 1, &mut rows);
    }
    for (class, heading) in SECTIONS {
        let mut section = vdevs.iter().filter(|vdev| vdev.class == class).peekable();
        if section.peek().is_some() {
            rows.push(Row { depth: 0, name: heading, state: None, counts: [0; 3], vdev: None });
        }
        section.for_each(|vdev| add_rows(vdev, 1, &mut rows));
    }
    rows
}

/// Classes of devices that come after the normal ones, each under its heading.
const SECTIONS: [(VdevClass, &str); 6] = [
    (VdevClass::Special, "special"),
    (VdevClass::Log, "logs"),
    (VdevClass::Cache, "cache"),
    (VdevClass::Spare, "spares"),
    (VdevClass::Anchor, "anchor"),
    (VdevClass::Parity, "parity"),
];

struct Row<'a> {
    depth: usize,
    name: &'a str,
    /// `None` of a heading.
    state: Option<Health>,
    counts: [u64; 3],
    /// `None` of the pool.
    vdev: Option<&'a VdevReport>,
}

impl Row<'_> {
    /// Name and state.
    fn head(&self, width: usize, state: Health) -> String {
        let name = format!("{:indent$}{}", "", tame(self.name), indent = 2 * self.depth);
        format!("\t{name:width$}  {:<8}", state.as_str())
    }

    /// Adds the line and the note.
    fn end(&self, text: &mut String, mut line: String) {
        if let Some(note) = self.vdev.and_then(|vdev| vdev.note.as_deref()) {
            line.push_str(&format!("  {}", tame(note)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn add_rows<'a>(vdev: &'a VdevReport, depth: usize, rows: &mut Vec<Row<'a>>) {
    rows.push(Row {
        depth,
        name: &vdev.name,
        state: Some(vdev.state),
        counts: [vdev.read_errors, vdev.write_errors, vdev.checksum_errors],
        vdev: Some(vdev),
    });
    for child in &vdev.children {
        add_rows(child, depth + 1, rows);
    }
}

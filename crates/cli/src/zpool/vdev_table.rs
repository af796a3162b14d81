//! The table of groups and devices in `zpool status` and `zpool import`.

use crate::table::tame;
use steadfast_control::api::{Health, VdevClass, VdevReport};
use steadfast_property::nice_number;

/// The table, indented by a tab. `counters` adds the error counters, which an exported pool lacks.
pub(super) fn vdev_table(
    name: &str,
    state: Health,
    vdevs: &[VdevReport],
    counters: bool,
    exact: bool,
) -> String {
    let mut rows = vec![Row { depth: 0, name, state, counts: [0; 3], note: None }];
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
            rows.push(Row {
                depth: 0,
                name: heading,
                state: Health::Online,
                counts: [0; 3],
                note: Some(HEADING),
            });
        }
        section.for_each(|vdev| add_rows(vdev, 1, &mut rows));
    }
    let width =
        rows.iter().map(|row| 2 * row.depth + tame(row.name).chars().count()).max().unwrap_or(0).max(10);
    let mut text = format!("\t{:width$}  STATE    ", "NAME");
    if counters {
        text.push_str(" READ WRITE CKSUM");
    }
    text = text.trim_end().to_owned() + "\n";
    for row in rows {
        if row.note == Some(HEADING) {
            text.push_str(&format!("\t{}\n", row.name));
            continue;
        }
        let name = format!("{:indent$}{}", "", tame(row.name), indent = 2 * row.depth);
        let mut line = format!("\t{name:width$}  {:<8}", row.state.as_str());
        if counters {
            for count in row.counts {
                let count = if exact { count.to_string() } else { nice_number(count) };
                line.push_str(&format!(" {count:>5}"));
            }
        }
        if let Some(note) = row.note {
            line.push_str(&format!("  {}", tame(note)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
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

/// Marks a heading.
const HEADING: &str = "\0heading";

struct Row<'a> {
    depth: usize,
    name: &'a str,
    state: Health,
    counts: [u64; 3],
    note: Option<&'a str>,
}

fn add_rows<'a>(vdev: &'a VdevReport, depth: usize, rows: &mut Vec<Row<'a>>) {
    rows.push(Row {
        depth,
        name: &vdev.name,
        state: vdev.state,
        counts: [vdev.read_errors, vdev.write_errors, vdev.checksum_errors],
        note: vdev.note.as_deref(),
    });
    for child in &vdev.children {
        add_rows(child, depth + 1, rows);
    }
}

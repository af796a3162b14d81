//! The dedup table (DDT) in `zpool status -D`, as text and as JSON.

use crate::json;
use serde_json::{Map, Value, json};
use steadfast_control::api::{SharingClassReport, SharingReport};
use steadfast_property::{nice_bytes, nice_number};

/// The lines of `zpool status -D`.
pub(super) fn status_lines(sharing: &SharingReport, exact: bool) -> Vec<String> {
    let bytes = |bytes: u64| if exact { bytes.to_string() } else { nice_bytes(bytes) };
    let count = |count: u64| if exact { count.to_string() } else { nice_number(count) };
    if sharing.entries == 0 {
        return vec![" dedup: no DDT entries".to_owned()];
    }
    let (table, memory) = (bytes(sharing.table_bytes), bytes(sharing.index_bytes));
    let filled = if sharing.index_filled { "" } else { ", being read" };
    let mut lines = vec![
        format!(" dedup: DDT entries {}, size {table} on disk, {memory} in core{filled}", sharing.entries),
        String::new(),
        format!("{:<6}   {:^30}   {:^30}", "bucket", "allocated", "referenced").trim_end().to_owned(),
        format!("{}   {}   {}", "_".repeat(6), "_".repeat(30), "_".repeat(30)),
        row("refcnt", ["blocks", "LSIZE", "PSIZE", "DSIZE"], ["blocks", "LSIZE", "PSIZE", "DSIZE"]),
        row("------", ["------", "-----", "-----", "-----"], ["------", "-----", "-----", "-----"]),
    ];
    let shown = |sums: &[u64; 4]| [count(sums[0]), bytes(sums[1]), bytes(sums[2]), bytes(sums[3])];
    for class in &sharing.classes {
        let (allocated, referenced) = (shown(&class.allocated), shown(&class.referenced));
        lines.push(row(&count(class.references), text(&allocated), text(&referenced)));
    }
    let total = total(sharing);
    let (allocated, referenced) = (shown(&total.allocated), shown(&total.referenced));
    lines.push(row("Total", text(&allocated), text(&referenced)));
    lines
}

/// The sum of all classes.
fn total(sharing: &SharingReport) -> SharingClassReport {
    let mut total = SharingClassReport::default();
    for class in &sharing.classes {
        for (sums, part) in
            [(&mut total.allocated, &class.allocated), (&mut total.referenced, &class.referenced)]
        {
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum = sum.saturating_add(*part));
        }
    }
    total
}

/// The same as JSON, with OpenZFS's names. A class is named by the power of two at its lower end.
pub(super) fn as_json(sharing: &SharingReport, exact: bool, as_number: bool) -> Value {
    let number = |value| json::number(value, as_number);
    let bytes = |value| if as_number || exact { number(value) } else { json!(nice_bytes(value)) };
    let count = |value| if as_number || exact { number(value) } else { json!(nice_number(value)) };
    let class = |class: &SharingClassReport| {
        let ([blocks, lsize, psize, dsize], [ref_blocks, ref_lsize, ref_psize, ref_dsize]) =
            (class.allocated, class.referenced);
        json!({
            "blocks": count(blocks),
            "logical_size": bytes(lsize),
            "physical_size": bytes(psize),
            "deflated_size": bytes(dsize),
            "ref_blocks": count(ref_blocks),
            "ref_lsize": bytes(ref_lsize),
            "ref_psize": bytes(ref_psize),
            "ref_dsize": bytes(ref_dsize),
        })
    };
    let mut classes = Map::new();
    for of in &sharing.classes {
        classes.insert(of.references.max(1).ilog2().to_string(), class(of));
    }
    if sharing.entries == 0 {
        return json!({ "obj_count": count(0), "ddt_object_stats": classes });
    }
    classes.insert("total".to_owned(), class(&total(sharing)));
    json!({
        "obj_count": count(sharing.entries),
        "dspace": bytes(sharing.table_bytes),
        "mspace": bytes(sharing.index_bytes),
        "index_filled": sharing.index_filled,
        "ddt_object_stats": classes,
    })
}

fn text(cells: &[String; 4]) -> [&str; 4] {
    [&cells[0], &cells[1], &cells[2], &cells[3]]
}

fn row(bucket: &str, allocated: [&str; 4], referenced: [&str; 4]) -> String {
    let part = |[blocks, lsize, psize, dsize]: [&str; 4]| {
        format!("{blocks:>6}   {lsize:>5}   {psize:>5}   {dsize:>5}")
    };
    format!("{bucket:>6}   {}   {}", part(allocated), part(referenced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::SharingClassReport;

    #[test]
    fn a_table_of_classes_adds_up() {
        let class = |references, blocks: u64| SharingClassReport {
            references,
            allocated: [blocks, blocks << 17, blocks << 17, blocks << 17],
            referenced: [blocks * references, 0, 0, 0],
        };
        let sharing = SharingReport {
            entries: 3000,
            table_bytes: 786_432,
            index_bytes: 120_000,
            index_filled: true,
            classes: vec![class(1, 2000), class(2, 1000)],
        };
        let lines = status_lines(&sharing, false);
        assert_eq!(lines[0], " dedup: DDT entries 3000, size 768K on disk, 117K in core");
        assert_eq!(lines.len(), 9);
        let unfilled = SharingReport { index_filled: false, ..sharing.clone() };
        assert!(status_lines(&unfilled, false)[0].ends_with("117K in core, being read"));
        assert!(lines[8].trim_start().starts_with("Total    2.93K    375M"), "{}", lines[8]);
        assert_eq!(status_lines(&SharingReport::default(), false), [" dedup: no DDT entries"]);
        let told = as_json(&sharing, false, true);
        assert_eq!((&told["obj_count"], &told["dspace"]), (&json!(3000), &json!(786_432)));
        let classes = told["ddt_object_stats"].as_object().unwrap();
        assert_eq!(classes.keys().collect::<Vec<_>>(), ["0", "1", "total"]);
        assert_eq!((&classes["1"]["blocks"], &classes["1"]["ref_blocks"]), (&json!(1000), &json!(2000)));
        assert_eq!(classes["total"]["logical_size"], json!(3000_u64 << 17));
        assert_eq!(as_json(&sharing, false, false)["dspace"], json!("768K"));
        assert_eq!(as_json(&SharingReport::default(), true, false)["obj_count"], json!("0"));
    }
}

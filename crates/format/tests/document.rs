//! The document says what the code does: tables of FORMAT.md and its parts, and of the comments,
//! against the layouts by which structures are written and read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use steadfast_format::layout::Layout;
use steadfast_format::object_names::{self, OfEpoch};
use steadfast_format::structures::ALL;
use steadfast_format::{Address, BlockKind, BlockPointer, Compression, SegmentId, Stamp, Txg, medium, node};

/// Tables of bytes that other rooms make and compare.
const ELSEWHERE: &[&str] = &["The seal of a block"];

/// Rows of a table that begins with the column `off`: (off, len, field), as they stand.
type Rows = Vec<(String, String, String)>;

/// A layout as the document has it: fixed fields with numbers, then names.
#[derive(Debug, Eq, PartialEq)]
struct Described {
    fields: Vec<(String, usize, usize)>,
    tail: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// All tables with `off` in the first column, each with the heading above it.
fn tables(text: &str) -> Vec<(String, Rows)> {
    let mut found: Vec<(String, Rows)> = Vec::new();
    let mut heading = String::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with('#') {
            line.trim_start_matches('#').trim().clone_into(&mut heading);
        }
        if !line.starts_with('|') {
            inside = false;
            continue;
        }
        let cells = cells(line);
        if cells[0] == "off" {
            inside = true;
            found.push((heading.clone(), Rows::new()));
        } else if inside && !cells[0].starts_with("--") {
            let rows = &mut found.last_mut().expect("a table has begun").1;
            rows.push((cells[0].clone(), cells[1].clone(), cells[2].clone()));
        }
    }
    found
}

fn documents() -> Vec<(PathBuf, String)> {
    let docs = root().join("docs");
    let mut paths = vec![docs.join("FORMAT.md")];
    paths.extend(fs::read_dir(docs.join("format")).unwrap().map(|entry| entry.unwrap().path()));
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn described(rows: &Rows) -> Described {
    let mut described = Described { fields: Vec::new(), tail: Vec::new() };
    let mut end = 0;
    for (off, len, field) in rows {
        match (off.parse(), len.parse()) {
            (Ok(off), Ok(len)) => {
                assert!(described.tail.is_empty(), "{field}: a fixed field after a variable one");
                end = off + len;
                described.fields.push((field.clone(), off, len));
            }
            (Ok(off), Err(_)) => {
                let off: usize = off;
                assert_eq!(off, end, "{field}: the variable part begins where the fixed one ends");
                described.tail.push(field.trim_end_matches(" ...").to_owned());
            }
            (Err(_), _) => described.tail.push(field.trim_end_matches(" ...").to_owned()),
        }
    }
    described
}

fn of_code(layout: &Layout) -> Described {
    Described {
        fields: layout.fields.iter().map(|&(name, off, len)| (name.to_owned(), off, len)).collect(),
        tail: layout.tail.iter().map(|&name| name.to_owned()).collect(),
    }
}

#[test]
fn every_table_of_the_document_is_the_table_of_the_code() {
    let mut by_heading: BTreeMap<String, Vec<Rows>> = BTreeMap::new();
    for (_, text) in documents() {
        for (heading, rows) in tables(&text) {
            by_heading.entry(heading).or_default().push(rows);
        }
    }
    for (heading, layout) in ALL {
        let found = by_heading.remove(*heading).unwrap_or_default();
        assert_eq!(found.len(), 1, "one table under the heading \"{heading}\"");
        assert_eq!(described(&found[0]), of_code(layout), "\"{heading}\" in the document and in the code");
    }
    for heading in ELSEWHERE {
        by_heading.remove(*heading);
    }
    let left: Vec<_> = by_heading.keys().collect();
    assert!(left.is_empty(), "tables of nothing: {left:?}; is the structure listed in structures::ALL?");
}

/// All source files in a folder and its folders.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn every_layout_stands_as_a_table_above_its_code() {
    let source = root().join("crates/format/src");
    let (mut in_comments, mut layouts) = (Vec::new(), 0);
    for file in sources(&source) {
        let text = fs::read_to_string(file).unwrap();
        layouts += text.matches("Layout = Layout::new(").count() + text.matches("Layout =\n").count();
        let comments: Vec<&str> =
            text.lines().map(|line| line.trim().strip_prefix("///").map_or("", str::trim)).collect();
        in_comments.extend(tables(&comments.join("\n")).iter().map(|(_, rows)| described(rows)));
    }
    for (heading, layout) in ALL {
        assert!(in_comments.contains(&of_code(layout)), "\"{heading}\" differs from its comment");
    }
    assert_eq!(layouts, ALL.len(), "every layout of the source is listed in structures::ALL");
}

#[test]
fn the_medium_is_as_described() {
    let (_, text) = documents().swap_remove(0);
    let stated: BTreeMap<String, u64> = text
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(cells)
        .filter_map(|cells| Some((cells[0].clone(), cells[1].replace(',', "").parse().ok()?)))
        .filter(|(name, _)| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'))
        .collect();
    let constants: &[(&str, u64)] = &[
        ("LABEL_SIZE", medium::LABEL_SIZE),
        ("LABELS", medium::LABELS as u64),
        ("CONFIG_OFFSET", medium::CONFIG_OFFSET),
        ("CONFIG_SIZE", medium::CONFIG_SIZE as u64),
        ("RING_OFFSET", medium::RING_OFFSET),
        ("RING_SLOTS", medium::RING_SLOTS),
        ("UBERBLOCK_SIZE", medium::UBERBLOCK_SIZE as u64),
        ("SLOTS_OFFSET", medium::SLOTS_OFFSET),
        ("DEVICE_SIZE_MIN", medium::DEVICE_SIZE_MIN),
        ("SLOT_SIZE_MIN", medium::SLOT_SIZE_MIN.into()),
        ("SLOT_SIZE_MAX", medium::SLOT_SIZE_MAX.into()),
    ];
    let constants: BTreeMap<String, u64> = constants.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
    assert_eq!(stated, constants);
}

/// The pointer's code has its offsets in line; here each field is found by its table.
#[test]
fn names_of_objects_are_as_described() {
    let text = fs::read_to_string(root().join("docs/FORMAT.md")).unwrap();
    let of = |number| OfEpoch { epoch: 3, number };
    let names = [
        object_names::segment(SegmentId::new(3, 0x2a)),
        object_names::of_epoch(object_names::ROOTS, of(255)),
        object_names::of_epoch(object_names::LABELS, of(7)),
        object_names::numbered(object_names::EPOCHS, 3),
        object_names::numbered(object_names::PRUNED, 3),
        object_names::numbered(object_names::CAPACITIES, 256 << 20),
    ];
    for name in names {
        let is_segment = name.starts_with(object_names::SEGMENTS);
        let folder = if is_segment { object_names::SEGMENTS } else { name.rsplit_once('/').unwrap().0 };
        assert!(text.contains(&format!("| `{folder}/` ")), "a row of {folder}");
        assert!(text.contains(&format!("| `{name}` |")), "{name} is the example of its row");
    }
}

#[test]
fn a_pointer_is_written_as_its_table_says() {
    let pointer = BlockPointer {
        hash: [0xa1; 32],
        copies: [
            Address { segment: SegmentId(0xb2b2), offset: 0xc3c3 },
            Address { segment: SegmentId(0xd4d4), offset: 0xe5e5 },
            Address::NONE,
        ],
        psize: 0xf6f6,
        lsize: 0x1717,
        birth: Txg(0x2828),
        written: Txg(0x1b1b),
        stamp: Stamp { salt: [0x39; 16], counter: 0x4a4a },
        compression: Compression::Zle,
        kind: BlockKind::Tail,
        level: 7,
    };
    let number = |value: u64, length: usize| value.to_le_bytes()[..length].to_vec();
    let expected: &[(&str, Vec<u8>)] = &[
        ("hash", vec![0xa1; 32]),
        ("segment_0", number(0xb2b2, 8)),
        ("offset_0", number(0xc3c3, 4)),
        ("psize", number(0xf6f6, 4)),
        ("segment_1", number(0xd4d4, 8)),
        ("offset_1", number(0xe5e5, 4)),
        ("lsize", number(0x1717, 4)),
        ("birth", number(0x2828, 8)),
        ("salt", vec![0x39; 16]),
        ("counter", number(0x4a4a, 8)),
        ("compression", vec![4]),
        ("kind", vec![5]),
        ("level", vec![7]),
        ("reserved", vec![0; 5]),
        ("written", number(0x1b1b, 8)),
    ];
    written_as_its_table_says(&BlockPointer::LAYOUT, &pointer.to_bytes(), expected);
}

#[test]
fn a_node_is_written_as_its_table_says() {
    let mut encoder = node::NodeEncoder::new(0, 2, 12);
    encoder.push(b"key", b"val");
    encoder.push(b"kez", b"vam");
    let expected: &[(&str, Vec<u8>)] = &[
        ("magic", b"SFN1".to_vec()),
        ("level", vec![0]),
        ("reserved", vec![0]),
        ("count", vec![2, 0]),
        ("length", vec![16 + 8 + 12, 0, 0, 0]),
        ("reserved", vec![0; 4]),
    ];
    written_as_its_table_says(&node::LAYOUT, &encoder.finish(), expected);
}

fn written_as_its_table_says(layout: &Layout, bytes: &[u8], expected: &[(&str, Vec<u8>)]) {
    let found: Vec<(&str, Vec<u8>)> =
        layout.fields.iter().map(|&(name, off, len)| (name, bytes[off..off + len].to_vec())).collect();
    assert_eq!(found, expected);
}

/// The alarm rings: a table that is off by one is not what the code says.
#[test]
fn a_wrong_table_is_noticed() {
    let text = "## Relocation row\n| off | len | field |\n|---|---|---|\n| 0 | 8 | segment |\n| 8 | 4 | unit |\n\
                | 12 | 5 | units |\n";
    let (heading, rows) = tables(text).swap_remove(0);
    let (_, layout) = ALL.iter().find(|(name, _)| *name == heading).unwrap();
    assert_ne!(described(&rows), of_code(layout));
    let right = text.replace("| 12 | 5 |", "| 12 | 4 |");
    assert_eq!(described(&tables(&right)[0].1), of_code(layout));
}

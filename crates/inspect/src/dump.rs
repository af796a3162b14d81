//! Printing what leads to blocks, the table, trees and raw bytes.

use std::cell::RefCell;
use std::str::FromStr;

use steadfast_format::{Address, BlockKind, BlockPointer, DatasetRow, SegmentId};
use steadfast_segment::ReadError;

use crate::finding::Bookmark;
use crate::leaf::{RingSlot, Tag};
use crate::meta::Meta;
use crate::record::hex;
use crate::view::{Front, Request, View};
use crate::walk::{Item, Visit, Walk};
use crate::{Error, Finding, Found, Record, Sink, items};

/// Prints every slot of every ring that is not empty, and which uberblock counts.
pub fn uberblock(request: &Request<'_>, sink: &mut Sink<'_>) -> Result<(), Error> {
    let front = telling(sink, |found| Front::open(request, found)).ok_or(Error::NoPool)?;
    let newest = front.uberblock().map(|uberblock| uberblock.txg);
    for seen in &front.seen {
        let record = Record::new("uberblock").with("path", request.leaves[seen.leaf].path.as_str());
        let record = record.with("copy", seen.copy).with("slot", seen.slot);
        sink(match &seen.content {
            RingSlot::Empty => continue,
            RingSlot::Malformed(error) => record.with("tag", "none").with("reason", error.to_string()),
            RingSlot::Uberblock { uberblock, tag, validity } => {
                let word = match validity {
                    Tag::Valid => "valid",
                    Tag::Wrong => "wrong",
                    Tag::Unknown => "unknown",
                };
                let places = uberblock.tail_places.iter().flatten();
                let places: Vec<String> = places.map(items::place).collect();
                record
                    .with("txg", uberblock.txg.0)
                    .with("tag", word)
                    .with("counts", Some(uberblock.txg) == newest && *validity != Tag::Wrong)
                    .with("pool", uberblock.pool.0)
                    .with("time_ns", uberblock.time_ns)
                    .with("devices", uberblock.devices)
                    .with("keyed", uberblock.keyed)
                    .with("meta", items::pointer(&uberblock.meta))
                    .with("tail", items::pointer(&uberblock.tail))
                    .with("tail_places", places.join(","))
                    .with("this", hex(&tag[..8]))
                    .with("parent", hex(&uberblock.parent[..8]))
            }
        });
    }
    Ok(())
}

/// Prints the commit tail of the uberblock that counts.
pub fn tail(request: &Request<'_>, sink: &mut Sink<'_>) -> Result<(), Error> {
    let view = open(request, sink)?;
    let tail = &view.tail;
    let record = Record::new("tail").with("txg", tail.txg.0).with("next_segment", tail.next_segment.0);
    let record = record.with("next_dataset", tail.next_dataset.0).with("next_history", tail.next_history);
    sink(record.with("rows", tail.rows.len()).with("runs", tail.runs.len()));
    for (id, row) in &tail.rows {
        let record = Record::new("row").with("id", id.0);
        sink(match row {
            Some(row) => items::segment_row(record, row),
            None => record.with("removed", true),
        });
    }
    for ((id, unit), run) in &tail.runs {
        let record = Record::new("run").with("segment", id.0).with("unit", *unit);
        sink(match run {
            Some(run) => items::relocation_row(record, run),
            None => record.with("removed", true),
        });
    }
    Ok(())
}

/// Prints the segment table and its totals.
pub fn segments(request: &Request<'_>, sink: &mut Sink<'_>) -> Result<(), Error> {
    let mut view = open(request, sink)?;
    telling(sink, |found| Meta::load(&mut view, request, found));
    let unit = view.table.geometry.unit;
    let slot_units = u64::from(view.table.geometry.slot_units());
    let (mut live_all, mut filled_all) = (0, 0);
    for (id, row) in &view.table.rows {
        let live = row.live();
        live_all += u64::from(live);
        filled_all += u64::from(row.filled);
        let beginning = (*id, 0)..=(*id, u32::MAX);
        let away = view.table.runs.range(beginning).count();
        sink(
            Record::new("segment")
                .with("id", id.0)
                .with("class", row.class)
                .with("owner", row.owner.0)
                .with("place", items::place(&row.place))
                .with("filled", u64::from(row.filled) * u64::from(unit))
                .with("live", u64::from(live) * u64::from(unit))
                .with("live_percent", u64::from(live) * 100 / u64::from(row.filled.max(1)))
                .with("runs_moved_away", away),
        );
    }
    let config = &view.front.config;
    let slots: u64 = config.leaves.iter().map(|leaf| u64::from(leaf.slots)).sum();
    sink(
        Record::new("totals")
            .with("segments", view.table.rows.len())
            .with("slots", slots)
            .with("unit", unit)
            .with("slot_size", config.slot_size)
            .with("live", live_all * u64::from(unit))
            .with("dead", (filled_all - live_all) * u64::from(unit))
            .with(
                "unfilled",
                (view.table.rows.len() as u64 * slot_units).saturating_sub(filled_all) * u64::from(unit),
            )
            .with("relocations", view.table.runs.len()),
    );
    Ok(())
}

/// Which tree to print.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// The pool's own.
    Meta,
    /// Names of a dataset, by full name or number.
    Names(String),
    /// Extents of a dataset, by full name or number.
    Extents(String),
}

impl FromStr for Selector {
    type Err = Error;

    fn from_str(word: &str) -> Result<Selector, Error> {
        match word.split_once(':') {
            None if word == "meta" => Ok(Selector::Meta),
            Some(("names", dataset)) if !dataset.is_empty() => Ok(Selector::Names(dataset.to_owned())),
            Some(("extents", dataset)) if !dataset.is_empty() => Ok(Selector::Extents(dataset.to_owned())),
            _ => Err(Error::Word { word: word.to_owned(), wanted: "meta, names:DATASET or extents:DATASET" }),
        }
    }
}

/// Prints the nodes and items of a tree.
pub fn tree(request: &Request<'_>, selector: &Selector, sink: &mut Sink<'_>) -> Result<(), Error> {
    let mut view = open(request, sink)?;
    let meta = telling(sink, |found| Meta::load(&mut view, request, found));
    let walk = match selector {
        Selector::Meta => Walk {
            dataset: steadfast_format::DatasetId(0),
            kind: BlockKind::Meta,
            keys: view.front.keys.clone(),
            root: view.uberblock.meta,
        },
        Selector::Names(name) | Selector::Extents(name) => {
            let row = find(&meta, &view.front.config.name, name)?;
            let keys = telling(sink, |found| Meta::keys_of(&mut view, row, found));
            let keys = keys.map_err(|()| Error::Locked { dataset: name.clone() })?;
            let (kind, root) = match selector {
                Selector::Names(_) => (BlockKind::Names, row.names),
                _ => (BlockKind::Extents, row.extents),
            };
            let Some(root) = root else { return Ok(()) };
            Walk { dataset: row.id, kind, keys, root }
        }
    };
    let mut forward = |record: Record| sink(record);
    let sink: RefCell<&mut Sink<'_>> = RefCell::new(&mut forward);
    let mut found = |finding: Finding| (sink.borrow_mut())(finding.record());
    walk.run(&mut view, &mut Print { sink: &sink }, &mut found);
    Ok(())
}

fn find<'m>(meta: &'m Meta, pool: &str, name: &str) -> Result<&'m DatasetRow, Error> {
    let number = name.parse::<u64>().ok();
    let is = |row: &&DatasetRow| Some(row.id.0) == number || meta.name(pool, row.id) == name;
    meta.datasets.iter().find(is).ok_or_else(|| Error::NoDataset { name: name.to_owned() })
}

struct Print<'s, 'c, 'd> {
    sink: &'s RefCell<&'c mut Sink<'d>>,
}

impl Visit for Print<'_, '_, '_> {
    fn node(&mut self, _: &mut View, pointer: &BlockPointer, bookmark: &Bookmark, _: &mut Found<'_>) -> bool {
        let record = Record::new("node").with("at", bookmark.to_string());
        (self.sink.borrow_mut())(record.with("pointer", items::pointer(pointer)));
        true
    }

    fn item(&mut self, _: &mut View, item: Item<'_>, _: &mut Found<'_>) {
        (self.sink.borrow_mut())(items::record(item.leaf.kind, item.key, item.value));
    }
}

/// Bytes of a segment: `SEGMENT:OFFSET:LEN`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// Where they begin.
    pub address: Address,
    /// How many.
    pub length: u32,
}

impl FromStr for Span {
    type Err = Error;

    fn from_str(word: &str) -> Result<Span, Error> {
        let wrong = || Error::Word { word: word.to_owned(), wanted: "SEGMENT:OFFSET:LEN" };
        let parts: Vec<&str> = word.split(':').collect();
        let [segment, offset, length] = parts[..] else { return Err(wrong()) };
        let address = Address {
            segment: SegmentId(segment.parse().map_err(|_| wrong())?),
            offset: offset.parse().map_err(|_| wrong())?,
        };
        Ok(Span { address, length: length.parse().map_err(|_| wrong())? })
    }
}

/// Bytes on one line.
const LINE: usize = 16;

/// Prints stored bytes as they lie on the device, by virtual address. Nothing vouches for them.
pub fn block(request: &Request<'_>, span: Span, sink: &mut Sink<'_>) -> Result<(), Error> {
    let mut view = open(request, sink)?;
    telling(sink, |found| Meta::load(&mut view, request, found));
    let Span { address, length } = span;
    let unit = view.table.geometry.unit;
    // Blocks begin at units; what is asked for may begin anywhere.
    let skip = address.offset % unit;
    let from = Address { offset: address.offset - skip, ..address };
    let bytes = skip.checked_add(length).filter(|&bytes| bytes <= view.table.geometry.slot_size);
    let bytes = bytes.ok_or(Error::Span { address, length })?;
    let read = view.space.read(from, bytes as usize, Ok::<_, std::convert::Infallible>);
    let read = read.map_err(|error| match error {
        ReadError::Device { source, .. } => Error::Device(source),
        _ => Error::Span { address, length },
    })?;
    for (line, bytes) in read[skip as usize..].chunks(LINE).enumerate() {
        let shown = bytes.iter().map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '.' });
        let record = Record::new("bytes").with("offset", u64::from(address.offset) + (line * LINE) as u64);
        sink(record.with("hex", hex(bytes)).with("text", shown.collect::<String>()));
    }
    Ok(())
}

/// Opens a pool as far as its tail.
fn open(request: &Request<'_>, sink: &mut Sink<'_>) -> Result<View, Error> {
    telling(sink, |found| View::open(Front::open(request, found)?, request, found)).ok_or(Error::NoPool)
}

/// Does something whose findings become records.
fn telling<T>(sink: &mut Sink<'_>, run: impl FnOnce(&mut Found<'_>) -> T) -> T {
    run(&mut |finding: Finding| sink(finding.record()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_understood_or_refused() {
        assert_eq!("meta".parse::<Selector>().unwrap(), Selector::Meta);
        assert_eq!("names:a/b".parse::<Selector>().unwrap(), Selector::Names("a/b".into()));
        for word in ["", "names", "names:", "data:1", "meta:1"] {
            assert!(word.parse::<Selector>().is_err(), "{word}");
        }
        let span = "7:4096:16".parse::<Span>().unwrap();
        assert_eq!((span.address.segment.0, span.address.offset, span.length), (7, 4096, 16));
        for word in ["7:1", "7:1:2:3", "a:1:2", "1:4294967296:1", "1:-1:1"] {
            assert!(word.parse::<Span>().is_err(), "{word}");
        }
    }
}

//! Items of a pool's trees, frames of streams and records of the intent log, changed by their
//! meaning: a field of a decoded structure gets a number at some limit, a key leads elsewhere, an
//! item goes, comes twice or gets another's value. All hashes up to the uberblock are right, as a
//! stranger with all keys would make them. Then the pool is used ([`crate::spoil_use`]).
//!
//! ## Claims
//! Nothing panics, nothing hangs, and a pool that is suspended names the structure that is wrong.
//! An error is an answer. The content is not compared: a stranger who has the keys may write any.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::Duration;

use steadfast_env::Env;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::layout::Layout;
use steadfast_format::stream::{FrameHeader, FrameKind, StreamHeader};
use steadfast_format::{BlockPointer, DatasetId, LogHeader, LogRecord, MetaKey, structures};
use steadfast_pool::forge::ForgedTree;
use steadfast_pool::{Error, Pool, SendSpec};

use crate::draw::Draw;
use crate::pages::Image;
use crate::spoil_use::{Way, furnish, promise, receive, use_pool};
use crate::world::{self, Disks, SETTINGS, Setting};

/// Pools that are spoiled, by their names in [`SETTINGS`].
const SPOILED: [&str; 4] = ["plain", "raidz1, journal=ordered", "encrypted", "dedup, journal=ordered"];
/// A round that takes longer hangs. It takes a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the thread of a round.
const ROUND: &str = "spoil round";
/// Bytes of a block pointer in a structure.
const POINTER: usize = BlockPointer::ENCODED_SIZE;
/// Findings that are kept.
const FINDINGS_MAX: usize = 100;

/// A round that ended as none may.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Seed of the round.
    pub seed: u64,
    /// The changes that were made.
    pub changes: Vec<String>,
    /// The panic, the hang or the reason of the suspension.
    pub what: String,
}

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rounds, each with a pool of its own.
    pub rounds: u64,
    /// Changes in them.
    pub mutations: u64,
    /// Rounds whose pool was refused at import.
    pub refused: u64,
    /// Rounds whose stream was refused.
    pub streams_refused: u64,
    /// Rounds whose stream was received.
    pub streams_taken: u64,
    /// Rounds whose changes could not be committed: they say nothing.
    pub unplanted: u64,
    /// Rounds in which the pool was suspended, with a reason.
    pub suspended: u64,
    /// Rounds after which the offline check found something.
    pub found_offline: u64,
    /// Findings, the first of each kind.
    pub findings: Vec<Finding>,
    /// Wall time.
    pub seconds: f64,
}

/// Result of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    mutations: u64,
    refused: bool,
    unplanted: bool,
    suspended: bool,
    found_offline: bool,
    stream: Option<bool>,
}

/// A pool to spoil: images of its devices, and streams that it sent.
#[derive(Clone)]
struct Subject {
    setting: &'static Setting,
    images: Vec<Image>,
    streams: Vec<(StreamHeader, Frames)>,
    log: Option<Logged>,
}

/// The same pool with an intent log that an import replays, and the last group of that.
#[derive(Clone)]
struct Logged {
    images: Vec<Image>,
    header: LogHeader,
    body: Vec<u8>,
    /// Devices that have it, and where.
    places: Vec<(usize, u64)>,
}

type Frames = Vec<(FrameKind, Vec<u8>)>;
type Item = (Vec<u8>, Vec<u8>);

thread_local! {
    /// Place of this thread's last panic, in a round.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on the place of a panic in a round is kept for its finding, and the panic not told.
fn keep_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(ROUND) {
                return before(panic);
            }
            let place = panic.location().map(|place| format!("{}:{}", place.file(), place.line()));
            PANICKED_AT.with(|kept| *kept.borrow_mut() = place);
        }));
    });
}

/// Spoils pools until so many changes were made, from a seed on, or until there are too many
/// findings. `tell` hears of each thousandth round,
/// and of findings.
///
/// # Panics
/// If a pool that nobody spoiled cannot be made.
pub fn run(from: u64, mutations: u64, tell: impl FnMut(&Report)) -> Report {
    run_in(&[Way::Part], from, mutations, tell)
}

fn run_in(ways: &[Way], from: u64, mutations: u64, mut tell: impl FnMut(&Report)) -> Report {
    keep_places();
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    let subjects = SUBJECTS.get_or_init(|| SPOILED.iter().map(|name| subject(name)).collect());
    let env = Env::real();
    let begun = env.clock.monotonic_ns();
    let mut report = Report::default();
    let mut seed = from;
    while report.mutations < mutations && report.findings.len() < FINDINGS_MAX {
        let known = report.findings.len();
        let at = usize::try_from(seed % subjects.len() as u64).expect("few");
        ways.iter().for_each(|way| watched(&subjects[at], seed, *way, &mut report));
        seed += 1;
        report.seconds = (env.clock.monotonic_ns() - begun) as f64 / 1e9;
        if report.rounds.is_multiple_of(1_000) || report.findings.len() > known {
            tell(&report);
        }
    }
    report
}

/// One round again: as a run has it, and one whose pool is used as a whole.
///
/// # Panics
/// If a pool that nobody spoiled cannot be made.
#[must_use]
pub fn again(seed: u64) -> Report {
    run_in(&[Way::Part, Way::Whole], seed, 1, |_| ())
}

fn subject(name: &str) -> Subject {
    let setting = SETTINGS.iter().find(|setting| setting.name == name).expect("a setting");
    let disks = Disks::blank(setting);
    let env = world::env(1, None);
    let pool = world::create(&env, &disks).expect("a pool");
    furnish(&pool, &env).expect("furnished");
    let send = |snapshot: &str, base: Option<&str>, packed| {
        let base = base.map(str::to_owned);
        let spec = SendSpec { snapshot: snapshot.into(), base, packed, ..SendSpec::default() };
        let mut stream = Vec::new();
        pool.streams().send(&[spec], &mut stream, &mut |_, _| ()).expect("sent");
        frames(&stream)
    };
    let streams = vec![
        send("tank/fs@a", None, false),
        send("tank/fs@b", None, true),
        send("tank/fs@b", Some("tank/fs@a"), false),
    ];
    promise(&pool).expect("nobody spoiled it");
    let log = last_group(disks.images());
    pool.export().expect("exported");
    drop(pool);
    Subject { setting, images: disks.images(), streams, log }
}

/// Finds the last group of the intent log, if it has one that is not sealed.
fn last_group(images: Vec<Image>) -> Option<Logged> {
    let mut found: Option<Logged> = None;
    for (disk, image) in images.iter().enumerate() {
        for at in (0..image.size_bytes()).step_by(LogHeader::ALIGNMENT) {
            let mut head = [0; LogHeader::SIZE];
            image.read(at, &mut head);
            let Ok((header, hash)) = LogHeader::decode(&head) else { continue };
            let mut body = vec![0; header.length as usize];
            image.read(at + LogHeader::SIZE as u64, &mut body);
            if header.stamp.counter != 0 || steadfast_crypto::hash_parts(&[&head[..128], &body]) != hash {
                continue;
            }
            match &mut found {
                Some(known) if known.header.sequence == header.sequence => known.places.push((disk, at)),
                Some(known) if known.header.sequence > header.sequence => {}
                _ => found = Some(Logged { images: Vec::new(), header, body, places: vec![(disk, at)] }),
            }
        }
    }
    found.map(|found| Logged { images, ..found })
}

/// Images whose log has a group with some fields of its records changed.
fn spoiled_log(log: &Logged, draw: &mut Draw, changes: &mut Vec<String>) -> Vec<Image> {
    let (mut images, mut body) = (log.images.clone(), log.body.clone());
    for _ in 0..=draw.below(3) {
        if let Some(told) = change_frame(draw, FrameKind::Names, &mut body) {
            changes.push(format!("log: {told}"));
        }
    }
    let mut bytes = log.header.encode(|bound| steadfast_crypto::hash_parts(&[bound, &body])).to_vec();
    bytes.extend_from_slice(&body);
    log.places.iter().for_each(|(disk, at)| images[*disk].write(*at, &bytes));
    images
}

/// A round in a thread of its own, so that one that hangs is told.
fn watched(subject: &Subject, seed: u64, way: Way, report: &mut Report) {
    let (sender, receiver) = channel();
    let subject = subject.clone();
    // Also of a round without an end it is told what was changed.
    let changes = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&changes);
    let work = move || {
        let _ = sender.send(round(&subject, seed, way, &made));
    };
    let worker = std::thread::Builder::new().name(ROUND.into()).spawn(work).expect("a thread");
    let result = match receiver.recv_timeout(PATIENCE) {
        Ok(told) => {
            let _ = worker.join();
            told
        }
        Err(RecvTimeoutError::Timeout) => Err(format!("seed {seed} hangs")),
        Err(RecvTimeoutError::Disconnected) => Err("its thread ended".to_owned()),
    };
    let changes = changes.lock().expect("no round panics in it").clone();
    report.rounds += 1;
    match result {
        Ok(outcome) => {
            report.mutations += outcome.mutations;
            report.refused += u64::from(outcome.refused);
            report.unplanted += u64::from(outcome.unplanted);
            report.suspended += u64::from(outcome.suspended);
            report.found_offline += u64::from(outcome.found_offline);
            report.streams_taken += u64::from(outcome.stream == Some(true));
            report.streams_refused += u64::from(outcome.stream == Some(false));
        }
        Err(what) => {
            report.mutations += changes.len() as u64;
            if report.findings.iter().all(|known| known.what != what) {
                report.findings.push(Finding { seed, changes, what });
            }
        }
    }
}

/// Text of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let place = PANICKED_AT.with(|kept| kept.borrow_mut().take());
    format!("it panics at {}: {}", place.unwrap_or_default(), text.unwrap_or_default())
}

fn calmly<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panic_text(&*panic))
}

/// Spoils a pool and uses it.
fn round(subject: &Subject, seed: u64, way: Way, made: &Mutex<Vec<String>>) -> Result<Outcome, String> {
    let (changes, touched) = (&mut Vec::new(), &mut Vec::new());
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ if way == Way::Part { 0x5eed } else { 0 });
    let mut outcome = Outcome::default();
    let log = subject.log.as_ref().filter(|_| draw.percent(20));
    let disks = match log {
        Some(log) => Disks::unheard(subject.setting, &spoiled_log(log, &mut draw, changes)),
        None => Disks::unheard(subject.setting, &subject.images),
    };
    let stream = draw.percent(20).then(|| spoiled_stream(subject, &mut draw, changes));
    if stream.is_none() && log.is_none() {
        // The pool that is being spoiled may not survive it: it still believes what it had read.
        let planted = calmly(|| plant(&disks, way, &mut draw, changes, touched));
        outcome.unplanted = !matches!(planted, Ok(Ok(())));
    }
    outcome.mutations = changes.len() as u64;
    made.lock().expect("nobody panics in it").clone_from(changes);
    if outcome.unplanted {
        return Ok(outcome);
    }
    let env = world::env(seed, None);
    let pool = match calmly(|| world::import(&env, &disks))? {
        Ok(pool) => pool,
        Err(error) => {
            outcome.refused = true;
            let _ = error.to_string();
            outcome.found_offline = calmly(|| found_offline(&disks))?;
            return Ok(outcome);
        }
    };
    let used = calmly(|| {
        let taken = stream.map(|stream| receive(&pool, "tank/new", &stream).is_ok());
        use_pool(&pool, way, touched, &mut draw);
        let suspended = pool.suspended();
        if way.wants(&mut draw, 50) {
            let _ = pool.export();
        }
        drop(pool);
        (taken, suspended)
    });
    let (taken, suspended) = used?;
    outcome.stream = taken;
    if let Some(reason) = suspended {
        outcome.suspended = true;
        if reason.contains("bug") {
            return Err(format!("suspended: {reason}"));
        }
    }
    if way.wants(&mut draw, 40) {
        outcome.found_offline = calmly(|| found_offline(&disks))?;
    }
    Ok(outcome)
}

/// Changes some items, and commits them. Says which, and in which file systems.
fn plant(
    disks: &Disks,
    way: Way,
    draw: &mut Draw,
    changes: &mut Vec<String>,
    touched: &mut Vec<String>,
) -> Result<(), Error> {
    let pool = world::import(&world::env(2, None), disks)?;
    let wanted = 1 + draw.below(3);
    // Not each that is drawn fits its item.
    let tries = if way == Way::Part { 4 * wanted } else { wanted };
    for _ in 0..tries {
        if changes.len() == wanted {
            break;
        }
        let (tree, name) = pick_tree(&pool, draw);
        touched.push(name);
        let items = pool.forged_items(tree)?;
        if let Some(change) = change(&pool, tree, &items, draw)? {
            changes.push(format!("{tree:?}: {change}"));
        }
    }
    pool.sync()?;
    // As after a crash: what this pool believes is not written any more.
    drop(pool);
    Ok(())
}

/// A tree, and the file system that it is of, or that is used after a change of the pool's own.
fn pick_tree(pool: &Pool, draw: &mut Draw) -> (ForgedTree, String) {
    let ids: Vec<(DatasetId, String)> = {
        let datasets = pool.datasets();
        let id = |name: String| Some((datasets.dataset_info(&name).ok()?.id, name));
        datasets.names().into_iter().filter_map(id).collect()
    };
    let (id, name) = draw.pick(&ids).clone();
    let tree = match draw.below(20) {
        0..9 => ForgedTree::Meta,
        9..15 => ForgedTree::Names(id),
        _ => ForgedTree::Extents(id),
    };
    (tree, name)
}

/// Kind of an item: items of a kind have one structure.
fn kind_of(tree: ForgedTree, key: &[u8]) -> usize {
    let of_file = |key: &[u8]| key.get(8).map_or(0, |kind| usize::from(*kind) + 1);
    match tree {
        ForgedTree::Meta => key.first().map_or(0, |kind| usize::from(*kind)),
        ForgedTree::Names(_) => of_file(key) + 100 * usize::from(key.first_chunk() == Some(&[0; 8])),
        ForgedTree::Extents(_) => key.len(),
    }
}

/// Name of the structure that is an item's value.
fn structure_of(tree: ForgedTree, key: &[u8], value: &[u8]) -> Option<&'static str> {
    Some(match tree {
        ForgedTree::Meta => match MetaKey::decode(key)? {
            MetaKey::Dataset(_) => "dataset_row",
            MetaKey::Segment(_) => "segment_row",
            MetaKey::Relocation(..) => "relocation_row",
            MetaKey::History(_) => "history_entry",
            MetaKey::HeldLog(_) => "held_log",
            MetaKey::Checkpoint => "checkpoint",
            MetaKey::Checksums(..) => "checksums",
            MetaKey::Scan | MetaKey::Move => "scan_row",
            MetaKey::Snapshot(..) => "snapshot_row",
            MetaKey::Cell(..) => "cell",
            MetaKey::CellRun(..) => "cell_place",
            MetaKey::DeadRange(..) => "dead_range",
            MetaKey::Bookmark(..) => "bookmark",
            MetaKey::Receive(_) => "receive_row",
            MetaKey::Reference(_) => "reference_row",
            MetaKey::Sharing => "sharing_row",
            MetaKey::Manifest(_) => "manifest_run",
            MetaKey::ManifestWriters(_) => "manifest_writer",
            _ => return None,
        },
        ForgedTree::Names(_) => match NamesKey::decode(key).ok()? {
            NamesKey::Head => "names_head",
            NamesKey::Inode(_) => "inode",
            NamesKey::Entry { .. } => "dirent",
            NamesKey::Xattr { chunk: 0, .. } => "xattr",
            _ => return None,
        },
        ForgedTree::Extents(_) => match ExtentsKey::decode(key).ok()? {
            ExtentsKey::Extent { .. } if value.len() > 8 + POINTER && value[0] == 3 => "overlaid_extent",
            ExtentsKey::Extent { .. } => "extent",
            ExtentsKey::Owner(_) => "owner_row",
            _ => return None,
        },
    })
}

/// Layout by the name of its structure.
fn layout(name: &str) -> Option<&'static Layout> {
    structures::ALL.iter().map(|(_, layout)| *layout).find(|layout| layout.name == name)
}

/// A number at some limit.
fn limit(draw: &mut Draw, before: u64, bits: u32) -> u64 {
    let most = u64::MAX >> (64 - bits);
    let near = [0, 1, most, most >> 1, (most >> 1) + 1, before, before << 1, before >> 1];
    let far = [2, 5, 255, 256, 4096, 1 << 20, 1 << 31, 1 << 32, 1 << 47, 1 << 48, 1 << 62, 1 << 63];
    let number = match draw.below(5) {
        0 | 1 => *draw.pick(&near),
        2 => *draw.pick(&far),
        3 => draw.word() >> draw.below(64),
        _ => before,
    };
    let step = *draw.pick(&[0, 0, 1, u64::MAX, 2]);
    let number = number.wrapping_add(step) & most;
    if number == before { before.wrapping_add(1) & most } else { number }
}

/// Gives bytes at a place a number at some limit. Says which.
fn set_number(draw: &mut Draw, bytes: &mut [u8], at: usize, length: usize, big_endian: bool) -> String {
    let place = &mut bytes[at..at + length];
    let mut word = [0; 8];
    word[..length].copy_from_slice(place);
    if big_endian {
        word[..length].reverse();
    }
    let before = u64::from_le_bytes(word);
    let bits = u32::try_from(8 * length).expect("few");
    let number = limit(draw, before, bits);
    word = number.to_le_bytes();
    if big_endian {
        word[..length].reverse();
    }
    place.copy_from_slice(&word[..length]);
    format!("{before} is {number}")
}

/// Changes a field of a structure that stands at a place, or of a pointer in it. Says which.
fn set_field(draw: &mut Draw, layout: &Layout, bytes: &mut [u8], base: usize) -> Option<String> {
    let fits = |(_, at, length): &&(&'static str, usize, usize)| base + at + length <= bytes.len();
    let fields: Vec<_> = layout.fields.iter().filter(fits).collect();
    if fields.is_empty() {
        return None;
    }
    let (name, at, length) = **draw.pick(&fields);
    let at = base + at;
    // Room kept for later, behind a fixed part, holds a pointer in some structures.
    let pointer_behind = layout.name == "extent" && bytes.len() == 8 + POINTER && draw.percent(60);
    let told = match length {
        POINTER => set_field(draw, &BlockPointer::LAYOUT, bytes, at)?,
        _ if pointer_behind => set_field(draw, &BlockPointer::LAYOUT, bytes, 8)?,
        1 | 2 | 4 | 8 => set_number(draw, bytes, at, length, false),
        _ => {
            let bit = draw.below(8 * length);
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            format!("bit {bit}")
        }
    };
    Some(format!("{}.{name}: {told}", layout.name))
}

/// True if an item is a property that is a number.
fn is_number(tree: ForgedTree, key: &[u8], value: &[u8]) -> bool {
    let is_property = |key| matches!(key, MetaKey::DatasetProperty(..) | MetaKey::PoolProperty(_));
    tree == ForgedTree::Meta
        && MetaKey::decode(key).is_some_and(is_property)
        && value.iter().all(u8::is_ascii_digit)
}

/// Makes one change. Says which; `None` if there was nothing to be changed.
fn change(pool: &Pool, tree: ForgedTree, items: &[Item], draw: &mut Draw) -> Result<Option<String>, Error> {
    // First a kind, then one of it: there are many segments, and one row of sums.
    let mut kinds: Vec<usize> = items.iter().map(|(key, _)| kind_of(tree, key)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() {
        return Ok(None);
    }
    let kind = *draw.pick(&kinds);
    let alike: Vec<&Item> = items.iter().filter(|(key, _)| kind_of(tree, key) == kind).collect();
    let (key, value) = *draw.pick(&alike);
    let layout = structure_of(tree, key, value).and_then(layout);
    let (mut new_key, mut new_value) = (key.clone(), value.clone());
    let told = match draw.below(20) {
        0..12 if is_number(tree, key, value) => {
            let number = limit(draw, 0, 64);
            new_value = number.to_string().into_bytes();
            format!("the property is {number}")
        }
        0..12 => {
            let Some(layout) = layout else { return Ok(None) };
            let size = layout.size();
            // Runs of places and the like are several of a structure.
            let base = match layout.name {
                "cell_place" => size * draw.below((value.len() / size.max(1)).max(1)),
                "overlaid_extent" => 8,
                _ => 0,
            };
            match set_field(draw, layout, &mut new_value, base) {
                Some(told) => told,
                None => return Ok(None),
            }
        }
        12..15 => {
            let first = usize::from(tree == ForgedTree::Meta);
            let words: Vec<usize> = (first..key.len().saturating_sub(7)).step_by(8).collect();
            let at = match (tree, key.len()) {
                (ForgedTree::Names(_), 17) if draw.percent(60) => 9,
                _ if words.is_empty() => return Ok(None),
                _ => *draw.pick(&words),
            };
            format!("key at {at}: {}", set_number(draw, &mut new_key, at, 8, true))
        }
        15 | 16 => "removed".to_owned(),
        17 | 18 => {
            new_value.clone_from(&draw.pick(&alike).1);
            "another's value".to_owned()
        }
        _ if !value.is_empty() => {
            let bit = draw.below(8 * value.len());
            new_value[bit / 8] ^= 1 << (bit % 8);
            format!("bit {bit}")
        }
        _ => return Ok(None),
    };
    let goes = told == "removed" || new_key != *key && draw.percent(50);
    if goes {
        pool.forge(tree, key, None)?;
    }
    if told != "removed" && !new_key.is_empty() {
        pool.forge(tree, &new_key, Some(&new_value))?;
    }
    Ok(Some(format!("{key:02x?}: {told}{}", if goes { ", it goes" } else { "" })))
}

/// Frames of a stream.
fn frames(stream: &[u8]) -> (StreamHeader, Frames) {
    let header = StreamHeader::decode(stream.first_chunk().expect("a header")).expect("a header");
    let mut rest = &stream[StreamHeader::SIZE..];
    let mut frames = Vec::new();
    while let Some((header, tail)) = rest.split_first_chunk::<{ FrameHeader::SIZE }>() {
        let header = FrameHeader::decode(header).expect("a frame");
        let (payload, tail) = tail.split_at(header.length as usize);
        frames.push((header.kind, payload.to_vec()));
        rest = tail;
    }
    (header, frames)
}

/// A stream of frames, whose chain of hashes is right.
fn joined(header: StreamHeader, frames: &Frames) -> Vec<u8> {
    let mut out = header.encode().to_vec();
    let mut chain = steadfast_crypto::hash(&out);
    for (kind, payload) in frames {
        let length = u32::try_from(payload.len()).expect("frames are short");
        let mut header = FrameHeader { kind: *kind, length, hash: [0; 32] };
        let bound = header.encode();
        header.hash = steadfast_crypto::hash_parts(&[&chain, &bound[..FrameHeader::BOUND_SIZE], payload]);
        chain = header.hash;
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(payload);
    }
    out
}

/// A stream of the pool with some fields changed.
fn spoiled_stream(subject: &Subject, draw: &mut Draw, changes: &mut Vec<String>) -> Vec<u8> {
    let (header, mut frames) = draw.pick(&subject.streams).clone();
    for _ in 0..=draw.below(3) {
        let at = draw.below(frames.len());
        let (kind, payload) = &mut frames[at];
        if let Some(told) = change_frame(draw, *kind, payload) {
            changes.push(format!("frame {at}, {kind:?}: {told}"));
        }
    }
    joined(header, &frames)
}

/// Changes a field of a frame, or of a record in it, or of the item in that.
fn change_frame(draw: &mut Draw, kind: FrameKind, payload: &mut [u8]) -> Option<String> {
    let name = match kind {
        FrameKind::Begin => "stream_begin",
        FrameKind::End => "stream_end",
        FrameKind::Span => "stream_span",
        FrameKind::Packed => "packed_record",
        FrameKind::Names | FrameKind::Content => {
            let mut places = Vec::new();
            let mut at = 0;
            while let Ok((record, taken)) = LogRecord::decode(&payload[at..]) {
                places.push((
                    at,
                    matches!(record, LogRecord::Inode { .. }),
                    matches!(record, LogRecord::Set { .. }),
                ));
                at += taken;
            }
            if places.is_empty() {
                return None;
            }
            let (at, is_inode, is_set) = *draw.pick(&places);
            let body = at + LogRecord::HEADER_SIZE;
            if is_inode && draw.percent(60) {
                return set_field(draw, layout("inode")?, payload, body);
            }
            if is_set && draw.percent(60) {
                // The numbers of its key: of the inode, and of the place in that.
                let place = body + if draw.percent(50) { 0 } else { 9 };
                return (place + 8 <= payload.len()).then(|| set_number(draw, payload, place, 8, true));
            }
            return set_field(draw, layout("log_record")?, payload, at);
        }
        _ => return None,
    };
    set_field(draw, layout(name)?, payload, 0)
}

/// True if the offline check finds something.
fn found_offline(disks: &Disks) -> bool {
    let leaves: Vec<steadfast_inspect::Leaf> = disks
        .handles()
        .into_iter()
        .map(|handle| steadfast_inspect::Leaf { path: handle.path, device: handle.device })
        .collect();
    let env = world::env(3, None);
    let secret = disks.secret().map(<[u8]>::to_vec);
    let request = steadfast_inspect::Request { leaves: &leaves, secret, anchor: None, env: &env };
    let mut count = 0;
    steadfast_inspect::check(&request, &mut |finding| {
        let _ = finding.to_string();
        count += 1;
    });
    count > 0
}

//! Receiving: a stream becomes a snapshot, in one commit at its end.
//! `docs/decisions/0093-streams.md`.
//!
//! ## Definitions
//! A snapshot is received into a *hidden* dataset, which has a receive row. Without a target it
//! becomes the dataset itself; else it begins as the *base*, the target's youngest snapshot, whose
//! blocks it shares, and the target takes its roots over at the end. The hidden dataset of a future
//! clone begins as its base too; there the row's target is the dataset that has the base.
//! `docs/decisions/0101-received-clones.md`. A snapshot that takes the place of a dataset's content
//! is received below that dataset (`receive_in_place.rs`).
//!
//! ## Invariants
//! [receive.1] Nothing of a target changes before the commit that takes its snapshot.
//!      `finish`; test: `tests/streams.rs`
//! [receive.2] Blocks of the base that a hidden dataset lets go go into cells under its own number.
//!      They become the target's with that commit; or they are forgotten with the hidden dataset,
//!      and the blocks live on in the base.
//!      `take_over`, `discard`
//! [receive.3] A base is not destroyed while something is received upon it.
//!      `check_receives`
//! [receive.4] A position is stored with the txg that holds the content before it, or with a later
//!      one.
//!      `Receiving::settle`
//!
//! ## What a crash does
//! Before the last commit: a hidden dataset is found at import, and is freed unless it is kept
//! (`-s`). After it: the snapshot.

use crate::streams::state::Streams;
use std::io::Read;
use std::sync::Arc;

use steadfast_crypto::BlockKeys;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::stream::{FrameKind, StreamBegin, StreamEnd};
use steadfast_format::{DatasetId, InodeId, Lineage, ReceiveRow, Txg};
use steadfast_property::Local;

use crate::core::error::{Error, Result};
use crate::datasets::dataset::NewKey;
use crate::datasets::dataset::is_clear;
use crate::datasets::partial::hidden_name;
use crate::datasets::received::Brought;
use crate::datasets::received::KEY_PROPERTIES;
use crate::datasets::received_props::ReceivedProps;
use crate::datasets::receiving::Receiving;
use crate::datasets::table::{Entry, Table};
use crate::datasets::traverse::{Base, differences};
use crate::streams::receive_repeats::Came;
use crate::streams::receive_tree::Followed;
use crate::streams::stream_io::StreamReader;

/// A frame of a stream: its kind and payload.
type Frame = (FrameKind, Vec<u8>);

/// Feature of pools that receive.
pub(crate) const FEATURE: &str = "receives";
/// Feature of pools that receive clones.
const CLONE_FEATURE: &str = "received_clones";
/// Feature of pools that remember of what broke off that it came packed. Without it the rest is
/// asked for plain.
const PACKED_FEATURE: &str = "packed_receives";

/// How the name of a dataset is made of the name it had where it was sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Naming {
    /// As given; file systems below the first one of the stream go below it.
    #[default]
    AsGiven,
    /// Below what is given, without the name of the sender's pool (`-d`).
    WithoutPool,
    /// Below what is given, the last component alone (`-e`).
    LastOnly,
}

/// How a stream is to be received.
#[derive(Clone, Debug, Default)]
pub struct ReceiveSpec {
    /// Full name of a dataset, perhaps with `@` and the name of the snapshot.
    pub target: String,
    /// How names are made of it.
    pub naming: Naming,
    /// Discards changes since the base, and younger snapshots. A whole snapshot replaces a dataset
    /// that has no snapshot, and its properties stay, as does all that lies below it (`-F`).
    pub force: bool,
    /// Keeps the received part if the stream breaks off (`-s`).
    pub keep: bool,
    /// Only say what would be received (`-n`).
    pub dry_run: bool,
    /// Properties to set on the first dataset of the stream (`-o`).
    pub props: Local,
    /// Makes the first dataset of the stream an encryption root, with this key (`-o encryption=`).
    /// Received content is sealed before any of it is stored.
    pub key: Option<NewKey>,
    /// Properties of the stream that do not count (`-x`).
    pub exclude: Vec<String>,
    /// Full name of the snapshot that what is received becomes a clone of (`-o origin=`). A full
    /// stream replaces all that the clone begins with.
    pub origin: Option<String>,
    /// Tags of the stream hold nothing here (`-h`).
    pub no_holds: bool,
}

/// A snapshot that was received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Received {
    /// Full name.
    pub snapshot: String,
    /// Full name where it came from.
    pub from: String,
    /// It was an increment.
    pub increment: bool,
    /// Bytes of the stream that it took.
    pub bytes: u64,
    /// Nanoseconds that it took.
    pub nanos: u64,
    /// Properties of the stream that are none here, or have no such value.
    pub left_out: Vec<String>,
    /// It was there already, and was passed over.
    pub there: bool,
    /// The snapshot of which the dataset became a clone.
    pub origin: Option<String>,
}

/// Accompanies a receive.
///
/// Also reports the steps that follow the stream's tree (`receive_tree.rs`). Their methods
/// have defaults.
pub trait ReceiveWatch {
    /// A dataset is about to take over the received content: nobody may use it. Runs before the
    /// moment, once for each snapshot.
    fn before(&mut self, dataset: &str) -> Result<()>;
    /// The dataset took it over, or failed to and stays as it was.
    fn after(&mut self, dataset: &str);
    /// Has `act` take over the received content. Where no property `changes` the file system may
    /// stay in use until the moment, and be used again behind it: then neither `before` nor `after`
    /// is called.
    fn around(&mut self, dataset: &str, changes: bool, act: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _ = changes;
        self.before(dataset)?;
        let taken = act();
        self.after(dataset);
        taken
    }
    /// Bytes of the stream read so far.
    fn progress(&mut self, snapshot: &str, bytes: u64);
    /// A snapshot begins to arrive. Its bytes and its time are 0 still.
    fn begins(&mut self, one: &Received) {
        let _ = one;
    }
    /// A snapshot has arrived, or was passed over.
    fn arrived(&mut self, one: &Received) {
        let _ = one;
    }
    /// A snapshot was received, even if the rest of the stream fails.
    fn received(&mut self, snapshot: &str) {
        let _ = snapshot;
    }
    /// A dataset that `before` was called for has this name now, with all below it; or the same
    /// name as before, if the rename failed.
    fn renamed(&mut self, dataset: &str, to: &str) {
        let _ = to;
        self.after(dataset);
    }
    /// Datasets are about to be destroyed, the ones below others before these: nobody may use them.
    fn destroying(&mut self, datasets: &[String]) -> Result<()> {
        datasets.last().map_or(Ok(()), |dataset| self.before(dataset))
    }
    /// The datasets were destroyed, or the destruction failed and they are there still.
    fn destroyed(&mut self, datasets: &[String]) {
        datasets.iter().next_back().into_iter().for_each(|dataset| self.after(dataset));
    }
    /// Snapshots of a dataset have other names, or are gone.
    fn snapshots_changed(&mut self, dataset: &str) {
        let _ = dataset;
    }
    /// A step could not be followed, for this reason.
    fn not_followed(&mut self, error: Error) {
        let _ = error;
    }
}

impl Streams {
    /// Receives all snapshots of a stream, each in one commit. An error leaves those that were
    /// received before it.
    pub fn receive(
        &self,
        spec: &ReceiveSpec,
        input: &mut dyn Read,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<Vec<Received>> {
        if !spec.dry_run {
            self.core.check_writable()?;
            self.core.need_feature(FEATURE)?;
            self.core.need_feature(crate::datasets::snapshots::FEATURE)?;
        }
        let mut reader = StreamReader::new(input)?;
        let mut received = Vec::new();
        let mut first: Option<String> = None;
        let mut came = Came::new();
        let mut tree = Followed::default();
        let mut frame = reader.next()?;
        loop {
            let (kind, payload) = frame;
            match kind {
                FrameKind::Close => {
                    self.follow_to_the_end(spec, &tree, watch);
                    return Ok(received);
                }
                FrameKind::Begin => {}
                FrameKind::Member if reader.header.members && first.is_none() => {
                    tree.add(spec, &payload).map_err(|reason| reader.misplaced(reason))?;
                    frame = reader.next()?;
                    continue;
                }
                _ => return Err(reader.misplaced("no snapshot has begun".into())),
            }
            let begin = StreamBegin::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
            if begin.packed && !reader.header.packed {
                return Err(reader.misplaced(
                    "the frame holds packed records, and the header of the stream does not announce any"
                        .into(),
                ));
            }
            let from = begin.name.split('@').next().unwrap_or_default().to_owned();
            if first.is_none() && tree.top().is_some_and(|top| top != from) {
                return Err(reader.misplaced(format!(
                    "the first snapshot is of '{from}', which is not the top of the stream's tree"
                )));
            }
            let top = first.get_or_insert(from).clone();
            if !spec.dry_run {
                self.follow_names(spec, &mut tree, watch)?;
            }
            let (name, snapshot) = names(spec, &top, &begin).map_err(|reason| reader.misplaced(reason))?;
            let full = format!("{name}@{snapshot}");
            if let Err(reason) = steadfast_property::check_snapshot_name(&full) {
                return Err(Error::ReceivedName { name: full, reason: reason.to_string() });
            }
            if received.is_empty() {
                check_sealing(spec, &name, &begin)?;
            }
            let comes_new = (begin.base == 0 || begin.clone) && !begin.resumed;
            if !spec.dry_run && comes_new && !self.is_there((&name, &snapshot), &begin, false) {
                self.make_way(spec, &tree, &name, watch)?;
            }
            let (before, begun) = (reader.bytes, self.core.env.clock.monotonic_ns());
            let new = begin.base == 0 || self.datasets.table.read().find(&name).is_err();
            let is_top = begin.name.split('@').next() == Some(&top);
            let there = self.is_there((&name, &snapshot), &begin, is_top);
            let becomes_clone = comes_new && !there && (begin.clone || spec.origin.is_some());
            let mut one = Received {
                snapshot: full,
                from: begin.name.clone(),
                increment: begin.base != 0,
                bytes: 0,
                nanos: 0,
                left_out: Vec::new(),
                there,
                origin: becomes_clone.then(|| self.origin_for(spec, &name, &begin)).flatten(),
            };
            watch.begins(&one);
            let mut brought = match there {
                true => Brought::default(),
                false => self.brought(spec, &begin, is_top, new),
            };
            frame = match spec.dry_run || there {
                true => {
                    came.push(None);
                    skip(&mut reader, &begin)?
                }
                false => {
                    let called = (name.as_str(), snapshot.as_str());
                    let between = self.make_between(spec, &name, &begin)?;
                    let taken = self.receive_one(spec, called, (&begin, &brought, &came), &mut reader, watch);
                    if taken.is_err() && self.datasets.table.read().hidden_for(&name).is_none() {
                        self.unmake(&between);
                    }
                    let (next, left_out) = taken?;
                    brought.left_out.extend(left_out);
                    came.push(Some((begin.guid, one.snapshot.clone())));
                    watch.received(&one.snapshot);
                    next
                }
            };
            if becomes_clone && !spec.dry_run {
                one.origin = self.datasets.dataset_info(&name).ok().and_then(|info| info.origin);
            }
            one.bytes = reader.bytes - before;
            one.nanos = self.core.env.clock.monotonic_ns().saturating_sub(begun);
            one.left_out = brought.left_out;
            watch.arrived(&one);
            received.push(one);
        }
    }

    /// The snapshot of which a dataset that is to come will be a clone, if it is here.
    fn origin_for(&self, spec: &ReceiveSpec, name: &str, begin: &StreamBegin) -> Option<String> {
        if spec.origin.is_some() {
            return spec.origin.clone();
        }
        let table = self.datasets.table.read();
        // The parent may be made only now; then the nearest one above is as good.
        let above = std::iter::successors(name.rsplit_once('/'), |(above, _)| above.rsplit_once('/'));
        let parent = above.into_iter().find_map(|(above, _)| table.find(above).ok())?;
        let (id, txg) = table.snapshot_of_guid(begin.base, begin.raw, parent)?;
        let snapshot = &table.get(id)?.snapshots.get(&txg)?.row.name;
        Some(format!("{}@{snapshot}", table.full_name(id)))
    }

    /// A replication that broke off is caught up: what came then is not taken again. A whole
    /// snapshot of the first dataset is refused, as it may be of anything.
    fn is_there(&self, (name, snapshot): (&str, &str), begin: &StreamBegin, is_top: bool) -> bool {
        if begin.resumed || begin.base == 0 && is_top {
            return false;
        }
        let table = self.datasets.table.read();
        let entry = table.find(name).ok().and_then(|id| table.get(id));
        let Some(entry) = entry.filter(|entry| entry.row.raw == begin.raw) else { return false };
        entry.snapshots.values().any(|known| known.row.guid == begin.guid && known.row.name == snapshot)
    }

    /// With `-d` the file systems are made that are missing between what is given and what comes.
    /// Gives their names, what lies above first.
    fn make_between(&self, spec: &ReceiveSpec, name: &str, begin: &StreamBegin) -> Result<Vec<String>> {
        let mut made = Vec::new();
        let is_new = begin.base == 0 || begin.clone || spec.origin.is_some();
        let tail = name.strip_prefix(spec.target.as_str()).and_then(|tail| tail.strip_prefix('/'));
        let Some(tail) = tail.filter(|_| is_new && !begin.resumed && spec.naming == Naming::WithoutPool)
        else {
            return Ok(made);
        };
        for (at, _) in tail.match_indices('/') {
            let between = &name[..spec.target.len() + 1 + at];
            if self.datasets.table.read().find(between).is_ok() {
                continue;
            }
            if let Err(error) = self.datasets.create_dataset(between, Local::new(), None) {
                self.unmake(&made);
                return Err(error);
            }
            made.push(between.to_owned());
        }
        Ok(made)
    }

    /// Destroys the datasets that were created for a receive that failed, unless they are in use by
    /// now.
    fn unmake(&self, made: &[String]) {
        for name in made.iter().rev().filter(|_| !self.core.is_suspended()) {
            let unused = {
                let table = self.datasets.table.read();
                table.find(name).and_then(|id| table.check_no_hidden(id, &[]))
            };
            if unused.and_then(|()| self.datasets.destroy_dataset(name)).is_err() {
                return;
            }
        }
    }

    /// Receives a snapshot. Gives the frame that follows it, and names of properties noted on it
    /// that are none here.
    pub(crate) fn receive_one(
        &self,
        spec: &ReceiveSpec,
        (name, snapshot): (&str, &str),
        (begin, brought, came): (&StreamBegin, &Brought, &Came),
        reader: &mut StreamReader<'_>,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<(Frame, Vec<String>)> {
        let (hidden, pin) = match begin.resumed {
            true => self.datasets.go_on(name, begin)?,
            false => self.begin(spec, (name, snapshot), (begin, brought))?,
        };
        self.datasets.expect_props(hidden, brought);
        // The next frame is read first: a stream that is damaged anywhere up to there changes
        // nothing.
        let filled = self.sweep_base(hidden, begin).and_then(|swept| {
            self.empty_clone(hidden, begin)?;
            let notes = self.fill(hidden, (begin, came), reader, watch)?;
            Ok((swept, notes))
        });
        let filled = filled.and_then(|filled| Ok((filled, reader.next()?)));
        let outcome = filled.and_then(|((swept, notes), next)| {
            drop(pin);
            let (notes, left_out) = self.notes_taken(spec, notes);
            let (goal, in_place) = {
                let table = self.datasets.table.read();
                let entry = table.get(hidden);
                let receiving = entry.and_then(|entry| Some((entry.receiving.as_ref()?, entry.row.parent)));
                let goal = receiving.and_then(|(receiving, parent)| receiving.goal(parent));
                (goal, receiving.is_some_and(|(receiving, _)| receiving.is_in_place()))
            };
            match goal {
                Some(target) if in_place => {
                    watch.before(name)?;
                    let taken = self.take_place((hidden, target), (begin, brought), notes);
                    watch.after(name);
                    taken?;
                }
                Some(target) => {
                    let mut notes = Some(notes);
                    watch.around(name, brought.changes_properties(), &mut || {
                        let notes = notes.take().unwrap_or_default();
                        self.take_over((hidden, target), spec.force, (begin, brought), notes)
                    })?;
                }
                _ if spec.force && self.datasets.table.read().find(name).is_ok() => {
                    watch.before(name)?;
                    let seen = self.become_visible(hidden, (name, Some(brought)), begin, notes);
                    watch.after(name);
                    seen?;
                }
                _ => self.become_visible(hidden, (name, None), begin, notes)?,
            }
            if swept {
                let of = goal.unwrap_or(hidden);
                let mut known = self.swept.lock();
                known.remove(&(of, begin.base));
                known.insert((of, begin.guid));
            }
            Ok((next, left_out))
        });
        if outcome.is_err() && !self.core.is_suspended() {
            self.datasets.broke_off(hidden)?;
        }
        outcome
    }

    /// Removes what an earlier version left of inodes that an increment removed, before another one
    /// comes upon it: of each dataset once, as what is received upon a swept snapshot has none.
    /// True if the hidden dataset has none now.
    fn sweep_base(&self, hidden: DatasetId, begin: &StreamBegin) -> Result<bool> {
        if begin.base == 0 || begin.raw || begin.volume {
            return Ok(true);
        }
        let base =
            self.datasets.table.read().get(hidden).and_then(|entry| {
                entry.receiving.as_ref().map(|receiving| (receiving.row.target, begin.base))
            });
        // A part that came before may have an inode whose new name is still to come.
        if begin.resumed {
            return Ok(false);
        }
        if base.is_some_and(|base| self.swept.lock().contains(&base)) {
            return Ok(true);
        }
        // A tree that cannot be read or understood is not swept: the stream tells of what it needs.
        let Ok(count) = self.datasets.open_head(hidden)?.remove_dead_records() else { return Ok(false) };
        if count > 0 {
            // The owners are counted by one commit, and written by the next.
            self.core.commit_changes()?;
            self.core.commit_changes()?;
            self.core.note_done(&format!("removed {count} records of inodes that earlier streams removed"));
        }
        Ok(true)
    }

    /// Makes a hidden dataset for what is to be received.
    pub(crate) fn begin(
        &self,
        spec: &ReceiveSpec,
        (name, snapshot): (&str, &str),
        (begin, brought): (&StreamBegin, &Brought),
    ) -> Result<(DatasetId, Option<Arc<()>>)> {
        let left_over = {
            let table = self.datasets.table.read();
            table.hidden_for(name).map(|id| {
                let receiving = table.get(id).and_then(|entry| entry.receiving.as_ref());
                (id, receiving.is_some_and(|r| r.active), receiving.is_some_and(|r| r.row.kept))
            })
        };
        match left_over {
            Some((_, true, _)) => return Err(Error::ReceiveActive { name: name.to_owned() }),
            Some((_, false, true)) => return Err(Error::PartialExists { name: name.to_owned() }),
            Some((id, false, false)) => self.datasets.discard(id)?,
            None => {}
        }
        let target = self.datasets.table.read().find(name).ok();
        match (begin.base, target) {
            (0, Some(_)) if !spec.force || spec.origin.is_some() => {
                Err(Error::DestinationExists { name: name.to_owned() })
            }
            (0, Some(target)) if self.must_stay(target) => {
                Ok((self.begin_in_place(spec, target, (name, snapshot), (begin, brought))?, None))
            }
            (0, Some(target)) => {
                match self.datasets.check_destroy(&self.datasets.table.read(), name, false) {
                    // A mounted dataset is dealt with at the end.
                    Ok(()) | Err(Error::Busy { .. }) => {}
                    Err(error) => return Err(error),
                }
                let was = self.is_encrypted(target);
                let parent =
                    name.rsplit_once('/').and_then(|(above, _)| self.datasets.table.read().find(above).ok());
                let is_encrypted =
                    begin.raw || spec.key.is_some() || parent.is_some_and(|above| self.is_encrypted(above));
                if was && !is_encrypted {
                    return Err(Error::WouldDecrypt { name: name.to_owned() });
                }
                Ok((self.begin_new(spec, (name, snapshot), (begin, brought))?, None))
            }
            (0, None) if spec.origin.is_none() => {
                Ok((self.begin_new(spec, (name, snapshot), (begin, brought))?, None))
            }
            (_, None) if begin.clone || spec.origin.is_some() => {
                self.begin_clone(spec, (name, snapshot), (begin, brought))
            }
            (_, None) => Err(Error::NoSuchDataset { name: name.to_owned() }),
            (_, Some(target)) => {
                self.datasets.check_brought(target, brought)?;
                self.begin_upon(spec, target, (name, snapshot), begin)
            }
        }
    }

    /// Is a dataset stored encrypted, here or by its sender?
    fn is_encrypted(&self, id: DatasetId) -> bool {
        self.datasets.table.read().get(id).is_some_and(|entry| entry.is_encrypted() || entry.row.raw)
    }

    pub(crate) fn is_kept_packed(&self, begin: &StreamBegin) -> bool {
        begin.packed && self.core.has_feature(PACKED_FEATURE)
    }

    pub(crate) fn begin_new(
        &self,
        spec: &ReceiveSpec,
        (name, snapshot): (&str, &str),
        (begin, brought): (&StreamBegin, &Brought),
    ) -> Result<DatasetId> {
        let Some((parent_name, last)) = name.rsplit_once('/') else {
            return Err(Error::DestinationExists { name: name.to_owned() });
        };
        let parent = self.datasets.table.read().find(parent_name);
        let parent = parent.map_err(|_| Error::NoParent { parent: parent_name.to_owned() })?;
        self.datasets.table.read().check_parent(parent)?;
        if begin.volume {
            self.core.need_feature(crate::datasets::volumes::FEATURE)?;
        }
        let replaced = self.datasets.table.read().find(name).ok();
        let (mut props, mut received, limits_of_target) = {
            let table = self.datasets.table.read();
            match replaced.and_then(|id| table.get(id)) {
                Some(entry) => {
                    let (props, received) = entry.props_to_keep(begin.volume);
                    (props, received, entry.props.clone())
                }
                None => Default::default(),
            }
        };
        brought.apply(&mut props, &mut received);
        if begin.raw {
            note_root(&mut props);
        }
        // Nothing can be sealed below a raw dataset, so the word of the sender counts there
        // (docs/decisions/0243).
        if brought.clear && brought.key.is_none() && self.datasets.is_raw(parent) {
            props.entry("encryption".into()).or_insert_with(|| "off".into());
        }
        if begin.raw && begin.volume {
            self.core.need_feature(crate::datasets::raw::VOLUME_FEATURE)?;
        }
        match begin.raw {
            true => self.core.need_feature(crate::datasets::raw::FEATURE)?,
            false if brought.key.is_some() => self.core.need_feature("encryption")?,
            false if is_clear(&props) => {}
            false => self.datasets.check_not_raw(parent, parent_name)?,
        }
        // A replaced dataset makes room for the new one.
        if replaced.is_none() {
            self.datasets.table.read().check_filesystem_limits(parent, None)?;
        }
        self.datasets.check_snapshot_limits(&self.datasets.table.read(), &[(parent, 1)], &[])?;
        // Limits that the replaced dataset has already are kept already.
        let mut limits = props.clone();
        limits.retain(|name, value| limits_of_target.get(name) != Some(value));
        self.datasets.check_new_limits(parent, name, &limits)?;
        self.datasets.check_owner_quotas(props.keys().map(String::as_str))?;
        self.datasets.check_props(&props)?;
        let row = ReceiveRow {
            target: DatasetId(0),
            base: None,
            guid: begin.guid,
            position: (InodeId(0), 0),
            kept: spec.keep,
            clone: false,
            packed: self.is_kept_packed(begin),
            name: format!("{last}@{snapshot}"),
        };
        let receiving = Receiving::new(row, true);
        let own = (props, received, brought.key.clone());
        let id =
            self.datasets.add_hidden(parent, own, begin.hash_seed, receiving, begin.raw, begin.volume)?;
        self.core.commit_changes()?;
        Ok(id)
    }

    pub(crate) fn begin_upon(
        &self,
        spec: &ReceiveSpec,
        target: DatasetId,
        (name, snapshot): (&str, &str),
        begin: &StreamBegin,
    ) -> Result<(DatasetId, Option<Arc<()>>)> {
        // Whether it was changed since is told by its roots, if they are stored.
        if self.datasets.open_head(target)?.has_uncommitted() {
            self.core.commit_changes()?;
        }
        let mut table = self.datasets.table.write();
        let entry = table.get(target).ok_or_else(|| Error::NoSuchDataset { name: name.to_owned() })?;
        let txg = self.check_target((&*table, entry), name, snapshot, spec.force, begin)?;
        // Younger snapshots that go make room for the new one.
        if entry.snapshots.range(txg.next()..).next().is_none() {
            self.datasets.check_snapshot_limits(&table, &[(target, 1)], &[])?;
        }
        if entry.row.raw != begin.raw {
            return Err(Error::RawMixed { name: name.to_owned() });
        }
        let receiving = ReceiveRow {
            target,
            base: Some((txg, entry.snapshots[&txg].row.guid)),
            guid: begin.guid,
            position: (InodeId(0), 0),
            kept: spec.keep,
            clone: false,
            packed: self.is_kept_packed(begin),
            name: format!("@{snapshot}"),
        };
        let (id, pin) = self.hide_upon(&mut table, name, target, receiving, Default::default())?;
        drop(table);
        // The first commit with content stores the row, too: a crash before it leaves nothing.
        self.datasets.open_to_receive(id)?;
        Ok((id, Some(pin)))
    }

    /// Begins a dataset that is to become a clone.
    pub(crate) fn begin_clone(
        &self,
        spec: &ReceiveSpec,
        (name, snapshot): (&str, &str),
        (begin, brought): (&StreamBegin, &Brought),
    ) -> Result<(DatasetId, Option<Arc<()>>)> {
        self.core.need_feature(crate::datasets::clones::FEATURE)?;
        self.core.need_feature(CLONE_FEATURE)?;
        let no_parent = |parent: &str| Error::NoParent { parent: parent.to_owned() };
        let (parent_name, last) = name.rsplit_once('/').ok_or_else(|| no_parent(""))?;
        let parent = self.datasets.table.read().find(parent_name).map_err(|_| no_parent(parent_name))?;
        self.datasets.table.read().check_parent(parent)?;
        let (mut props, mut received) = (Local::new(), ReceivedProps::default());
        brought.apply(&mut props, &mut received);
        let below_raw = self.datasets.is_raw(parent);
        match begin.raw {
            true => note_root(&mut props),
            // As for one that is no clone; its origin tells whether the word is true.
            false if brought.clear && below_raw => {
                props.entry("encryption".into()).or_insert_with(|| "off".into());
            }
            false => self.datasets.check_not_raw(parent, parent_name)?,
        }
        self.datasets.table.read().check_filesystem_limits(parent, None)?;
        self.datasets.check_snapshot_limits(&self.datasets.table.read(), &[(parent, 1)], &[])?;
        self.datasets.check_new_limits(parent, name, &props)?;
        self.datasets.check_owner_quotas(props.keys().map(String::as_str))?;
        self.datasets.check_props(&props)?;
        let no_origin = || Error::NoOrigin { name: name.to_owned() };
        let mixed = || Error::RawMixed { name: name.to_owned() };
        // A snapshot sent both opened and sealed has the same guid in both forms.
        let of_guid = |table: &Table, raw| table.snapshot_of_guid(begin.base, raw, parent);
        let find = |table: &Table| match &spec.origin {
            Some(origin) => table.find_snapshot(origin),
            None => of_guid(table, begin.raw).ok_or_else(|| match of_guid(table, !begin.raw) {
                Some(_) => mixed(),
                None => no_origin(),
            }),
        };
        let (of, _) = find(&self.datasets.table.read())?;
        // Fails early if the origin cannot be read.
        self.datasets.open_head(of)?;
        let mut table = self.datasets.table.write();
        let (of, txg) = find(&table)?;
        let entry = table.get(of).filter(|entry| !entry.row.destroying).ok_or_else(no_origin)?;
        let guid = entry.snapshots[&txg].row.guid;
        if begin.base == 0 {
            check_origin_of_whole(spec, entry, name, begin)?;
        } else if guid != begin.base {
            return Err(no_origin());
        }
        if entry.row.raw != begin.raw {
            return Err(mixed());
        }
        if below_raw && !begin.raw && entry.is_encrypted() {
            return Err(Error::Raw { name: parent_name.to_owned() });
        }
        let receiving = ReceiveRow {
            target: of,
            base: Some((txg, guid)),
            guid: begin.guid,
            position: (InodeId(0), 0),
            kept: spec.keep,
            clone: true,
            packed: self.is_kept_packed(begin),
            name: format!("{last}@{snapshot}"),
        };
        let (id, pin) = self.hide_upon(&mut table, name, parent, receiving, (props, received))?;
        drop(table);
        self.datasets.open_to_receive(id)?;
        self.core.commit_changes()?;
        Ok((id, Some(pin)))
    }

    /// Puts a dataset into the table that nobody sees and that begins as a snapshot. The next
    /// commit stores it.
    fn hide_upon(
        &self,
        table: &mut Table,
        name: &str,
        parent: DatasetId,
        receiving: ReceiveRow,
        (props, received): (Local, ReceivedProps),
    ) -> Result<(DatasetId, Arc<()>)> {
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        table.check_stays(parent)?;
        let of = receiving.target;
        let (txg, _) = receiving.base.ok_or_else(missing)?;
        let entry = table.get(of).ok_or_else(missing)?;
        let base = &entry.snapshots[&txg];
        let pin = Arc::clone(&base.pins);
        let mut row = entry.row.clone();
        row.id = table.next_id();
        row.name = hidden_name(row.id);
        row.parent = parent;
        row.names = base.row.names;
        row.extents = base.row.extents;
        (row.used, row.data, row.logical) = (base.row.used, base.row.data, base.row.logical);
        (row.files, row.next_inode) = (base.row.files, base.row.next_inode);
        row.lineage = Lineage { family: entry.row.family(), ..Lineage::default() };
        let mut keys = entry.keys.clone();
        if let (Some(encryption), Some(keys)) = (&mut row.encryption, &mut keys) {
            let root = encryption.root;
            let loaded = table.get(root).and_then(|entry| entry.keys.as_ref()?.user.clone());
            let user = loaded.ok_or_else(|| Error::KeyNotLoaded { name: table.full_name(root) })?;
            let random = |out: &mut [u8]| self.core.env.random.fill(out);
            let aad = crate::datasets::keys::wrap_aad(self.core.identity.guid, row.id);
            encryption.wrapped = steadfast_crypto::wrap(&user, keys.blocks.master(), &aad, &random);
            if receiving.clone {
                // The same master key, and a salt of its own: no nonce is used twice.
                keys.blocks = Arc::new(BlockKeys::new(keys.blocks.master().clone(), &random));
                keys.user = None;
            }
        }
        let chain = table.chain_up_to(of, txg);
        let id = table.take_id();
        // Blocks of the target's future belong to the target's manifest from the beginning.
        let writers = match receiving.clone {
            true => self.datasets.writers_of_clone(table, (of, txg), id),
            false => table.get(of).map(|entry| entry.writers.clone()).unwrap_or_default(),
        };
        if receiving.clone {
            (row.created_txg, row.created_ns) = (self.core.txgs.gate.open_txg(), self.core.now_ns());
        }
        let mut hidden = Entry::new(row, props);
        hidden.props_dirty = hidden.props.keys().cloned().collect();
        hidden.received = received;
        hidden.keys = keys;
        hidden.row_dirty = true;
        hidden.receive_dirty = true;
        hidden.set_writers(writers);
        hidden.deadlist.set_chain(chain, Txg(0));
        hidden.receiving = Some(Receiving::new(receiving, true));
        table.insert(hidden);
        Ok((id, pin))
    }

    /// The txg of the base, if an increment upon it can be received.
    pub(crate) fn check_target(
        &self,
        (table, entry): (&Table, &Entry),
        name: &str,
        snapshot: &str,
        force: bool,
        begin: &StreamBegin,
    ) -> Result<Txg> {
        let by_guid =
            |guid| entry.snapshots.iter().find(move |(_, s)| s.row.guid == guid).map(|(txg, _)| *txg);
        if by_guid(begin.guid).is_some() {
            return Err(Error::SnapshotExists { name: format!("{name}@{snapshot}") });
        }
        let txg = by_guid(begin.base).ok_or_else(|| Error::NoBase { name: name.to_owned() })?;
        // Something else may be received upon one of them.
        self.datasets.check_receives(table, entry.row.id, |base| base > txg)?;
        let younger: Vec<&crate::datasets::snapshot::Snapshot> =
            entry.snapshots.range(txg.next()..).map(|(_, s)| s).collect();
        if !younger.is_empty() && !force {
            let snapshots = younger.iter().map(|s| format!("{name}@{}", s.row.name)).collect();
            return Err(Error::BaseNotYoungest { name: name.to_owned(), snapshots });
        }
        for held in younger {
            let full = format!("{name}@{}", held.row.name);
            if !held.holds.is_empty() {
                return Err(Error::SnapshotHeld { name: full, tags: held.holds.keys().cloned().collect() });
            }
            if held.is_pinned() {
                return Err(Error::SnapshotPinned { name: full });
            }
            let clones = table.clones_of(held.row.number);
            if !clones.is_empty() {
                let clones = clones.into_iter().map(|clone| table.full_name(clone)).collect();
                return Err(Error::HasClones { name: full, clones });
            }
        }
        let older = entry.snapshots.range(..=txg);
        if older.into_iter().any(|(_, s)| s.row.name == snapshot) {
            return Err(Error::SnapshotExists { name: format!("{name}@{snapshot}") });
        }
        if !force && is_modified(entry, txg)? {
            return Err(Error::Modified { name: name.to_owned() });
        }
        Ok(txg)
    }
}

/// Refuses to say how something is encrypted of what is sealed already, or goes upon what is there.
/// And what is kept of a receive that broke off could not be gone on with after an import: its key
/// is loaded by a name, and it has none yet.
fn check_sealing(spec: &ReceiveSpec, name: &str, begin: &StreamBegin) -> Result<()> {
    let reason = match spec.key {
        None if !spec.props.keys().any(|name| KEY_PROPERTIES.contains(&name.as_str())) => return Ok(()),
        _ if begin.raw => "the stream is raw and brings its own key",
        _ if begin.base != 0 || begin.resumed => "an increment is encrypted as its target is",
        _ if spec.origin.is_some() => "a clone is encrypted as its origin is",
        Some(_) if spec.keep => "a receive kept by -s could not be resumed after an import without its key",
        _ => return Ok(()),
    };
    Err(Error::NoNewKey { name: name.to_owned(), reason })
}

/// Refuses a full stream that cannot become a clone of a snapshot of this dataset. A dataset has
/// one seed, by which it orders its directories, and increments of the stream's source bring its
/// order.
fn check_origin_of_whole(spec: &ReceiveSpec, of: &Entry, name: &str, begin: &StreamBegin) -> Result<()> {
    let reason = match () {
        () if begin.raw => "it is raw, and a raw clone begins as an increment",
        () if spec.keep => "what is kept of it (-s) could not be continued",
        () if of.row.volume != begin.volume => "one is a volume, and the other a file system",
        () if !begin.volume && of.row.hash_seed != begin.hash_seed => {
            "only snapshots that came from the same file system as the stream, or from a clone of it, \
             order their directories alike"
        }
        () => return Ok(()),
    };
    let origin = spec.origin.clone().unwrap_or_default();
    Err(Error::OriginOfWhole { name: name.to_owned(), origin, reason })
}

/// A raw dataset is an encryption root, wherever it is received.
pub(crate) fn note_root(props: &mut Local) {
    props.entry("keylocation".to_owned()).or_insert_with(|| "prompt".to_owned());
}

/// True if a dataset is not what it was at a snapshot. Access times, another form of storage, and
/// the end of files without a name are no change.
fn is_modified(entry: &Entry, txg: Txg) -> Result<bool> {
    let base = &entry.snapshots[&txg].row;
    if entry.row.names == base.names {
        return Ok(false);
    }
    let Some(open) = &entry.open else { return Ok(true) };
    let same = |old: &[u8], new: &[u8]| match (InodeRecord::decode(old), InodeRecord::decode(new)) {
        (Ok(old), Ok(new)) => InodeRecord { allocated: new.allocated, atime: new.atime, ..old } == new,
        _ => false,
    };
    let (mut modified, mut orphan) = (false, None);
    let upon = Base { root: base.names, txg };
    differences(&open.blocks, Some(upon), entry.row.names, &mut |key, old, new| {
        let gone = new.is_none();
        modified |= match NamesKey::decode(key) {
            Ok(NamesKey::Orphan(_)) => !gone,
            Ok(NamesKey::Inode(inode)) => {
                let record = old.and_then(|old| InodeRecord::decode(old).ok());
                if gone && record.is_some_and(|record| record.nlink == 0) {
                    orphan = Some(inode);
                    return Ok(());
                }
                !old.zip(new).is_some_and(|(old, new)| same(old, new))
            }
            Ok(NamesKey::Xattr { inode, .. } | NamesKey::Target { inode, .. }) => {
                !gone || orphan != Some(inode)
            }
            _ => true,
        };
        Ok(())
    })?;
    Ok(modified)
}

/// Names of dataset and snapshot that a snapshot of a stream gets.
fn names(
    spec: &ReceiveSpec,
    top: &str,
    begin: &StreamBegin,
) -> std::result::Result<(String, String), String> {
    let bad = || format!("the snapshot name {:?} is not valid", begin.name);
    steadfast_property::check_snapshot_name(&begin.name).map_err(|_| bad())?;
    let (from, sent) = begin.name.split_once('@').ok_or_else(bad)?;
    let (_, given) = spec.target.split_once('@').unwrap_or((&spec.target, ""));
    let name = name_of(spec, top, from);
    let snapshot = if given.is_empty() { sent } else { given };
    Ok((name, snapshot.to_owned()))
}

/// Name that a dataset gets which had another one where it comes from.
pub(crate) fn name_of(spec: &ReceiveSpec, top: &str, from: &str) -> String {
    let target = spec.target.split('@').next().unwrap_or_default();
    let tail = match spec.naming {
        Naming::WithoutPool => from.split_once('/').map_or("", |(_, tail)| tail),
        Naming::LastOnly => match from.strip_prefix(top) {
            Some(below) => &from[top.rfind('/').map_or(0, |at| at + 1)..top.len() + below.len()],
            None => from.rsplit('/').next().unwrap_or(from),
        },
        Naming::AsGiven => from.strip_prefix(top).unwrap_or_default().trim_start_matches('/'),
    };
    if tail.is_empty() { target.to_owned() } else { format!("{target}/{tail}") }
}

/// Reads a snapshot's frames without making anything of them.
fn skip(reader: &mut StreamReader<'_>, begin: &StreamBegin) -> Result<Frame> {
    loop {
        let (kind, payload) = reader.next()?;
        if kind == FrameKind::End {
            let end = StreamEnd::decode(&payload).map_err(|error| reader.misplaced(error.to_string()))?;
            return match end.guid == begin.guid {
                true => reader.next(),
                false => Err(reader.misplaced("the end frame is of another snapshot".into())),
            };
        }
        if matches!(kind, FrameKind::Begin | FrameKind::Close) {
            return Err(reader.misplaced("a snapshot begins before the previous one has ended".into()));
        }
    }
}

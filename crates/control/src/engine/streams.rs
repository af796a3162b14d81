//! Verbs of streams. They take long, so they hold up no other verb but at the moments at which they change what is mounted.

use super::mounts::Placed;
use super::{Engine, Held, filesystems, refuse};
use crate::api::{
    Caller, FsBookmark, FsBookmarkDestroy, FsDiff, FsDiffEntry, FsReceive, FsReceiveAbort, FsSend, Outcome,
    Properties, Receipt, ReceiveNaming, ReceivedPart, Sent, SentPart, StreamHost,
};
use crate::descriptor::Descriptor;
use crate::refusal::{Code, Refusal};
use parking_lot::MutexGuard;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steadfast_pool::{ChangeKind, FileChange, Naming, ReceiveSpec, ReceiveWatch, SendSpec};

/// How often a command is told of progress.
const TELL_NS: u64 = 200_000_000;
/// What tokens begin with, those of raw streams, and those of compressed ones.
const TOKENS: [&str; 3] = ["1-", "2-", "3-"];

/// Where a receive broke off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Token {
    guid: u64,
    base: u64,
    inode: u64,
    offset: u64,
    /// What arrives is sealed, or compressed, or neither.
    form: Form,
}

/// In which form content is sent. In the order of [`TOKENS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Plain,
    Raw,
    Compressed,
}

impl Token {
    fn encode(self) -> String {
        let mut bytes = Vec::with_capacity(32);
        for number in [self.guid, self.base, self.inode, self.offset] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        format!("{}{:016x}-{}", TOKENS[self.form as usize], check_of(&bytes), hex(&bytes))
    }

    fn decode(text: &str) -> Option<Token> {
        let forms = [Form::Plain, Form::Raw, Form::Compressed];
        let form = forms.into_iter().find(|form| text.starts_with(TOKENS[*form as usize]))?;
        let token = TOKENS[form as usize];
        let (check, body) = text.strip_prefix(token)?.split_once('-')?;
        if body.len() != 64 || !body.is_ascii() {
            return None;
        }
        let bytes: Option<Vec<u8>> =
            (0..32).map(|at| u8::from_str_radix(&body[2 * at..2 * at + 2], 16).ok()).collect();
        let bytes = bytes?;
        if u64::from_str_radix(check, 16).ok()? != check_of(&bytes)
            || format!("{token}{check}-{}", hex(&bytes)) != text
        {
            return None;
        }
        let number =
            |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        Some(Token { guid: number(0), base: number(1), inode: number(2), offset: number(3), form })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// FNV-1a: a token that was typed or cut wrongly is noticed; nobody is kept from making one.
fn check_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The top of a tree that is sent, and what of it is left out.
type Tree = (String, Vec<String>);

/// What is sent: of which pool, the snapshots, and the tree if it is one.
type Sending = (Arc<Held>, Vec<SendSpec>, Option<Tree>);

/// Counts a pool's streams.
struct Under<'a>(&'a Held);

impl<'a> Under<'a> {
    fn way(held: &'a Held) -> Under<'a> {
        held.streams.fetch_add(1, Ordering::AcqRel);
        Under(held)
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl StreamHost for Engine {
    fn fs_send(&self, caller: &Caller, request: FsSend) -> Result<Sent, Refusal> {
        let mut sent = Sent::default();
        let (held, specs, tree) = self.what_to_send(&request, &mut sent.skipped)?;
        for spec in &specs {
            let estimate = match request.dry_run {
                true => held.pool.send_estimate(spec),
                // Who is sending has asked before, if that is of interest.
                false => held.pool.check_send(spec),
            };
            let estimate = estimate.map_err(refuse::pool)?;
            let (snapshot, base) = (spec.snapshot.clone(), spec.base.clone());
            sent.parts.push(SentPart { snapshot, base, estimate });
        }
        if request.dry_run {
            return Ok(sent);
        }
        let mut out = descriptor(caller)?;
        let _under = Under::way(&held);
        let teller = out.clone();
        let mut told = self.env.clock.monotonic_ns();
        let mut progress = |snapshot: &str, bytes: u64| {
            let now = self.env.clock.monotonic_ns();
            if now.saturating_sub(told) >= TELL_NS {
                told = now;
                teller.progress(snapshot, bytes);
            }
        };
        sent.bytes = match &tree {
            None => held.pool.send(&specs, &mut out, &mut progress),
            Some((top, left_out)) => held.pool.send_tree((top, left_out), &specs, &mut out, &mut progress),
        }
        .map_err(refuse::pool)?;
        self.log(&held, caller);
        Ok(sent)
    }

    fn fs_receive(&self, caller: &Caller, request: FsReceive) -> Result<Receipt, Refusal> {
        let held = self.held(request.target.split('@').next().unwrap_or(&request.target))?;
        if !request.dry_run {
            self.check_writable(&held)?;
        }
        let mut props = request.properties.clone();
        self.sealing_rules(&held, &request, &mut props)?;
        let key = request.key.as_ref().map(|key| self.new_key(key)).transpose()?;
        let mut input = descriptor(caller)?;
        let _under = Under::way(&held);
        let naming = match request.naming {
            ReceiveNaming::AsGiven => Naming::AsGiven,
            ReceiveNaming::WithoutPool => Naming::WithoutPool,
            ReceiveNaming::LastOnly => Naming::LastOnly,
        };
        let before = held.pool.datasets();
        let spec = ReceiveSpec {
            target: request.target.clone(),
            naming,
            force: request.force,
            keep: request.keep,
            dry_run: request.dry_run,
            props,
            key,
            exclude: request.exclude.clone(),
            origin: request.origin.clone(),
            no_holds: request.no_holds,
        };
        let begun = self.env.clock.monotonic_ns();
        let mut watch = Watch {
            engine: self,
            held: &held,
            force: request.unmount,
            teller: input.clone(),
            told: begun,
            turn: None,
            placed: Vec::new(),
            waiting: Vec::new(),
            renames: Vec::new(),
            places: Vec::new(),
            refused: None,
            warnings: Vec::new(),
            touched: BTreeSet::new(),
        };
        let received = held.pool.receive(&spec, &mut input, &mut watch);
        let Watch { warnings, refused, touched, waiting, renames, .. } = watch;
        held.note_snapshots(touched.iter().map(String::as_str));
        if received.is_err() && !touched.is_empty() {
            // What came before is there, and by whom and when is to be found.
            self.log(&held, caller);
        }
        let nanos = self.env.clock.monotonic_ns().saturating_sub(begun);
        let mut receipt = Receipt { parts: Vec::new(), warnings };
        let mut not_in_place = Vec::new();
        if !request.dry_run {
            // What came before an error stays, and is treated like all that is new.
            let _turn = self.verbs.lock();
            let before: BTreeSet<String> =
                before.into_iter().map(|name| renames.iter().fold(name, renamed_by)).collect();
            let mut new: Vec<String> =
                held.pool.datasets().into_iter().filter(|name| !before.contains(name)).collect();
            held.note_snapshots(new.iter().map(String::as_str));
            if request.no_mount {
                new.clear();
            }
            let mut waiting = waiting;
            if received.is_err() {
                not_in_place = self.mount_back(&held, std::mem::take(&mut waiting));
                new.retain(|name| !not_in_place.iter().any(|(above, _)| is_at_or_below(name, above)));
            }
            let target = request.target.split('@').next().unwrap_or_default();
            receipt.warnings.extend(match received {
                Ok(_) => self.mount_all_received(&held, (target, new), waiting),
                Err(_) => self.mount_these(&held, new.into_iter(), Vec::new()),
            });
        }
        let told = |error| {
            let is_busy = matches!(error, steadfast_pool::Error::Busy { .. });
            let mut refusal = refused.filter(|_| is_busy).unwrap_or_else(|| refuse::receive(error));
            // `receive -f` is no word.
            refusal.action = refusal.action.replace("add -f", "add -M");
            for (_, sentence) in not_in_place {
                refusal.meaning.push(' ');
                refusal.meaning.push_str(&sentence);
            }
            refusal
        };
        for part in received.map_err(told)? {
            let (snapshot, from) = (part.snapshot, part.from);
            for property in part.left_out {
                let what = format!(
                    "'{snapshot}' came with '{property}', which is no property here or has no such value"
                );
                receipt.warnings.push(Refusal::new(Code::PropUnknown, what).with("property", &property));
            }
            let (increment, bytes, there) = (part.increment, part.bytes, part.there);
            receipt.parts.push(ReceivedPart { snapshot, from, increment, bytes, nanos, there });
        }
        if !request.dry_run {
            self.log(&held, caller);
        }
        Ok(receipt)
    }

    fn fs_diff(&self, _: &Caller, request: FsDiff) -> Result<Vec<FsDiffEntry>, Refusal> {
        let fs = request.base.split('@').next().unwrap_or_default();
        let held = self.held(fs)?;
        let top = held.mounted_at(fs).map(|at| at.display().to_string()).unwrap_or_default();
        // What a volume is, is a file at its mountpoint.
        let is_volume = held.pool.dataset_info(fs).map_err(refuse::pool)?.volume.is_some();
        let path = |path: &[u8]| match is_volume {
            true => top.clone(),
            false => format!("{}/{}", top.trim_end_matches('/'), readable(path)),
        };
        let entry = |change: FileChange| FsDiffEntry {
            change: match change.kind {
                ChangeKind::Modified => "M",
                ChangeKind::Added => "+",
                ChangeKind::Removed => "-",
                ChangeKind::Renamed => "R",
            }
            .to_owned(),
            kind: match change.mode & 0o170_000 {
                0o040_000 => "/",
                0o120_000 => "@",
                0o010_000 => "|",
                0o140_000 => "=",
                0o020_000 => "C",
                0o060_000 => "B",
                _ => "F",
            }
            .to_owned(),
            path: path(&change.path),
            to: change.to.as_deref().map(path),
            time: format!("{}.{:09}", change.changed.seconds, change.changed.nanos),
        };
        let changes = held.pool.diff(&request.base, &request.target).map_err(refuse::pool)?;
        Ok(changes.into_iter().map(entry).collect())
    }

    fn fs_bookmark(&self, caller: &Caller, request: FsBookmark) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let fs = request.of.split(['@', '#']).next().unwrap_or_default();
        let held = self.held(fs)?;
        self.check_writable(&held)?;
        held.pool.add_bookmark(&request.of, &request.name).map_err(refuse::pool)?;
        self.log(&held, caller);
        Ok(super::touched(&format!("{fs}#{}", request.name)))
    }

    fn fs_bookmark_destroy(&self, caller: &Caller, request: FsBookmarkDestroy) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(request.name.split('#').next().unwrap_or_default())?;
        self.check_writable(&held)?;
        held.pool.remove_bookmark(&request.name).map_err(refuse::pool)?;
        self.log(&held, caller);
        Ok(super::touched(&request.name))
    }

    fn fs_receive_abort(&self, caller: &Caller, request: FsReceiveAbort) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        let held = self.held(&request.name)?;
        self.check_writable(&held)?;
        held.pool.abort_receive(&request.name).map_err(refuse::pool)?;
        self.log(&held, caller);
        Ok(super::touched(&request.name))
    }
}

/// Stands beside a receive: unmounts what is about to change, tells how far it is.
struct Watch<'e> {
    engine: &'e Engine,
    held: &'e Arc<Held>,
    /// Though files of it are open, or a client uses it.
    force: bool,
    teller: Descriptor,
    told: u64,
    /// While a dataset changes no other verb does anything.
    turn: Option<MutexGuard<'e, ()>>,
    placed: Vec<Placed>,
    /// What is mounted when all was received (`received_mounts.rs`).
    waiting: Vec<Placed>,
    /// Names that datasets had and have now, in the order of events.
    renames: Vec<(String, String)>,
    /// Where what is destroyed was mounted.
    places: Vec<PathBuf>,
    /// Why it could not be unmounted.
    refused: Option<Refusal>,
    warnings: Vec<Refusal>,
    /// Datasets of which something changed.
    touched: BTreeSet<String>,
}

impl ReceiveWatch for Watch<'_> {
    fn before(&mut self, dataset: &str) -> steadfast_pool::Result<()> {
        self.turn = Some(self.engine.verbs.lock());
        self.refused = None;
        let parted = match self.force {
            true => self.engine.part_clients(self.held, dataset, true),
            false => Ok(()),
        };
        match parted.and_then(|()| self.engine.leave(self.held, &[dataset.to_owned()], self.force)) {
            Ok(left) => {
                self.placed = left;
                Ok(())
            }
            Err(refusal) => {
                self.turn = None;
                self.refused = Some(refusal);
                Err(steadfast_pool::Error::Busy { name: dataset.to_owned() })
            }
        }
    }

    fn after(&mut self, _: &str) {
        let placed = std::mem::take(&mut self.placed);
        self.warnings.extend(self.engine.mount_or_wait(self.held, placed, &mut self.waiting));
        self.turn = None;
    }

    fn received(&mut self, snapshot: &str) {
        self.touched.extend(snapshot.split('@').next().map(str::to_owned));
    }

    fn renamed(&mut self, dataset: &str, to: &str) {
        if dataset != to {
            self.touched.insert(to.to_owned());
            self.waiting.append(&mut self.placed);
            let rename = (dataset.to_owned(), to.to_owned());
            for placed in &mut self.waiting {
                placed.name = renamed_by(std::mem::take(&mut placed.name), &rename);
            }
            self.renames.push(rename);
        }
        self.after(to);
    }

    fn destroying(&mut self, datasets: &[String]) -> steadfast_pool::Result<()> {
        let Some(top) = datasets.last() else { return Ok(()) };
        let places = self.held.places_of(datasets);
        self.before(top)?;
        self.places = places;
        Ok(())
    }

    fn destroyed(&mut self, datasets: &[String]) {
        let there = self.held.pool.datasets();
        self.touched.extend(datasets.iter().filter(|name| !there.contains(name)).cloned());
        self.placed.retain(|placed| there.contains(&placed.name));
        self.waiting.retain(|placed| there.contains(&placed.name));
        let places = std::mem::take(&mut self.places);
        if datasets.iter().all(|name| !there.contains(name)) {
            for at in places.iter().filter(|at| self.held.is_inside_ours(at)) {
                super::mounts::unmake(std::slice::from_ref(at));
            }
        }
        datasets.last().into_iter().for_each(|top| self.after(top));
    }

    fn snapshots_changed(&mut self, dataset: &str) {
        self.touched.insert(dataset.to_owned());
    }

    fn not_followed(&mut self, error: steadfast_pool::Error) {
        let is_busy = matches!(error, steadfast_pool::Error::Busy { .. });
        let mut refusal = self.refused.take().filter(|_| is_busy).unwrap_or_else(|| refuse::pool(error));
        refusal.what = format!("not all of the tree that it is of was followed: {}", refusal.what);
        self.warnings.push(refusal);
    }

    fn progress(&mut self, snapshot: &str, bytes: u64) {
        let now = self.engine.env.clock.monotonic_ns();
        if now.saturating_sub(self.told) >= TELL_NS {
            self.told = now;
            self.teller.progress(snapshot, bytes);
        }
    }
}

impl Engine {
    /// Brings encryption, keyformat and keylocation of what is received into agreement with what it comes to lie in, as for something new.
    fn sealing_rules(&self, held: &Held, request: &FsReceive, props: &mut Properties) -> Result<(), Refusal> {
        if request.key.is_none() && !props.contains_key("encryption") {
            return Ok(());
        }
        let name = request.target.split('@').next().unwrap_or(&request.target);
        let above = match request.naming {
            ReceiveNaming::AsGiven => name.rsplit_once('/').map_or(name, |(above, _)| above),
            ReceiveNaming::WithoutPool | ReceiveNaming::LastOnly => name,
        };
        let above = held.pool.dataset_info(above).map_err(refuse::pool)?;
        filesystems::key_rules(props, above.encryption_root.as_deref(), request.key.as_ref())
    }

    /// Snapshots to be sent, each with what it is an increment upon; and file systems that are left out for want of the snapshot.
    fn what_to_send(&self, request: &FsSend, skipped: &mut Vec<String>) -> Result<Sending, Refusal> {
        if let Some(token) = &request.token {
            let bad = || Refusal::new(Code::StreamToken, "this is no token, or it was cut or changed");
            let (held, specs) = self.where_it_broke_off(Token::decode(token).ok_or_else(bad)?, request)?;
            return Ok((held, specs, None));
        }
        let (fs, last) = super::snapshots::halves(&request.snapshot)?;
        let held = self.held(fs)?;
        let spec = |snapshot: String, base: Option<String>| SendSpec {
            snapshot,
            base,
            properties: request.properties || request.backup,
            backup: request.backup,
            holds: request.holds,
            raw: request.raw,
            packed: request.compressed,
            resume: None,
        };
        if request.recursive {
            let (specs, left_out) = self.tree_to_send(&held, request, (fs, last), skipped)?;
            // What was not received before follows nothing.
            let tree = request.base.is_some().then(|| (fs.to_owned(), left_out));
            return Ok((held, specs, tree));
        }
        let all = held.pool.snapshot_names(fs).map_err(refuse::pool)?;
        let Some(base) = request.base.clone().filter(|_| request.intermediate) else {
            return Ok((held, vec![spec(request.snapshot.clone(), request.base.clone())], None));
        };
        let at = |name: &str| {
            let absent = || {
                let what = format!("there is no snapshot '{fs}@{name}'");
                Refusal::new(Code::SnapshotAbsent, what).with("snapshot", format!("{fs}@{name}"))
            };
            all.iter().position(|known| known == name).ok_or_else(absent)
        };
        if base.contains('#') {
            let what = "-I begins at a snapshot; -i takes bookmarks";
            return Err(Refusal::new(Code::StreamBase, what).with("snapshot", &request.snapshot));
        }
        let (base_fs, first) = super::snapshots::halves(&base)?;
        let (from, to) = (at(first)?, at(last)?);
        if base_fs != fs || from >= to {
            let what = format!("'{base}' is not an earlier snapshot of '{fs}' than '{last}'");
            return Err(Refusal::new(Code::StreamBase, what).with("snapshot", &request.snapshot));
        }
        let full = |name: &String| format!("{fs}@{name}");
        let steps = all[from..=to].windows(2);
        Ok((held, steps.map(|pair| spec(full(&pair[1]), Some(full(&pair[0])))).collect(), None))
    }

    /// A file system and all below it that have the snapshot, each with all its snapshots up to that one, or from the base on; and those that
    /// are left out, with all below them.
    fn tree_to_send(
        &self,
        held: &Held,
        request: &FsSend,
        (fs, last): (&str, &str),
        skipped: &mut Vec<String>,
    ) -> Result<(Vec<SendSpec>, Vec<String>), Refusal> {
        let base = request.base.as_deref().map(|base| base.rsplit('@').next().unwrap_or(base));
        if let Some(above) = request.exclude.iter().find(|above| is_at_or_below(fs, above)) {
            let what = format!("without '{above}' there is nothing to be sent");
            return Err(Refusal::new(Code::ApiRequest, what));
        }
        let all = held.pool.datasets();
        let is_here = |name: &&String| all.contains(name) && is_at_or_below(name, fs);
        if let Some(name) = request.exclude.iter().find(|name| !is_here(name)) {
            let what =
                format!("'{name}' is not below '{fs}', so there is nothing of that name to be left out");
            return Err(Refusal::new(Code::FsAbsent, what).with("fs", name));
        }
        let mut out: Vec<String> = request.exclude.clone();
        let mut specs: Vec<SendSpec> = Vec::new();
        for name in self.origins_first(held, fs)? {
            if out.iter().any(|above| is_at_or_below(&name, above)) {
                continue;
            }
            let all = held.pool.snapshot_names(&name).map_err(refuse::pool)?;
            let Some(to) = all.iter().position(|known| known == last) else {
                let is_younger = name != fs && is_younger(held, &name, last)?;
                if name == fs || !is_younger && !request.skip_missing {
                    let full = format!("{name}@{last}");
                    let what = format!("there is no snapshot '{full}'");
                    return Err(Refusal::new(Code::SnapshotAbsent, what).with("snapshot", full));
                }
                if !is_younger {
                    skipped.push(name.clone());
                }
                out.push(name);
                continue;
            };
            let from =
                base.and_then(|base| all.iter().position(|known| known == base)).filter(|from| *from < to);
            if name == fs && base.is_some() && from.is_none() {
                let what = format!("'{fs}' has no earlier snapshot '{}'", base.unwrap_or_default());
                return Err(Refusal::new(Code::StreamBase, what).with("snapshot", &request.snapshot));
            }
            let full = |at: usize| format!("{name}@{}", all[at]);
            let spec = |at: usize, base: Option<String>| SendSpec {
                snapshot: full(at),
                base,
                properties: true,
                backup: request.backup,
                holds: request.holds,
                raw: request.raw,
                packed: request.compressed,
                resume: None,
            };
            match from {
                Some(from) if !request.intermediate => specs.push(spec(to, Some(full(from)))),
                from => {
                    if from.is_none() {
                        let origin = self.origin_on_the_way(held, request, &name)?;
                        let came = |origin: &String| {
                            let of = origin.split('@').next().unwrap_or_default();
                            specs.iter().any(|spec| spec.snapshot.split('@').next() == Some(of))
                        };
                        let origin = origin.filter(came);
                        specs.push(spec(0, origin));
                    }
                    specs.extend((from.unwrap_or(0) + 1..=to).map(|at| spec(at, Some(full(at - 1)))));
                }
            }
        }
        Ok((specs, out))
    }

    /// A file system and all below it, each behind its parent and what it is a clone of.
    fn origins_first(&self, held: &Held, fs: &str) -> Result<Vec<String>, Refusal> {
        let below = format!("{fs}/");
        let mut left = Vec::new();
        for name in held.pool.datasets().into_iter().filter(|name| name == fs || name.starts_with(&below)) {
            let origin = held.pool.dataset_info(&name).map_err(refuse::pool)?.origin;
            left.push((name, origin.and_then(|origin| Some(origin.split_once('@')?.0.to_owned()))));
        }
        let mut sorted = Vec::new();
        while !left.is_empty() {
            let is_left = |name: &str| left.iter().any(|(left, _)| left == name);
            let waits = |(name, of): &(String, Option<String>)| {
                of.as_deref().is_some_and(is_left)
                    || name.rsplit_once('/').is_some_and(|(parent, _)| is_left(parent))
            };
            let (later, now): (Vec<_>, Vec<_>) = left.iter().cloned().partition(waits);
            if now.is_empty() {
                // One lies below its own clone, which then goes whole.
                sorted.extend(later.into_iter().map(|(name, _)| name));
                break;
            }
            sorted.extend(now.into_iter().map(|(name, _)| name));
            left = later;
        }
        Ok(sorted)
    }

    /// What a clone begins as, if that is in the same stream or was in an earlier one like it.
    fn origin_on_the_way(
        &self,
        held: &Held,
        request: &FsSend,
        name: &str,
    ) -> Result<Option<String>, Refusal> {
        let (top, last) = super::snapshots::halves(&request.snapshot)?;
        let info = held.pool.dataset_info(name).map_err(refuse::pool)?;
        let Some(origin) = info.origin else { return Ok(None) };
        let (of, snapshot) = super::snapshots::halves(&origin)?;
        if of != top && !of.starts_with(&format!("{top}/")) {
            return Ok(None);
        }
        let all = held.pool.snapshot_names(of).map_err(refuse::pool)?;
        let at = |name: &str| all.iter().position(|known| known == name);
        Ok(at(snapshot).zip(at(last)).is_some_and(|(origin, last)| origin <= last).then_some(origin))
    }

    /// The stream that goes on where a receive broke off: snapshots are found by what names them everywhere.
    fn where_it_broke_off(
        &self,
        token: Token,
        request: &FsSend,
    ) -> Result<(Arc<Held>, Vec<SendSpec>), Refusal> {
        for (_, held) in self.select(&[])? {
            for fs in held.pool.datasets() {
                let infos = held.pool.snapshot_infos(&fs, None).map_err(refuse::pool)?;
                let named =
                    |guid: u64| infos.iter().find(|info| info.guid == guid).map(|info| info.name.clone());
                let Some(snapshot) = named(token.guid) else { continue };
                // What was sent opened has the same guid, and cannot go on with what was sealed.
                let info = held.pool.dataset_info(&fs).map_err(refuse::pool)?;
                if token.form == Form::Raw && info.encryption_root.is_none() {
                    continue;
                }
                // The base may be gone but for its name.
                let marks = held.pool.bookmark_infos(&fs).map_err(refuse::pool)?;
                let mark = marks.into_iter().find(|mark| mark.guid == token.base).map(|mark| mark.name);
                let base = named(token.base).or(mark).or_else(|| above(&held, &fs, token.base));
                if token.base != 0 && base.is_none() {
                    continue;
                }
                let resume = Some((token.inode, token.offset));
                let backup = request.backup;
                let properties = request.properties || backup;
                let raw = token.form == Form::Raw;
                let packed = token.form == Form::Compressed || request.compressed && !raw;
                let holds = request.holds;
                let spec = SendSpec { snapshot, base, properties, backup, holds, raw, packed, resume };
                return Ok((held, vec![spec]));
            }
        }
        let what =
            "no imported pool has the snapshot that the token speaks of, with what it is an increment upon";
        Err(Refusal::new(Code::StreamToken, what))
    }

    /// What a dataset has of a receive that broke off, as `receive_resume_token` shows it.
    pub(super) fn resume_token(held: &Held, name: &str) -> Option<String> {
        let partial = held.pool.partial_receive(name)?;
        let (guid, base) = (partial.guid, partial.base);
        let (inode, offset) = partial.position;
        let form = match (partial.raw, partial.packed) {
            (true, _) => Form::Raw,
            (false, true) => Form::Compressed,
            (false, false) => Form::Plain,
        };
        Some(Token { guid, base, inode, offset, form }.encode())
    }
}

/// Name of a dataset after one at or above it got another name.
fn renamed_by(name: String, (from, to): &(String, String)) -> String {
    match is_at_or_below(&name, from) {
        true => format!("{to}{}", &name[from.len()..]),
        false => name,
    }
}

/// True if `name` is `above`, or lies below it.
fn is_at_or_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// True if a file system was made after the snapshot of that name of what it lies in, and so could not be part of it.
fn is_younger(held: &Held, name: &str, snapshot: &str) -> Result<bool, Refusal> {
    let created = held.pool.dataset_info(name).map_err(refuse::pool)?.created_txg;
    let above = name.rsplit_once('/').map_or(name, |(above, _)| above);
    let infos = held.pool.snapshot_infos(above, Some(snapshot)).map_err(refuse::pool)?;
    Ok(infos.first().is_some_and(|taken| created > taken.txg))
}

/// The snapshot of that guid among those that a clone begins with.
fn above(held: &Held, fs: &str, guid: u64) -> Option<String> {
    let mut at = held.pool.dataset_info(fs).ok()?.origin;
    while let Some(origin) = at {
        let (of, _) = origin.split_once('@')?;
        let infos = held.pool.snapshot_infos(of, None).ok()?;
        if let Some(found) = infos.into_iter().find(|info| info.guid == guid) {
            return Some(found.name);
        }
        at = held.pool.dataset_info(of).ok()?.origin;
    }
    None
}

/// A path as text: what is none is written as `\\xHH`.
fn readable(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\\\x{byte:02x}")));
    }
    text
}

fn descriptor(caller: &Caller) -> Result<Descriptor, Refusal> {
    let none = || Refusal::new(Code::ApiRequest, "the request came without a descriptor");
    caller.descriptor.clone().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_back_and_changed_ones_are_not() {
        let raw = Token { guid: 1, base: 0, inode: 9, offset: 8, form: Form::Raw };
        assert_eq!(Token::decode(&raw.encode()), Some(raw));
        for (digit, form) in [("1", Form::Plain), ("3", Form::Compressed)] {
            let other = Token { form, ..raw };
            assert_eq!(Token::decode(&raw.encode().replacen('2', digit, 1)), Some(other));
            assert_eq!(Token::decode(&other.encode()), Some(other));
        }
        let token = Token { guid: u64::MAX, base: 3, inode: 12, offset: 1 << 40, form: Form::Plain };
        let text = token.encode();
        assert_eq!(Token::decode(&text), Some(token));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
            assert_eq!(Token::decode(&String::from_utf8(changed).unwrap()), None, "byte {at}");
            assert_eq!(Token::decode(&text[..at]), None, "cut at {at}");
        }
        assert_eq!(Token::decode("1-é-é"), None);
    }
}

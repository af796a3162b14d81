//! `zfs send`. A stream takes long, so it does not hold up other verbs.

use crate::api::{FsSend, Sent, SentPart};
use crate::caller::Caller;
use crate::check::{check_snapshot_or_bookmark, name_refusal};
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::engine::zfs::live::Live;
use crate::engine::zfs::names::{halves, is_at_or_below};
use crate::engine::zfs::streams::{StreamGuard, TELL_NS, descriptor};
use crate::refusal::{Code, Refusal};
use crate::token::{Form, Token};
use std::sync::Arc;
use steadfast_pool::{SendSpec, Written};
use steadfast_property::{check_dataset_name, check_snapshot_name};

/// The top of a tree, and the file systems left out of it.
type Tree = (String, Vec<String>);

/// Snapshots to send: their pool, the snapshots, and the tree if it is one.
type Sending = (Arc<ImportedPool>, Vec<SendSpec>, Option<Tree>);

impl Verb for FsSend {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        match (&self.token, self.snapshot.contains('@')) {
            (Some(_), _) => {}
            (None, true) => check_snapshot_name(&self.snapshot).map_err(name_refusal)?,
            (None, false) => check_dataset_name(&self.snapshot).map_err(name_refusal)?,
        }
        self.base.iter().try_for_each(|name| check_snapshot_or_bookmark(name))?;
        self.exclude.iter().try_for_each(|name| check_dataset_name(name)).map_err(name_refusal)
    }

    fn run(mut self, engine: &Engine, caller: &Caller) -> Result<Sent, Refusal> {
        let mut sent = Sent::default();
        let asked = self.snapshot.clone();
        let live = (self.token.is_none() && !asked.contains('@'))
            .then(|| Live::take(&mut self, engine))
            .transpose()?;
        let (held, mut specs, tree) = engine.what_to_send(&self, &mut sent.skipped)?;
        if live.is_some() {
            specs.iter_mut().for_each(|spec| spec.called = Some(format!("{asked}@{}", Live::CALLED)));
        }
        specs.iter().try_for_each(|spec| check_in_clear(&held, spec))?;
        for spec in &specs {
            let estimate = match self.dry_run {
                true => held.pool.streams().send_estimate(spec),
                // An exact estimate takes long; a dry run gives it.
                false => held.pool.streams().check_send(spec),
            };
            let estimate = estimate.map_err(refuse::pool)?;
            let snapshot = if live.is_some() { asked.clone() } else { spec.snapshot.clone() };
            let base = spec.base.clone();
            sent.parts.push(SentPart { snapshot, base, estimate });
        }
        if self.dry_run {
            return Ok(sent);
        }
        let mut out = descriptor(caller)?;
        let _under = StreamGuard::new(&held);
        let teller = out.clone();
        let mut told = engine.env.clock.monotonic_ns();
        let mut progress = |snapshot: &str, written: Written| {
            let now = engine.env.clock.monotonic_ns();
            if now.saturating_sub(told) >= TELL_NS {
                told = now;
                teller.progress(snapshot, written.bytes, written.blocks);
            }
        };
        sent.bytes = match &tree {
            None => held.pool.streams().send(&specs, &mut out, &mut progress),
            Some((top, left_out)) => {
                held.pool.streams().send_tree((top, left_out), &specs, &mut out, &mut progress)
            }
        }
        .map_err(refuse::pool)?;
        // As in ZFS, history does not tell what was read.
        Ok(sent)
    }
}

impl Engine {
    /// Snapshots to send, each with its base. `skipped` gets file systems that lack the snapshot.
    fn what_to_send(&self, request: &FsSend, skipped: &mut Vec<String>) -> Result<Sending, Refusal> {
        if let Some(token) = &request.token {
            let bad =
                || Refusal::new(Code::StreamToken, "the resume token is invalid, incomplete or changed");
            let (held, specs) = self.where_it_broke_off(Token::decode(token).ok_or_else(bad)?, request)?;
            return Ok((held, specs, None));
        }
        let (fs, last) = halves(&request.snapshot)?;
        let held = self.held(fs)?;
        let spec = |snapshot: String, base: Option<String>| SendSpec {
            snapshot,
            base,
            properties: request.properties || request.backup,
            backup: request.backup,
            holds: request.holds,
            raw: request.raw,
            packed: request.compressed,
            called: None,
            resume: None,
        };
        if request.recursive {
            let (specs, left_out) = self.tree_to_send(&held, request, (fs, last), skipped)?;
            // Only an increment can follow renames and destructions.
            let tree = request.base.is_some().then(|| (fs.to_owned(), left_out));
            return Ok((held, specs, tree));
        }
        let all = held.pool.datasets().snapshot_names(fs).map_err(refuse::pool)?;
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
        let (base_fs, first) = halves(&base)?;
        let to = at(last)?;
        let full = |name: &String| format!("{fs}@{name}");
        let is_origin =
            held.pool.datasets().dataset_info(fs).map_err(refuse::pool)?.origin == Some(base.clone());
        let mut names: Vec<String> = match is_origin {
            // All that the clone has, from where it began.
            true => vec![base.clone()],
            false => Vec::new(),
        };
        let from = if is_origin { 0 } else { at(first)? };
        if !is_origin && (base_fs != fs || from >= to) {
            let what = format!("'{base}' is not an earlier snapshot of '{fs}' than '{last}'");
            let refusal = Refusal::new(Code::StreamBase, what).with("snapshot", &request.snapshot);
            return Err(refusal.with("base", &base));
        }
        names.extend(all[from..=to].iter().map(full));
        let steps = names.windows(2).map(|pair| spec(pair[1].clone(), Some(pair[0].clone())));
        Ok((held, steps.collect(), None))
    }

    /// A tree: each file system that has the snapshot, with all its snapshots up to that one, or
    /// from the base on. Also the file systems that are left out, with all below them.
    fn tree_to_send(
        &self,
        held: &ImportedPool,
        request: &FsSend,
        (fs, last): (&str, &str),
        skipped: &mut Vec<String>,
    ) -> Result<(Vec<SendSpec>, Vec<String>), Refusal> {
        let base = request.base.as_deref().map(|base| base.rsplit('@').next().unwrap_or(base));
        if let Some(above) = request.exclude.iter().find(|above| is_at_or_below(fs, above)) {
            let what = format!("-X '{above}' excludes everything: nothing would be sent");
            return Err(Refusal::new(Code::ApiRequest, what));
        }
        let all = held.pool.datasets().names();
        let is_here = |name: &&String| all.contains(name) && is_at_or_below(name, fs);
        if let Some(name) = request.exclude.iter().find(|name| !is_here(name)) {
            let what = format!("-X '{name}': there is no such file system below '{fs}'");
            return Err(Refusal::new(Code::FsAbsent, what).with("fs", name));
        }
        let mut out: Vec<String> = request.exclude.clone();
        let mut specs: Vec<SendSpec> = Vec::new();
        for name in self.origins_first(held, fs)? {
            if out.iter().any(|above| is_at_or_below(&name, above)) {
                continue;
            }
            let all = held.pool.datasets().snapshot_names(&name).map_err(refuse::pool)?;
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
                let base = base.unwrap_or_default();
                let what = format!("'{fs}' has no earlier snapshot '{base}'");
                let refusal = Refusal::new(Code::StreamBase, what).with("snapshot", &request.snapshot);
                return Err(refusal.with("base", format!("{fs}@{base}")));
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
                called: None,
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

    /// A file system and all below it, each after its parent and its origin.
    fn origins_first(&self, held: &ImportedPool, fs: &str) -> Result<Vec<String>, Refusal> {
        let below = format!("{fs}/");
        let mut left = Vec::new();
        for name in
            held.pool.datasets().names().into_iter().filter(|name| name == fs || name.starts_with(&below))
        {
            let origin = held.pool.datasets().dataset_info(&name).map_err(refuse::pool)?.origin;
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

    /// The origin of a clone, if it is in this stream or was in an earlier one of this tree.
    fn origin_on_the_way(
        &self,
        held: &ImportedPool,
        request: &FsSend,
        name: &str,
    ) -> Result<Option<String>, Refusal> {
        let (top, last) = halves(&request.snapshot)?;
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        let Some(origin) = info.origin else { return Ok(None) };
        let (of, snapshot) = halves(&origin)?;
        if of != top && !of.starts_with(&format!("{top}/")) {
            return Ok(None);
        }
        let all = held.pool.datasets().snapshot_names(of).map_err(refuse::pool)?;
        let at = |name: &str| all.iter().position(|known| known == name);
        Ok(at(snapshot).zip(at(last)).is_some_and(|(origin, last)| origin <= last).then_some(origin))
    }

    /// The rest of an interrupted stream. Snapshots are found by their guid.
    fn where_it_broke_off(
        &self,
        token: Token,
        request: &FsSend,
    ) -> Result<(Arc<ImportedPool>, Vec<SendSpec>), Refusal> {
        for (_, held) in self.select(&[])? {
            for fs in held.pool.datasets().names() {
                let infos = held.pool.datasets().snapshot_infos(&fs, None).map_err(refuse::pool)?;
                let named =
                    |guid: u64| infos.iter().find(|info| info.guid == guid).map(|info| info.name.clone());
                let Some(snapshot) = named(token.guid) else { continue };
                // A decrypted copy has the same guid, but cannot continue a raw stream.
                let info = held.pool.datasets().dataset_info(&fs).map_err(refuse::pool)?;
                if token.form == Form::Raw && info.encryption_root.is_none() {
                    continue;
                }
                // Only a bookmark of the base may be left.
                let marks = held.pool.datasets().bookmark_infos(&fs).map_err(refuse::pool)?;
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
                let called = None;
                let spec =
                    SendSpec { snapshot, base, properties, backup, holds, raw, packed, called, resume };
                return Ok((held, vec![spec]));
            }
        }
        let what = "no imported pool has both the snapshot in the resume token and its base";
        Err(Refusal::new(Code::StreamToken, what))
    }
}

/// Refuses to send an encrypted file system decrypted together with its properties, as ZFS does:
/// nothing in the command says so, and the receiver would store the content in the clear.
fn check_in_clear(held: &ImportedPool, spec: &SendSpec) -> Result<(), Refusal> {
    if spec.raw || !spec.properties {
        return Ok(());
    }
    let (fs, _) = halves(&spec.snapshot)?;
    if held.pool.datasets().dataset_info(fs).map_err(refuse::pool)?.encryption_root.is_none() {
        return Ok(());
    }
    let what = format!("encrypted dataset '{fs}' may not be sent with properties without the raw flag");
    Err(Refusal::new(Code::StreamClear, what).with("snapshot", &spec.snapshot))
}

/// True if a file system was created after its parent's snapshot of that name, and so cannot have
/// it.
fn is_younger(held: &ImportedPool, name: &str, snapshot: &str) -> Result<bool, Refusal> {
    let created = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?.created_txg;
    let above = name.rsplit_once('/').map_or(name, |(above, _)| above);
    let infos = held.pool.datasets().snapshot_infos(above, Some(snapshot)).map_err(refuse::pool)?;
    Ok(infos.first().is_some_and(|taken| created > taken.txg))
}

/// The snapshot of that guid among the origins of a clone.
fn above(held: &ImportedPool, fs: &str, guid: u64) -> Option<String> {
    let mut at = held.pool.datasets().dataset_info(fs).ok()?.origin;
    while let Some(origin) = at {
        let (of, _) = origin.split_once('@')?;
        let infos = held.pool.datasets().snapshot_infos(of, None).ok()?;
        if let Some(found) = infos.into_iter().find(|info| info.guid == guid) {
            return Some(found.name);
        }
        at = held.pool.datasets().dataset_info(of).ok()?.origin;
    }
    None
}

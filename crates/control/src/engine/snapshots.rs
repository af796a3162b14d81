//! Verbs of snapshots.

use super::{Engine, Held, refuse};
use crate::api::{
    Caller, FsHold, FsHolds, FsInfo, FsListAll, FsRollback, FsSnapshot, FsSnapshotDestroy, FsSnapshotRename,
    HeldBy, Outcome, Properties, Reclaimed, SnapshotHost, Source, Value,
};
use crate::refusal::{Code, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use steadfast_pool::{BookmarkInfo, SnapshotInfo};
use steadfast_property::is_user_property;

/// What the name of a property begins with that tells what was written since a snapshot.
const SINCE: &str = "written@";

impl SnapshotHost for Engine {
    fn fs_snapshot(&self, caller: &Caller, request: FsSnapshot) -> Result<Outcome, Refusal> {
        let warnings = self.settle(&request);
        let _turn = self.verbs.lock();
        let mut by_pool: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in &request.names {
            let pool = name.split(['/', '@']).next().unwrap_or(name);
            by_pool.entry(pool.to_owned()).or_default().push(name.clone());
        }
        if by_pool.len() > 1 {
            let what = "snapshots of several pools cannot be taken at one moment: name those of one pool";
            return Err(Refusal::new(Code::ApiRequest, what));
        }
        let mut touched = Vec::new();
        for (pool, names) in by_pool {
            let held = self.held(&pool)?;
            for name in names {
                let (dataset, snapshot) = halves(&name)?;
                held.pool.dataset_info(dataset).map_err(refuse::pool)?;
                let below = format!("{dataset}/");
                let all = held.pool.datasets();
                let of = all.iter().filter(|n| *n == dataset || request.recursive && n.starts_with(&below));
                touched.extend(of.map(|n| format!("{n}@{snapshot}")));
            }
            self.check_writable(&held)?;
            held.pool.take_snapshots(&touched, &request.properties).map_err(refuse::pool)?;
            held.note_snapshots(touched.iter().filter_map(|name| Some(name.split_once('@')?.0)));
            self.log(&held, caller);
        }
        Ok(Outcome { touched, warnings })
    }

    fn fs_snapshot_destroy(&self, caller: &Caller, request: FsSnapshotDestroy) -> Result<Reclaimed, Refusal> {
        let _turn = self.verbs.lock();
        let name = request.name.as_str();
        let held = self.held(name)?;
        held.pool.dataset_info(name).map_err(refuse::pool)?;
        let below = format!("{name}/");
        let all = held.pool.datasets();
        let mut doomed = Vec::new();
        for dataset in all.iter().filter(|n| *n == name || request.recursive && n.starts_with(&below)) {
            let there = held.pool.snapshot_names(dataset).map_err(refuse::pool)?;
            doomed.extend(chosen(&request.snapshots, &there).into_iter().map(|s| format!("{dataset}@{s}")));
        }
        if doomed.is_empty() {
            let what = format!("there is no snapshot '{name}@{}'", request.snapshots);
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("fs", name));
        }
        let clones = match (request.clones, request.defer) {
            (true, _) => self.clones_of(&held, &doomed)?,
            (false, true) => Vec::new(),
            (false, false) => {
                super::clones::check_cloneless(&held, &doomed)?;
                Vec::new()
            }
        };
        let mut bytes = held.pool.reclaimable(&doomed).map_err(refuse::pool)?;
        for clone in &clones {
            let info = held.pool.dataset_info(clone).map_err(refuse::pool)?;
            bytes += info.used_by_dataset + info.used_by_snapshots;
        }
        if !request.dry_run {
            self.check_writable(&held)?;
            held.pool.check_destroy_snapshots(&doomed, request.defer).map_err(refuse::pool)?;
            self.destroy_in_order(&held, &clones, request.force)?;
            // Some went with clones: with the last one, or with the one that they were of.
            let left = held.those_there(&doomed);
            held.pool.destroy_snapshots(&left, request.defer).map_err(refuse::pool)?;
            held.note_snapshots([name]);
            self.log(&held, caller);
        }
        Ok(Reclaimed { touched: clones.into_iter().chain(doomed).collect(), bytes })
    }

    fn fs_rollback(&self, caller: &Caller, request: FsRollback) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.roll_back(caller, &request)
    }

    fn fs_hold(&self, caller: &Caller, request: FsHold) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.hold_snapshots(caller, &request)
    }

    fn fs_holds(&self, _: &Caller, request: FsHolds) -> Result<Vec<HeldBy>, Refusal> {
        self.list_holds(&request)
    }

    fn fs_snapshot_rename(&self, caller: &Caller, request: FsSnapshotRename) -> Result<Outcome, Refusal> {
        let _turn = self.verbs.lock();
        self.rename_snapshot(caller, &request)
    }

    fn fs_list_all(&self, _: &Caller, request: FsListAll) -> Result<Vec<FsInfo>, Refusal> {
        let starts = match request.names.is_empty() {
            true => self.select(&[])?.into_iter().map(|(name, _)| name).collect(),
            false => request.names.clone(),
        };
        let mut found: Vec<FsInfo> = Vec::new();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut add = |found: &mut Vec<FsInfo>, info: FsInfo| {
            if seen.insert(info.name.clone()) {
                found.push(info);
            }
        };
        for start in starts {
            if let Some((dataset, _)) = start.split_once('#') {
                let held = self.held(dataset)?;
                let marks = held.pool.bookmark_infos(dataset).map_err(refuse::pool)?;
                let Some(mark) = marks.into_iter().find(|mark| mark.name == start) else {
                    let what = format!("there is no bookmark '{start}'");
                    return Err(Refusal::new(Code::BookmarkAbsent, what).with("bookmark", &start));
                };
                add(&mut found, bookmark_info(mark));
                continue;
            }
            if let Some((dataset, snapshot)) = start.split_once('@') {
                let held = self.held(dataset)?;
                for info in held.pool.snapshot_infos(dataset, Some(snapshot)).map_err(refuse::pool)? {
                    add(&mut found, self.snapshot_info(&held, dataset, info, &request.wanted)?);
                }
                continue;
            }
            let held = self.held(&start)?;
            let all = held.pool.datasets();
            if let Some(token) = Engine::resume_token(&held, &start).filter(|_| !all.contains(&start)) {
                add(&mut found, super::report::unfinished(&start, token));
                continue;
            }
            if !all.contains(&start) {
                let what = format!("there is no file system '{start}'");
                return Err(Refusal::new(Code::FsAbsent, what).with("fs", &start));
            }
            let below = format!("{start}/");
            for name in all {
                let depth = match name.strip_prefix(&below) {
                    Some(tail) => u32::try_from(tail.matches('/').count()).unwrap_or(u32::MAX - 2) + 1,
                    None if name == start => 0,
                    None => continue,
                };
                let within = |depth: u32| request.depth.is_none_or(|most| depth <= most);
                // Asked for snapshots, and told no depth, one means those of what is named.
                let only = request.snapshots && !request.filesystems && request.depth == Some(0);
                // It may be destroyed since it was listed.
                let gone = |refusal: &Refusal| refusal.code == Code::FsAbsent;
                if request.filesystems && within(depth) {
                    match self.fs_info(&held, &name) {
                        Ok(mut info) => {
                            for property in request.wanted.iter().filter(|name| name.starts_with(SINCE)) {
                                let snapshot = &property[SINCE.len()..];
                                if let Ok(bytes) = held.pool.written_since(&name, snapshot) {
                                    info.properties.insert(property.clone(), Value::measured(bytes));
                                }
                            }
                            add(&mut found, info);
                        }
                        Err(refusal) if gone(&refusal) => continue,
                        Err(refusal) => return Err(refusal),
                    }
                }
                let only_marks = !request.filesystems && request.depth == Some(0) && depth == 0;
                if request.bookmarks && (within(depth + 1) || only_marks) {
                    let marks = held.pool.bookmark_infos(&name).unwrap_or_default();
                    marks.into_iter().for_each(|mark| add(&mut found, bookmark_info(mark)));
                }
                if request.snapshots && (within(depth + 1) || only && depth == 0) {
                    let infos = match held.pool.snapshot_infos(&name, None).map_err(refuse::pool) {
                        Ok(infos) => infos,
                        Err(refusal) if gone(&refusal) => continue,
                        Err(refusal) => return Err(refusal),
                    };
                    for info in infos {
                        add(&mut found, self.snapshot_info(&held, &name, info, &request.wanted)?);
                    }
                }
            }
            // Nobody sees those, but who asks for what they have.
            let is_asked = request.wanted.iter().any(|name| name == "receive_resume_token");
            for name in held.pool.unfinished().into_iter().filter(|_| is_asked && request.filesystems) {
                let depth = name.strip_prefix(&below).map(|tail| tail.matches('/').count() + 1);
                let within = |depth| request.depth.is_none_or(|most| depth <= most as usize);
                let token = Engine::resume_token(&held, &name).filter(|_| depth.is_some_and(within));
                if let Some(token) = token {
                    add(&mut found, super::report::unfinished(&name, token));
                }
            }
        }
        Ok(found)
    }
}

/// What there is to be told of a bookmark.
fn bookmark_info(mark: BookmarkInfo) -> FsInfo {
    let properties = [
        ("type", "bookmark".to_owned()),
        ("creation", mark.created_seconds.to_string()),
        ("createtxg", mark.txg.0.to_string()),
        ("guid", mark.guid.to_string()),
    ];
    let properties = properties.map(|(name, value)| (name.to_owned(), Value::measured(value)));
    FsInfo {
        name: mark.name,
        createtxg: mark.txg.0,
        mounted_at: None,
        properties: properties.into(),
        received: Properties::new(),
    }
}

impl Engine {
    /// Has the file systems of which snapshots are to be taken get what the kernel holds for them, and warns of those that cannot. What cannot be found
    /// is refused later.
    fn settle(&self, request: &FsSnapshot) -> Vec<Refusal> {
        let mut warnings = Vec::new();
        for name in &request.names {
            let dataset = name.split('@').next().unwrap_or(name);
            let below = format!("{dataset}/");
            let Ok(held) = self.held(dataset) else { continue };
            warnings
                .extend(held.settle(|name| name == dataset || request.recursive && name.starts_with(&below)));
        }
        warnings
    }

    /// Refuses what cannot be done to a pool that was imported to be read.
    pub(super) fn check_writable(&self, held: &Held) -> Result<(), Refusal> {
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", held.pool.name()));
        }
        Ok(())
    }

    /// A snapshot and its properties.
    fn snapshot_info(
        &self,
        held: &Held,
        dataset: &str,
        info: SnapshotInfo,
        wanted: &[String],
    ) -> Result<FsInfo, Refusal> {
        let mut properties: BTreeMap<String, Value> = BTreeMap::new();
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
        let mut measure = |name: &str, value: String| {
            if is_wanted(name) {
                properties.insert(name.to_owned(), Value::measured(value));
            }
        };
        measure("type", "snapshot".into());
        measure("creation", info.created_seconds.to_string());
        measure("createtxg", info.txg.0.to_string());
        measure("guid", info.guid.to_string());
        measure("objsetid", info.number.0.to_string());
        measure("used", info.used.to_string());
        measure("referenced", info.referenced.to_string());
        measure("written", info.written.to_string());
        measure("logicalreferenced", info.logical.to_string());
        measure("filecount", info.files.to_string());
        measure("defer_destroy", if info.deferred { "on" } else { "off" }.into());
        measure("userrefs", info.holds.to_string());
        measure("clones", info.clones.join(","));
        if ["volsize", "volblocksize"].iter().any(|name| is_wanted(name))
            && let Some(volume) = held.pool.snapshot_volume(&info.name).map_err(refuse::pool)?
        {
            let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
            measure("volsize", known(volume.bytes));
            measure("volblocksize", known(volume.block_bytes));
        }
        let ratio = if info.data == 0 { 1.0 } else { info.logical as f64 / info.data as f64 };
        measure("compressratio", format!("{:.2}", ratio.max(1.0)));
        // Settings of users: its own, and those of its file system.
        if wanted.is_empty() || wanted.iter().any(|name| is_user_property(name)) {
            for name in self.user_properties(held, dataset)?.into_iter().filter(|name| is_wanted(name)) {
                let resolved = held.pool.resolve(dataset, &name, "/").map_err(refuse::pool)?;
                let Some(resolved) = resolved else { continue };
                let mut value = Value::from(resolved);
                if matches!(value.source, Source::Local | Source::Received) {
                    value.source = Source::Inherited(dataset.to_owned());
                }
                properties.insert(name, value);
            }
        }
        for (name, value) in info.props.into_iter().filter(|(name, _)| is_wanted(name)) {
            let came = info.counting.contains(&name);
            let source = if came { Source::Received } else { Source::Local };
            properties.insert(name, Value { value, source });
        }
        let mut received: Properties = info.received;
        received.retain(|name, _| is_wanted(name));
        Ok(FsInfo { name: info.name, createtxg: info.txg.0, mounted_at: None, properties, received })
    }
}

/// File system and snapshot of a full name.
pub(super) fn halves(name: &str) -> Result<(&str, &str), Refusal> {
    name.split_once('@').ok_or_else(|| {
        Refusal::new(Code::NameInvalid, "a snapshot is named FILESYSTEM@NAME, and this name has no '@'")
    })
}

/// The snapshots that names and ranges (`a,c%f,%b`) choose of those that are there, in the order of their making.
fn chosen<'n>(list: &str, there: &'n [String]) -> Vec<&'n str> {
    let mut chosen = vec![false; there.len()];
    let at = |name: &str| there.iter().position(|known| known == name);
    for part in list.split(',') {
        let range = match part.split_once('%') {
            None => at(part).map(|index| (index, index)),
            Some((from, to)) => {
                let from = if from.is_empty() { Some(0) } else { at(from) };
                let to = if to.is_empty() { there.len().checked_sub(1) } else { at(to) };
                from.zip(to)
            }
        };
        if let Some((from, to)) = range.filter(|(from, to)| from <= to) {
            chosen[from..=to].fill(true);
        }
    }
    there.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ranges_choose_what_is_there() {
        let there: Vec<String> = ["a", "b", "c", "d"].map(String::from).to_vec();
        let of = |list: &str| chosen(list, &there).join("");
        assert_eq!(of("b"), "b");
        assert_eq!(of("b%c"), "bc");
        assert_eq!(of("%b"), "ab");
        assert_eq!(of("c%"), "cd");
        assert_eq!(of("%"), "abcd");
        assert_eq!(of("d,a"), "ad");
        assert_eq!(of("c%b"), "", "a range goes from older to younger");
        assert_eq!(of("x,a%x"), "");
        assert_eq!(chosen("%", &[]), Vec::<&str>::new());
    }
}

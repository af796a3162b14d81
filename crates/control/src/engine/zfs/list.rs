//! `zfs list` and `zfs get`: file systems, volumes, snapshots and bookmarks.

use crate::api::{FsInfo, FsList, FsListAll, Source, Value};
use crate::caller::Caller;
use crate::check::{check_snapshot_or_bookmark, name_refusal};
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zfs::info::{bookmark_info, unfinished};
use crate::engine::zfs::token::resume_token;
use crate::refusal::{Code, Refusal};
use std::collections::BTreeSet;
use steadfast_property::check_dataset_name;

/// Prefix of the properties that tell the bytes written since a snapshot.
const SINCE: &str = "written@";

impl Verb for FsList {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        self.names.iter().try_for_each(|name| check_dataset_name(name)).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<FsInfo>, Refusal> {
        let starts = if self.names.is_empty() {
            engine.select(&[])?.into_iter().map(|(name, _)| name).collect()
        } else {
            self.names.clone()
        };
        let mut found: Vec<FsInfo> = Vec::new();
        for start in starts {
            let held = engine.held(&start)?;
            let all = held.pool.datasets().names();
            if let Some(token) = resume_token(&held, &start).filter(|_| !all.contains(&start)) {
                found.push(unfinished(&start, token));
                continue;
            }
            if !all.contains(&start) {
                let what = format!("there is no file system '{start}'");
                return Err(Refusal::new(Code::FsAbsent, what).with("fs", &start));
            }
            let below = format!("{start}/");
            for name in all {
                let depth = match name.strip_prefix(&below) {
                    Some(tail) => tail.matches('/').count() + 1,
                    None if name == start => 0,
                    None => continue,
                };
                let deep = self.depth.is_some_and(|most| depth > most as usize);
                if !deep && !found.iter().any(|fs| fs.name == name) {
                    match engine.fs_info(&held, &name) {
                        Ok(info) => found.push(info),
                        // It was destroyed since it was listed.
                        Err(refusal) if refusal.code == Code::FsAbsent => {}
                        Err(refusal) => return Err(refusal),
                    }
                }
            }
        }
        Ok(found)
    }
}

impl Verb for FsListAll {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        for name in &self.names {
            match name.contains(['@', '#']) {
                true => check_snapshot_or_bookmark(name)?,
                false => check_dataset_name(name).map_err(name_refusal)?,
            }
        }
        Ok(())
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<FsInfo>, Refusal> {
        let starts = match self.names.is_empty() {
            true => engine.select(&[])?.into_iter().map(|(name, _)| name).collect(),
            false => self.names.clone(),
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
                let held = engine.held(dataset)?;
                let marks = held.pool.datasets().bookmark_infos(dataset).map_err(refuse::pool)?;
                let Some(mark) = marks.into_iter().find(|mark| mark.name == start) else {
                    let what = format!("there is no bookmark '{start}'");
                    return Err(Refusal::new(Code::BookmarkAbsent, what).with("bookmark", &start));
                };
                add(&mut found, bookmark_info(mark));
                continue;
            }
            if let Some((dataset, snapshot)) = start.split_once('@') {
                // Its full name is absent, whichever part of it is.
                let absent = |refusal: Refusal| refusal.with("snapshot", &start);
                let held = engine.held(dataset).map_err(absent)?;
                let infos = held.pool.datasets().snapshot_infos(dataset, Some(snapshot));
                for info in infos.map_err(refuse::pool).map_err(absent)? {
                    add(&mut found, engine.snapshot_info(&held, dataset, info, &self.wanted)?);
                }
                continue;
            }
            let held = engine.held(&start)?;
            let all = held.pool.datasets().names();
            if let Some(token) = resume_token(&held, &start).filter(|_| !all.contains(&start)) {
                add(&mut found, unfinished(&start, token));
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
                let within = |depth: u32| self.depth.is_none_or(|most| depth <= most);
                // `zfs list -t snapshot NAME` means the snapshots of that name.
                let only = self.snapshots && !self.filesystems && self.depth == Some(0);
                // It may have been destroyed since it was listed.
                let gone = |refusal: &Refusal| refusal.code == Code::FsAbsent;
                if self.filesystems && within(depth) {
                    match engine.fs_info(&held, &name) {
                        Ok(mut info) => {
                            for property in self.wanted.iter().filter(|name| name.starts_with(SINCE)) {
                                // Its short name, or its full one.
                                let snapshot = &property[SINCE.len()..];
                                let snapshot = match snapshot.split_once('@') {
                                    Some((of, snapshot)) if of == name => snapshot,
                                    Some(_) => continue,
                                    None => snapshot,
                                };
                                if let Ok(bytes) = held.pool.datasets().written_since_name(&name, snapshot) {
                                    // As in ZFS, its source is this file system.
                                    let value = Value { value: bytes.to_string(), source: Source::Local };
                                    info.properties.insert(property.clone(), value);
                                }
                            }
                            add(&mut found, info);
                        }
                        Err(refusal) if gone(&refusal) => continue,
                        Err(refusal) => return Err(refusal),
                    }
                }
                let only_marks = !self.filesystems && self.depth == Some(0) && depth == 0;
                if self.bookmarks && (within(depth + 1) || only_marks) {
                    let marks = held.pool.datasets().bookmark_infos(&name).unwrap_or_default();
                    marks.into_iter().for_each(|mark| add(&mut found, bookmark_info(mark)));
                }
                if self.snapshots && (within(depth + 1) || only && depth == 0) {
                    let infos = match held.pool.datasets().snapshot_infos(&name, None).map_err(refuse::pool) {
                        Ok(infos) => infos,
                        Err(refusal) if gone(&refusal) => continue,
                        Err(refusal) => return Err(refusal),
                    };
                    for info in infos {
                        add(&mut found, engine.snapshot_info(&held, &name, info, &self.wanted)?);
                    }
                }
            }
            // As in ZFS, interrupted full receives are listed: programs resume them.
            for name in held.pool.datasets().unfinished().into_iter().filter(|_| self.filesystems) {
                let depth = name.strip_prefix(&below).map(|tail| tail.matches('/').count() + 1);
                let within = |depth| self.depth.is_none_or(|most| depth <= most as usize);
                let token = resume_token(&held, &name).filter(|_| depth.is_some_and(within));
                if let Some(token) = token {
                    add(&mut found, unfinished(&name, token));
                }
            }
        }
        Ok(found)
    }
}

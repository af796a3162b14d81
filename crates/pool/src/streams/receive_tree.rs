//! Receiving: the target follows the tree that the stream is of.
//! `docs/decisions/0128-following-a-tree.md`.
//!
//! An increment of a tree lists the file systems and snapshots of its source. Guids of snapshots
//! tell which of them is which here, whatever their names are by now: a file system's counterpart
//! is the dataset that has the youngest of its snapshots that are here.
//!
//! ## Invariants
//! [receive_tree.1] Nothing outside of the target changes: datasets that are not at or below it are
//!      neither looked at nor named.
//!      `here`
//! [receive_tree.2] Renames are followed before a snapshot that needs them is received. Nothing is
//!      destroyed before the whole stream was received, except a dataset that has a needed name.
//!      `follow_names`, `follow_to_the_end`
//! [receive_tree.3] Without `force` nothing is destroyed. With it, only a snapshot whose guid is
//!      nowhere in the tree, or a file system of which the source has no snapshot. Members that the
//!      stream leaves out are in the source, by their snapshots or their names, with all below
//!      them.
//!      `strays`
//! [receive_tree.4] A step that fails is reported and left undone; the stream is received anyway.
//!      `not_followed`
//! [receive_tree.5] A clone is promoted if that gives it a snapshot that is its own in the source,
//!      and takes none from a dataset whose own it is there: so promoting ends. It is also promoted
//!      if its origin's dataset is destroyed.
//!      `promotion_to_follow`, `free_clones`
//!
//! ## What a crash does
//! Each rename is a commit, and so is each promotion and each destruction. The next increment goes
//! on from wherever it stopped.

use crate::streams::state::Streams;
use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::DatasetId;
use steadfast_format::stream::{FrameHeader, StreamMember};

use crate::core::error::{Error, Result};
use crate::streams::receive::{ReceiveSpec, ReceiveWatch, name_of};

/// The tree that a stream is of, and the steps that are left to follow it.
#[derive(Default)]
pub(crate) struct Followed {
    members: Vec<StreamMember>,
    bytes: usize,
    /// Guids of all snapshots that there are.
    guids: BTreeSet<u64>,
    /// Name of the top here.
    target: String,
    /// Datasets that are to get other names; `None` before it was looked.
    renames: Option<Vec<(DatasetId, String)>>,
}

/// A dataset as it is here.
#[derive(Clone)]
struct Here {
    id: DatasetId,
    name: String,
    /// Guids and names of its snapshots.
    snapshots: Vec<(u64, String)>,
}

/// Datasets and snapshots that are here but not in the source.
#[derive(Default)]
struct Strays {
    /// Datasets, those below others before these.
    datasets: Vec<String>,
    /// Full names of snapshots, by dataset.
    snapshots: BTreeMap<String, Vec<String>>,
}

impl Followed {
    /// A frame of the stream. The reason, if no sender writes it there.
    pub fn add(&mut self, spec: &ReceiveSpec, payload: &[u8]) -> std::result::Result<(), String> {
        let member = StreamMember::decode(payload).map_err(|error| error.to_string())?;
        self.bytes += payload.len();
        let is_name = steadfast_property::check_dataset_name(&member.name).is_ok();
        let below = |top: &StreamMember| {
            member.name.strip_prefix(top.name.as_str()).is_some_and(|tail| tail.starts_with('/'))
        };
        if !is_name || self.members.first().is_some_and(|top| !below(top)) {
            return Err(format!("it has a member {:?}, which is none of its tree", member.name));
        }
        if self.bytes > StreamMember::ALL_MAX {
            return Err("its members are too long".into());
        }
        if self.members.is_empty() {
            self.target = name_of(spec, &member.name, &member.name);
        }
        self.guids.extend(member.snapshots.iter().map(|(guid, _)| *guid));
        self.members.push(member);
        Ok(())
    }

    /// True if a snapshot of that guid is somewhere in the tree.
    fn has(&self, guid: u64) -> bool {
        self.guids.contains(&guid)
    }

    /// Name of the top, where it comes from.
    pub fn top(&self) -> Option<&str> {
        self.members.first().map(|top| top.name.as_str())
    }

    /// Name that a member is to have here.
    fn wanted(&self, spec: &ReceiveSpec, member: &StreamMember) -> String {
        name_of(spec, self.top().unwrap_or_default(), &member.name)
    }
}

fn is_at_or_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

impl Streams {
    /// The members of a stream's tree; empty if they would be too long.
    pub(crate) fn members_of(&self, top: &str, left_out: &[String]) -> Result<Vec<StreamMember>> {
        let here = self.here(top)?;
        let member = |here: Here| StreamMember {
            left_out: left_out.iter().any(|above| is_at_or_below(&here.name, above)),
            name: here.name,
            snapshots: here.snapshots,
        };
        let members: Vec<StreamMember> = here.into_iter().map(member).collect();
        let size = members.iter().map(StreamMember::size).sum::<usize>();
        let longest = members.iter().map(StreamMember::size).max().unwrap_or_default();
        let fits = size <= StreamMember::ALL_MAX && longest <= FrameHeader::PAYLOAD_MAX as usize;
        Ok(if fits { members } else { Vec::new() })
    }

    /// A dataset and all below it, parents first. [receive_tree.1]
    fn here(&self, top: &str) -> Result<Vec<Here>> {
        let table = self.datasets.table.read();
        let id = table.find(top)?;
        let mut ids = vec![id];
        ids.extend(table.descendants(id));
        let here = |id: DatasetId| {
            let entry = table.get(id)?;
            let snapshots = entry.snapshots.values().map(|s| (s.row.guid, s.row.name.clone())).collect();
            Some(Here { id, name: table.full_name(id), snapshots })
        };
        let mut found: Vec<Here> = ids.into_iter().filter_map(here).collect();
        found.sort_by(|one, other| one.name.split('/').cmp(other.name.split('/')));
        Ok(found)
    }

    /// Local datasets of the stream's members, by the members' index. A member's dataset is the one
    /// that has the youngest of its snapshots that are here. If one dataset has snapshots of
    /// several members, which happens after a promotion in the source, it belongs to the member
    /// with the youngest of them.
    fn counterparts(&self, spec: &ReceiveSpec, tree: &Followed, here: &[Here]) -> BTreeMap<usize, usize> {
        // Where each snapshot is: the dataset, and how old it is there.
        let mut having: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, dataset) in here.iter().enumerate() {
            for (age, (guid, _)) in dataset.snapshots.iter().enumerate() {
                having.entry(*guid).or_default().push((at, age));
            }
        }
        let mut best: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for (number, member) in tree.members.iter().enumerate() {
            let Some(all) = member.snapshots.iter().rev().find_map(|(guid, _)| having.get(guid)) else {
                continue;
            };
            let wanted = tree.wanted(spec, member);
            let named = all.iter().copied().find(|(at, _)| here[*at].name == wanted);
            let Some((at, age)) = named.or(all.first().copied()) else { continue };
            if best.get(&at).is_none_or(|(_, other)| age > *other) {
                best.insert(at, (number, age));
            }
        }
        best.into_iter().map(|(at, (number, _))| (number, at)).collect()
    }

    /// Names here of what the stream leaves out. All below these is left out with them.
    fn left_out_here(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        (here, found): (&[Here], &BTreeMap<usize, usize>),
    ) -> Vec<String> {
        let left_out = tree.members.iter().enumerate().filter(|(_, member)| member.left_out);
        let name = |(number, member): (usize, &StreamMember)| match found.get(&number) {
            Some(at) => here[*at].name.clone(),
            None => tree.wanted(spec, member),
        };
        left_out.map(name).collect()
    }

    /// Promotes the clones that were promoted in the source. If that fails, it is reported and the
    /// clone stays a clone.
    fn follow_promotions(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<()> {
        let mut refused = BTreeSet::new();
        while let Some((number, clone, of)) = self.promotion_to_follow(spec, tree, &refused)? {
            // Snapshots of both may share a name here that they do not share in the source.
            for dataset in [&clone, &of] {
                self.follow_snapshot_names(spec, tree, (&tree.members[number], dataset), watch)?;
            }
            if !self.promote_told(spec, tree, (&clone, &of.name), watch)? {
                refused.insert(clone.id);
            }
        }
        Ok(())
    }

    /// A clone here that is to be promoted, with its place among the members and what it is a clone
    /// of. [receive_tree.5]
    fn promotion_to_follow(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        refused: &BTreeSet<DatasetId>,
    ) -> Result<Option<(usize, Here, Here)>> {
        if tree.members.is_empty() || spec.target.contains('@') {
            return Ok(None);
        }
        let Ok(here) = self.here(&tree.target) else { return Ok(None) };
        let found = self.counterparts(spec, tree, &here);
        if found.get(&0) != Some(&0) {
            return Ok(None);
        }
        let left_out = self.left_out_here(spec, tree, (&here, &found));
        let is_left_out = |name: &str| left_out.iter().any(|above| is_at_or_below(name, above));
        let members: BTreeMap<usize, usize> = found.iter().map(|(number, at)| (*at, *number)).collect();
        let guids = |at: usize| -> BTreeSet<u64> {
            let member = members.get(&at).map(|number| &tree.members[*number]);
            member.into_iter().flat_map(|member| &member.snapshots).map(|(guid, _)| *guid).collect()
        };
        for (clone, of, count) in self.clones_among(&here) {
            let names = [&here[clone].name, &here[of].name];
            if refused.contains(&here[clone].id) || names.into_iter().any(|name| is_left_out(name)) {
                continue;
            }
            let Some(number) = members.get(&clone).copied() else { continue };
            let (own, others) = (guids(clone), guids(of));
            let moved = || here[of].snapshots.iter().take(count).map(|(guid, _)| guid);
            if moved().any(|guid| own.contains(guid)) && !moved().any(|guid| others.contains(guid)) {
                return Ok(Some((number, here[clone].clone(), here[of].clone())));
            }
        }
        Ok(None)
    }

    /// Which of these are clones of others of them, by their places, and how many snapshots there
    /// are up to that one.
    fn clones_among(&self, here: &[Here]) -> Vec<(usize, usize, usize)> {
        let table = self.datasets.table.read();
        let mut numbers = BTreeMap::new();
        for (at, dataset) in here.iter().enumerate() {
            for (age, (_, known)) in table.get(dataset.id).into_iter().flat_map(|e| &e.snapshots).enumerate()
            {
                numbers.insert(known.row.number, (at, age + 1));
            }
        }
        let origin = |dataset: &Here| numbers.get(&table.get(dataset.id)?.row.lineage.origin).copied();
        let clones = here.iter().enumerate();
        clones.filter_map(|(at, dataset)| origin(dataset).map(|(of, count)| (at, of, count))).collect()
    }

    /// Promotes a clone. False if that cannot be, which is told.
    fn promote_told(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        (clone, of): (&Here, &str),
        watch: &mut dyn ReceiveWatch,
    ) -> Result<bool> {
        let mut promoted = self.datasets.promote(&clone.name);
        if let (Err(Error::PromoteConflict { snapshots, .. }), true) = (&promoted, spec.force) {
            let known = self.datasets.table.read().get(clone.id).map(|entry| {
                let rows = entry.snapshots.values().map(|known| &known.row);
                rows.filter(|row| !tree.has(row.guid)).map(|row| row.name.clone()).collect::<BTreeSet<_>>()
            });
            let is_stray = |full: &&String| {
                full.split_once('@').is_some_and(|(_, name)| known.iter().any(|known| known.contains(name)))
            };
            let in_the_way: Vec<String> = snapshots.iter().filter(is_stray).cloned().collect();
            promoted = self
                .datasets
                .destroy_snapshots(&in_the_way, false)
                .and_then(|()| self.datasets.promote(&clone.name));
        }
        match promoted {
            Ok(()) => {
                watch.snapshots_changed(&clone.name);
                watch.snapshots_changed(of);
                Ok(true)
            }
            Err(error) if self.core.is_suspended() => Err(error),
            Err(error) => {
                watch.not_followed(error);
                Ok(false)
            }
        }
    }

    /// Gives what is here the names that it has where the stream comes from, as far as that can be
    /// by now: some may lie below what is yet to come.
    pub(crate) fn follow_names(
        &self,
        spec: &ReceiveSpec,
        tree: &mut Followed,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<()> {
        if tree.renames.is_none() {
            self.follow_promotions(spec, tree, watch)?;
            tree.renames = Some(self.names_to_follow(spec, tree, watch)?);
        }
        let mut left = tree.renames.take().unwrap_or_default();
        while !left.is_empty() {
            let before = left.len();
            let mut waiting = Vec::new();
            let moving: BTreeSet<DatasetId> = left.iter().map(|(id, _)| *id).collect();
            for (id, wanted) in left {
                if !self.follow_name(spec, tree, (id, &wanted, &moving), watch)? {
                    waiting.push((id, wanted));
                }
            }
            left = waiting;
            if left.len() < before {
                continue;
            }
            // Those that go in a circle wait for each other: one of them goes aside.
            if !self.step_aside(&left, watch)? {
                break;
            }
        }
        tree.renames = Some(left);
        Ok(())
    }

    /// Datasets that have other names here. Names of snapshots are followed at once.
    fn names_to_follow(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<Vec<(DatasetId, String)>> {
        if tree.members.is_empty() || spec.target.contains('@') {
            return Ok(Vec::new());
        }
        // A target that does not exist follows nothing.
        let Ok(here) = self.here(&tree.target) else { return Ok(Vec::new()) };
        let found = self.counterparts(spec, tree, &here);
        // A target without any of the snapshots is another dataset, and the receive will be
        // refused.
        if found.get(&0) != Some(&0) {
            return Ok(Vec::new());
        }
        let mut renames: Vec<(DatasetId, String)> = Vec::new();
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        for (number, at) in found {
            let (member, dataset) = (&tree.members[number], &here[at]);
            if member.left_out || !taken.insert(at) {
                continue;
            }
            let left = self.follow_snapshot_names(spec, tree, (member, dataset), watch)?;
            left.into_iter().for_each(|error| watch.not_followed(error));
            let wanted = tree.wanted(spec, member);
            if at != 0 && dataset.name != wanted {
                renames.push((dataset.id, wanted));
            }
        }
        Ok(renames)
    }

    /// Gives snapshots of a dataset the names that they have where the stream comes from. Gives
    /// what could not be done.
    fn follow_snapshot_names(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        (member, dataset): (&StreamMember, &Here),
        watch: &mut dyn ReceiveWatch,
    ) -> Result<Vec<Error>> {
        let mut now: BTreeMap<String, u64> =
            dataset.snapshots.iter().map(|(guid, name)| (name.clone(), *guid)).collect();
        let by_guid: BTreeMap<u64, &String> =
            member.snapshots.iter().map(|(guid, name)| (*guid, name)).collect();
        let mut left: Vec<(String, u64)> = now
            .iter()
            .filter(|(name, guid)| by_guid.get(*guid).is_some_and(|wanted| wanted != name))
            .map(|(name, guid)| (name.clone(), *guid))
            .collect();
        if left.is_empty() {
            return Ok(Vec::new());
        }
        let full = |name: &str| format!("{}@{name}", dataset.name);
        loop {
            let before = left.len();
            let mut waiting = Vec::new();
            for (name, guid) in left {
                let to = by_guid[&guid];
                let in_the_way = now.get(to).copied().filter(|other| !tree.has(*other));
                if in_the_way.is_some() && spec.force {
                    match self.datasets.destroy_snapshots(&[full(to)], false) {
                        Ok(()) => _ = now.remove(to),
                        Err(error) => watch.not_followed(error),
                    }
                }
                if now.contains_key(to) {
                    waiting.push((name, guid));
                    continue;
                }
                self.datasets.rename_snapshots(&[full(&name)], to)?;
                now.remove(&name);
                now.insert(to.clone(), guid);
            }
            left = waiting;
            if left.is_empty() || left.len() == before {
                break;
            }
        }
        watch.snapshots_changed(&dataset.name);
        let not_followed =
            |(name, guid): (String, u64)| Error::NotFollowed { name: full(&name), to: full(by_guid[&guid]) };
        Ok(left.into_iter().map(not_followed).collect())
    }

    /// Gives one dataset its name. False if something has to happen before.
    fn follow_name(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        (id, wanted, moving): (DatasetId, &str, &BTreeSet<DatasetId>),
        watch: &mut dyn ReceiveWatch,
    ) -> Result<bool> {
        let (name, parent, in_the_way) = {
            let table = self.datasets.table.read();
            if table.get(id).is_none_or(|entry| entry.row.destroying) {
                return Ok(true);
            }
            let parent = wanted.rsplit_once('/').and_then(|(parent, _)| table.find(parent).ok());
            (table.full_name(id), parent, table.find(wanted).ok())
        };
        // [receive_tree.1] It may have been moved away since it was looked for.
        if name == wanted || !is_at_or_below(&name, &tree.target) {
            return Ok(true);
        }
        // The new parent may still be missing, or may have that name only for a while; and a
        // dataset moves along with its parent.
        let is_firm = |parent: DatasetId| {
            let above = self.datasets.table.read().ancestry(parent);
            !above.iter().any(|above| *above == id || moving.contains(above))
        };
        if !parent.is_some_and(is_firm) {
            return Ok(false);
        }
        if in_the_way.is_some() && spec.force {
            self.make_way(spec, tree, wanted, watch)?;
        }
        if self.datasets.table.read().find(wanted).is_ok() {
            return Ok(false);
        }
        watch.before(&name)?;
        let renamed = self.datasets.rename_dataset(&name, wanted);
        watch.renamed(&name, if renamed.is_ok() { wanted } else { &name });
        renamed.map(|()| true)
    }

    /// Destroys the dataset that has the name of a new file system, if it is not in the source.
    pub(crate) fn make_way(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        name: &str,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<()> {
        let is_there = self.datasets.table.read().find(name).is_ok();
        if tree.members.is_empty() || !spec.force || !is_there || name == tree.target {
            return Ok(());
        }
        let strays = self.strays(spec, tree)?;
        let doomed: Vec<String> =
            strays.datasets.into_iter().filter(|stray| is_at_or_below(stray, name)).collect();
        if doomed.last().is_some_and(|last| last == name) {
            self.destroy_strays(spec, tree, &doomed, watch)?;
        }
        Ok(())
    }

    /// One of several datasets whose names others of them have gets a name that nobody has. False
    /// if none waits for that.
    fn step_aside(&self, left: &[(DatasetId, String)], watch: &mut dyn ReceiveWatch) -> Result<bool> {
        let found = {
            let table = self.datasets.table.read();
            let is_wanted = |id: DatasetId| {
                let name = table.full_name(id);
                left.iter().any(|(other, wanted)| *other != id && *wanted == name)
            };
            let one = left.iter().map(|(id, _)| *id).find(|id| is_wanted(*id));
            one.map(|id| (table.full_name(id), id))
        };
        let Some((name, id)) = found else { return Ok(false) };
        let Some((parent, last)) = name.rsplit_once('/') else { return Ok(false) };
        let aside = format!("{parent}/{last}-{id}");
        let is_name = steadfast_property::check_dataset_name(&aside).is_ok();
        if !is_name || self.datasets.table.read().find(&aside).is_ok() {
            return Ok(false);
        }
        watch.before(&name)?;
        let renamed = self.datasets.rename_dataset(&name, &aside);
        watch.renamed(&name, if renamed.is_ok() { &aside } else { &name });
        renamed.map(|()| true)
    }

    /// Datasets and snapshots that are here but not in the source. [receive_tree.3]
    fn strays(&self, spec: &ReceiveSpec, tree: &Followed) -> Result<Strays> {
        let here = self.here(&tree.target)?;
        let found = self.counterparts(spec, tree, &here);
        let mut strays = Strays::default();
        if found.get(&0) != Some(&0) {
            return Ok(strays);
        }
        let mut kept: BTreeSet<String> = found.values().map(|at| here[*at].name.clone()).collect();
        let left_out = self.left_out_here(spec, tree, (&here, &found));
        let is_left_out = |name: &str| left_out.iter().any(|above| is_at_or_below(name, above));
        for dataset in here.iter().rev() {
            if is_left_out(&dataset.name) {
                kept.insert(dataset.name.clone());
                continue;
            }
            let (there, gone): (Vec<_>, Vec<_>) =
                dataset.snapshots.iter().partition(|(guid, _)| tree.has(*guid));
            let below = format!("{}/", dataset.name);
            // Children come first in this order.
            let is_kept = !there.is_empty()
                || kept.contains(&dataset.name)
                || kept.range(below.clone()..).next().is_some_and(|name| name.starts_with(&below));
            if !is_kept {
                strays.datasets.push(dataset.name.clone());
                continue;
            }
            kept.insert(dataset.name.clone());
            if !gone.is_empty() {
                let names = gone.iter().map(|(_, name)| format!("{}@{name}", dataset.name)).collect();
                strays.snapshots.insert(dataset.name.clone(), names);
            }
        }
        Ok(strays)
    }

    /// All of the stream was received: what is no more where it came from goes, if that is wanted.
    /// [receive_tree.2]
    pub(crate) fn follow_to_the_end(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        watch: &mut dyn ReceiveWatch,
    ) {
        if tree.members.is_empty() || !spec.force || spec.dry_run || spec.target.contains('@') {
            return;
        }
        let strays = self.strays(spec, tree).and_then(|strays| {
            if strays.datasets.is_empty() {
                return Ok(strays);
            }
            self.destroy_strays(spec, tree, &strays.datasets, watch)?;
            // Clones may have got snapshots of what they were clones of.
            self.strays(spec, tree)
        });
        let snapshots = match strays {
            Ok(strays) => strays.snapshots,
            Err(error) => return watch.not_followed(error),
        };
        for (dataset, names) in snapshots {
            if self.datasets.destroy_snapshots(&names, false).is_err() {
                // Those that nothing keeps.
                for name in &names {
                    let destroyed = self.datasets.destroy_snapshots(std::slice::from_ref(name), false);
                    destroyed.unwrap_or_else(|error| watch.not_followed(error));
                }
            }
            watch.snapshots_changed(&dataset);
        }
    }

    /// Destroys datasets, each of those that lie below no other one with all below it.
    fn destroy_strays(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        names: &[String],
        watch: &mut dyn ReceiveWatch,
    ) -> Result<()> {
        let lies_below =
            |name: &String| names.iter().any(|above| above != name && is_at_or_below(name, above));
        for top in names.iter().filter(|name| !lies_below(name)) {
            let doomed: Vec<String> =
                names.iter().filter(|name| is_at_or_below(name, top)).cloned().collect();
            if !self.free_clones(spec, tree, (&doomed, names), watch)? {
                continue;
            }
            if let Err(error) = watch.destroying(&doomed) {
                watch.not_followed(error);
                continue;
            }
            let destroyed = self.datasets.destroy_all(&doomed);
            watch.destroyed(&doomed);
            if let Err(error) = destroyed {
                watch.not_followed(error);
            }
        }
        Ok(())
    }

    /// A dataset to be destroyed may be the origin of clones that stay: they were promoted in the
    /// source, though no snapshot is left that tells. Promotes them. False if that fails, which is
    /// reported. [receive_tree.5]
    fn free_clones(
        &self,
        spec: &ReceiveSpec,
        tree: &Followed,
        (doomed, strays): (&[String], &[String]),
        watch: &mut dyn ReceiveWatch,
    ) -> Result<bool> {
        loop {
            let here = self.here(&tree.target)?;
            let stays = |(clone, of, _): &(usize, usize, usize)| {
                doomed.contains(&here[*of].name) && !strays.contains(&here[*clone].name)
            };
            let Some((clone, of, _)) = self.clones_among(&here).into_iter().find(stays) else {
                return Ok(true);
            };
            if !self.promote_told(spec, tree, (&here[clone], &here[of].name), watch)? {
                return Ok(false);
            }
        }
    }
}

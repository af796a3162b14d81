//! The verbs of a pool that move devices and what lies on them.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use steadfast_format::DatasetId;
use steadfast_property::Local;

use crate::core::error::Result;
use crate::devices::groups::DeviceHandle;
use crate::devices::scrub::ScrubCommand;
use crate::{
    BookmarkInfo, FileChange, Hold, NewKey, Partial, Pool, ReceiveSpec, ReceiveWatch, Received, ScanKind,
    ScanState, SendSpec, SnapshotInfo, VolumeInfo, VolumeSpec,
};

impl Pool {
    /// Adds a device to the group of another, or makes a mirror of one that stands alone. Begun when it returns; a resilver ends it, or
    /// the evening out of a raidz group.
    pub fn attach(&self, path: &str, new: DeviceHandle, force: bool) -> Result<()> {
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.attach_log(&log, new, force);
        }
        self.devices.attach(path, new, force)
    }

    /// Takes a device out of a mirror, or ends a replacement by giving up one of its halves. Refused if it holds the last copy of
    /// something.
    pub fn detach(&self, path: &str) -> Result<()> {
        if let Some(log) = self.zil.log_named(path) {
            self.core.check_writable()?;
            return self.zil.detach_log(&log);
        }
        self.devices.detach(path)
    }

    /// Begins to move away all that lies on the groups of these devices, which then leave the pool. With `dry_run` only says whether
    /// that could be.
    pub fn remove(&self, paths: &[String], dry_run: bool) -> Result<()> {
        self.devices.remove_groups(paths, dry_run)
    }

    /// Ends a removal that is under way: its devices stay.
    pub fn cancel_remove(&self) -> Result<()> {
        self.devices.cancel_remove()
    }

    /// Begins a rebalance; pauses it, lets it go on or ends it, or what evens out a widened group.
    pub fn rebalance(&self, command: ScrubCommand) -> Result<()> {
        self.devices.rebalance(command)
    }

    /// Begins to build what is missing on devices, from the beginning.
    pub fn resilver(&self) -> Result<()> {
        self.devices.resilver_anew()
    }

    /// Bytes that a job that moves has yet to look at, and which; `None` if none is active. A group that becomes wider is to be evened out
    /// from the moment on from which its new device is to be seen.
    #[must_use]
    pub fn move_remaining(&self) -> Option<(ScanKind, u64)> {
        if self.core.health.read_only {
            return None;
        }
        let leaving = || {
            let leaves = self.devices.leaves();
            let any = leaves.iter().any(|leaf| self.devices.is_being_removed(leaf)) || self.has_departing();
            any.then_some((ScanKind::Remove, 1))
        };
        // Looked at before the job, as it is over when the job has begun.
        let due = self.devices.moves.expansions_due.load(Ordering::Acquire) > 0;
        let row = self.devices.move_status().filter(|row| row.state == ScanState::Active);
        let left = row.map(|row| (row.kind, row.total.saturating_sub(row.read).max(1)));
        // A removal is over when its devices have left.
        left.or_else(|| due.then_some((ScanKind::Expand, 1))).or_else(leaving)
    }

    /// Makes a volume; as [`Pool::create_dataset`] otherwise.
    pub fn create_volume(
        &self,
        name: &str,
        props: Local,
        key: Option<NewKey>,
        spec: VolumeSpec,
    ) -> Result<DatasetId> {
        self.datasets.create_volume(name, props, key, spec)
    }

    /// What is measured of a volume as it was at a snapshot; `None` for a file system's.
    pub fn snapshot_volume(&self, name: &str) -> Result<Option<VolumeInfo>> {
        self.datasets.snapshot_volume(name)
    }

    /// Makes a volume longer. Durable when it returns.
    pub fn grow_volume(&self, name: &str, bytes: u64) -> Result<()> {
        self.datasets.grow_volume(name, bytes)
    }

    /// Takes snapshots (`pool/fs@name`), of one moment, all or none, each with these properties. Durable when it returns.
    pub fn take_snapshots(&self, names: &[String], props: &Local) -> Result<()> {
        self.datasets.take_snapshots(names, props)
    }

    /// Destroys snapshots, all or none; space comes back in the background. Those that tags keep are refused, or with `defer` go
    /// when nothing keeps them any more.
    pub fn destroy_snapshots(&self, names: &[String], defer: bool) -> Result<()> {
        self.datasets.destroy_snapshots(names, defer)
    }

    /// Refuses to destroy snapshots, if one of them could not be even without clones: something keeps it.
    pub fn check_destroy_snapshots(&self, names: &[String], defer: bool) -> Result<()> {
        self.datasets.check_destroy_snapshots(names, defer)
    }

    /// Refuses to go back to a snapshot, if that could not be even if there were no younger ones.
    pub fn try_rollback(&self, name: &str) -> Result<()> {
        self.datasets.try_rollback(name)
    }

    /// Makes a dataset that nobody uses what it was at its youngest snapshot. Durable when it returns.
    pub fn rollback(&self, name: &str) -> Result<()> {
        self.datasets.rollback(name)
    }

    /// Keeps snapshots by a tag, all or none.
    pub fn hold(&self, names: &[String], tag: &str) -> Result<()> {
        self.datasets.hold(names, tag)
    }

    /// Takes a tag away from snapshots, all or none.
    pub fn release(&self, names: &[String], tag: &str) -> Result<()> {
        self.datasets.release(names, tag)
    }

    /// Tags that keep a snapshot, and when they were set.
    pub fn holds(&self, name: &str) -> Result<Vec<Hold>> {
        self.datasets.holds(name)
    }

    /// Gives snapshots another name (what follows the `@`), all or none.
    pub fn rename_snapshots(&self, names: &[String], to: &str) -> Result<()> {
        self.datasets.rename_snapshots(names, to)
    }

    /// Sets, or with `None` removes, properties of users on snapshots, all or none. Durable when it returns.
    pub fn set_snapshot_properties(&self, names: &[String], edits: &[(&str, Option<&str>)]) -> Result<()> {
        self.datasets.set_snapshot_properties(names, edits)
    }

    /// A property of snapshots goes back to what was received of it, or to what their datasets have; all or none. Durable when it
    /// returns.
    pub fn revert_snapshot_property(&self, names: &[String], property: &str) -> Result<()> {
        self.datasets.revert_snapshot_property(names, property)
    }

    /// Full names of the snapshots of a dataset on which a property of users is set, or was received.
    pub fn snapshots_with(&self, dataset: &str, property: &str) -> Result<Vec<String>> {
        self.datasets.snapshots_with(dataset, property)
    }

    /// Destroys a dataset without children that nobody uses, with all its snapshots, in one step.
    pub fn destroy_with_snapshots(&self, name: &str) -> Result<()> {
        self.datasets.destroy_dataset(name, true)
    }

    /// Destroys datasets that nobody uses with all their snapshots, all or none, in one step: what depends on one of them, and is not among
    /// them, is refused. A key is needed only of what shares segments with what stays. Their space comes back in the background.
    pub fn destroy_all(&self, names: &[String]) -> Result<()> {
        self.datasets.destroy_all(names, true)
    }

    /// Refuses to destroy datasets together, with their snapshots, if one of them could not be: a key is missing, or something keeps it.
    /// Whether they are mounted is not looked at.
    pub fn check_destroy_all(&self, names: &[String]) -> Result<()> {
        self.datasets.check_destroy_all(names)
    }

    /// Makes a dataset that begins as what a snapshot keeps. Durable when it returns.
    pub fn clone_snapshot(&self, snapshot: &str, name: &str, props: Local) -> Result<DatasetId> {
        self.datasets.clone_snapshot(snapshot, name, props)
    }

    /// Makes a clone what its origin's dataset was, and that dataset the clone. Durable when it returns.
    pub fn promote(&self, name: &str) -> Result<()> {
        self.datasets.promote(name)
    }

    /// Those of some snapshots that have clones, and the full names of these, sorted.
    pub fn clones(&self, snapshots: &[String]) -> Result<Vec<(String, Vec<String>)>> {
        self.datasets.clones(snapshots)
    }

    /// Bytes that would come back if these snapshots were destroyed together.
    pub fn reclaimable(&self, names: &[String]) -> Result<u64> {
        self.datasets.reclaimable(names)
    }

    /// Names of a dataset's snapshots (what follows the `@`), oldest first.
    pub fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>> {
        self.datasets.snapshot_names(dataset)
    }

    /// Measured values of a dataset's snapshots, oldest first, or of the one of that name.
    pub fn snapshot_infos(&self, dataset: &str, only: Option<&str>) -> Result<Vec<SnapshotInfo>> {
        self.datasets.snapshot_infos(dataset, only)
    }

    /// What changed from a snapshot to a later one of the same dataset, or to the dataset now, by path.
    pub fn diff(&self, base: &str, target: &str) -> Result<Vec<FileChange>> {
        self.datasets.diff(base, target)
    }

    /// Makes a bookmark (what follows the `#`) of a snapshot, or of another bookmark, given by its full name. Durable when it returns.
    pub fn add_bookmark(&self, of: &str, name: &str) -> Result<()> {
        self.datasets.add_bookmark(of, name)
    }

    /// Removes a bookmark by its full name. Durable when it returns.
    pub fn remove_bookmark(&self, name: &str) -> Result<()> {
        self.datasets.remove_bookmark(name)
    }

    /// Bookmarks of a dataset, those of older snapshots first.
    pub fn bookmark_infos(&self, dataset: &str) -> Result<Vec<BookmarkInfo>> {
        self.datasets.bookmark_infos(dataset)
    }

    /// Writes snapshots as one stream, each with what it has beyond its base. `progress` hears of the snapshot under way and the bytes
    /// written. Gives the bytes of the stream.
    pub fn send(
        &self,
        specs: &[SendSpec],
        out: &mut dyn Write,
        progress: &mut dyn FnMut(&str, u64),
    ) -> Result<u64> {
        self.streams.send(specs, &[], out, progress)
    }

    /// The same of a tree, upon what came before of it: the stream says which file systems and snapshots are at and below `top`, so that
    /// who receives it can follow what was renamed or destroyed. What is at or below the names `left_out` is there and is not sent.
    pub fn send_tree(
        &self,
        (top, left_out): (&str, &[String]),
        specs: &[SendSpec],
        out: &mut dyn Write,
        progress: &mut dyn FnMut(&str, u64),
    ) -> Result<u64> {
        let members = self.streams.members_of(top, left_out)?;
        self.streams.send(specs, &members, out, progress)
    }

    /// About how many bytes a stream would have. Refused is what [`Pool::send`] refuses.
    pub fn send_estimate(&self, spec: &SendSpec) -> Result<u64> {
        self.streams.send_estimate(spec)
    }

    /// Refuses what [`Pool::send`] refuses. Gives a guess of how many bytes it would be, which costs nothing and may be wrong by far for
    /// increments.
    pub fn check_send(&self, spec: &SendSpec) -> Result<u64> {
        self.streams.check_send(spec)
    }

    /// Receives all snapshots of a stream, each in one commit. An error leaves those that were received before it.
    pub fn receive(
        &self,
        spec: &ReceiveSpec,
        input: &mut dyn Read,
        watch: &mut dyn ReceiveWatch,
    ) -> Result<Vec<Received>> {
        self.streams.receive(spec, input, watch)
    }

    /// Frees what was kept of a receive that broke off. Durable when it returns.
    pub fn abort_receive(&self, name: &str) -> Result<()> {
        self.datasets.abort_receive(name)
    }

    /// What was kept of a receive that broke off.
    #[must_use]
    pub fn partial_receive(&self, name: &str) -> Option<Partial> {
        self.datasets.partial(name)
    }

    /// Names of file systems that are not there yet, and of which a receive that broke off has left something.
    #[must_use]
    pub fn unfinished(&self) -> Vec<String> {
        self.datasets.unfinished()
    }

    /// Bytes that a dataset refers to and a snapshot of it does not.
    pub fn written_since(&self, dataset: &str, snapshot: &str) -> Result<u64> {
        self.datasets.written_since_name(dataset, snapshot)
    }
}

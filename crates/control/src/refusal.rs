//! The catalogue of codes, and the sentences that go with them.
//!
//! A refusal has three parts and a code: what happened, what it means, what to do, and where to read on. The first
//! part is written where it happens; the other two stand here once per code, so that docs/operations/messages.md and the program
//! cannot drift apart unnoticed (test: `every_code_stands_in_the_manual_and_the_reverse`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

macro_rules! codes {
    ($($variant:ident $text:literal $meaning:literal $action:literal;)*) => {
        /// What kind of refusal or trouble it is.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Code { $(#[doc = $meaning] $variant,)* }

        impl Code {
            /// All codes, in the order of the manual.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// As printed.
            #[must_use]
            pub fn as_str(self) -> &'static str { match self { $(Code::$variant => $text,)* } }

            /// What it means.
            #[must_use]
            pub fn meaning(self) -> &'static str { match self { $(Code::$variant => $meaning,)* } }

            /// What to do; words in braces are fields of the refusal.
            #[must_use]
            pub fn action(self) -> &'static str { match self { $(Code::$variant => $action,)* } }
        }
    };
}

codes! {
    // The daemon and its socket.
    ApiVersion "API-VERSION" "The command and the daemon are of different versions of Steadfast."
        "Stop the daemon with `steadfast daemon stop` of its own version (or send it SIGTERM); the next command starts a new one.";
    ApiRequest "API-REQUEST" "The daemon could not read the request."
        "Use the `steadfast` command of the same version; if you did, report a bug.";
    PeerDenied "PEER-DENIED" "Only the user who owns the daemon, and root, may talk to it."
        "Run the command as that user, or as yourself with your own daemon.";
    DaemonStart "DAEMON-START" "No daemon runs, and starting one failed."
        "Read {log}, mend what it says, and try again; `steadfast daemon run` shows the same in the foreground.";
    DaemonRunning "DAEMON-RUNNING" "One daemon per user and host holds all pools, because only one process may write to a device."
        "Use the running one, or stop it with `steadfast daemon stop`.";
    DaemonAbsent "DAEMON-ABSENT" "There is nothing to stop or to ask."
        "Nothing needs to be done; the next command that needs a daemon starts it.";
    DaemonLost "DAEMON-LOST" "The daemon closed the connection before it answered, so what was asked may or may not have happened."
        "Look at `zpool status`, and at the end of {log}.";
    DaemonStopping "DAEMON-STOPPING" "The daemon is exporting its pools and takes no more requests."
        "Wait a moment and try again: a new daemon will be started.";
    RuntimeDir "RUNTIME-DIR" "The folder of the daemon's socket must belong to you alone, or others could pose as your daemon."
        "Remove the folder or change its owner and mode to yours and 0700, or choose another with STEADFAST_RUNTIME_DIR.";
    Internal "INTERNAL" "The program met a state that it holds to be impossible."
        "Report it with the daemon's log; the data on the devices is as of the last commit.";
    // Words.
    NameInvalid "NAME-INVALID" "Names are made of parts separated by '/', and a pool's name begins with a letter."
        "Choose a name that follows the rule.";
    PropUnknown "PROP-UNKNOWN" "No property has this name."
        "Correct the name; a property of your own has a ':' in its name.";
    PropValue "PROP-VALUE" "The property exists, and this is not one of its values."
        "Use one of the values listed.";
    PropElsewhere "PROP-ELSEWHERE" "ZFS has this property, or this value of it, and it would be an empty promise here."
        "Leave it out; `zfs get all` and `zpool get all` list what there is.";
    PropInherit "PROP-INHERIT" "The property holds for one file system only; nothing above it counts for it."
        "Set it instead: `zfs set {property}={default} FILESYSTEM` is as if nobody had.";
    PropSpace "PROP-SPACE" "A quota holds from now on, so it cannot be less than what is used or reserved already; a reservation is kept from others, so there must be as much."
        "Choose another size, or destroy something; `zfs list -o space` shows what takes up space.";
    PropCount "PROP-COUNT" "`filesystem_limit` and `snapshot_limit` bound how many there may be at a place and below it, whoever makes them."
        "Destroy some, or allow more: `zfs set {property}=NUMBER {fs}`; `zfs get {property} {fs}` shows the limit.";
    PropReadonly "PROP-READONLY" "The value is measured, or follows from other things, and cannot be set."
        "Leave it out.";
    PropCreation "PROP-CREATION" "The value was fixed when the pool or file system was created or imported."
        "Set it with -o when you create (or import) it.";
    PropKind "PROP-KIND" "Some properties are only of file systems, which hold names, others only of volumes, which are one file."
        "Leave it out; `zfs get all` lists what there is.";
    VolumeSize "VOL-SIZE" "A volume has a fixed size in whole blocks, which can only grow: to shrink it would cut off what lies at its end."
        "Choose a multiple of its volblocksize that is not less than its volsize; for a smaller one create another volume and copy with `dd` or `nbdcopy`.";
    VolumeParent "VOL-PARENT" "A volume is one file, so nothing can lie below it."
        "Choose another place.";
    VolumeBusy "VOL-BUSY" "A client of NBD uses the volume."
        "Disconnect it, or add -f to cut it off.";
    Later "LATER" "The word is known, and what it stands for is not built yet."
        "Do without for now; the README lists what is built.";
    // Devices.
    VdevMissing "VDEV-MISSING" "The device is not there."
        "Check the path; an image file is made with `truncate -s 1G {device}`.";
    VdevKind "VDEV-KIND" "Pools are made on regular files and block devices."
        "Name an image file or a block device.";
    VdevSmall "VDEV-SMALL" "A device must hold four labels and enough segments to work with."
        "Give it at least 64 MiB: `truncate -s 256M {device}`.";
    VdevForeign "VDEV-FOREIGN" "The device holds something already, and creating a pool would destroy it."
        "Make sure that it is not needed, then add -f.";
    VdevInUse "VDEV-IN-USE" "An imported pool, or another program, uses the device."
        "Use another device, or export or destroy that pool first.";
    VdevInPlace "VDEV-IN-PLACE" "Without another device, what lies under its own path now would take its place, and that is the device itself."
        "`zpool replace {pool} {device} NEW` puts another device into its place. If it was exchanged under its path, `zpool offline {pool} {device}` first. To compare and mend what it holds: `zpool scrub {pool}`.";
    VdevTwice "VDEV-TWICE" "A device can be listed once only."
        "Remove the second mention.";
    VdevIo "VDEV-IO" "The operating system reported an error for the device."
        "Check the device and its permissions, then try again.";
    DevErrors "DEV-ERRORS" "A device answered wrongly, and nothing was lost so far."
        "Watch the counters; if they grow, copy the data away and use another device.";
    VdevGone "VDEV-GONE" "A device was removed or cut short while its pool used it, so what is read from it is lost or will be."
        "Copy the data to another pool at once, before the daemon ends. Then `zpool destroy {pool}`, or `zpool export -f {pool}`, which gives up what only that device holds.";
    VdevNeeded "VDEV-NEEDED" "What the device holds nobody else has, or not often enough to do without it."
        "Leave the device in; with redundancy, bring the others back first. Or move the data to another pool.";
    VdevMismatch "VDEV-MISMATCH" "A pool is as safe as its least redundant part: a second part that survives fewer failures makes the first useless."
        "Give all parts the same redundancy, or add -f if that is meant.";
    VdevGroup "VDEV-GROUP" "A mirror takes 2 to 4 devices, raidz with p columns of parity p + 1 to 32, all of them files or disks."
        "List as many devices, as in `zpool create {pool} raidz1 a.img b.img c.img`.";
    VdevLog "VDEV-LOG" "What the intent log holds lives for seconds and is written in pieces too small for parity."
        "List single devices, or mirrors of them: `log a.img`, `log mirror a.img b.img`.";
    VdevDegraded "VDEV-DEGRADED" "What the device held is computed from the others until it is back or replaced. While it is out of use fewer further failures are survived."
        "See what is wrong with it; `zpool status {pool}` shows each device.";
    SpareInUse "SPARE-IN-USE" "The spare holds what a device of the pool should hold, and goes by itself when that device is back or replaced."
        "Bring the device back with `zpool online {pool} DEVICE`, or replace it with `zpool replace {pool} DEVICE NEW-DEVICE`.";
    ScanActive "SCAN-ACTIVE" "One scrub or resilver goes on at a time; a resilver goes first, because redundancy is missing until it ends."
        "Wait for it with `zpool wait -t scrub,resilver {pool}`; a scrub can be ended with `zpool scrub -s {pool}`.";
    ScanNone "SCAN-NONE" "Only a scrub that is under way can be paused or stopped."
        "`zpool status {pool}` shows the last one.";
    InjectFlag "INJECT-FLAG" "Faults on purpose damage what the pool holds, and this is no test build, which would inject them freely."
        "If that is meant, add --i-want-this-pool-damaged; if it is not, nothing needs to be done.";
    VdevDetach "VDEV-DETACH" "Only members of a mirror can be detached, and either half of a replacement that is under way."
        "`zpool replace {pool} {device} NEW` puts another device into its place; `zpool remove` takes away a group whole.";
    PoolSplit "POOL-SPLIT" "A pool is split into two halves that each have all of it: every group has to be a mirror, and every device whole and in use."
        "`zpool status {pool}` shows what stands in the way; `zpool attach {pool} DEVICE NEW` makes a mirror of a single device.";
    VdevMember "VDEV-MEMBER" "What is removed is a group, or a device that stands alone: a member of a group holds what the others need."
        "`zpool remove {pool} {group}` removes the group; `zpool detach {pool} {device}` takes a device out of a mirror.";
    RemoveRoom "REMOVE-ROOM" "What lies on a device that is removed goes to the others, which have to keep their reserve."
        "Delete something, or add a device first: `zpool add {pool} NEW`.";
    MoveActive "MOVE-ACTIVE" "One removal, expansion or rebalance goes on at a time."
        "Wait for it with `zpool wait -t remove,raidz_expand,rebalance {pool}`, or end it: `zpool remove -s {pool}`, `zpool rebalance -s {pool}`.";
    MoveNone "MOVE-NONE" "Only what is under way can be paused or ended."
        "`zpool status {pool}` shows what was done last.";
    TrimActive "TRIM-ACTIVE" "A device is trimmed, or initialized, once at a time."
        "Wait for it with `zpool wait -t {word} {pool}`, or end it with `zpool {word} -c {pool}`.";
    TrimNone "TRIM-NONE" "Only what is under way can be suspended or cancelled."
        "`zpool status -t {pool}` shows how far each device is, with -i for `zpool initialize`.";
    TrimOut "TRIM-OUT" "Only a device that is here and in use can be gone through: what is free on another one, nobody knows."
        "If it is well again, `zpool online {pool} {device}`, else `zpool replace {pool} {device} NEW`; then try again. `zpool {word} {pool}` goes through all that are in use.";
    TrimUnsupported "TRIM-UNSUPPORTED" "What the device lies on cannot take space back."
        "Nothing needs to be done; the pool uses the free space again.";
    // Pools.
    PoolExists "POOL-EXISTS" "Each imported pool has its own name."
        "Choose another name, or export the other pool with `zpool export {pool}`.";
    PoolAbsent "POOL-ABSENT" "No imported pool has this name."
        "`zpool list` shows the imported pools, `zpool import -d FOLDER` those that could be imported.";
    PoolNotFound "POOL-NOT-FOUND" "None of the devices searched holds a pool of this name or number."
        "Say where its devices are: `zpool import -d FOLDER` for image files.";
    PoolAmbiguous "POOL-AMBIGUOUS" "Several pools have this name."
        "Import one by its number, which `zpool import` lists as id, and give it a new name.";
    PoolImported "POOL-IMPORTED" "The pool is imported already."
        "Nothing needs to be done; `zpool status {pool}` shows it.";
    PoolActive "POOL-ACTIVE" "The pool was not exported by who used it last, and two users at once would destroy it."
        "Make sure that no other host or daemon uses it, then add -f.";
    PoolBusy "POOL-BUSY" "Programs have files of the pool open."
        "Close them (`fuser -vm {mountpoint}` names them), or add -f.";
    PoolDevices "POOL-DEVICES" "More devices are away than the redundancy of their group makes up for; a device that stands alone is always needed."
        "Bring the device back or say where it is with -d, then import again.";
    PoolNotWhole "POOL-NOT-WHOLE" "Every device has to say the new number, or one that is away would belong to another pool afterwards."
        "Bring {device} back or replace it, wait with `zpool wait {pool}`, and try again.";
    PoolDamaged "POOL-DAMAGED" "What the devices hold is not a complete pool: it was overwritten, cut short, or never finished."
        "Use an intact copy of the device; nothing was written to this one.";
    PoolDestroyed "POOL-DESTROYED" "The pool was destroyed; its bytes are still there until something else is written to its devices."
        "To have it back as it was, import it with `zpool import -D {pool}`.";
    PoolFeature "POOL-FEATURE" "An older version of Steadfast made the pool, and what is asked for would make it unreadable there."
        "Let the pool use all features of this version with `zpool upgrade {pool}`; there is no way back.";
    PoolVersion "POOL-VERSION" "The pool was written by a newer version of Steadfast."
        "Import it with that version.";
    PoolReadonly "POOL-READONLY" "The pool is imported without the right to write."
        "Export it, and import it without readonly=on.";
    PoolSuspended "POOL-SUSPENDED" "After a write error of unknown extent the pool stopped, so that nothing gets worse."
        "Mend the device, then `zpool export -f {pool}` and import it again; it comes back as of the last commit.";
    PoolFull "POOL-FULL" "There is no room left for this."
        "Delete something: deleting always works.";
    PoolSealed "POOL-SEALED" "The pool's own metadata is encrypted, so it cannot be opened without its key."
        "Import it with `zpool import -l {pool}` and give the key.";
    PoolMissing "POOL-MISSING" "The pool was imported when the daemon last ran, and its devices cannot be opened now."
        "Bring the devices back and `zpool import {pool}`, or forget it with `zpool export {pool}`.";
    // Anchors.
    AnchorRollback "ANCHOR-ROLLBACK" "All devices of the pool hold an earlier state together, which they cannot tell by themselves; its anchor can. What was written since is not on them."
        "Bring back the devices as they were last. If that state is gone or is not wanted, `zpool import --accept-rollback {pool}` opens what is there; the history will say so.";
    AnchorOld "ANCHOR-OLD" "The anchor was put back to an earlier state, or this is an old copy of it, or the pool was changed without it. Which root is the last cannot be told from here."
        "Bring back the newest anchor file, or name it with --anchor. If there is none, `zpool import --accept-rollback {pool}` opens what the devices hold; the history will say so.";
    AnchorMissing "ANCHOR-MISSING" "Without its anchor nothing tells whether the pool's devices were put back to an earlier copy."
        "Say where it is: `zpool import --anchor PATH {pool}`. If it is lost for good, `zpool import --accept-lost-anchor {pool}` opens what the devices hold, and the pool has no anchor afterwards.";
    AnchorDamaged "ANCHOR-DAMAGED" "What is there is not the record that this pool wrote: it decayed, was overwritten, or was made by somebody without the pool's key."
        "Restore the anchor file as it was last. If it is lost, `zpool import --accept-lost-anchor {pool}` opens what the devices hold, and the pool has no anchor afterwards.";
    AnchorForeign "ANCHOR-FOREIGN" "Each pool has an anchor of its own, and this one speaks of another pool."
        "Say where the right one is: `zpool import --anchor PATH {pool}`; `steadfast inspect anchor PATH` tells whose it is.";
    AnchorFenced "ANCHOR-FENCED" "Another daemon imported the pool and moved its anchor on. What this one wrote since its last commit is not part of the pool, and it writes nothing more."
        "Let go of it here with `zpool export -f {pool}`, and see that only one daemon imports it; what was committed before stays.";
    AnchorSilent "ANCHOR-SILENT" "The anchor cannot be read or written, so nothing can be committed, and nothing was committed without it."
        "Mend the place where the anchor is, then `zpool export -f {pool}` (if it is imported) and import it again.";
    AnchorUnnamed "ANCHOR-UNNAMED" "The labels of the pool do not name its anchor, and they should: they were changed by somebody, or put back."
        "Say where it is: `zpool import --anchor PATH {pool}`. If it is lost for good, add --accept-lost-anchor.";
    AnchorRetired "ANCHOR-RETIRED" "The anchor was removed from the pool in order, and tells nothing of what the pool did since."
        "Import the pool without --anchor; `zpool add {pool} anchor PATH` gives it a new one.";
    AnchorExists "ANCHOR-EXISTS" "A pool has one anchor: of two, one would be ignored."
        "Remove the one it has with `zpool remove {pool} {register}`, then add the other.";
    AnchorUnfit "ANCHOR-UNFIT" "An anchor is a small regular file in a folder that exists, on a machine you trust more than the pool's devices."
        "Name such a file; it need not exist yet.";
    // The intent log.
    LogDamaged "LOG-DAMAGED" "What fsync promised since the last commit stands in the intent log, and a part of it cannot be read or understood."
        "If the devices are not all as they were last, bring them back; an unknown kind of record wants the version of Steadfast that wrote it. To go on with what is safe, `zpool import --accept-lost-log {pool}` (or -m); the history will say so. `zpool import -o readonly=on {pool}` shows the last commit.";
    LogMissing "LOG-MISSING" "The pool keeps what fsync promised between two commits on a log device, which is not here."
        "Bring the device back, or say where it is with -d. If it is lost for good, `zpool import --accept-lost-log {pool}` (or -m) opens the last commit; the history will say so. Then `zpool remove {pool} {device}`; of a mirror, one side goes with `zpool detach`, or all of it by its name with `zpool remove`.";
    LogFailed "LOG-FAILED" "Nothing was lost: what the log device could not take was committed. The intent log goes on with others of its mirror, on other log devices, or in the pool."
        "If it is well again, `zpool online {pool} {device}`; else `zpool replace {pool} {device} NEW`. Or take it away with `zpool remove {pool} {device}`.";
    LogHeld "LOG-HELD" "What was promised to encrypted file systems is kept in the intent log until their keys are loaded, and must stay where it is."
        "Load the keys with `zfs load-key -a`, or destroy those file systems; then try again.";
    // File systems.
    FsExists "FS-EXISTS" "Each file system has its own name."
        "Choose another name.";
    FsAbsent "FS-ABSENT" "No file system has this name in an imported pool."
        "`zfs list` shows those that exist.";
    FsApart "FS-APART" "Blocks are shared within one file system; another one counts and seals its own."
        "Copy the file: `cp {source} {target}`.";
    FsParent "FS-PARENT" "A file system is made inside one that exists, by whatever verb."
        "Create it first with `zfs create -p {parent}`, which creates what is missing above it too; `zfs create`, `zfs clone` and `zfs rename` do that themselves with -p.";
    FsChildren "FS-CHILDREN" "Destroying it would leave its children without a parent."
        "Destroy the children first, or add -r to destroy them too.";
    FsSnapshots "FS-SNAPSHOTS" "Destroying it would leave its snapshots without a file system."
        "Destroy the snapshots first, or add -r to destroy them too.";
    SnapshotExists "SNAP-EXISTS" "Each snapshot of a file system has its own name, and nothing was taken."
        "Choose another name, or destroy the old one with `zfs destroy {snapshot}`.";
    SnapshotAbsent "SNAP-ABSENT" "No snapshot has this name."
        "`zfs list -t snapshot` shows those that exist.";
    SnapshotTwice "SNAP-TWICE" "Snapshots that are named together are of one moment, so two of one file system would be the same."
        "Take them one after the other.";
    SnapshotSpace "SNAP-SPACE" "All that a snapshot holds may have to be written again beside it, so what `refreservation` keeps is kept in full again after each, and there is not as much."
        "Make room (`zfs list -o space` shows what takes it up), or keep less: `zfs set refreservation=none {fs}`.";
    SnapshotHeld "SNAP-HELD" "A tag keeps the snapshot from being destroyed."
        "Take the tag away with `zfs release {tag} {snapshot}` (`zfs holds {snapshot}` lists them), or destroy it with -d, so that it goes with its last tag.";
    SnapshotYounger "SNAP-YOUNGER" "Going back to a snapshot undoes all that came after it, younger snapshots among it."
        "Add -r to destroy them, or read the old files below .zfs/snapshot.";
    SnapshotClones "SNAP-CLONES" "What a clone and the snapshot it was made of have in common is the snapshot's."
        "Destroy the clones first, or add -R to destroy them too; `zfs promote {clone}` makes the snapshot the clone's, and -d destroys a snapshot with its last clone.";
    FsNotClone "FS-NOT-CLONE" "Only a file system that was made of a snapshot by `zfs clone` has an origin to change places with."
        "`zfs list -o name,origin` shows which are clones.";
    PromoteNames "PROMOTE-NAMES" "A promotion moves snapshots to the clone, where each needs a name of its own; nothing was changed."
        "Rename or destroy those of the clone (`zfs rename`, `zfs destroy`), then try again.";
    HoldExists "HOLD-EXISTS" "A tag is on a snapshot once."
        "Choose another tag; `zfs holds {snapshot}` lists those there are.";
    HoldAbsent "HOLD-ABSENT" "No such tag keeps the snapshot."
        "`zfs holds {snapshot}` lists those that do.";
    BookmarkExists "BOOKMARK-EXISTS" "Each bookmark of a file system has its own name."
        "Choose another name, or remove the old one with `zfs destroy {bookmark}`.";
    BookmarkAbsent "BOOKMARK-ABSENT" "No bookmark has this name."
        "`zfs list -t bookmark` shows those that exist.";
    StreamDamaged "STREAM-DAMAGED" "What arrived is not what was sent, or not what `zfs send` writes. Nothing of the snapshot under way was taken over."
        "Send it again; if it lies in a file, compare that with where it was made. What was kept with -s goes on with the token that `zfs get receive_resume_token` shows.";
    StreamEnds "STREAM-ENDS" "The stream broke off. Nothing of the snapshot under way was taken over."
        "Send it again. What was kept with -s goes on with the token that `zfs get receive_resume_token` shows: `zfs send -t TOKEN`.";
    StreamNone "STREAM-NONE" "Only what `zfs send` of this or an earlier version of Steadfast writes can be received."
        "Check what comes in; a stream of a newer version needs that version here.";
    StreamIo "STREAM-IO" "Who reads the stream, or writes it, has ended, or the operating system reported an error."
        "Look at the command at the other end of the pipe, and try again.";
    StreamNotes "STREAM-NOTES" "Properties and tags go along with a stream as text of a bounded length: 64 KiB and 1,024 of each of a snapshot, 1 MiB of properties of a file system."
        "Send it without -p or without -h; or take away what is not needed with `zfs inherit` and `zfs release`.";
    StreamBase "STREAM-BASE" "An increment holds what is new since an earlier snapshot of the same file system, or of what it is a clone of."
        "`zfs list -t snapshot` shows which there are, oldest first.";
    StreamExists "STREAM-EXISTS" "A stream without a base makes a file system, and does not change one that exists."
        "Receive it under another name, send an increment (-i) upon a snapshot that both have, or add -F to replace a file system that has no snapshots.";
    StreamNoBase "STREAM-NO-BASE" "An increment needs the very snapshot that it was made upon."
        "Send an increment upon a snapshot that both have (`zfs list -t snapshot -o name,guid`), or all of it under another name.";
    StreamYounger "STREAM-YOUNGER" "An increment goes upon the youngest snapshot, and these would be lost."
        "Add -F to destroy them.";
    StreamModified "STREAM-MODIFIED" "What was changed here since would be lost."
        "Add -F to lose it, and `zfs set readonly=on {fs}` so that it does not happen again.";
    Raw "RAW" "What a raw stream brought is kept as it was sealed: its key reads it, and nothing is sealed with that key here."
        "To change it, make a file system of it: `zfs load-key {fs}`, then `zfs send {fs}@SNAPSHOT | zfs receive NEWNAME`.";
    RawMixed "RAW-MIXED" "A raw increment goes upon what was received raw from where it is sealed, and one that is not raw upon what was not."
        "Send it again, from the same pool and with -w or without it as the first one was, or all of it under another name.";
    StreamPartial "STREAM-PARTIAL" "A receive with -s broke off, and what had arrived was kept."
        "Go on with it: `zfs send -t TOKEN`, with the token that `zfs get receive_resume_token {fs}` shows; or give it up with `zfs receive -A {fs}`.";
    StreamNoPartial "STREAM-NO-PARTIAL" "Only a receive with -s that broke off can be gone on with, where it broke off, or be given up."
        "`zfs get receive_resume_token {fs}` shows the token, if there is one.";
    StreamToken "STREAM-TOKEN" "A token names a snapshot, and how much of it has arrived."
        "Take it anew from the receiving side: `zfs get -H -o value receive_resume_token FILESYSTEM`.";
    StreamBusy "STREAM-BUSY" "A stream goes out of the pool or comes in."
        "Wait for it, or end the `zfs send` or `zfs receive` that is under way.";
    StreamTerminal "STREAM-TERMINAL" "A stream is not for reading, and a terminal would be upset by it."
        "Send it to a file or a pipe: `zfs send SNAPSHOT > FILE`, `zfs receive FILESYSTEM < FILE`.";
    FsRoot "FS-ROOT" "A pool's own file system lives and goes with the pool."
        "Use `zpool destroy {pool}` to destroy the pool.";
    FsPlace "FS-PLACE" "A file system moves within its pool, not below itself, and stays encrypted (or not) as it was."
        "Choose another name; to move data elsewhere copy it.";
    FsBusy "FS-BUSY" "Programs have files of it open, or stand in one of its folders."
        "Close them (`fuser -vm {mountpoint}` names them), or add -f.";
    FsCollected "FS-COLLECTED" "The kernel holds what programs wrote and nobody asked to have stored, and it cannot be written: the snapshot does not have it."
        "Find the cause in `zpool status` or make room; the programs hear of it from `fsync` or `close`. Then take another snapshot.";
    FsMounted "FS-MOUNTED" "It is mounted already."
        "Nothing needs to be done; `zfs mount` lists what is mounted where.";
    FsNotMounted "FS-NOT-MOUNTED" "It is not mounted."
        "Nothing needs to be done.";
    FsCanmount "FS-CANMOUNT" "Its properties say that it is not to be mounted."
        "Set canmount=on and a mountpoint, if it should be.";
    FsMountpoint "FS-MOUNTPOINT" "Mounting over a folder with contents would hide them."
        "Empty the folder, choose another with `zfs set mountpoint=`, or mount over it with `zfs mount -O`.";
    FuseMissing "FUSE-MISSING" "This machine cannot mount file systems that live in user space."
        "Install fuse3 and make /dev/fuse accessible (in a container: --device /dev/fuse --cap-add SYS_ADMIN).";
    FuseMount "FUSE-MOUNT" "The kernel refused to mount."
        "Check that the mountpoint can be created and that you may write to its parent folder.";
    FuseNested "FUSE-NESTED" "An ordinary user's mount cannot hold another one, because the program that mounts may not look into it."
        "Put it elsewhere with `zfs set mountpoint=/some/folder {fs}`, or ask an administrator to write user_allow_other into /etc/fuse.conf.";
    // Keys.
    KeyWrong "KEY-WRONG" "The key does not open this file system."
        "Try again with the right key; without it the data cannot be read by anyone.";
    KeyFormat "KEY-FORMAT" "A passphrase has 8 to 512 bytes, a raw key 32 bytes, a hex key 64 hexadecimal digits."
        "Give a key of that form.";
    KeyNeeded "KEY-NEEDED" "It is encrypted, and its key is not loaded."
        "Load the key first: `zfs load-key {fs}`.";
    KeyLoaded "KEY-LOADED" "The key is loaded already."
        "Nothing needs to be done.";
    KeyUnloaded "KEY-UNLOADED" "The key is not loaded."
        "Nothing needs to be done.";
    KeyNone "KEY-NONE" "It is not encrypted, so it has no key."
        "Create an encrypted one: `zfs create -o encryption=on -o keyformat=passphrase {fs}`.";
    KeyInherited "KEY-INHERITED" "It is opened by the key of its encryption root."
        "Use the encryption root instead: {root}.";
    KeyMismatch "KEY-MISMATCH" "The two entries differ, so one of them has a slip."
        "Type it again.";
    KeySource "KEY-SOURCE" "The key could not be read from where keylocation says."
        "Check the file, or say where the key is with -L.";
    KeyShared "KEY-SHARED" "Others take their keys from it, and could not be opened any more without it."
        "Give them keys of their own with `zfs change-key`, or destroy them first: {others}.";
    KeyBusy "KEY-BUSY" "A mounted file system needs the key."
        "Unmount it first: `zfs unmount {fs}`.";
    KeyRules "KEY-RULES" "encryption, keyformat and keylocation belong together."
        "For a new key give encryption=on and keyformat=; to use the parent's key give none of the three.";
    // What status tells.
    BlkAuthAll "BLK-AUTH-ALL" "These are not the bytes that were written. Decay and tampering look alike from here."
        "Restore the files that `zpool status -v {pool}` names from a backup, or delete them.";
    // The command's own world.
    FileIo "FILE-IO" "The operating system refused access to a file."
        "Check the path and its permissions.";
}

impl Code {
    /// From its printed form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let text = String::deserialize(deserializer)?;
        // A daemon of a later version may know more; its sentences still tell everything.
        Ok(Code::parse(&text).unwrap_or(Code::Internal))
    }
}

/// What to do if a pool has no such device.
pub(crate) const SHOWS_DEVICES: &str = "`zpool status {pool}` shows its devices.";

/// A wish that is not granted: what is wrong, what that means, what to do.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{what} [{code}]")]
pub struct Refusal {
    /// Where to read on.
    pub code: Code,
    /// What is wrong, without capital and full stop: it follows "cannot create 'tank': ".
    pub what: String,
    /// What it means.
    pub meaning: String,
    /// What to do.
    pub action: String,
    /// Names and numbers, for programs.
    pub fields: BTreeMap<String, String>,
}

/// The same three parts where nothing was asked: trouble that status reports.
pub type Message = Refusal;

impl Refusal {
    /// A refusal with the catalogue's meaning and action.
    #[must_use]
    pub fn new(code: Code, what: impl Into<String>) -> Refusal {
        let (meaning, action) = (code.meaning().to_owned(), code.action().to_owned());
        Refusal { code, what: what.into(), meaning, action, fields: BTreeMap::new() }
    }

    /// Another action than the catalogue's, in which fields that are added afterwards fill words in braces.
    #[must_use]
    pub fn advising(mut self, action: &str) -> Refusal {
        action.clone_into(&mut self.action);
        self
    }

    /// What was named is no device of a pool.
    #[must_use]
    pub fn no_device(pool: &str, device: impl fmt::Display) -> Refusal {
        let what = format!("{device} is no device of the pool '{pool}'");
        let refusal = Refusal::new(Code::VdevMissing, what).advising(SHOWS_DEVICES);
        refusal.with("pool", pool).with("device", device)
    }

    /// Adds a field, and puts it into the action where that names it.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl ToString) -> Refusal {
        let value = value.to_string();
        self.action = self.action.replace(&format!("{{{field}}}"), &value);
        self.fields.insert(field.to_owned(), value);
        self
    }

    /// The action with fields that nobody gave as words in capitals.
    #[must_use]
    pub fn advice(&self) -> String {
        let mut text = String::new();
        let mut rest = self.action.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            text.push_str(before);
            let Some((field, tail)) = after.split_once('}') else {
                text.push('{');
                rest = after;
                break;
            };
            text.push_str(&field.to_uppercase());
            rest = tail;
        }
        text.push_str(rest);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_read_back() {
        for &code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(code));
            assert!(code.meaning().ends_with('.') && code.action().ends_with('.'), "{code}");
        }
        let mut texts: Vec<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), Code::ALL.len());
    }

    #[test]
    fn fields_fill_the_action() {
        let refusal = Refusal::new(Code::PoolExists, "a pool of this name is imported").with("pool", "tank");
        assert!(refusal.advice().contains("`zpool export tank`"), "{}", refusal.advice());
        let bare = Refusal::new(Code::PoolExists, "x");
        assert!(bare.advice().contains("`zpool export POOL`"), "{}", bare.advice());
    }

    #[test]
    fn who_names_no_device_of_a_pool_is_told_where_to_see_them() {
        let refusal = Refusal::no_device("tank", "/d/none.img");
        assert_eq!(refusal.what, "/d/none.img is no device of the pool 'tank'");
        assert_eq!(refusal.advice(), "`zpool status tank` shows its devices.");
    }

    #[test]
    fn what_to_do_without_a_parent_is_possible_for_every_verb() {
        // `zfs receive` has no -p, so that the advice is a command of its own.
        let advice = Refusal::new(Code::FsParent, "x").with("parent", "tank/no").advice();
        assert!(advice.contains("`zfs create -p tank/no`"), "{advice}");
    }

    #[test]
    fn an_unknown_code_of_a_later_version_keeps_its_sentences() {
        let line = r#"{"code":"NEW-1","what":"w","meaning":"m","action":"a","fields":{}}"#;
        let refusal: Refusal = serde_json::from_str(line).unwrap();
        assert_eq!((refusal.code, refusal.what.as_str()), (Code::Internal, "w"));
    }

    #[test]
    fn every_code_stands_in_the_manual_and_the_reverse() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/messages.md");
        let manual = std::fs::read_to_string(path).unwrap();
        let heading = |line: &str| line.strip_prefix("### ").map(str::to_owned);
        let described: Vec<String> = manual.lines().filter_map(heading).collect();
        for &code in Code::ALL {
            assert!(described.iter().any(|d| d == code.as_str()), "messages.md lacks a heading '### {code}'");
        }
        for found in &described {
            assert!(Code::parse(found).is_some(), "messages.md describes {found}, which no code prints");
        }
    }
}

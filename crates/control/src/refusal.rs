//! The catalogue of messages.
//!
//! A refusal has three parts and a code: the problem, its meaning, the action, and where to read
//! on. The problem is written where it occurs. Meaning and action stand here, once per code.
//! docs/operations/messages.md is made of them (test: `the_manual_is_the_catalogue`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Each entry: variant, code, meaning, action, and a sentence that only the manual adds.
macro_rules! codes {
    ($($section:literal: $($variant:ident $text:literal $meaning:literal $action:literal $($more:literal)?;)*)*) => {
        /// Kind of a refusal or of a problem that status reports.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Code { $($(#[doc = $meaning] $variant,)*)* }

        impl Code {
            /// All codes, in the order of the manual.
            pub const ALL: &'static [Code] = &[$($(Code::$variant,)*)*];

            /// Sections of the manual. Each code has the sentences that only the manual adds.
            #[cfg(test)]
            const MANUAL: &'static [(&'static str, &'static [(Code, &'static str)])] =
                &[$(($section, &[$((Code::$variant, concat!($($more)?)),)*]),)*];

            /// As printed.
            #[must_use]
            pub fn as_str(self) -> &'static str { match self { $($(Code::$variant => $text,)*)* } }

            /// Meaning.
            #[must_use]
            pub fn meaning(self) -> &'static str { match self { $($(Code::$variant => $meaning,)*)* } }

            /// Action; words in braces are fields of the refusal.
            #[must_use]
            pub fn action(self) -> &'static str { match self { $($(Code::$variant => $action,)*)* } }
        }
    };
}

codes! {
    "The daemon and its socket":
    ApiVersion "API-VERSION" "The command and the daemon are of different versions of Steadfast."
        "Stop the daemon with `steadfast daemon stop` of the daemon's version, or send it SIGTERM; the next command starts a new one.";
    ApiRequest "API-REQUEST" "The daemon could not read the request."
        "Use the `steadfast` command of the daemon's version; if the versions are the same, report a bug.";
    PeerDenied "PEER-DENIED" "Only the user who owns the daemon, and root, may use it."
        "Run the command as that user, or as yourself with your own daemon.";
    PeerRights "PEER-RIGHTS" "Root's daemon lets other users look. Changes need root, or a permission on the file system."
        "Run the command as root. Root gives permissions with `zfs allow USER PERMISSION FILESYSTEM`.";
    DaemonStart "DAEMON-START" "No daemon runs, and starting one failed."
        "Read {log}, fix the problem, and try again; `steadfast daemon run` shows the same messages in the foreground.";
    DaemonRunning "DAEMON-RUNNING" "One daemon per user and host holds all pools, because only one process may write to a device."
        "Use the running daemon, or stop it with `steadfast daemon stop`.";
    DaemonAbsent "DAEMON-ABSENT" "No daemon runs."
        "Nothing needs to be done; the next command that needs a daemon starts it.";
    DaemonLost "DAEMON-LOST" "The daemon closed the connection before it answered. The command may or may not have been carried out."
        "Check with `zpool status`, and read the end of {log}.";
    DaemonStopping "DAEMON-STOPPING" "The daemon is exporting its pools and accepts no more requests."
        "Wait a moment and try again: a new daemon will start.";
    RuntimeDir "RUNTIME-DIR" "The folder of the daemon's socket must belong to you alone. Otherwise other users could impersonate your daemon."
        "Remove the folder, or set its owner to you and its mode to 0700, or choose another one with STEADFAST_RUNTIME_DIR.";
    Internal "INTERNAL" "Internal error: the program reached a state that should be impossible."
        "Report it with the daemon's log; the devices hold the data of the last commit.";
    "Names, properties and words":
    NameInvalid "NAME-INVALID" "A file system is named POOL/CHILD/CHILD, a snapshot FILESYSTEM@NAME, a bookmark FILESYSTEM#NAME. The name of a pool begins with a letter."
        "Choose another name. Allowed are letters, digits, '-', '_', '.', ':' and spaces, at most 255 bytes in all.";
    PropUnknown "PROP-UNKNOWN" "No property has this name."
        "Correct the name. The name of a user property contains a ':'.";
    PropValue "PROP-VALUE" "The property does not have this value."
        "Use one of the values listed.";
    PropElsewhere "PROP-ELSEWHERE" "ZFS has this property or value. Here it would not do what it promises."
        "Leave it out; `zfs get all` and `zpool get all` list the properties there are."
        "The message says why, or names an alternative.";
    PropInherit "PROP-INHERIT" "The property belongs to one file system; it is not inherited."
        "Set its default instead: `zfs set {property}={default} FILESYSTEM`.";
    PropSpace "PROP-SPACE" "A quota cannot be less than the space that is used or reserved already. A reservation needs as much free space."
        "Choose another size, or destroy something; `zfs list -o space` shows what uses the space.";
    PropCount "PROP-COUNT" "`filesystem_limit` and `snapshot_limit` limit the number of file systems or snapshots at a name and below it, for all users."
        "Destroy some, or raise the limit: `zfs set {property}=NUMBER {fs}`; `zfs get {property} {fs}` shows it.";
    PropReadonly "PROP-READONLY" "The value is measured, or follows from other values, and cannot be set."
        "Leave it out.";
    PropCreation "PROP-CREATION" "The value was fixed when the pool or file system was created or imported."
        "Set it with -o when you create or import it.";
    PropCopies "PROP-COPIES" "The address of a third copy would stand where encrypted content keeps a part of its seal. The same holds in ZFS."
        "Use copies=2, or copies=3 on a file system that is not encrypted."
        "A file system that inherits copies=3 and is encrypted stores its content twice.";
    PropKind "PROP-KIND" "Some properties exist only for file systems, others only for volumes."
        "Leave it out; `zfs get all` lists the properties there are.";
    VolumeSize "VOL-SIZE" "A volume has a fixed size in whole blocks. It can only grow: shrinking would cut off the data at its end."
        "Choose a multiple of its volblocksize that is at least its volsize. For a smaller volume create another one and copy with `dd` or `nbdcopy`.";
    VolumeParent "VOL-PARENT" "A volume has no children."
        "Choose another parent.";
    VolumeBusy "VOL-BUSY" "An NBD client uses the volume."
        "Disconnect the client, or add -f to cut it off.";
    Later "LATER" "This function is not built."
        "Do without it for now; the README lists what is built.";
    "Devices":
    VdevMissing "VDEV-MISSING" "The device does not exist."
        "Check the path; `truncate -s 1G {device}` creates an image file."
        "If a pool does not have the device: `zpool status POOL` shows its devices.";
    VdevKind "VDEV-KIND" "A pool needs regular files or block devices."
        "Name an image file or a block device.";
    VdevSmall "VDEV-SMALL" "A device must hold four labels and enough segments."
        "Use a device of at least 64 MiB: `truncate -s 256M {device}`."
        "A device beside others, or in the place of another, needs the size in the message.";
    VdevForeign "VDEV-FOREIGN" "The device holds other data, which would be destroyed."
        "Make sure that the data is not needed, then add -f.";
    VdevInUse "VDEV-IN-USE" "An imported pool, or another program, uses the device."
        "Use another device, or export or destroy that pool first.";
    VdevInPlace "VDEV-IN-PLACE" "Without a new device, the command replaces the old one by the device at its path. That is still the same device."
        "`zpool replace {pool} {device} NEW` replaces it by another device. If you exchanged the device at its path, run `zpool offline {pool} {device}` first. To verify and repair its data, run `zpool scrub {pool}`.";
    VdevTwice "VDEV-TWICE" "A device can be listed only once."
        "Remove the second mention.";
    VdevCopies "VDEV-COPIES" "Copies have the same labels. The import cannot tell which one is meant, and would change it."
        "`zpool import -d PATH {pool}` imports the file or disk at PATH; give one -d for each device of the pool.";
    HostFull "HOST-FULL" "The file system that holds an image file of the pool has no room, and the image grows when it is written."
        "Free space there. A suspended pool then resumes within a second, or at once by `zpool clear {pool}`, and has lost nothing. Repeat a command that failed."
        "A command that finds a file system full, such as an import, fails. Importing writes one commit and takes what that and the replay of the intent log need; `-o readonly=on` needs no room. How a suspended pool behaves: [repair.md](repair.md#suspended-pools).";
    StoreAway "STORE-AWAY" "A store of objects does not answer, or takes nothing from the pool at present. Nothing was lost: what is in memory is read and written, and a commit waits."
        "The pool goes on by itself, within seconds, when the store answers. The message says what the store answers now."
        "Until then writers wait or fail as the property failmode says. `zpool export -f {pool}` gives up what was not committed; everything else stays on the store.";
    VdevIo "VDEV-IO" "The operating system reported an error of the device."
        "Check the device and its permissions, then try again.";
    DevErrors "DEV-ERRORS" "A device returned errors or wrong data. No data was lost so far."
        "Watch the counters; if they grow, replace the device with `zpool replace`, or copy the data to another pool.";
    VdevGone "VDEV-GONE" "A device was removed or cut short while its pool used it. Data on it is lost, or will be when the daemon ends."
        "Copy the data to another pool at once, before the daemon ends. Then run `zpool destroy {pool}`, or `zpool export -f {pool}`, which gives up the data that only this device holds.";
    VdevNeeded "VDEV-NEEDED" "No other device has enough copies or columns of the data on this device."
        "Leave the device in use. If the pool has redundancy, bring the other devices back first; otherwise move the data to another pool.";
    VdevMismatch "VDEV-MISMATCH" "The groups have different redundancy, or the devices of a group different sizes. A pool is only as safe as its least redundant group; a mirror is only as large as its smallest device."
        "Give all groups the same redundancy and their devices the same size, or add -f if the difference is intended.";
    VdevGroup "VDEV-GROUP" "A mirror has 2 to 4 devices, raidz1 2 to 32, raidz2 3 to 32, raidz3 4 to 32. All are files or disks."
        "List that many devices, as in `zpool create {pool} raidz1 a.img b.img c.img`."
        "If the group is complete, `zpool replace POOL DEVICE NEW` exchanges one of its devices.";
    VdevLog "VDEV-LOG" "Log devices cannot be raidz: writes of the intent log (ZIL) are too small for it."
        "List single devices, or mirrors of them: `log a.img`, `log mirror a.img b.img`.";
    VdevDegraded "VDEV-DEGRADED" "Data of the device is reconstructed from the others until the device is back or replaced. Until then the pool survives fewer further failures."
        "Check the device; `zpool status {pool}` shows each device.";
    SpareInUse "SPARE-IN-USE" "The spare replaces a device of the pool. It returns to the spares when that device is back or replaced."
        "Bring the device back with `zpool online {pool} DEVICE`, or replace it with `zpool replace {pool} DEVICE NEW-DEVICE`.";
    ScanActive "SCAN-ACTIVE" "A pool runs one scrub or resilver at a time. A resilver goes first, because redundancy is missing until it ends."
        "Wait with `zpool wait -t scrub,resilver {pool}`; `zpool scrub -s {pool}` cancels a scrub.";
    ScanNone "SCAN-NONE" "No scrub is running, so none can be paused or stopped."
        "`zpool status {pool}` shows the last one.";
    InjectFlag "INJECT-FLAG" "Injected faults damage the data of the pool. Only a test build injects them without a flag."
        "If the damage is intended, add --i-want-this-pool-damaged; otherwise nothing needs to be done.";
    VdevDetach "VDEV-DETACH" "`zpool detach` takes a member of a mirror, or the old or new device of a running replacement."
        "`zpool replace {pool} {device} NEW` replaces the device; `zpool remove` removes a whole group.";
    PoolSplit "POOL-SPLIT" "A split needs two complete halves: every group must be a mirror, and every device online and complete."
        "`zpool status {pool}` shows the devices; `zpool attach {pool} DEVICE NEW` makes a mirror of a single device.";
    CheckpointExists "CHECKPOINT-EXISTS" "A pool has one checkpoint, and while it has one no device is removed, replaced, attached, detached or stood in for: the checkpoint may need what lies there."
        "`zpool checkpoint -d {pool}` discards it; `zpool import --rewind-to-checkpoint {pool}`, after an export, takes the pool back to it.";
    CheckpointNone "CHECKPOINT-NONE" "The pool has no checkpoint: none was taken, it was discarded, or the pool was taken back to it already."
        "`zpool checkpoint {pool}` takes one; `zfs list -t snapshot -r {pool}` lists snapshots, to which `zfs rollback` returns.";
    CheckpointRoom "CHECKPOINT-ROOM" "Beside a checkpoint nothing that it holds makes room, so the reserve, the open segments and a second copy of the metadata must be free."
        "Delete something, or add a device: `zpool add {pool} NEW`.";
    CheckpointStore "CHECKPOINT-STORE" "On a store of objects every host that imports the pool deletes what the newest root does not need, and would not know of a checkpoint."
        "Take snapshots of all file systems: `zfs snapshot -r {pool}@NAME`.";
    ParityExists "PARITY-EXISTS" "A pool has one parity device, whose code spans all of its stores."
        "`zpool status {pool}` shows it; `zpool remove {pool} {device}` takes it away, and `zpool add {pool} parity NEW` begins anew.";
    ParityNone "PARITY-NONE" "Without a parity device nobody knows which bytes the stores should hold, and nothing is there from which lost ones come back."
        "`head -c SIZE /dev/zero > PATH` makes a file, with about 5 % of what the pool will hold, on a disk that you trust; then `zpool add {pool} parity PATH`.";
    ParityStores "PARITY-STORES" "A parity device covers stores of whole objects: file://, s3://, gs:// and az:// addresses."
        "For disks and files use `mirror` or `raidz1` to `raidz3`, and `zpool scrub {pool}`.";
    ParitySmall "PARITY-SMALL" "The code must be larger than what may be lost, and its size is decided when it is made. Nothing was changed."
        "Make it larger, with room for what the pool will hold: `truncate -s {needed} {device}` at least.";
    ParityForeign "PARITY-FOREIGN" "The file or disk holds a code. Without it nothing comes back from it any more."
        "Name another path; or, if no pool needs it, `-f` writes over it.";
    ParityUnusable "PARITY-UNUSABLE" "The pool works without it: nothing is lost, and what is written meanwhile is not covered. Audits and recovery need it."
        "If the device is back, `zpool export {pool}` and `zpool import {pool}` take it into use. If it is lost or old, `zpool remove {pool} {device}` and `zpool add {pool} parity NEW` begin anew.";
    ParityRoom "PARITY-ROOM" "A code under another map is made in room of its own, and the present one stays valid until it is whole. Nothing was changed."
        "A file: free {missing} bytes on its file system, then `steadfast audit rekey {pool}`. A disk cannot grow: begin anew on one of {needed} bytes, by `zpool remove {pool} {device}` and `zpool add {pool} parity NEW`; until it has taken in all, nothing is covered.";
    RekeyFailed "REKEY-FAILED" "The present code stays in use, and what was made of the other one is kept. Until that is whole, a store that saw what did not come back may know which cells share a tile."
        "`steadfast audit rekey {pool}` goes on.";
    AuditFailed "AUDIT-FAILED" "A store did not have what was written to it, or would not give it, when it was asked for a sample."
        "`steadfast audit recover {pool}` reads everything and puts back what is lost; then `steadfast audit {pool}` asks again.";
    AuditWrong "AUDIT-WRONG" "A file or disk gave other bytes than were written to it, or none, when it was asked for a sample. Those that redundancy or another copy gives back are right again; the rest of the device was not looked at."
        "`zpool scrub {pool}` reads everything and puts right what it can; `zpool status -v {pool}` names damaged files; then `steadfast audit {pool}` asks again.";
    AgentSilent "AGENT-SILENT" "An agent that does not answer tells nothing of a store: it does not run, the network does not let this host reach it, or it is too slow. Nothing is said to be lost, no record was made, and the last audit stays as it was."
        "Look at the machine where `steadfast audit agent` should run, and at its address; or leave out -a: `steadfast audit {pool}` reads the cells from the stores.";
    AuditUnsigned "AUDIT-UNSIGNED" "Records of audits of files and disks are signed with a key that follows from the pool's own, and the pool is not encrypted as a whole. Nobody could believe a record that its reader could have made."
        "Leave out -r; the events `audit_finish` and `audit_failure` tell of each audit: `zpool events {pool}`.";
    RecoveryActive "RECOVERY-ACTIVE" "A recovery puts lost content back on the stores that the pool had when it began, so the pool's devices stay as they are until it ends."
        "Wait for it: `steadfast audit recover {pool}`; or end it: `steadfast audit recover -s {pool}`.";
    RecoveryNone "RECOVERY-NONE" "There is nothing to end. What was put back stays."
        "`zpool status {pool}` shows the last audit; `steadfast audit recover {pool}` begins a recovery.";
    VdevMember "VDEV-MEMBER" "A member of a group cannot be removed alone: the others need its data."
        "`zpool remove {pool} {group}` removes the group; `zpool detach {pool} {device}` detaches a device from a mirror.";
    RemoveRoom "REMOVE-ROOM" "The data of a removed device moves to the other devices, which must keep their reserve free."
        "Delete something, or add a device first: `zpool add {pool} NEW`.";
    MoveActive "MOVE-ACTIVE" "A pool runs one removal, raidz expansion or rebalance at a time."
        "Wait with `zpool wait -t remove,raidz_expand,rebalance {pool}`, or cancel it: `zpool remove -s {pool}`, `zpool rebalance -s {pool}`.";
    MoveNone "MOVE-NONE" "No removal, expansion or rebalance is running, so none can be paused or cancelled."
        "`zpool status {pool}` shows the last one.";
    TrimActive "TRIM-ACTIVE" "A device runs one trim, or initialization, at a time."
        "Wait with `zpool wait -t {word} {pool}`, or cancel it with `zpool {word} -c {pool}`."
        "WORD is `trim` or `initialize`.";
    TrimNone "TRIM-NONE" "No trim, or initialization, is running, so none can be suspended or cancelled."
        "`zpool status -t {pool}` shows the progress of each device, with -i for `zpool initialize`.";
    TrimOut "TRIM-OUT" "The device is not online, so its free space is not known."
        "Bring it back with `zpool online {pool} {device}`, or replace it with `zpool replace {pool} {device} NEW`; then try again. `zpool {word} {pool}` takes all devices that are online."
        "WORD is `trim` or `initialize`.";
    TrimUnsupported "TRIM-UNSUPPORTED" "The storage below the device does not support discard."
        "Nothing needs to be done; the pool uses the free space again.";
    "Pools":
    PoolExists "POOL-EXISTS" "Each imported pool has its own name."
        "Choose another name, or export the other pool with `zpool export {pool}`.";
    PoolAbsent "POOL-ABSENT" "No imported pool has this name."
        "`zpool list` shows the imported pools, `zpool import -d FOLDER` those that could be imported.";
    PoolNotFound "POOL-NOT-FOUND" "None of the searched devices holds a pool of this name or number."
        "Name the folder of its devices: `zpool import -d FOLDER`.";
    PoolAmbiguous "POOL-AMBIGUOUS" "Several pools have this name."
        "Import one by its number, which `zpool import` lists as id, and give it a new name.";
    PoolImported "POOL-IMPORTED" "The pool is imported already."
        "Nothing needs to be done; `zpool status {pool}` shows it.";
    PoolActive "POOL-ACTIVE" "The pool was not exported by its last user, and two users at once would destroy it."
        "Make sure that no other host or daemon uses it, then add -f.";
    PoolBusy "POOL-BUSY" "Programs have files of the pool open."
        "Close them (`fuser -vm {mountpoint}` names them), or add -f.";
    PoolDevices "POOL-DEVICES" "More devices are missing than the redundancy of their group can replace. A device without redundancy is always needed."
        "Bring the device back, or name its folder with -d, then import again.";
    PoolNotWhole "POOL-NOT-WHOLE" "Every device must store the new number. A missing device would belong to another pool afterwards."
        "Bring {device} back or replace it, wait with `zpool wait {pool}`, and try again.";
    PoolDamaged "POOL-DAMAGED" "The devices do not hold a complete pool: it was overwritten, cut short, or never finished."
        "Use an intact copy of the device; nothing was written to this one. `zpool import -F -o readonly=on POOL` opens the newest root that can be read, to copy files from.";
    RootDamaged "ROOT-DAMAGED" "The newest root of the pool is damaged or gone, and the pool has no anchor. An older root is whole; what was committed since is lost if the pool goes back to it. Nothing was written."
        "`zpool import -F -n {pool}` tells how far back, and checks that all objects of that root are there; `zpool import -F {pool}` goes back. A copy of the bucket that has the root whole loses nothing.";
    PoolDestroyed "POOL-DESTROYED" "The pool was destroyed. Its data remains until something else is written to its devices."
        "To recover it, run `zpool import -D {pool}`.";
    PoolFeature "POOL-FEATURE" "The pool lacks a feature that this needs: an older version of Steadfast created it, or the feature was disabled. Versions without the feature cannot read the pool once it is used."
        "Enable all features of this version with `zpool upgrade {pool}`; this cannot be undone.";
    PoolVersion "POOL-VERSION" "The pool was written by a newer version of Steadfast."
        "Import it with that version.";
    PoolReadonly "POOL-READONLY" "The pool is imported read-only."
        "Export it, and import it without readonly=on.";
    PoolSuspended "POOL-SUSPENDED" "After a write error the pool stopped, because it cannot know which writes succeeded."
        "Repair the device, then run `zpool export -f {pool}` and import the pool again; it returns to the last commit."
        "Writes, reads and waiting commands meanwhile: [repair.md](repair.md#suspended-pools).";
    ChangesLost "CHANGES-LOST" "The pool was suspended and is closed. On its devices it is as it was at its last commit, and with what fsync made durable since then."
        "Import it with `zpool import {pool}`, and write again what is missing.";
    PoolFull "POOL-FULL" "The pool has no space left for this."
        "Delete something: deleting always works. If the pool has a checkpoint (`zpool list -o checkpoint {pool}`), what it holds comes back with `zpool checkpoint -d {pool}` only.";
    PoolSealed "POOL-SEALED" "The pool's own metadata is encrypted and needs its key."
        "Import it with `zpool import -l {pool}` and give the key.";
    PoolMissing "POOL-MISSING" "The pool was imported when the daemon last ran. Now its devices cannot be opened."
        "Bring the devices back and run `zpool import {pool}`, or forget the pool with `zpool export {pool}`.";
    "Anchors":
    AnchorRollback "ANCHOR-ROLLBACK" "All devices of the pool hold an earlier state than the anchor records. Later data is not on them."
        "Bring back the devices in their latest state. If it is lost or not wanted, `zpool import --accept-rollback {pool}` imports the earlier one; the history records it.";
    AnchorOld "ANCHOR-OLD" "The anchor is older than the devices: it was put back to an earlier state, it is an old copy, or the pool was changed without it. The newest root is not known."
        "Bring back the newest anchor file, or name it with --anchor. If there is none, `zpool import --accept-rollback {pool}` imports the root on the devices; the history records it.";
    AnchorMissing "ANCHOR-MISSING" "Without its anchor, an earlier copy of all devices cannot be detected."
        "Name the anchor's path: `zpool import --anchor PATH {pool}`. If it is lost, `zpool import --accept-lost-anchor {pool}` imports the root on the devices; the pool has no anchor afterwards.";
    AnchorDamaged "ANCHOR-DAMAGED" "The anchor file does not hold the record that this pool wrote: it was damaged, overwritten, or written without the pool's key."
        "Restore the anchor file as it was last. If it is lost, `zpool import --accept-lost-anchor {pool}` imports the root on the devices; the pool has no anchor afterwards.";
    AnchorForeign "ANCHOR-FOREIGN" "The anchor belongs to another pool."
        "Name the path of the right one: `zpool import --anchor PATH {pool}`; `steadfast inspect anchor PATH` shows the pool of an anchor.";
    StoreUnfenced "STORE-UNFENCED" "Two hosts that import the pool at once would both believe to own it, and each would lose what the other writes. An anchor decides between them; this store cannot."
        "Give the pool an anchor on storage that you trust: `zpool create ... anchor PATH`. `steadfast store probe ADDRESS` tells what a store may be used for.";
    PoolOvertaken "POOL-OVERTAKEN" "A pool on a store of whole objects has one writer: the host that imported it last. Data that another host wrote since its last commit is not part of the pool, and that host writes no more."
        "Release the pool on the host that lost it with `zpool export -f {pool}`. To have it here, run `zpool import {pool}` again.";
    AnchorFenced "ANCHOR-FENCED" "Another daemon imported the pool and advanced its anchor. This daemon's data since its last commit is not part of the pool, and it writes no more."
        "Release the pool here with `zpool export -f {pool}`, and let only one daemon import it; committed data stays.";
    AnchorSilent "ANCHOR-SILENT" "The anchor cannot be read or written, so nothing can be committed. Nothing was committed without it."
        "Repair the storage of the anchor, then run `zpool export -f {pool}` (if it is imported) and import it again.";
    AnchorUnnamed "ANCHOR-UNNAMED" "The labels of the pool do not name its anchor: they were changed, or put back to an earlier state."
        "Name the anchor's path: `zpool import --anchor PATH {pool}`. If it is lost, add --accept-lost-anchor.";
    AnchorRetired "ANCHOR-RETIRED" "The anchor was removed from the pool, so it does not record the later commits."
        "Import the pool without --anchor; `zpool add {pool} anchor PATH` gives it a new one.";
    AnchorExists "ANCHOR-EXISTS" "A pool has one anchor."
        "Remove the present one with `zpool remove {pool} {register}`, then add the other.";
    AnchorUnfit "ANCHOR-UNFIT" "An anchor is a small regular file in an existing folder, on a machine that you trust more than the pool's devices."
        "Name such a file; it need not exist yet.";
    "The intent log":
    LogDamaged "LOG-DAMAGED" "Data that fsync acknowledged since the last commit is in the intent log (ZIL), and a part of the log cannot be read."
        "If devices are missing or old, bring them back; an unknown record needs the version of Steadfast that wrote it. To give up the damaged part, run `zpool import --accept-lost-log {pool}` (or -m); the history records it. `zpool import -o readonly=on {pool}` shows the last commit."
        "Details: [log.md](log.md#when-the-log-is-lost-or-damaged). `steadfast inspect log DEVICE ...` prints each group.";
    LogMissing "LOG-MISSING" "Data that fsync acknowledged since the last commit is on a log device, which is missing."
        "Bring the device back, or name its folder with -d. If it is lost, `zpool import --accept-lost-log {pool}` (or -m) imports the last commit; the history records it. Then run `zpool remove {pool} {device}`. If one side of a log mirror is lost, run `zpool detach` instead; if a whole log mirror is lost, `zpool remove` with the name of the mirror."
        "Details: [log.md](log.md#when-the-log-is-lost-or-damaged).";
    LogFailed "LOG-FAILED" "No data was lost: the pool committed the data that the log device could not store. The intent log (ZIL) continues on the other devices of its mirror, on other log devices, or in the pool."
        "If the device works again, run `zpool online {pool} {device}`; else `zpool replace {pool} {device} NEW`, or remove it with `zpool remove {pool} {device}`."
        "To take a device out of its mirror: `zpool detach POOL DEVICE`.";
    LogGivenUp "LOG-GIVEN-UP" "The pool was imported without the log device. If an operator gave it up (`zpool import --accept-lost-log`, or -m), data that fsync acknowledged behind the imported commit is lost. If the device failed in use, no data was lost. The intent log (ZIL) continues on other log devices, or in the pool."
        "To learn which: `zpool history -i {pool}` and `zpool events`. Then remove the device with `zpool remove {pool} {device}`, or run `zpool replace {pool} {device} NEW`.";
    LogHeld "LOG-HELD" "The intent log (ZIL) holds data of encrypted file systems until their keys are loaded."
        "Load the keys with `zfs load-key -a`, or destroy those file systems; then try again.";
    "File systems":
    FsExists "FS-EXISTS" "Each file system has its own name."
        "Choose another name.";
    FsAbsent "FS-ABSENT" "No file system of an imported pool has this name."
        "`zfs list` shows the existing file systems.";
    FsApart "FS-APART" "Files can share blocks only within one file system."
        "Copy the file: `cp {source} {target}`.";
    FsParent "FS-PARENT" "The parent of a new file system must exist."
        "Create the parent first with `zfs create -p {parent}`, which creates its missing parents too. `zfs create`, `zfs clone` and `zfs rename` create parents themselves with -p.";
    FsChildren "FS-CHILDREN" "The file system has children, which need it as their parent."
        "Destroy the children first, or add -r to destroy them too.";
    FsSnapshots "FS-SNAPSHOTS" "The file system has snapshots, which cannot exist without it."
        "Destroy the snapshots first, or add -r to destroy them too.";
    SnapshotExists "SNAP-EXISTS" "Each snapshot of a file system has its own name. No snapshot was taken."
        "Choose another name, or destroy the old snapshot with `zfs destroy {snapshot}`.";
    SnapshotAbsent "SNAP-ABSENT" "No snapshot has this name."
        "`zfs list -t snapshot` shows the existing snapshots.";
    SnapshotTwice "SNAP-TWICE" "Snapshots of one command are taken in one commit, so two of the same file system would be the same."
        "Take them one after the other.";
    SnapshotSpace "SNAP-SPACE" "A snapshot keeps the present blocks, so `refreservation` must reserve its full size again for new ones. The pool does not have that much free space."
        "Make room (`zfs list -o space` shows what uses the space), or drop the reservation: `zfs set refreservation=none {fs}`.";
    SnapshotHeld "SNAP-HELD" "A hold prevents the destruction of the snapshot."
        "Release it with `zfs release {tag} {snapshot}` (`zfs holds {snapshot}` lists the holds), or destroy the snapshot with -d, which takes effect with the last release.";
    SnapshotYounger "SNAP-YOUNGER" "A rollback to a snapshot undoes all later changes, and removes younger snapshots."
        "Add -r to destroy the younger snapshots, or read the old files below .zfs/snapshot.";
    SnapshotClones "SNAP-CLONES" "A clone shares blocks with its snapshot and needs it."
        "Destroy the clones first, or add -R to destroy them too. `zfs promote {clone}` gives the snapshot to the clone; -d destroys a snapshot with its last clone.";
    FsNotClone "FS-NOT-CLONE" "Only a clone, created by `zfs clone`, can be promoted."
        "`zfs list -o name,origin` shows which file systems are clones.";
    PromoteNames "PROMOTE-NAMES" "A promotion moves snapshots to the clone, and two of them would have the same name. Nothing was changed."
        "Rename or destroy the clone's snapshots of these names (`zfs rename`, `zfs destroy`), then try again.";
    HoldExists "HOLD-EXISTS" "The snapshot has a hold of this tag already."
        "Choose another tag; `zfs holds {snapshot}` lists the holds.";
    HoldAbsent "HOLD-ABSENT" "The snapshot has no hold of this tag."
        "`zfs holds {snapshot}` lists the holds.";
    BookmarkExists "BOOKMARK-EXISTS" "Each bookmark of a file system has its own name."
        "Choose another name, or remove the old bookmark with `zfs destroy {bookmark}`.";
    BookmarkAbsent "BOOKMARK-ABSENT" "No bookmark has this name."
        "`zfs list -t bookmark` shows the existing bookmarks.";
    StreamDamaged "STREAM-DAMAGED" "The received stream was changed on its way, or is not a stream of `zfs send`. Its current snapshot was discarded."
        "Send it again; if it is in a file, compare the file with its source. A part that was kept with -s is resumed with the token of `zfs get receive_resume_token`.";
    StreamEnds "STREAM-ENDS" "The stream ended early. Its current snapshot was discarded."
        "Send it again. A part that was kept with -s is resumed with the token of `zfs get receive_resume_token`: `zfs send -t TOKEN`.";
    StreamNone "STREAM-NONE" "Only streams of `zfs send` of this or an earlier version of Steadfast can be received."
        "Check the input; a stream of a newer version needs that version here.";
    StreamIo "STREAM-IO" "The program that reads or writes the stream has ended, or the operating system reported an error."
        "Check the command at the other end of the pipe, and try again.";
    StreamNotes "STREAM-NOTES" "A stream carries at most 64 KiB and 1,024 properties and holds of each snapshot, and 1 MiB of properties of a file system."
        "Send it without -p or -h, or remove properties and holds with `zfs inherit` and `zfs release`.";
    StreamBase "STREAM-BASE" "The base of an increment is an earlier snapshot of the same file system, or of its origin."
        "`zfs list -t snapshot` shows the snapshots, oldest first.";
    StreamExists "STREAM-EXISTS" "A full stream creates a file system; it does not change an existing one."
        "Receive it under another name, send an increment (-i) from a snapshot that both have, or add -F to replace a file system that has no snapshots.";
    StreamNoBase "STREAM-NO-BASE" "The target does not have the base snapshot of the increment."
        "Send an increment from a snapshot that both have (`zfs list -t snapshot -o name,guid`), or a full stream under another name.";
    StreamYounger "STREAM-YOUNGER" "The base of an increment must be the youngest snapshot of the target. Younger ones would be lost."
        "Add -F to destroy them.";
    StreamModified "STREAM-MODIFIED" "The target was changed since the base snapshot. The changes would be lost."
        "Add -F to discard them, and run `zfs set readonly=on {fs}` to prevent further changes.";
    Raw "RAW" "A file system from a raw stream stays encrypted by its source. Its key reads it, but nothing can be written with that key here."
        "For a writable copy run `zfs load-key {fs}`, then `zfs send {fs}@SNAPSHOT | zfs receive NEWNAME`.";
    RawMixed "RAW-MIXED" "A file system received raw takes only raw increments from the same source. One received without -w takes only increments without -w."
        "Send it again from the same pool, with or without -w like the first stream, or send a full stream under another name.";
    StreamPartial "STREAM-PARTIAL" "An interrupted receive with -s has kept its part."
        "Resume it: `zfs send -t TOKEN`, with the token of `zfs get receive_resume_token {fs}`; or discard it with `zfs receive -A {fs}`.";
    StreamNoPartial "STREAM-NO-PARTIAL" "There is no interrupted receive with -s that this stream could resume, or that could be discarded."
        "`zfs get receive_resume_token {fs}` shows the token, if there is one.";
    StreamToken "STREAM-TOKEN" "A resume token names a snapshot and the received part of it."
        "Get it from the receiving side: `zfs get -H -o value receive_resume_token FILESYSTEM`.";
    StreamBusy "STREAM-BUSY" "The pool is sending or receiving a stream."
        "Wait for the stream, or end the `zfs send` or `zfs receive` command.";
    StreamClear "STREAM-CLEAR" "Without -w the content leaves the pool decrypted, and the receiving pool stores it as its own properties say. -R, -p and -b do not tell that it is encrypted here."
        "Add -w: the stream then stays encrypted, and the receiver needs no key. To send it decrypted on purpose, send each file system by itself without -R, -p and -b: `zfs send {snapshot}`.";
    StreamDecrypts "STREAM-DECRYPTS" "A full stream replaces the file system. What it brings would be stored in the clear in the place of encrypted content, and nothing in the command says so."
        "Receive it under another name; or destroy '{fs}' first, or add `-o encryption=on -o keyformat=passphrase -o keylocation=file://PATH`.";
    StreamTerminal "STREAM-TERMINAL" "A stream is binary data and would disturb a terminal."
        "Send it to a file or a pipe: `zfs send SNAPSHOT > FILE`, `zfs receive FILESYSTEM < FILE`.";
    FsRoot "FS-ROOT" "The root file system of a pool exists as long as the pool."
        "Use `zpool destroy {pool}` to destroy the pool, or `zfs destroy -r {pool}` to destroy all that lies below its root.";
    FsPlace "FS-PLACE" "A file system can be renamed only within its pool, not below itself, and not between an encrypted and an unencrypted parent."
        "Choose another name; to move data elsewhere copy it.";
    FsBusy "FS-BUSY" "Programs have its files open, or use one of its folders as working folder."
        "Close them (`fuser -vm {mountpoint}` names them), or add -f.";
    FsCollected "FS-COLLECTED" "The kernel has dirty pages of the file system that could not be written. A snapshot does not contain them, and `zpool sync` has not made them durable."
        "Find the cause with `zpool status`, or make room; `fsync` or `close` reports the error to the programs. Then repeat the command.";
    AtimeCollected "ATIME-COLLECTED" "Each read of the file system shall move an access time (`relatime=off`), and the kernel collects writes there since its mount. It answers reads through descriptors that are open for reading and writing by itself, so these move no access time. Reads through other descriptors do."
        "Mount it anew, which ends that: `zfs unmount {fs} && zfs mount {fs}`. Programs that have files open there must end first.";
    FsMounted "FS-MOUNTED" "The file system is mounted already."
        "Nothing needs to be done; `zfs mount` lists the mounts.";
    FsNotShared "FS-NOT-SHARED" "The property sharenfs of the file system is off."
        "Say who may use it: `zfs set sharenfs=on FS` for everybody who reaches the server, or `zfs set sharenfs=rw=@NETWORK/LENGTH FS`.";
    ShareListen "SHARE-LISTEN" "The daemon cannot listen for NFS clients, so nothing is shared."
        "Another NFS server may have the port. Start the daemon with another one, as in `STEADFAST_NFS=127.0.0.1:20490 steadfast daemon run`, then run `zfs share -a`.";
    ShareOpen "SHARE-OPEN" "The daemon listens for NFS clients of other machines, as STEADFAST_NFS says. Whoever has one of them, or reads the network, has the files."
        "Share with machines that you trust (`zfs set sharenfs=rw=@NETWORK/LENGTH FS`), in a network that you trust, or through a tunnel.";
    ShareCollected "SHARE-COLLECTED" "The file system was not shared when it was mounted, so the kernel collects writes of local programs in its page cache. Clients and local programs see each other's changes; a page that both change in the same moment has the content of one of them."
        "Mount it anew, which ends that: `zfs unmount {fs} && zfs mount {fs}`. Programs that have files open there must end first.";
    FsNotMounted "FS-NOT-MOUNTED" "The file system is not mounted."
        "Nothing needs to be done.";
    FsCanmount "FS-CANMOUNT" "The properties of the file system prevent its mount."
        "To mount it, set canmount=on and a mountpoint.";
    FsMountpoint "FS-MOUNTPOINT" "A mount would hide the contents of the folder."
        "Empty the folder, choose another with `zfs set mountpoint=`, or mount over it with `zfs mount -O`.";
    FuseMissing "FUSE-MISSING" "This machine has no FUSE, which mounts need."
        "Install fuse3 and make /dev/fuse accessible (in a container: --device /dev/fuse --cap-add SYS_ADMIN).";
    FuseMount "FUSE-MOUNT" "The kernel refused to mount."
        "Check that the mountpoint can be created and that you may write to its parent folder.";
    FuseNested "FUSE-NESTED" "A mount of an ordinary user cannot contain another mount, because the mount helper may not look into it."
        "Mount it elsewhere with `zfs set mountpoint=/some/folder {fs}`, or ask an administrator to write user_allow_other into /etc/fuse.conf.";
    "Keys":
    KeyWrong "KEY-WRONG" "The key does not open this file system."
        "Try again with the right key; without it nobody can read the data.";
    KeyFormat "KEY-FORMAT" "A passphrase has 8 to 512 bytes, a raw key 32 bytes, a hex key 64 hexadecimal digits."
        "Give a key of that form.";
    KeyNeeded "KEY-NEEDED" "The file system is encrypted, and its key is not loaded."
        "Load the key first: `zfs load-key {fs}`.";
    KeyLoaded "KEY-LOADED" "The key is loaded already."
        "Nothing needs to be done.";
    KeyUnloaded "KEY-UNLOADED" "The key is not loaded."
        "Nothing needs to be done.";
    KeyNone "KEY-NONE" "The file system is not encrypted and has no key."
        "Create an encrypted one: `zfs create -o encryption=on -o keyformat=passphrase {fs}`.";
    KeyInherited "KEY-INHERITED" "The file system uses the key of its encryption root."
        "Name the encryption root instead: {root}.";
    KeyMismatch "KEY-MISMATCH" "The two entries differ."
        "Type it again.";
    KeySource "KEY-SOURCE" "The key could not be read from its keylocation."
        "Check the file, or name another location with -L.";
    KeyFileOpen "KEY-FILE-OPEN" "Another user could replace the key in this file."
        "If the key in it is yours, `chown` the file to the user of the daemon and `chmod 600` it, and try again.";
    KeyShared "KEY-SHARED" "Other file systems inherit its key and could not be opened without it."
        "Give them keys of their own with `zfs change-key`, or destroy them first: {others}.";
    KeyBusy "KEY-BUSY" "A mounted file system uses the key."
        "Unmount it first: `zfs unmount {fs}`.";
    KeyRules "KEY-RULES" "The properties encryption, keyformat and keylocation belong together."
        "For a new key give encryption=on and keyformat=; to use the parent's key give none of the three.";
    "Stores of objects":
    StoreAddress "STORE-ADDRESS" "This is not the address of a store of objects, or it holds a secret."
        "Write s3://bucket/prefix?endpoint=http://host:port, gs://bucket/prefix, az://container/prefix or file:///folder."
        "Keys are never part of an address: they come from the environment, from `~/.aws`, or from a file of mode 0600 that ?credentials= names.";
    StoreKeys "STORE-KEYS" "The keys of a store could not be read."
        "Check the file or the variables that the message names.";
    StoreClear "STORE-CLEAR" "File systems without encryption are stored as they are, and a provider can read and change them."
        "Add -O encryption=on -O keyformat=passphrase, or -f to store them unencrypted.";
    StoreUnfit "STORE-UNFIT" "The store broke a promise without which a pool there loses data, whatever else protects it."
        "Use another store. `steadfast store probe {store}` shows all checks; -f does not override this.";
    StoreExpires "STORE-EXPIRES" "A rule of the bucket deletes objects by their age. Data that is never written again would be deleted by the provider."
        "Remove the rule, or limit it to another prefix, at the provider. `steadfast store probe {store}` looks again.";
    StoreInUse "STORE-IN-USE" "The prefix holds objects of a pool that was not destroyed. Removing them loses the pool."
        "Destroy the pool first, or give -f if it was exported and nobody needs it any more."
        "`steadfast store clean -n {store}` counts the objects and removes none.";
    StoreBudget "STORE-BUDGET" "At 80 % of a budget, work that only costs waits: scrub, rebalance, trim, cleaning beyond need, the search for damaged files; where `egressbudget` is reached, reading ahead too. Programs read and write as before, beyond 100 % too."
        "Wait until the day or month turns (UTC), or raise the budget: `zpool set {property}=VALUE {pool}`; `none` removes it.";
    TileLost "TILE-LOST" "A tile of the parity is missing at its store, or has other bytes than were written. Passes wait for it, so the journal fills; then new objects are not covered, and deletes wait. Nothing of the content is lost by that."
        "`steadfast audit recover {pool}` brings it back, from the parity device.";
    RecoveryOwed "RECOVERY-OWED" "A store lost objects that the journal of the parity has, and a recovery was cut off before it had put them back. A pass would leave them to the code, which gives back only the planned part of all. So passes wait, and the journal fills; then new objects are not covered, and those that are to be deleted stay at the store."
        "`steadfast audit recover {pool}` puts them back, and passes go on. If it is cut off again because the store refuses objects, mend that first: room, rights, the address."
        "An import begins that recovery by itself, once.";
    ObjectsStay "OBJECTS-STAY" "Objects that nothing needs any more are still in the code, and take their room at the store and in the parity device. An object that cannot be read leaves the code when it can be, and is tried again by itself; one that is lost, or has other bytes, when a recovery has put it back."
        "If it stays so, `steadfast audit recover {pool}` puts back what is lost, and lets it go.";
    TilesLeft "TILES-LEFT" "Objects that only a parity device needs stay at the store of its tiles, where space is paid for."
        "If nobody needs them any more, type `steadfast store clean -f '{store}'`.";
    StoreFailed "STORE-FAILED" "A store of objects refused a request, or could not be reached."
        "Do what the message advises, then try again."
        "The message names the operation, the object, and the store's status, code and number of the request.";
    "Damaged data":
    BlkAuthAll "BLK-AUTH-ALL" "The stored bytes are not the bytes that were written. Decay and tampering look the same."
        "Restore the files that `zpool status -v {pool}` names from a backup, or delete them.";
    "The command's own world":
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
        // A daemon of a later version may know more codes; its texts still tell everything.
        Ok(Code::parse(&text).unwrap_or(Code::Internal))
    }
}

/// Action if a pool has no such device.
pub(crate) const SHOWS_DEVICES: &str = "`zpool status {pool}` shows its devices.";

/// A refused request: the problem, its meaning, the action.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{what} [{code}]")]
pub struct Refusal {
    /// Code, to look up in the manual.
    pub code: Code,
    /// The problem, without capital and full stop: it follows "cannot create 'tank': ".
    pub what: String,
    /// Its meaning.
    pub meaning: String,
    /// The action.
    pub action: String,
    /// Names and numbers, for programs.
    pub fields: BTreeMap<String, String>,
}

/// The same parts for a problem that status reports.
pub type Message = Refusal;

impl Refusal {
    /// A refusal with the catalogue's meaning and action.
    #[must_use]
    pub fn new(code: Code, what: impl Into<String>) -> Refusal {
        let (meaning, action) = (code.meaning().to_owned(), code.action().to_owned());
        Refusal { code, what: what.into(), meaning, action, fields: BTreeMap::new() }
    }

    /// Replaces the catalogue's action. Fields that are added afterwards replace words in braces.
    #[must_use]
    pub fn advising(mut self, action: &str) -> Refusal {
        action.clone_into(&mut self.action);
        self
    }

    /// The refusal of a device that a pool does not have.
    #[must_use]
    pub fn no_device(pool: &str, device: impl fmt::Display) -> Refusal {
        let what = format!("{device} is not a device of the pool '{pool}'");
        let refusal = Refusal::new(Code::VdevMissing, what).advising(SHOWS_DEVICES);
        refusal.with("pool", pool).with("device", device)
    }

    /// Adds a field, and replaces its name in braces in the action.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl ToString) -> Refusal {
        let value = value.to_string();
        self.action = self.action.replace(&format!("{{{field}}}"), &value);
        self.fields.insert(field.to_owned(), value);
        self
    }

    /// The action, with missing fields as words in capitals.
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
        assert_eq!(refusal.what, "/d/none.img is not a device of the pool 'tank'");
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

    /// Text in lines of at most 100 columns. Commands between backticks are not broken.
    fn wrapped(text: &str) -> String {
        let mut out = String::new();
        let (mut column, mut in_command) = (0, false);
        let mut words: Vec<String> = Vec::new();
        for word in text.split(' ') {
            match words.last_mut().filter(|_| in_command) {
                Some(last) => *last += &format!(" {word}"),
                None => words.push(word.to_owned()),
            }
            in_command ^= word.matches('`').count() % 2 == 1;
        }
        for word in words {
            let width = word.chars().count();
            let fits = column + 1 + width <= 100;
            let space = if column == 0 {
                ""
            } else if fits {
                " "
            } else {
                "\n"
            };
            column = if fits { column + space.len() + width } else { width };
            out += &format!("{space}{word}");
        }
        out + "\n"
    }

    /// docs/operations/messages.md.
    fn manual() -> String {
        let mut page = String::from(
            "# Messages\n\n\
             Every message of the daemon and of the commands ends with a code. The entry of a code says what it\n\
             means, then what to do. Words in capitals stand for names. This page is written by\n\
             `UPDATE=1 cargo test -p steadfast-control`; the same test compares it with the program.\n",
        );
        for (section, codes) in Code::MANUAL {
            page += &format!("\n## {section}\n");
            for (code, more) in *codes {
                let action = format!("{} {more}", Refusal::new(*code, "").advice());
                page +=
                    &format!("\n### {code}\n\n{}\n{}", wrapped(code.meaning()), wrapped(action.trim_end()));
            }
        }
        page
    }

    #[test]
    fn the_manual_is_the_catalogue() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/messages.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, manual()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == manual(),
            "docs/operations/messages.md is old: run `UPDATE=1 cargo test -p steadfast-control`"
        );
    }
}

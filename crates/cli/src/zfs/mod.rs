//! `zfs`, which is `steadfast fs`: a file for each verb, and the table of them.

mod bookmark;
mod change_key;
mod clone;
mod create;
mod dataset_properties;
mod destroy;
mod diff;
mod get;
mod hold;
mod inherit;
pub(crate) mod keys;
mod list;
mod load_key;
pub(crate) mod mount;
mod promote;
mod receive;
mod reflink;
mod rename;
mod rollback;
mod select;
mod send;
mod set;
mod snapshot;
mod unload_key;
mod unmount;
mod userspace;

use crate::command::Family;

/// The commands.
pub const FAMILY: Family = Family {
    name: "zfs",
    own: "steadfast fs",
    doc: "Creates, mounts, watches and changes file systems.",
    doors: &[],
    later: &[
        ("allow", "permissions cannot be delegated: the daemon serves only the user who runs it"),
        ("jail", "jails exist on FreeBSD only"),
        ("program", "there are no channel programs; use the JSON output (-j) in scripts"),
        ("project", "FUSE does not transmit project IDs"),
        ("projectspace", "FUSE does not transmit project IDs"),
        ("redact", "there are no redacted streams"),
        (
            "rewrite",
            "blocks keep the properties with which they were written; `zpool rebalance` moves them to other devices",
        ),
        ("share", "share a mountpoint with the tools of your NFS or SMB server"),
        ("unallow", "permissions cannot be delegated: the daemon serves only the user who runs it"),
        ("unjail", "jails exist on FreeBSD only"),
        ("unshare", "share a mountpoint with the tools of your NFS or SMB server"),
        ("unzone", "file systems cannot be delegated to containers"),
        ("upgrade", "file systems have no version; `zpool upgrade` enables the features of a pool"),
        ("wait", "`zpool wait -t free` waits until the space of destroyed file systems is free"),
        ("zone", "file systems cannot be delegated to containers"),
    ],
    commands: &[
        create::COMMAND,
        snapshot::COMMAND,
        clone::COMMAND,
        promote::COMMAND,
        rollback::COMMAND,
        hold::HOLD,
        hold::RELEASE,
        hold::HOLDS,
        send::COMMAND,
        bookmark::COMMAND,
        diff::COMMAND,
        receive::COMMAND,
        destroy::COMMAND,
        list::COMMAND,
        get::COMMAND,
        set::COMMAND,
        inherit::COMMAND,
        reflink::COMMAND,
        userspace::USERSPACE,
        userspace::GROUPSPACE,
        rename::COMMAND,
        change_key::COMMAND,
        mount::COMMAND,
        unmount::COMMAND,
        load_key::COMMAND,
        unload_key::COMMAND,
    ],
};

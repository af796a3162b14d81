//! `zfs`, which is `steadfast fs`: a file for each verb, and the table of them.

mod allow;
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
mod share;
mod snapshot;
mod unload_key;
mod unmount;
mod upgrade;
mod userspace;
mod wait;

use crate::command::{Family, NotBuilt};

/// The commands.
pub const FAMILY: Family = Family {
    name: "zfs",
    own: "steadfast fs",
    doc: "Creates, mounts, watches and changes file systems.",
    doors: &[],
    not_built: &[
        NotBuilt {
            name: "jail",
            reason: "jails exist only on FreeBSD",
            instead: "To use a file system in a container, bind-mount its mountpoint, as in `docker run -v /tank/home:/home`.",
        },
        NotBuilt {
            name: "program",
            reason: "there are no channel programs",
            instead: "Write a script: `zfs list -j` and `zfs get -j` print JSON.",
        },
        NotBuilt {
            name: "project",
            reason: "FUSE does not transmit project IDs",
            instead: "Create a file system for each project, and set its quota.",
        },
        NotBuilt {
            name: "projectspace",
            reason: "FUSE does not transmit project IDs",
            instead: "Create a file system for each project; `zfs list -o space` shows its space.",
        },
        NotBuilt {
            name: "redact",
            reason: "there are no redacted streams",
            instead: "Clone the snapshot, delete the private files in the clone, take a snapshot of it, and send that as a full stream.",
        },
        NotBuilt {
            name: "rewrite",
            reason: "blocks keep the properties with which they were written",
            instead: "Copy the file to write it with the present properties. `zpool rebalance` moves data to other devices.",
        },
        NotBuilt {
            name: "unjail",
            reason: "jails exist only on FreeBSD",
            instead: "Remove the bind mount from the container.",
        },
        NotBuilt {
            name: "unzone",
            reason: "file systems cannot be delegated to containers",
            instead: "Remove the bind mount from the container.",
        },
        NotBuilt {
            name: "zone",
            reason: "file systems cannot be delegated to containers",
            instead: "To use a file system in a container, bind-mount its mountpoint, as in `docker run -v /tank/home:/home`.",
        },
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
        allow::ALLOW,
        allow::UNALLOW,
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
        share::SHARE,
        share::UNSHARE,
        load_key::COMMAND,
        unload_key::COMMAND,
        upgrade::COMMAND,
        wait::COMMAND,
    ],
};

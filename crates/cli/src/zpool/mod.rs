//! `zpool`, which is `steadfast pool`: a file for each verb, and the table of them.

pub(crate) mod add;
mod attach;
mod caches;
mod checkpoint;
mod clear;
mod create;
mod ddtprune;
mod dedup;
mod destroy;
mod detach;
pub(crate) mod errors;
mod events;
mod export;
mod get;
mod history;
mod import;
mod initialize;
mod inject;
mod io_flow;
mod iostat;
mod labelclear;
mod list;
mod offline;
mod online;
mod operands;
mod pool_properties;
mod prefetch;
mod progress;
mod reason;
mod rebalance;
mod reguid;
mod remove;
mod reopen;
mod replace;
mod requests;
mod resilver;
mod scripts;
mod scrub;
mod set;
mod split;
mod status;
mod status_json;
mod stores;
mod sync;
mod trim;
mod upgrade;
mod vdev_properties;
mod vdev_table;
mod vdev_tree;
mod wait;

use crate::command::Family;

/// The commands.
pub const FAMILY: Family = Family {
    name: "zpool",
    own: "steadfast pool",
    doc: "Creates, imports, watches and changes pools.",
    doors: &[],
    not_built: &[],
    commands: &[
        create::COMMAND,
        destroy::COMMAND,
        import::COMMAND,
        export::COMMAND,
        list::COMMAND,
        status::COMMAND,
        get::COMMAND,
        set::COMMAND,
        history::COMMAND,
        iostat::COMMAND,
        events::COMMAND,
        add::COMMAND,
        remove::COMMAND,
        attach::COMMAND,
        detach::COMMAND,
        rebalance::COMMAND,
        reopen::COMMAND,
        resilver::COMMAND,
        reguid::COMMAND,
        checkpoint::COMMAND,
        split::COMMAND,
        online::COMMAND,
        offline::COMMAND,
        replace::COMMAND,
        scrub::COMMAND,
        inject::COMMAND,
        clear::COMMAND,
        labelclear::COMMAND,
        trim::COMMAND,
        initialize::COMMAND,
        wait::COMMAND,
        upgrade::COMMAND,
        prefetch::COMMAND,
        ddtprune::COMMAND,
        sync::COMMAND,
    ],
};

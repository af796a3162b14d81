//! `zpool upgrade`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render, tame};
use steadfast_control::api::{PoolInfo, PoolList, PoolUpgrade};
use steadfast_format::Feature;
use steadfast_format::feature::Need;

pub(super) const COMMAND: Command = Command {
    names: &["upgrade"],
    syntax: Syntax {
        flags: &[
            flag('a', "all pools"),
            flag('v', "list the features of this version"),
            valued('V', "version", "must be 5000, the version of ZFS whose pools have features"),
        ],
        operands: "[pool]...",
        least: 0,
        most: MANY,
    },
    doc: "Enables all features of this version. Without a pool, lists the features that pools do not use.",
    run: upgrade,
};

/// Features that are disabled in a pool.
fn missing(pool: &PoolInfo) -> Vec<&'static str> {
    let names = Feature::KNOWN.iter().map(|(name, ..)| *name);
    let names = names.filter(|name| !Feature::STRUCTURAL.contains(name));
    let is_off = |name: &&str| {
        pool.properties.get(&format!("feature@{name}")).is_some_and(|property| property.value == "disabled")
    };
    names.filter(is_off).collect()
}

fn upgrade(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let doing = || "cannot upgrade".to_owned();
    if let Some(version) = parsed.value('V').filter(|version| *version != "5000") {
        return Err(Failure::Usage(format!(
            "invalid version '{}': pools have features, which ZFS calls version 5000",
            tame(version)
        )));
    }
    if parsed.has('v') {
        session.line("This version supports these features of pools:\n");
        let columns = ["FEATURE", "NEEDED TO", "DESCRIPTION"]
            .map(|heading| Column { heading: heading.to_owned(), right: false });
        let row = |(name, need, doc): &(&str, Need, &str)| {
            let need = match need {
                Need::Read => "read",
                Need::Write => "write",
                Need::Safe => "-",
            };
            vec![(*name).to_owned(), need.to_owned(), (*doc).to_owned()]
        };
        let rows: Vec<Vec<String>> = Feature::KNOWN.iter().map(row).collect();
        session.out.push_str(&render(&columns, &rows, false));
        return Ok(());
    }
    match (parsed.has('a'), &parsed.operands[..]) {
        (true, [_, ..]) => Err(Failure::Usage("too many arguments: -a means all pools".into())),
        (false, []) => {
            let pools = session.ask(PoolList::default()).doing(doing)?;
            let rows: Vec<Vec<String>> = pools
                .iter()
                .flat_map(|pool| {
                    missing(pool).into_iter().map(|name| vec![tame(&pool.name), name.to_owned()])
                })
                .collect();
            if rows.is_empty() {
                session.line("All features are enabled in all imported pools.");
            } else {
                session
                    .line("These features are disabled. `{} upgrade POOL` enables all features of a pool.\n");
                let columns = ["POOL", "FEATURE"].map(|h| Column { heading: h.to_owned(), right: false });
                session.out.push_str(&render(&columns, &rows, false));
            }
            Ok(())
        }
        (_, names) => {
            let enabled = session.ask(PoolUpgrade { names: names.to_vec() }).doing(doing)?.touched;
            if enabled.is_empty() {
                session.line("All features are enabled already.");
            }
            for line in enabled {
                if let Some((pool, feature)) = line.split_once(' ') {
                    session.line(format!("{}: enabled {}", tame(pool), tame(feature)));
                }
            }
            Ok(())
        }
    }
}

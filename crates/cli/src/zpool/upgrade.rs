//! `zpool upgrade`.

use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
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
    if parsed.has('V') && !parsed.has('a') && parsed.operands.is_empty() {
        return Err(Failure::Usage("-V needs a pool, or -a".into()));
    }
    if parsed.has('v') && (parsed.has('a') || !parsed.operands.is_empty()) {
        return Err(Failure::Usage("-v cannot be combined with a pool or -a".into()));
    }
    if parsed.has('a') && !parsed.operands.is_empty() {
        return Err(Failure::Usage("-a cannot be combined with a pool".into()));
    }
    session.line("This system supports ZFS pool feature flags.\n");
    if parsed.has('v') {
        session.out.push_str(&supported());
        return Ok(());
    }
    if !parsed.has('a') && parsed.operands.is_empty() {
        let pools = session.ask(PoolList::default()).doing(doing)?;
        session.line("All pools are formatted using feature flags.\n");
        let text = disabled(&pools);
        session.out.push_str(&text);
        return Ok(());
    }
    let enabled = session.ask(PoolUpgrade { names: parsed.operands.clone() }).doing(doing)?.touched;
    let of = |pool: &str| -> Vec<String> {
        let features = enabled.iter().filter_map(|line| line.split_once(' '));
        features.filter(|(name, _)| *name == pool).map(|(_, feature)| tame(feature)).collect()
    };
    let mut pools = parsed.operands.clone();
    if parsed.has('a') {
        pools = enabled.iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
        pools.dedup();
        if pools.is_empty() {
            session.line("All pools are already formatted using feature flags.\n");
            session.line(ALL_ENABLED);
        }
    }
    for pool in &pools {
        let features = of(pool);
        if features.is_empty() {
            session.line(format!(
                "Pool '{}' already has all supported and requested features enabled.",
                tame(pool)
            ));
            continue;
        }
        session.line(format!("Enabled the following features on '{}':", tame(pool)));
        features.iter().for_each(|feature| session.line(format!("  {feature}")));
        session.line("");
    }
    Ok(())
}

const ALL_ENABLED: &str = "Every feature flags pool has all supported and requested features enabled.";

/// The features of this version, in the form of ZFS.
fn supported() -> String {
    let mut text = "The following features are supported:\n\nFEAT DESCRIPTION\n".to_owned();
    text.push_str(&format!("{}\n", "-".repeat(61)));
    for (name, need, doc) in Feature::KNOWN {
        let safe = if *need == Need::Read { "" } else { " (read-only compatible)" };
        text.push_str(&format!("{name:<37}{safe}\n     {doc}\n"));
    }
    text + "\nPools with the legacy versions of ZFS, 1 to 28, do not exist here.\n"
}

/// Features that pools do not use yet, in the form of ZFS.
fn disabled(pools: &[PoolInfo]) -> String {
    let mut text = String::new();
    for pool in pools {
        let features = missing(pool);
        if !features.is_empty() {
            text.push_str(&format!("{}\n", tame(&pool.name)));
            features.iter().for_each(|name| text.push_str(&format!("      {name}\n")));
        }
    }
    match text.is_empty() {
        true => format!("{ALL_ENABLED}\n"),
        false => format!(
            "\nSome supported features are not enabled on the following pools. \
             An older version may not open a pool\nin which a feature is enabled. \
             `zpool upgrade POOL` enables all features of a pool.\n\n\
             POOL  FEATURE\n---------------\n{text}\n"
        ),
    }
}

//! `zpool add`.

use super::operands::{FORCE, check_new, layout, vdevs};
use super::vdev_tree::{BY_GUID, FULL_PATHS, LINKS, label, with_members};
use crate::command::Command;
use crate::options::{Flag, MANY, Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{PoolAdd, PoolStatus, VdevReport};

pub(super) const COMMAND: Command = Command {
    names: &["add"],
    syntax: Syntax {
        flags: &[
            FORCE,
            flag('n', "check only, and print the layout"),
            valued(
                'o',
                "property=value",
                "ashift=N, which must be 0 or the pool's own; loss=PERCENT: what a parity device gives back, 0.5 to 10 % (2 %); \
                 tiles=ADDRESS: a store for the tiles of a parity device",
            ),
            BY_GUID,
            LINKS,
            FULL_PATHS,
            allow(ALLOW_IN_USE, "overwrite devices that seem to be in use"),
            allow(
                ALLOW_MISMATCH,
                "groups of other redundancy than the pool has, and of devices of different sizes",
            ),
            allow("allow-ashift-mismatch", "accepted, no effect: all devices of a pool have one ashift"),
        ],
        operands: "pool vdev...",
        least: 2,
        most: MANY,
    },
    doc: "Adds devices to a pool. `zpool remove` undoes it.",
    run: add,
};

/// `-o loss=2%`.
const LOSS: &str = "loss=";
/// `-o tiles=s3://bucket/tiles`.
const TILES: &str = "tiles=";
const ALLOW_IN_USE: &str = "allow-in-use";
const ALLOW_MISMATCH: &str = "allow-replication-mismatch";

const fn allow(long: &'static str, doc: &'static str) -> Flag {
    Flag { letter: '\0', long, value: "", doc }
}

/// Reads a percentage, such as `2%` or `0.5`: cells in a million.
pub(crate) fn loss(text: &str) -> Result<u32, Failure> {
    let wrong = || Failure::Usage(format!("'{}' is no percentage, such as 2% or 0.5%", tame(text)));
    let number = text.strip_suffix('%').unwrap_or(text);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 4 || whole.len() > 3 {
        return Err(wrong());
    }
    let (whole, part): (u32, u32) =
        (whole.parse().map_err(|_| wrong())?, format!("{part:0<4}").parse().map_err(|_| wrong())?);
    Ok(whole * 10_000 + part)
}

/// Words of `-o` that are of a parity device.
pub(super) const OF_PARITY: [&str; 2] = [LOSS, TILES];

/// Loss and address of the tiles that `-o` names for a parity device.
pub(super) fn parity_wishes(parsed: &Parsed) -> Result<(Option<u32>, Option<String>), Failure> {
    let named = |word: &str| parsed.values('o').filter_map(|text| text.strip_prefix(word)).last();
    Ok((named(LOSS).map(loss).transpose()?, named(TILES).map(str::to_owned)))
}

fn add(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot add to '{}'", tame(&name));
    check_new(session, parsed, &name, &OF_PARITY, doing)?;
    let (loss_ppm, tiles) = parity_wishes(parsed)?;
    let vdevs = vdevs(session, &parsed.operands[1..]).doing(doing)?;
    let layout = layout(&vdevs);
    let dry_run = parsed.has('n');
    let before: Vec<VdevReport> = if dry_run {
        let request = PoolStatus { names: vec![name.clone()] };
        session.ask(request).doing(doing)?.into_iter().flat_map(|pool| pool.vdevs).collect()
    } else {
        Vec::new()
    };
    let request = PoolAdd {
        name: name.clone(),
        vdevs,
        force: parsed.has('f') || parsed.has_long(ALLOW_IN_USE),
        allow_mismatch: parsed.has('f') || parsed.has_long(ALLOW_MISMATCH),
        dry_run,
        loss_ppm,
        tiles,
    };
    let outcome = session.ask(request).doing(doing)?;
    if dry_run {
        session.line(format!("would update '{name}' to the following configuration:\n\n\t{name}"));
        let before = before.iter().flat_map(|vdev| with_members(vdev, 1));
        let before = before.map(|(depth, vdev)| (depth, tame(&label(vdev, parsed))));
        for (depth, name) in before.chain(layout) {
            session.line(format!("\t{}{name}", "  ".repeat(depth)));
        }
    }
    session.warn(&format!("devices are added to '{name}', but"), &outcome.warnings);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_a_percentage() {
        let ppm = |text: &str| loss(text).ok();
        assert_eq!(
            [ppm("2%"), ppm("2"), ppm("0.5%"), ppm("10%")],
            [20_000, 20_000, 5_000, 100_000].map(Some)
        );
        assert_eq!([ppm("1.25%"), ppm("0.0001")], [12_500, 1].map(Some));
        for wrong in ["", "%", "-2%", "2%%", "1e3", "1.", ".5", "1.00001", "1234", "two"] {
            assert_eq!(ppm(wrong), None, "{wrong}");
        }
    }
}

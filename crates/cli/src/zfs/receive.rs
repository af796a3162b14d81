//! `zfs receive`.

use crate::command::Command;
use crate::key;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Said, Session};
use crate::table::tame;
use std::os::fd::AsFd;
use steadfast_control::api::{FsReceive, FsReceiveAbort, ReceiveNaming};
use steadfast_control::wire::{Arrival, Progress};
use steadfast_control::{Code, Refusal, check};
use steadfast_property::{Scope, nice_bytes};

pub(super) const COMMAND: Command = Command {
    names: &["receive", "recv"],
    syntax: Syntax {
        flags: &[
            flag('F', "roll back to the latest common snapshot first; later changes and snapshots are lost"),
            flag('s', "resumable: keep a partial receive if the stream breaks off"),
            flag('A', "discard a partial receive: `-A <filesystem|volume>`, and nothing else"),
            flag('u', "do not mount new file systems"),
            flag('d', "use the sender's path without its pool, below the file system named"),
            flag('e', "use the last part of the sender's path, below the file system named"),
            flag('n', "receive nothing; with -v print the snapshots"),
            flag('v', "print the received snapshots, with size and time"),
            valued(
                'o',
                "property=value",
                "set a property, also encryption=on with keyformat= and keylocation=file://PATH; \
                 origin=SNAPSHOT receives a clone; may be repeated",
            ),
            valued('x', "property", "ignore this property of the stream; may be repeated"),
            flag('h', "without the holds of the stream"),
            flag('M', "unmount the file system even if files are open"),
            flag('c', "refused: a stream cannot repair data"),
        ],
        operands: "filesystem[@snapshot]",
        least: 1,
        most: 1,
    },
    doc: "Creates or updates a file system from a stream on standard input.",
    run: receive,
};

fn receive(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let target = parsed.operands[0].clone();
    let doing = || format!("cannot receive into '{}'", tame(&target));
    if parsed.has('c') {
        let what = "-c is not supported: a stream cannot repair data; use redundancy, or receive the file system again under another name";
        return Err(Refusal::new(Code::Later, what)).doing(doing);
    }
    if parsed.has('A') {
        let request = FsReceiveAbort { name: target.clone() };
        session
            .ask(request)
            .doing(|| format!("cannot discard the partial receive into '{}'", tame(&target)))?;
        return Ok(());
    }
    let naming = match (parsed.has('d'), parsed.has('e')) {
        (true, true) => return Err(Failure::Usage("-d cannot be combined with -e".into())),
        (true, false) => ReceiveNaming::WithoutPool,
        (false, true) => ReceiveNaming::LastOnly,
        (false, false) => ReceiveNaming::AsGiven,
    };
    if naming != ReceiveNaming::AsGiven && target.contains('@') {
        return Err(Failure::Usage("-d and -e need a file system, not a snapshot".into()));
    }
    // `origin` is not a property: it names the snapshot to clone.
    let (origins, settings): (Vec<&str>, Vec<&str>) =
        parsed.values('o').partition(|text| text.starts_with("origin="));
    let origin = match origins[..] {
        [] => None,
        [one] => Some(one["origin=".len()..].to_owned()),
        _ => return Err(Failure::Usage("-o origin= specified multiple times".into())),
    };
    let properties = assignments(session, Scope::Dataset, settings.into_iter())?;
    let mut exclude: Vec<String> = Vec::new();
    for name in parsed.values('x') {
        if name.contains('=') {
            return Err(Failure::Usage("invalid character '=' in property argument".into()));
        }
        if properties.contains_key(name) || exclude.iter().any(|known| known == name) {
            return Err(Failure::Usage(format!("property '{}' specified multiple times", tame(name))));
        }
        exclude.push(name.to_owned());
    }
    let location = properties.get("keylocation");
    if properties.contains_key("keyformat") && location.is_none_or(|location| location == "prompt") {
        return Err(check::key_beside_stream(&target)).doing(doing);
    }
    let key = key::of_new(session.world, &target, &properties).doing(doing)?;
    let request = FsReceive {
        target: target.clone(),
        key,
        naming,
        force: parsed.has('F'),
        keep: parsed.has('s'),
        no_mount: parsed.has('u'),
        dry_run: parsed.has('n'),
        properties,
        origin,
        exclude,
        no_holds: parsed.has('h'),
        unmount: parsed.has('M'),
    };
    if session.world.input_is_terminal {
        let what = "standard input is a terminal";
        return Err(Refusal::new(Code::StreamTerminal, what)).doing(doing);
    }
    let none = || Refusal::new(Code::StreamTerminal, "there is no standard input");
    let input = session.world.input_fd.take().ok_or_else(none).doing(doing)?;
    let (shows, dry) = (parsed.has('v'), parsed.has('n'));
    let say = |step: &Progress| match &step.arrival {
        Some(arrival) if shows => Said::Out(told(arrival, dry)),
        _ => Said::Out(String::new()),
    };
    let receipt = match session.stream(request, input.as_fd(), &say) {
        Ok(receipt) => receipt,
        Err(refusal) => {
            session.complain(&doing(), &refusal);
            if let Some(token) = refusal.fields.get("token") {
                session.tell(&resumable(token));
            }
            return Ok(());
        }
    };
    session.warn("the stream is received, but", &receipt.warnings);
    Ok(())
}

/// The lines of ZFS for one snapshot of the stream: when it begins to arrive, and when it has.
fn told(Arrival { part, done }: &Arrival, dry: bool) -> String {
    let kind = if part.increment { "incremental" } else { "full" };
    let (from, snapshot) = (tame(&part.from), tame(&part.snapshot));
    match done {
        false if part.there => format!("snap {snapshot} already exists; ignoring\n"),
        false => {
            let origin =
                part.origin.as_deref().map(|origin| format!("found clone origin {}\n", tame(origin)));
            let doing = if dry { "would receive" } else { "receiving" };
            let line = format!("{doing} {kind} stream of {from} into {snapshot}\n");
            origin.unwrap_or_default() + &line
        }
        true if part.there || dry => String::new(),
        true => {
            let seconds = part.nanos.max(1) as f64 / 1e9;
            // A rate beyond 2^64 saturates.
            let rate = (part.bytes as f64 / seconds) as u64;
            let (bytes, rate) = (nice_bytes(part.bytes), nice_bytes(rate));
            format!("received {bytes} stream in {seconds:.2} seconds ({rate}/sec)\n")
        }
    }
}

/// Lines after the problem for `-s`, as in ZFS: programs take the token from the last one.
fn resumable(token: &str) -> String {
    format!(
        "Partially received snapshot is saved.\nA resuming stream can be generated on the sending \
         system by running:\n    zfs send -t {}\n",
        tame(token)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::ReceivedPart;

    #[test]
    fn a_received_snapshot_is_told_in_the_words_of_zfs() {
        let mut part = ReceivedPart {
            snapshot: "safe/a@2".into(),
            from: "tank/a@2".into(),
            increment: true,
            bytes: 3 << 20,
            nanos: 1_500_000_000,
            there: false,
            origin: None,
        };
        let tell = |part: &ReceivedPart, done, dry| told(&Arrival { part: part.clone(), done }, dry);
        assert_eq!(tell(&part, true, false), "received 3M stream in 1.50 seconds (2M/sec)\n");
        assert_eq!(tell(&part, true, true), "");
        let receiving = "receiving incremental stream of tank/a@2 into safe/a@2\n";
        assert_eq!(tell(&part, false, false), receiving);
        assert_eq!(tell(&part, false, true), "would receive incremental stream of tank/a@2 into safe/a@2\n");
        (part.origin, part.nanos) = (Some("safe/b@1".into()), 0);
        assert_eq!(tell(&part, false, false), format!("found clone origin safe/b@1\n{receiving}"));
        assert!(tell(&part, true, false).starts_with("received 3M "));
        part.there = true;
        assert_eq!(tell(&part, false, false), "snap safe/a@2 already exists; ignoring\n");
        assert_eq!(tell(&part, true, false), "");
    }
}

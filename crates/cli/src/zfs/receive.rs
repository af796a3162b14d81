//! `zfs receive`.

use crate::command::Command;
use crate::key;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::os::fd::AsFd;
use steadfast_control::api::{FsReceive, FsReceiveAbort, ReceiveNaming};
use steadfast_control::{Code, Refusal, check};
use steadfast_property::{Scope, nice_bytes};

pub(super) const COMMAND: Command = Command {
    names: &["receive", "recv"],
    syntax: Syntax {
        flags: &[
            flag('F', "roll back to the latest common snapshot first; later changes and snapshots are lost"),
            flag('s', "resumable: keep a partial receive if the stream breaks off"),
            flag('A', "discard a partial receive"),
            flag('u', "do not mount new file systems"),
            flag('d', "use the sender's path without its pool, below the file system named"),
            flag('e', "use the last part of the sender's path, below the file system named"),
            flag('n', "receive nothing; with -v print the snapshots"),
            flag('v', "print the received snapshots"),
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
        exclude: parsed.values('x').map(str::to_owned).collect(),
        no_holds: parsed.has('h'),
        unmount: parsed.has('M'),
    };
    if session.world.input_is_terminal {
        let what = "standard input is a terminal";
        return Err(Refusal::new(Code::StreamTerminal, what)).doing(doing);
    }
    let none = || Refusal::new(Code::StreamTerminal, "there is no standard input");
    let input = session.world.input_fd.take().ok_or_else(none).doing(doing)?;
    let receipt = session.stream(request, input.as_fd(), &|_, _| String::new()).doing(doing)?;
    if parsed.has('v') {
        let would = if parsed.has('n') { "would receive" } else { "received" };
        for part in &receipt.parts {
            let kind = if part.increment { "incremental" } else { "full" };
            let (from, snapshot) = (tame(&part.from), tame(&part.snapshot));
            if part.there {
                session.line(format!("snap {snapshot} already exists; ignoring"));
                continue;
            }
            let size = nice_bytes(part.bytes);
            session.line(format!("{would} {kind} stream of {from} into {snapshot}, {size}"));
        }
    }
    session.warn("the stream is received, but", &receipt.warnings);
    Ok(())
}

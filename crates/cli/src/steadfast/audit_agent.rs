//! `steadfast audit agent STORE`: answers audits beside a store, until it is ended.

use crate::options::Parsed;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use steadfast_control::agent::{self, AGENT};
use steadfast_control::{Code, Refusal, stores};

/// Nobody else can ask unless the operator says so: questions make the agent read.
const LISTEN: &str = "127.0.0.1:7531";

/// Serves until the process is ended.
pub(super) fn serve(session: &mut Session<'_, '_>, parsed: &Parsed, store: &str) -> Result<(), Failure> {
    if ['n', 'r', 'a', 'k', 'j', 'm', 's'].into_iter().any(|letter| parsed.has(letter)) {
        return Err(Failure::Usage("an agent takes -l only".to_owned()));
    }
    let doing = || format!("cannot answer audits of '{}'", tame(store));
    let device = stores::look(Path::new(store)).doing(doing)?;
    let listen = parsed.value('l').unwrap_or(LISTEN);
    let refused = |error: std::io::Error| {
        Refusal::new(Code::FileIo, format!("{}: {error}", tame(listen))).with("file", tame(listen))
    };
    let listener = TcpListener::bind(listen).map_err(refused).doing(doing)?;
    let address = listener.local_addr().map_err(refused).doing(doing)?;
    let told = writeln!(session.world.out, "listening on {address}").and_then(|()| session.world.out.flush());
    told.map_err(refused).doing(doing)?;
    let err = &mut session.world.err;
    let mut told = |peer: std::net::SocketAddr, what: &str| {
        let _ = writeln!(err, "{peer}: {}", tame(what));
    };
    agent::serve(&listener, &*device, AGENT, &mut told).map_err(refused).doing(doing)
}

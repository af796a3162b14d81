//! `hd=` and `host=`: which machines carry out which part.
//!
//! A host is this process where it names this machine without a port, else an agent that listens
//! there. Where a file has hosts, they alone work; a workload runs on all of them unless `host=`
//! says less.

use crate::error::{Error, ErrorKind, Place, nearest};
use crate::lexer::Item;
use crate::model::{Fsd, Fwd, Operation, Run, Sd, Wd, Work};
use crate::number::Unit;
use crate::read::{self, bad};
use crate::section::Definitions;

/// Where agents listen unless `port=` or `system=` says otherwise: vdbench's own port.
pub const AGENT_PORT: u16 = 5570;
/// As many slaves as vdbench can address by the numbers in its reports.
const HOSTS_MAX: usize = 1_000;

/// One `hd=`.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// `hd=`.
    pub name: String,
    /// `system=`, or the name: without a port.
    pub system: String,
    /// The port of `system=name:port`.
    pub port: Option<u16>,
    /// Where it was defined.
    pub place: Place,
}

impl Host {
    /// Whether it is this process.
    pub fn is_here(&self) -> bool {
        self.port.is_none() && read::local_host(&self.system)
    }
}

impl Sd {
    /// Whether this host has it.
    pub fn is_on(&self, host: &str) -> bool {
        self.luns.is_empty() || self.luns.iter().any(|(hosts, _)| hosts.iter().any(|name| name == host))
    }

    /// Its file there.
    pub fn lun_on(&self, host: &str) -> &str {
        let own =
            self.luns.iter().find(|(hosts, lun)| !lun.is_empty() && hosts.iter().any(|name| name == host));
        own.map_or(&self.lun, |(_, lun)| lun)
    }
}

impl Wd {
    /// Whether this host runs it.
    pub fn is_on(&self, host: &str) -> bool {
        is_on(&self.hosts, host)
    }
}

impl Fwd {
    /// Whether this host runs it.
    pub fn is_on(&self, host: &str) -> bool {
        is_on(&self.hosts, host)
    }
}

fn is_on(hosts: &[String], host: &str) -> bool {
    hosts.is_empty() || hosts.iter().any(|name| name == host)
}

/// Reads one `hd=` with what stands behind it: one host, or as many as `clients=` says. None for
/// `hd=default`, whose `clients` are those of all that follow.
pub(crate) fn host(
    first: &Item,
    items: &[Item],
    known: &[Host],
    clients: &mut u32,
) -> Result<Vec<Host>, Error> {
    let name = read::single(first)?.to_string();
    let said = named(items, "clients");
    let number = said.map(|item| read::plain(item, Unit::Size, 1.0, HOSTS_MAX as f64)).transpose()?;
    let own = number.map_or(*clients, |number| number as u32);
    if name.eq_ignore_ascii_case("default") {
        *clients = own;
        return Ok(Vec::new());
    }
    let (system, port) = system(&name, items)?;
    let mut made = Vec::new();
    for name in client_names(&name, own) {
        if known.iter().any(|host| host.name == name) {
            let text = format!("Duplicate HD names not allowed: {name}");
            return Err(Error::new(ErrorKind::Duplicate, &first.place, &name, text)
                .hint("give the second one another name"));
        }
        made.push(Host { name, system: system.clone(), port, place: first.place.clone() });
    }
    if known.len() + made.len() > HOSTS_MAX {
        let text = format!("more than {HOSTS_MAX} hosts");
        return Err(Error::new(ErrorKind::TooLarge, &first.place, &name, text));
    }
    Ok(made)
}

/// Names of the clients of a host, as in vdbench. Without `clients=` it is one, with its own name.
fn client_names(name: &str, clients: u32) -> Vec<String> {
    if clients == 0 {
        return vec![name.to_string()];
    }
    (0..clients).map(|client| format!("{name}_cl{client}")).collect()
}

/// The names that an `hd=` line makes, before it is known whether it is right. `clients`: of
/// `hd=default`.
pub(crate) fn names(items: &[Item], clients: &mut u32) -> Vec<String> {
    let Some((first, rest)) = items.split_first() else { return Vec::new() };
    let said =
        named(rest, "clients").and_then(|item| read::plain(item, Unit::Size, 1.0, HOSTS_MAX as f64).ok());
    let own = said.map_or(*clients, |number| number as u32);
    let name = first.values.first().map_or("", |value| value.text.as_str());
    if name.eq_ignore_ascii_case("default") {
        *clients = own;
        return Vec::new();
    }
    client_names(name, own)
}

/// A word of `hd=`, perhaps cut short.
fn named<'a>(items: &'a [Item], word: &str) -> Option<&'a Item> {
    items.iter().rfind(|item| item.keyword.len() >= 2 && word.starts_with(&item.keyword.to_ascii_lowercase()))
}

/// `system=name:port`.
fn system(name: &str, items: &[Item]) -> Result<(String, Option<u16>), Error> {
    let Some(item) = named(items, "system") else { return Ok((name.to_string(), None)) };
    let text = read::single(item)?;
    let (system, port) = match text.rsplit_once(':') {
        // Colons of an address of six words, without brackets: no port.
        Some((system, _)) if system.contains(':') && !system.ends_with(']') => (text, None),
        Some((system, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0);
            let port = port
                .ok_or_else(|| bad(item, format!("system={text}: the colon must be followed by a port")))?;
            (system, Some(port))
        }
        None => (text, None),
    };
    Ok((system.trim_start_matches('[').trim_end_matches(']').to_string(), port))
}

/// The hosts that a `host=` means; none for all.
pub(crate) fn wanted(item: &Item, known: &[Host]) -> Result<Vec<String>, Error> {
    let mut out: Vec<String> = Vec::new();
    for value in &item.values {
        let wanted = value.text.as_str();
        if wanted == "*" {
            return Ok(Vec::new());
        }
        let found: Vec<&Host> = match wanted.strip_suffix('*') {
            Some(prefix) => known.iter().filter(|host| host.name.starts_with(prefix)).collect(),
            None => known.iter().filter(|host| host.name == wanted).collect(),
        };
        if found.is_empty() && known.is_empty() && read::local_host(wanted) {
            return Ok(Vec::new());
        }
        if found.is_empty() {
            let text = format!("Could not find host={wanted}");
            let error = Error::new(ErrorKind::Unresolved, &item.place, wanted, text);
            return Err(match nearest(wanted, known.iter().map(|host| host.name.as_str())) {
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None => error.hint("define it with hd= before this line, or use host=localhost"),
            });
        }
        for host in found {
            if !out.contains(&host.name) {
                out.push(host.name.clone());
            }
        }
    }
    Ok(out)
}

/// Writes into each file system which hosts use it: those of the workloads that do.
pub(crate) fn deal(fsds: &mut [Fsd], fwds: &[Fwd], known: &[Host]) {
    if known.is_empty() {
        return;
    }
    for fsd in fsds {
        let users: Vec<&Fwd> = fwds
            .iter()
            .filter(|fwd| fwd.fsds.contains(&fsd.name) || fwd.target.as_ref() == Some(&fsd.name))
            .collect();
        fsd.hosts = known
            .iter()
            .filter(|host| users.iter().any(|fwd| fwd.is_on(&host.name)))
            .map(|host| host.name.clone())
            .collect();
        // Workloads that each run on one host may use one tree: then each host has its own files.
        fsd.shared |= fsd.hosts.len() > 1 && users.iter().all(|fwd| fwd.hosts.len() == 1);
    }
}

/// Refuses work that several hosts cannot do on one storage or tree.
pub(crate) fn check(definitions: &Definitions, runs: &[Run]) -> Result<(), Error> {
    let hosts = &definitions.hosts;
    if hosts.is_empty() {
        return Ok(());
    }
    let refuse = |place: &Place, word: &str, text: String, hint: &str| {
        Err(Error::new(ErrorKind::Conflict, place, word, text).hint(hint))
    };
    let elsewhere = hosts.len() > 1 || hosts.iter().any(|host| !host.is_here());
    let general = &definitions.general;
    for (word, said) in [("journal", general.journal.is_some()), ("concatenatesds", general.concatenate)] {
        if said && elsewhere {
            let text = format!("{word}= and several hosts cannot be combined here");
            return refuse(&hosts[0].place, word, text, "run it on the host itself, without hd=");
        }
    }
    for run in runs {
        match &run.work {
            Work::Raw(work) => {
                for (wd, sds) in &work.wds {
                    let sds = || sds.iter().map(|at| &work.sds[*at]);
                    let on = |sd: &Sd| {
                        hosts.iter().filter(|host| wd.is_on(&host.name) && sd.is_on(&host.name)).count()
                    };
                    if let Some(sd) = sds().find(|sd| on(sd) == 0) {
                        let text = format!("wd={} and sd={} have no host in common", wd.name, sd.name);
                        return refuse(&wd.place, "host", text, "change host= of one of them");
                    }
                    if let (Some(_), Some(sd)) = (general.validate, sds().find(|sd| on(sd) > 1)) {
                        let text = format!("data validation: sd={} is used by more than one host", sd.name);
                        return refuse(&sd.place, "validate", text, "give each host a storage of its own");
                    }
                }
            }
            Work::Files(work) => {
                for fsd in work.fsds.iter().filter(|fsd| fsd.hosts.len() > 1) {
                    if !fsd.shared {
                        let text = format!(
                            "fsd={} is used by more than one host: {}",
                            fsd.name,
                            fsd.hosts.join(", ")
                        );
                        let hint = "write shared=yes, so that each host has its own files below the anchor, or host= on the fwd=";
                        return refuse(&fsd.place, "shared", text, hint);
                    }
                    let makes = |fwd: &Fwd| {
                        let known = [Operation::Mkdir, Operation::Rmdir];
                        let uses = fwd.fsds.contains(&fsd.name);
                        fwd.operations.iter().copied().find(|o| uses && known.contains(o))
                    };
                    if let Some((fwd, operation)) =
                        work.fwds.iter().find_map(|(fwd, _)| Some((fwd, makes(fwd)?)))
                    {
                        let text = format!(
                            "operation={} on fsd={}, which several hosts share: their directories would collide",
                            operation.name(),
                            fsd.name
                        );
                        return refuse(
                            &fwd.place,
                            "operation",
                            text,
                            "write host= on the fwd=, or give each host an fsd=",
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

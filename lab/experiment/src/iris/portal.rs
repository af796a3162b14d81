//! A portal for NFS clients, on the lab's own store behind a link.

use std::net::SocketAddr;
use std::path::PathBuf;

use steadfast_lab_network::{Conditions, Counts, Link};

use super::client::{Client, Export, Handle, failed};
use super::split::{NodeUse, Totals};
use crate::bucket::arm::{Arm, Here, Kind};
use crate::bucket::bare::Bare;
use crate::bucket::remote::Remote;
use crate::context::Context;
use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::shell::Shell;
use crate::options::Rate;
use crate::setup::Setup;

/// A portal, until it is dropped.
pub(super) struct Portal<'a> {
    arm: Arm,
    remote: &'a Remote,
    pub shell: &'a mut Shell,
    server: SocketAddr,
}

impl<'a> Portal<'a> {
    /// Makes the pool, mounts it and shares it. `properties` are set before: `recordsize=4K`.
    pub fn make(
        setup: &Setup,
        context: &Context,
        remote: &'a Remote,
        conditions: Conditions,
        properties: &[&str],
        shell: &'a mut Shell,
    ) -> Result<Portal<'a>, Error> {
        let home = setup.workdir.subdirectory(&format!("portal{}", conditions.round_trip.as_millis()))?;
        let way = std::path::Path::new("the store");
        let link = Link::start(remote.socket, conditions).map_err(Error::io("open a link before", way))?;
        let last = setup.last_shell(context)?;
        let kind = Kind::Ours { here: Here::Portal };
        let arm = Arm::make(("portal", kind), home, link, remote, (&mut *shell, last))?;
        for property in properties.iter().chain(&["sharenfs=insecure,no_root_squash"]) {
            shell.run(&arm.ours(&format!("fs set {property} {}", arm.pool())))?;
        }
        let server = listening(&shell.ask(&arm.ours("fs share"))?)?;
        Ok(Portal { arm, remote, shell, server })
    }

    /// Where the pool is mounted, too.
    pub fn place(&self) -> PathBuf {
        self.arm.place()
    }

    /// Its export.
    pub fn export(&self) -> Export {
        Export { nfs: self.server, mount: self.server, path: self.place() }
    }

    /// Sets the rate of its link from now on.
    pub fn set_rate(&self, rate: Rate) {
        self.arm.link.set_rate(rate.0);
    }

    /// Seconds of a ranged read of 4 KiB on the way to its store, so many one after the other.
    pub fn trips(&self, count: u32) -> Result<Vec<f64>, Error> {
        let prefix = format!("{}/trips", self.remote.prefix);
        Bare::new(self.remote, &self.arm.link.address().to_string(), &prefix)?.trips(count)
    }

    /// Requests and bytes that its link has carried so far.
    pub fn passed(&self) -> Counts {
        self.arm.link.counts()
    }

    /// Process id of its daemon, which lives as long as the portal.
    pub fn daemon(&mut self) -> Result<u32, Error> {
        let line = self.arm.ours("daemon pid");
        let answer = self.shell.ask(&line)?;
        let found = answer.split_ascii_whitespace().find_map(|word| word.parse().ok());
        found.ok_or(Error::Answer { line, answer, expected: "a process id" })
    }

    /// A client, and the handle of the top.
    pub fn client(&self) -> Result<(Client, Handle), Error> {
        self.export().client().map_err(failed("mount"))
    }

    /// Everything is in the store, and nothing goes on in the background.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.arm.settle(self.shell).map(drop)
    }

    /// Nothing is in memory [lab_iris.1].
    pub fn cold(&mut self) -> Result<(), Error> {
        self.arm.release(self.shell)?;
        self.arm.reopen(self.remote, self.shell)?;
        // The first commit after an import comes behind its answer.
        let sync = self.arm.ours(&format!("pool sync {}", self.arm.pool()));
        self.shell.ask(&sync).map(drop)
    }

    /// Sets the bytes of the cache of nodes and those of the cache of content.
    pub fn set_caches(&mut self, nodes: u64, content: u64) -> Result<(), Error> {
        let words = format!("daemon memory --node-cache-bytes {nodes} --block-cache-bytes {content}");
        let line = self.arm.ours(&words);
        self.shell.run(&line).map(drop)
    }

    /// Use of the node cache since the pool was imported.
    pub fn node_cache(&mut self) -> Result<NodeUse, Error> {
        let line = self.arm.ours("daemon memory -j");
        let answer = self.shell.ask(&line)?;
        NodeUse::parse(&answer).ok_or(Error::Answer { line, answer, expected: "the use of caches" })
    }

    /// Time of all NFS requests so far, by where it went.
    pub fn totals(&mut self) -> Result<Totals, Error> {
        let line =
            self.arm.ours(&format!("pool iostat --requests -jp --json-int {}", quoted(&self.arm.pool())));
        let answer = self.shell.ask(&line)?;
        Totals::parse(&answer).ok_or(Error::Answer { line, answer, expected: "requests by operation" })
    }
}

/// The address in what `fs share` printed.
pub(super) fn listening(shares: &str) -> Result<SocketAddr, Error> {
    let server = shares.split_whitespace().find_map(|word| word.parse().ok());
    server.ok_or_else(|| Error::Answer {
        line: "steadfast fs share".to_owned(),
        answer: shares.to_owned(),
        expected: "the address of the portal",
    })
}

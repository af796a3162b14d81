//! Work of the clients: each has a connection and a file of its own, and one call at a time.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::iris::client::{Client, Export, Handle, Stable, failed};
use crate::iris::crowd::at_once;
use crate::iris::workers::{self, Workers};
use crate::load::files::Noise;

/// Bytes of a transfer.
const TRANSFER: usize = 64 << 10;

/// Work of all clients at once.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum Load {
    Write,
    Read,
    RandomWrite,
    RandomRead,
}

impl Load {
    pub const ALL: [Load; 4] = [Load::Write, Load::Read, Load::RandomRead, Load::RandomWrite];

    pub fn key(self) -> &'static str {
        match self {
            Load::Write => "write",
            Load::Read => "read",
            Load::RandomWrite => "random_write",
            Load::RandomRead => "random_read",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Load::Write => "sequential write, durable",
            Load::Read => "sequential read, cold",
            Load::RandomWrite => "random write of 64 KiB, durable",
            Load::RandomRead => "random read of 64 KiB, warm",
        }
    }
}

/// Clients that are there at once.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Crowd {
    pub export: Export,
    pub count: u32,
    pub round: u32,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Random transfers of all together.
    pub transfers: u64,
}

/// The part of a load that one process does.
#[derive(Debug, Deserialize, Serialize)]
struct Job {
    crowd: Crowd,
    load: Load,
    clients: Range<u32>,
}

/// Does the jobs of standard input: `steadfast lab clients`.
///
/// # Errors
/// Standard input has no job, or nobody reads the answers.
pub(crate) fn serve() -> io::Result<()> {
    // The program holds the lock of its standard input already.
    let jobs = io::stdin().as_fd().try_clone_to_owned()?;
    workers::serve(io::BufReader::new(File::from(jobs)), io::stdout(), |job: Job, gate| {
        job.crowd.part(job.load, job.clients, gate).map(|(bytes, _)| bytes)
    })
}

impl Crowd {
    /// Bytes of all clients together, and seconds from the moment at which all are connected until
    /// the last has ended. Without workers the clients are threads of this process.
    pub fn work(&self, load: Load, workers: &mut Workers) -> Result<(u64, f64), Error> {
        let done = match workers.count() {
            0 => self.part(load, 0..self.count, || Ok(())),
            processes => {
                let job = |clients| Job { crowd: self.clone(), load, clients };
                let jobs: Vec<Job> = parts(self.count, processes).map(job).collect();
                workers.work(&jobs)
            }
        };
        done.map_err(failed(load.label()))
    }

    /// The work of some of the clients.
    fn part(
        &self,
        load: Load,
        clients: Range<u32>,
        gate: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<(u64, f64)> {
        let connect = |number| self.connect(number);
        at_once(clients, connect, gate, |number, (client, file)| self.transfer(load, number, client, file))
    }

    fn connect(&self, number: u32) -> io::Result<(Client, Handle)> {
        let (mut client, top) = self.export.client()?;
        // There already, but for the first load.
        let file = client.create(&top, &self.name(number))?;
        Ok((client, file))
    }

    fn name(&self, number: u32) -> String {
        format!("of{}-{number}-{}", self.count, self.round)
    }

    /// Removes the files: each round begins alike.
    pub fn clear(&self) -> Result<(), Error> {
        let removed = self.export.client().and_then(|(mut client, top)| {
            (0..self.count).try_for_each(|number| client.remove(&top, &self.name(number)))
        });
        removed.map_err(failed("remove the files of"))
    }

    fn transfer(&self, load: Load, number: u32, client: &mut Client, file: &[u8]) -> io::Result<u64> {
        let records = (self.bytes / u64::from(self.count) / TRANSFER as u64).max(1);
        let transfers = (self.transfers / u64::from(self.count)).max(1);
        let mut noise = Noise::new(u64::from(number) + 1);
        let mut data = vec![0; TRANSFER];
        noise.fill(&mut data);
        let count = match load {
            Load::Write | Load::Read => records,
            Load::RandomWrite | Load::RandomRead => transfers,
        };
        for record in 0..count {
            let at = match load {
                Load::Write | Load::Read => record,
                Load::RandomWrite | Load::RandomRead => noise.below(records),
            } * TRANSFER as u64;
            match load {
                Load::Write | Load::RandomWrite => {
                    data[..8].copy_from_slice(&(at ^ record).to_le_bytes());
                    client.write(file, at, &data, Stable::Unstable)?;
                }
                Load::Read | Load::RandomRead if client.read(file, at, TRANSFER)? != TRANSFER => {
                    return Err(io::Error::other("a file is shorter than it was written"));
                }
                Load::Read | Load::RandomRead => {}
            }
        }
        if matches!(load, Load::Write | Load::RandomWrite) {
            client.commit(file)?;
        }
        Ok(count * TRANSFER as u64)
    }
}

/// So many clients in at most so many parts, none of them empty.
fn parts(clients: u32, parts: u32) -> impl Iterator<Item = Range<u32>> {
    let parts = parts.min(clients);
    let from = move |part: u32| (u64::from(clients) * u64::from(part) / u64::from(parts)) as u32;
    (0..parts).map(move |part| from(part)..from(part + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_in_one_process() {
        assert_eq!(parts(10, 3).collect::<Vec<_>>(), [0..3, 3..6, 6..10]);
        assert!(parts(1, 2).eq(std::iter::once(0..1)), "no process is without a client");
        assert_eq!(parts(4_000, 64).map(|part| part.len()).sum::<usize>(), 4_000);
    }
}

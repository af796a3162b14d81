//! A pool in the store of the lab, with a parity device on this machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use steadfast_lab_network::{Conditions, Link};

use crate::bucket::arm::{Arm, Here, Kind};
use crate::bucket::bare::Bare;
use crate::bucket::remote::Remote;
use crate::context::Context;
use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::shell::Shell;
use crate::load::files::{self, Blocks, Noise};
use crate::options::Rate;
use crate::setup::Setup;

/// Longest time until the code covers all objects.
const PATIENCE: Duration = Duration::from_secs(60);
/// Segments that are short are no loss worth a recovery.
const SEGMENT_LEAST: u64 = 1 << 20;
/// Bytes of a cell.
pub(super) const CELL: u64 = 4096;

/// A pool whose store a code covers, until it is dropped.
pub(super) struct CoveredPool<'a> {
    pub arm: Arm,
    pub shell: &'a mut Shell,
    /// Reads the pool's own objects, through a link of the same kind.
    pub bare: Bare,
    beside: Link,
}

/// An audit, as `steadfast audit -j` tells of it.
#[derive(Deserialize)]
pub(super) struct Audit {
    pub held: bool,
    pub requests: u64,
    pub bytes_in: u64,
    pub strata: Vec<Stratum>,
}

#[derive(Deserialize)]
pub(super) struct Stratum {
    pub part: String,
    pub samples: u32,
    pub held: u32,
}

impl Audit {
    /// Cells that were asked for.
    pub fn samples(&self) -> u32 {
        self.strata.iter().filter(|stratum| stratum.part != "tiles").map(|stratum| stratum.samples).sum()
    }

    /// Those of them that were drawn from all of the store.
    pub fn of_all(&self) -> f64 {
        let all = self.strata.iter().filter(|stratum| stratum.part == "all");
        all.map(|stratum| f64::from(stratum.samples)).sum()
    }

    /// Those of them that were there.
    pub fn held(&self) -> u32 {
        self.strata.iter().filter(|stratum| stratum.part != "tiles").map(|stratum| stratum.held).sum()
    }
}

/// A recovery, as `steadfast audit recover -j` tells of it.
#[derive(Deserialize)]
pub(super) struct Recovery {
    pub cells: u64,
    pub from_journal: u64,
    pub from_code: u64,
    pub lost: Vec<serde_json::Value>,
    pub nanoseconds: u64,
    pub solving_nanoseconds: u64,
}

impl<'a> CoveredPool<'a> {
    /// Makes the pool, gives it a parity device of `parity` bytes, and fills it with `file` bytes.
    pub fn make(
        setup: &Setup,
        context: &Context,
        remote: &Remote,
        conditions: Conditions,
        (file, parity): (u64, u64),
        shell: &'a mut Shell,
    ) -> Result<CoveredPool<'a>, Error> {
        let home = setup.workdir.subdirectory(&format!("covered{}", conditions.round_trip.as_millis()))?;
        let way = std::path::Path::new("the store");
        let link = || Link::start(remote.socket, conditions).map_err(Error::io("open a link before", way));
        let last = setup.last_shell(context)?;
        let kind = Kind::Ours { here: Here::Nothing };
        let arm = Arm::make(("covered", kind), home.clone(), link()?, remote, (&mut *shell, last))?;
        let beside = link()?;
        let bare = Bare::new(remote, &beside.address().to_string(), &arm.prefix)?;
        let device = home.join("parity.img");
        shell.run(&format!("truncate -s {parity} {}", quoted(&device.display().to_string())))?;
        let add = format!("pool add {} parity {}", arm.pool(), quoted(&device.display().to_string()));
        shell.run(&arm.ours(&add))?;
        let pool = CoveredPool { arm, shell, bare, beside };
        let path = pool.file();
        files::write(&path, file, &mut Blocks::new(9, 1.0)).map_err(Error::io("fill", &path))?;
        pool.arm.settle(pool.shell)?;
        pool.covered()
    }

    /// Sets the rate of the pool's link and of the bare loop's from now on.
    pub fn set_rate(&self, rate: Rate) {
        [&self.arm.link, &self.beside].into_iter().for_each(|link| link.set_rate(rate.0));
    }

    /// The file in the pool.
    pub fn file(&self) -> PathBuf {
        self.arm.place().join("file")
    }

    /// Waits until the code covers every object.
    fn covered(self) -> Result<CoveredPool<'a>, Error> {
        let line = self.arm.ours(&format!("pool status {}", self.arm.pool()));
        let began = Instant::now();
        loop {
            let answer = self.shell.ask(&line)?;
            if answer.contains("all covered") {
                return Ok(self);
            }
            if began.elapsed() > PATIENCE {
                return Err(Error::Answer { line, answer, expected: "a parity device that covers all" });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Audits. The exit status tells whether all was held, so it is no failure here.
    pub fn audit(&mut self) -> Result<(f64, Audit), Error> {
        let line = self.arm.ours(&format!("audit -j {}", self.arm.pool()));
        let began = Instant::now();
        let answer = self.shell.run(&format!("{line} || test $? = 1"))?;
        let seconds = began.elapsed().as_secs_f64();
        Ok((seconds, read(line, answer)?))
    }

    /// Recovers what the store lost.
    pub fn recover(&mut self) -> Result<(f64, Recovery), Error> {
        let line = self.arm.ours(&format!("audit recover -j {}", self.arm.pool()));
        let began = Instant::now();
        let answer = self.shell.run(&format!("{line} || test $? = 1"))?;
        let seconds = began.elapsed().as_secs_f64();
        Ok((seconds, read(line, answer)?))
    }

    /// Checksum of the file.
    pub fn checksum(&mut self) -> Result<String, Error> {
        let line = format!("sha256sum < {}", quoted(&self.file().display().to_string()));
        self.shell.ask(&line)
    }

    /// Deletes whole segments from the store, so that at most `bytes` are missing but at least one
    /// segment is. Cells of the deleted ones.
    pub fn lose(&mut self, bytes: u64, noise: &mut Noise) -> Result<u64, Error> {
        let mut segments = self.bare.objects()?;
        segments.retain(|(path, size)| path.contains("/seg/") && *size >= SEGMENT_LEAST);
        let (mut gone, mut names) = (0, Vec::new());
        while !segments.is_empty() {
            let (name, size) = segments.swap_remove(noise.below(segments.len() as u64) as usize);
            if !names.is_empty() && gone + size > bytes {
                break;
            }
            gone += size;
            names.push(name);
        }
        self.bare.delete(&names)?;
        Ok(gone.div_ceil(CELL))
    }
}

/// Reads what a command printed.
fn read<T: serde::de::DeserializeOwned>(line: String, answer: String) -> Result<T, Error> {
    serde_json::from_str(&answer).map_err(|error| Error::Answer {
        line,
        answer: format!("{answer}: {error}"),
        expected: "the JSON of an audit",
    })
}

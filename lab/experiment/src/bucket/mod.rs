//! `steadfast lab run bucket`: a pool on a store of objects that is far away, beside a bare loop of
//! transfers and other clients of such stores.
//!
//! ```text
//! S3 server (of the lab, or given) ◄─ link ◄─ bare loop of object_store, 32 at once
//!                                  ◄─ link ◄─ pool on the bucket alone
//!                                  ◄─ link ◄─ pool with log, cache and anchor on this machine
//!                                  ◄─ link ◄─ rclone mount, s3fs, ZeroFS
//! ```
//!
//! Each link (`steadfast_lab_network`) plays the round trip and counts the requests of one client.
//! Like the other experiments it is a stranger to the engine: it types commands.
//!
//! ## Invariants
//! [lab_bucket.1] Everybody works through a link with the same conditions, on the same store, in
//!      the same run.
//! [lab_bucket.2] Written means that the store has it: our pools commit, so does ZeroFS, others are
//!      watched until a second has passed without a request; that second does not count.
//! [lab_bucket.3] Cold means that the client let go of the store (our pools exported) and the
//!      kernel's caches were dropped.
//! [lab_bucket.4] When it ends, in whatever way, mounts, daemons, files and objects are gone:
//!      `Drop` of `Arm` and of `Cleared`.
//! [lab_bucket.5] Secrets are in files of mode 0600 in the private directory: never in a command
//!      line, an environment or a report.
//!
//! ## Reading order
//! `request`, `remote` (the store), `arm` (the clients), `loads` (the work), `zerofs`, `bare`,
//! `goals`, `charts`.

pub(crate) mod arm;
pub(crate) mod bare;
mod charts;
mod goals;
mod loads;
pub(crate) mod remote;
mod request;
mod zerofs;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_lab_network::Link;
use steadfast_lab_report::figures::{ArmInfo, goals::summary};
use steadfast_lab_report::number;

pub(crate) use request::BucketRequest;

use crate::comparison::{self, ComparisonReport, Heading};
use crate::context::Context;
use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::progress::Progress;
use crate::host::requirements::{check_fuse, check_room, check_root};
use crate::host::shell::Shell;
use crate::load::files::Noise;
use crate::results::{self, Results};
use crate::setup::Setup;
use arm::{ARMS, Arm, Kind};
use bare::Bare;
use loads::{Hands, rate, steps};
use remote::Remote;

/// Removes all objects of the experiment in every case [lab_bucket.4].
pub(crate) struct Cleared<'a>(pub &'a Remote);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        let bare = Bare::new(self.0, &self.0.socket.to_string(), &self.0.prefix);
        if let Err(error) = bare.and_then(|bare| bare.clear()) {
            eprintln!("objects below {}/{} may be left: {error}", self.0.bucket, self.0.prefix);
        }
    }
}

/// Runs it and writes the reports.
///
/// # Errors
/// Any failure that ends the run early. A program that is not installed is no failure.
pub fn run(
    request: &BucketRequest,
    context: &Context,
    stop: &Arc<AtomicBool>,
) -> Result<Results<ComparisonReport>, Error> {
    check_fuse()?;
    check_root("it drops the kernel's caches", "steadfast lab run bucket")?;
    let (parent, sizes) = (request.places.parent(), request.sizes());
    let advice = "name another directory with --dir DIR, or measure less with --quick.";
    check_room(parent, 4 * sizes.file, advice)?;
    let remote = Remote::open(request.store.as_ref())?;
    let setup = Setup::new("bucket", request.places.out.as_deref(), parent)?;
    let mut shell = setup.shell(context, stop)?;
    let scratch = setup.workdir.subdirectory("scratch")?;
    let (archive, tree_bytes) = archive(&scratch, sizes.sources, &mut shell)?;
    let mut report = ComparisonReport::new(
        Some(heading()),
        setup.conditions(
            format!("Steadfast {} on {}, {}", context.version, remote.label, request.way()),
            request.repeat(),
            request.rounds(),
        ),
        format!(
            "{} file, tree of {} files of 4 to 16 KiB, {} empty files",
            number::bytes(sizes.file),
            sizes.sources,
            sizes.listed.0 * sizes.listed.1
        ),
        columns(request),
    );
    let wanted = ARMS
        .into_iter()
        .filter(|(key, _, kind)| request.wants(key) && kind.lacks(request.store.is_none()).is_none());
    let each: f64 = wanted.map(|(_, _, kind)| steps(kind, &sizes)).sum();
    let mut progress = Progress::new(f64::from(request.rounds()) * each);
    let cleared = Cleared(&remote);
    let done = (1..=request.rounds()).try_for_each(|round| {
        if request.wants("bare") {
            progress.begin(&format!("round {round}: bare transfers"));
            measure_bare(&remote, request, &mut report)?;
        }
        for (key, label, kind) in ARMS.into_iter().filter(|(key, ..)| request.wants(key)) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            if kind.lacks(request.store.is_none()).is_some() {
                continue;
            }
            progress.begin(&format!("round {round}: making {key}"));
            let home = setup.workdir.subdirectory(&format!("{key}{round}"))?;
            let link = start(&remote, request)?;
            let last = setup.last_shell(context)?;
            let made = Arm::make((key, kind), home, link, &remote, (&mut shell, last));
            let done = made.and_then(|mut arm| {
                let mut hands = Hands {
                    arm: &mut arm,
                    remote: &remote,
                    shell: &mut shell,
                    report: &mut report,
                    progress: &mut progress,
                    round_trip: request.round_trip(),
                    sizes,
                    archive: &archive,
                    tree_bytes,
                    round,
                    steps: Vec::new(),
                };
                let done = hands.measure();
                let steps = hands.steps;
                if round == 1 && matches!(kind, Kind::Ours { .. }) {
                    report.charts.extend(charts::over_time(key, label, &arm.link, &steps));
                }
                done
            });
            match done {
                // A stranger that fails here is a column that says so and keeps what it has.
                Err(error) if !matches!(kind, Kind::Ours { .. }) && !matches!(error, Error::Stopped) => {
                    let why = error.to_string().replace('\n', " ");
                    let info = report.arms.iter_mut().find(|arm| arm.key == key).expect("it has a column");
                    info.missing = Some(format!("round {round}: {why}"));
                }
                other => other?,
            }
        }
        Ok(())
    });
    progress.end();
    drop(cleared);
    report.conditions.seconds = setup.seconds();
    let measured = !report.rows.is_empty();
    let ComparisonReport { rows, notes, conditions, .. } = &mut report;
    let early = results::early(done, measured, &*rows, notes, conditions)?;
    report.goals = goals::judge(&report);
    report.summary = summary(&report.goals);
    report.notes.extend(of_every_run());
    report.commands = shell.history();
    comparison::write(report, &setup.out, early, request.document.markdown.as_deref())
}

fn start(remote: &Remote, request: &BucketRequest) -> Result<Link, Error> {
    Link::start(remote.socket, request.conditions())
        .map_err(Error::io("open a link before", Path::new("the store")))
}

/// The bare loop: the figure that ours is compared with in writing, and in all reading.
fn measure_bare(
    remote: &Remote,
    request: &BucketRequest,
    report: &mut ComparisonReport,
) -> Result<(), Error> {
    let link = start(remote, request)?;
    let bare = Bare::new(remote, &link.address().to_string(), &format!("{}/bare", remote.prefix))?;
    let bytes = request.sizes().file;
    let write = bare.write(bytes)?;
    let read = bare.read(bytes)?;
    bare.clear()?;
    report.add(&rate("write", "sequential write, durable", ""), "bare", write);
    for (key, label) in [
        ("read", "sequential read, cold"),
        ("scrub", "scrub of everything"),
        ("send", "send of everything, cold"),
    ] {
        report.add(&rate(key, label, ""), "bare", read);
    }
    Ok(())
}

fn columns(request: &BucketRequest) -> Vec<ArmInfo> {
    let column = |key: &str, label: &str, missing: Option<&str>| ArmInfo {
        key: key.to_owned(),
        label: label.to_owned(),
        missing: missing.map(ToOwned::to_owned),
    };
    let all = std::iter::once(column("bare", "bare loop, 32 at once", None)).chain(
        ARMS.into_iter().map(|(key, label, kind)| column(key, label, kind.lacks(request.store.is_none()))),
    );
    all.filter(|arm| request.wants(&arm.key)).collect()
}

fn heading() -> Heading {
    Heading {
        name: "bucket".to_owned(),
        title: "A pool on a store of objects far away".to_owned(),
        question:
            "How near does it come to bare transfers, how many round trips does it wait for, and how many \
                   requests does it make?"
                .to_owned(),
        base: ("bare".to_owned(), "the bare loop".to_owned()),
    }
}

/// A tree of small files as an archive, and the bytes of its files. Its content does not compress.
fn archive(scratch: &Path, files: u64, shell: &mut Shell) -> Result<(PathBuf, u64), Error> {
    let root = scratch.join("tree");
    let mut total = 0;
    for (number, content) in tree_files(files) {
        let folder = root.join(format!("d{}", number / 100));
        std::fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        total += content.len() as u64;
        let path = folder.join(format!("f{number}"));
        std::fs::write(&path, content).map_err(Error::io("write", &path))?;
    }
    let shown = quoted(&scratch.display().to_string());
    shell.run(&format!("cd {shown} && tar -cf tree.tar tree && rm -r tree"))?;
    Ok((scratch.join("tree.tar"), total))
}

/// Files of the tree, and their content.
fn tree_files(files: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let mut noise = Noise::new(17);
    (0..files).map(move |number| {
        let mut content = vec![0; 4096 + noise.below(12_288) as usize / 8 * 8];
        noise.fill(&mut content);
        (number, content)
    })
}

/// Notes for every run.
fn of_every_run() -> Vec<String> {
    let zerofs = zerofs::version().map(|version| {
        format!(
            "{version} serves NFS, here to the lab's own client, which caches nothing: each name that it looks up \
             and each file that it reads is a call. Eight connections move the large file. Written means that COMMIT was \
             answered; ZeroFS encrypts, too. Its caches are {:?} GB on disk and {:?} GB in memory, and empty where it \
             is cold.",
            zerofs::CACHE_GB[0],
            zerofs::CACHE_GB[1]
        )
    });
    let mut notes = vec![
        "Each client has a link of its own to the store. The link delays every byte by half the round trip, and each \
         new connection by one; it does not play the growth of TCP's window."
            .to_owned(),
        "Round trips are the wall time over the round trip, so what the client and the store compute on the same two \
         processors counts as round trips too. Requests in a row are counted by the link: connections and computing are not in \
         them."
            .to_owned(),
        "Our pools are encrypted with AES-256-GCM and verify every byte; the bare loop and the other clients store what \
         they are given. Content does not compress."
            .to_owned(),
        "scrub and send are compared with the bare loop's read. rclone writes into its cache first: its write ends when \
         the last upload does."
            .to_owned(),
    ];
    notes.extend(zerofs);
    notes
}

//! `zfs receive`. It takes its turn with other verbs only while it changes what is mounted.

use crate::api::{FsReceive, FsReceiveAbort, Outcome, Properties, Receipt, ReceiveNaming, ReceivedPart};
use crate::caller::Caller;
use crate::check::{check_key, check_kind, exact, inheritable, key_beside_stream, name_refusal};
use crate::descriptor::Descriptor;
use crate::engine::front::FormerMount;
use crate::engine::mountpoints::unmake;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::engine::zfs::keys::key_rules;
use crate::engine::zfs::names::is_at_or_below;
use crate::engine::zfs::streams::{StreamGuard, TELL_NS, descriptor};
use crate::engine::zfs::token::resume_token;
use crate::refusal::{Code, Refusal};
use crate::wire::Arrival;
use parking_lot::MutexGuard;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use steadfast_pool::{Naming, ReceiveSpec, ReceiveWatch, Received};
use steadfast_property::{Change, Scope, check_dataset_name, check_snapshot_name};

impl Verb for FsReceive {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        match self.target.contains('@') {
            true => check_snapshot_name(&self.target),
            false => check_dataset_name(&self.target),
        }
        .map_err(name_refusal)?;
        self.origin.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)?;
        self.properties = exact(Scope::Dataset, &self.properties, &[Change::AtCreation, Change::Anytime])?;
        check_key(&self.properties, self.key.as_ref())?;
        if self.key.is_some()
            && self.properties.get("keylocation").is_none_or(|location| location == "prompt")
        {
            return Err(key_beside_stream(&self.target));
        }
        self.exclude.iter_mut().try_for_each(|name| inheritable(name, true).map(|exact| *name = exact))?;
        // Of these the sender's count, as in ZFS.
        let fixed = |name: &str| name == "version" || name == "volsize";
        let excluded = self.exclude.iter().find(|name| fixed(name));
        if let Some(name) = excluded.or(self.properties.keys().find(|name| *name == "version")) {
            let what = format!("'{name}' cannot be chosen by a receive");
            return Err(Refusal::new(Code::PropValue, what).with("property", name));
        }
        if let Some(name) = self.exclude.iter().find(|name| self.properties.contains_key(*name)) {
            let what = format!("'{name}' cannot be given both with -o and with -x");
            return Err(Refusal::new(Code::PropValue, what).with("property", name));
        }
        // Size and block of a volume come with the stream.
        check_kind(&self.target, &self.properties, false)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Receipt, Refusal> {
        let held = engine.held(self.target.split('@').next().unwrap_or(&self.target))?;
        if !self.dry_run {
            engine.check_writable(&held)?;
        }
        // With -d and -e names are made below what is there.
        let above = self.target.split('@').next().unwrap_or_default();
        let is_there = || held.pool.datasets().names().iter().any(|name| name == above);
        if !matches!(self.naming, ReceiveNaming::AsGiven) && !is_there() {
            return Err(refuse::pool(steadfast_pool::Error::NoSuchDataset { name: above.to_owned() }));
        }
        let mut props = self.properties.clone();
        key_rules_of(&held, &self, &mut props)?;
        let key = self.key.as_ref().map(|key| engine.new_key(key)).transpose()?;
        let mut input = descriptor(caller)?;
        let _under = StreamGuard::new(&held);
        let naming = match self.naming {
            ReceiveNaming::AsGiven => Naming::AsGiven,
            ReceiveNaming::WithoutPool => Naming::WithoutPool,
            ReceiveNaming::LastOnly => Naming::LastOnly,
        };
        let before = held.pool.datasets().names();
        let spec = ReceiveSpec {
            target: self.target.clone(),
            naming,
            force: self.force,
            keep: self.keep,
            dry_run: self.dry_run,
            props,
            key,
            exclude: self.exclude.clone(),
            origin: self.origin.clone(),
            no_holds: self.no_holds,
        };
        let begun = engine.env.clock.monotonic_ns();
        let mut watch = Watch {
            engine,
            held: &held,
            force: self.unmount,
            teller: input.clone(),
            told: begun,
            turn: None,
            placed: Vec::new(),
            waiting: Vec::new(),
            renames: Vec::new(),
            places: Vec::new(),
            refused: None,
            warnings: Vec::new(),
            touched: BTreeSet::new(),
        };
        let received = held.pool.streams().receive(&spec, &mut input, &mut watch);
        let Watch { warnings, refused, touched, waiting, renames, .. } = watch;
        held.note_snapshots(touched.iter().map(String::as_str));
        if received.is_err() && !touched.is_empty() {
            // Snapshots before the failure were received: history records by whom.
            engine.log(&held, caller);
        }
        let mut receipt = Receipt { parts: Vec::new(), warnings };
        let mut not_in_place = Vec::new();
        if !self.dry_run {
            // Snapshots before a failure stay, and their file systems are mounted like others.
            let _turn = engine.verbs.lock();
            let before: BTreeSet<String> =
                before.into_iter().map(|name| renames.iter().fold(name, renamed_by)).collect();
            let mut new: Vec<String> =
                held.pool.datasets().names().into_iter().filter(|name| !before.contains(name)).collect();
            held.note_snapshots(new.iter().map(String::as_str));
            if self.no_mount {
                new.clear();
            }
            let mut waiting = waiting;
            if received.is_err() {
                not_in_place = engine.mount_back(&held, std::mem::take(&mut waiting));
                new.retain(|name| !not_in_place.iter().any(|(above, _)| is_at_or_below(name, above)));
            }
            let target = self.target.split('@').next().unwrap_or_default();
            receipt.warnings.extend(match received {
                Ok(_) => engine.mount_all_received(&held, (target, new), waiting),
                Err(_) => engine.mount_these(&held, new.into_iter(), Vec::new()),
            });
        }
        let told = |error| {
            let is_busy = matches!(error, steadfast_pool::Error::Busy { .. });
            let mut refusal = refused.filter(|_| is_busy).unwrap_or_else(|| refuse::receive(error));
            // `zfs receive` has -M instead of -f.
            refusal.action = refusal.action.replace("add -f", "add -M");
            for (_, sentence) in not_in_place {
                refusal.meaning.push(' ');
                refusal.meaning.push_str(&sentence);
            }
            let target = self.target.split('@').next().unwrap_or_default();
            match resume_token(&held, target).filter(|_| self.keep) {
                Some(token) => refusal.with("token", &token),
                None => refusal,
            }
        };
        for one in received.map_err(told)? {
            let part = part_of(&one);
            let snapshot = &part.snapshot;
            for property in one.left_out {
                let what = format!(
                    "the property '{property}' of '{snapshot}' is ignored: this version does not know it, or not its value"
                );
                receipt.warnings.push(Refusal::new(Code::PropUnknown, what).with("property", &property));
            }
            receipt.parts.push(part);
        }
        if !self.dry_run {
            engine.log(&held, caller);
        }
        Ok(receipt)
    }
}

fn part_of(one: &Received) -> ReceivedPart {
    ReceivedPart {
        snapshot: one.snapshot.clone(),
        from: one.from.clone(),
        increment: one.increment,
        bytes: one.bytes,
        nanos: one.nanos,
        there: one.there,
        origin: one.origin.clone(),
    }
}

impl Verb for FsReceiveAbort {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        engine.check_writable(&held)?;
        held.pool.datasets().abort_receive(&self.name).map_err(refuse::pool)?;
        engine.log(&held, caller);
        Ok(touched(&self.name))
    }
}

/// Accompanies a receive: unmounts file systems before they change, reports progress.
struct Watch<'e> {
    engine: &'e Engine,
    held: &'e Arc<ImportedPool>,
    /// Unmount even if files are open, and cut off NBD clients.
    force: bool,
    teller: Descriptor,
    told: u64,
    /// Turn of verbs, held while a dataset changes.
    turn: Option<MutexGuard<'e, ()>>,
    placed: Vec<FormerMount>,
    /// Former mounts that wait for the end of the stream (`receive_mounts.rs`).
    waiting: Vec<FormerMount>,
    /// Old and new names of renamed datasets, in order.
    renames: Vec<(String, String)>,
    /// Paths of mounts of file systems that are destroyed.
    places: Vec<PathBuf>,
    /// Reason why a dataset could not be unmounted.
    refused: Option<Refusal>,
    warnings: Vec<Refusal>,
    /// Changed datasets.
    touched: BTreeSet<String>,
}

impl ReceiveWatch for Watch<'_> {
    fn before(&mut self, dataset: &str) -> steadfast_pool::Result<()> {
        self.turn = Some(self.engine.verbs.lock());
        self.refused = None;
        let parted = match self.force {
            true => self.engine.part_clients(self.held, dataset, true),
            false => Ok(()),
        };
        match parted.and_then(|()| self.engine.leave(self.held, &[dataset.to_owned()], self.force)) {
            Ok(left) => {
                self.placed = left;
                Ok(())
            }
            Err(refusal) => {
                self.turn = None;
                self.refused = Some(refusal);
                Err(steadfast_pool::Error::Busy { name: dataset.to_owned() })
            }
        }
    }

    fn after(&mut self, _: &str) {
        let placed = std::mem::take(&mut self.placed);
        self.warnings.extend(self.engine.mount_or_wait(self.held, placed, &mut self.waiting));
        self.turn = None;
    }

    fn around(
        &mut self,
        dataset: &str,
        changes: bool,
        act: &mut dyn FnMut() -> steadfast_pool::Result<()>,
    ) -> steadfast_pool::Result<()> {
        if !changes {
            let turn = self.engine.verbs.lock();
            self.warnings.extend(self.engine.mount_as_read_only(self.held, dataset));
            // Mounts inside of it may lose their folders.
            let mount = self.held.renewable(dataset);
            let mount = mount.filter(|(_, at)| self.held.inner_mounts(at).is_empty());
            // The kernel would write changed pages afterwards. If it cannot, the unmount says so.
            if let Some((served, _)) = mount.filter(|(served, _)| served.settle().is_ok())
                && let Ok((taken, ended)) = self.held.exchange(dataset, &*served, &mut *act)
            {
                self.warnings.extend(ended);
                return taken;
            }
            drop(turn);
        }
        self.before(dataset)?;
        let taken = act();
        self.after(dataset);
        taken
    }

    fn begins(&mut self, one: &Received) {
        self.teller.arrival(Arrival { part: part_of(one), done: false });
    }

    fn arrived(&mut self, one: &Received) {
        self.teller.arrival(Arrival { part: part_of(one), done: true });
    }

    fn received(&mut self, snapshot: &str) {
        self.touched.extend(snapshot.split('@').next().map(str::to_owned));
    }

    fn renamed(&mut self, dataset: &str, to: &str) {
        if dataset != to {
            self.touched.insert(to.to_owned());
            self.waiting.append(&mut self.placed);
            let rename = (dataset.to_owned(), to.to_owned());
            for placed in &mut self.waiting {
                placed.name = renamed_by(std::mem::take(&mut placed.name), &rename);
            }
            self.renames.push(rename);
        }
        self.after(to);
    }

    fn destroying(&mut self, datasets: &[String]) -> steadfast_pool::Result<()> {
        let Some(top) = datasets.last() else { return Ok(()) };
        let places = self.held.places_of(datasets);
        self.before(top)?;
        self.places = places;
        Ok(())
    }

    fn destroyed(&mut self, datasets: &[String]) {
        let there = self.held.pool.datasets().names();
        self.touched.extend(datasets.iter().filter(|name| !there.contains(name)).cloned());
        self.placed.retain(|placed| there.contains(&placed.name));
        self.waiting.retain(|placed| there.contains(&placed.name));
        let places = std::mem::take(&mut self.places);
        if datasets.iter().all(|name| !there.contains(name)) {
            for at in places.iter().filter(|at| self.held.is_inside_ours(at)) {
                unmake(std::slice::from_ref(at));
            }
        }
        datasets.last().into_iter().for_each(|top| self.after(top));
    }

    fn snapshots_changed(&mut self, dataset: &str) {
        self.touched.insert(dataset.to_owned());
    }

    fn not_followed(&mut self, error: steadfast_pool::Error) {
        let is_busy = matches!(error, steadfast_pool::Error::Busy { .. });
        let mut refusal = self.refused.take().filter(|_| is_busy).unwrap_or_else(|| refuse::pool(error));
        refusal.what =
            format!("not all renames and destructions of the sender were repeated: {}", refusal.what);
        self.warnings.push(refusal);
    }

    fn progress(&mut self, snapshot: &str, bytes: u64) {
        let now = self.engine.env.clock.monotonic_ns();
        if now.saturating_sub(self.told) >= TELL_NS {
            self.told = now;
            self.teller.progress(snapshot, bytes, 0);
        }
    }
}

/// Makes encryption, keyformat and keylocation agree with the parent, as for a new file system.
fn key_rules_of(held: &ImportedPool, request: &FsReceive, props: &mut Properties) -> Result<(), Refusal> {
    if request.key.is_none() && !props.contains_key("encryption") {
        return Ok(());
    }
    let name = request.target.split('@').next().unwrap_or(&request.target);
    let above = match request.naming {
        ReceiveNaming::AsGiven => name.rsplit_once('/').map_or(name, |(above, _)| above),
        ReceiveNaming::WithoutPool | ReceiveNaming::LastOnly => name,
    };
    let above = held.pool.datasets().dataset_info(above).map_err(refuse::pool)?;
    key_rules(props, above.encryption_root.as_deref(), request.key.as_ref())
}

/// Name of a dataset after one at or above it got another name.
fn renamed_by(name: String, (from, to): &(String, String)) -> String {
    match is_at_or_below(&name, from) {
        true => format!("{to}{}", &name[from.len()..]),
        false => name,
    }
}

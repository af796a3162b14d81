//! Importing a pool: from labels to uberblock to tail to table to datasets. Reads only, until the
//! first commit.

use crate::devices::l2arc;
use crate::devices::parity::{self, FoundParity};
use crate::devices::spares;
use crate::import::root::{Found, Rooted, Unlocked};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steadfast_anchor::Root;
use steadfast_device::Device;

use steadfast_env::{Env, Job};
use steadfast_format::{AuxClass, Feature, PoolState, ScanKind, ScanState, Txg, Uberblock, object_names};
use steadfast_property::Local;
use zeroize::Zeroizing;

use crate::Pool;
use crate::core::checkpoint::Keeping;
use crate::core::error::{Error, Result};
use crate::core::state::{CommitState, WentBack};
use crate::datasets::table::Table;
use crate::devices::probe::{FoundPool, RootAge};
use crate::import::anchor::{self, AnchorWish};
use crate::import::checkpoint::{Beside, Medium, Seen};
use crate::import::create::Plan;
use crate::log::log_device;
use crate::memory::Memory;

/// A name that a pool gets at its import.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewName {
    /// The name.
    pub name: String,
    /// Only until the export: the devices keep the name that they have (`zpool import -t`).
    pub is_temporary: bool,
}

/// How to import.
pub struct ImportSpec {
    /// Another name for the pool.
    pub new_name: Option<NewName>,
    /// Import although the label says that another host uses it.
    pub force: bool,
    /// Import a destroyed pool.
    pub destroyed: bool,
    /// Change nothing on the devices.
    pub read_only: bool,
    /// Secret for a sealed pool's key, as the operator gave it.
    pub secret: Option<Zeroizing<Vec<u8>>>,
    /// Where the pool's anchor is, and what the operator accepts.
    pub anchor: AnchorWish,
    /// Open what is committed, though a part of what the intent log promised is lost. The
    /// operator's decision.
    pub accept_lost_log: bool,
    /// Take the pool back to its checkpoint: all that was done since is lost. Without the right to
    /// write only look at it.
    pub to_checkpoint: bool,
    /// Name of this host.
    pub host: String,
    /// Memory to use.
    pub memory: Memory,
}

impl Pool {
    /// Imports a pool of which [`scan`](crate::scan()) found the devices. Datasets whose keys are
    /// not loaded stay locked.
    pub fn import(env: &Env, found: FoundPool, spec: &ImportSpec) -> Result<Pool> {
        let devices: Vec<_> = found.devices.iter().map(|found| Arc::clone(&found.handle.device)).collect();
        let (again, mut parity, mut notice) = (found.clone(), None, None);
        let imported = Found::new(env, found, spec).and_then(|found| {
            let unlocked = found.unlock(None)?;
            parity.clone_from(&unlocked.parity);
            let rooted = unlocked.root()?;
            notice.clone_from(&rooted.choice.notice);
            rooted.load()?.go_live(None)
        });
        let claimed = parity.clone();
        let imported = match (imported, parity) {
            // A store has lost what leads to the pool's content: it comes back first.
            (Err(error), Some(Ok(code))) if error.is_of_content() => Found::new(env, again, spec)
                .and_then(|found| found.unlock(Some(code)))
                .and_then(|unlocked| unlocked.recover()?.root()?.load()?.go_live(None))
                .map_err(|_| error),
            // Commits that came to no root may have taken the last room of the file system that
            // holds an image.
            (Err(error), parity) if error.full_device().is_some() => Found::new(env, again, spec)
                .and_then(|found| found.unlock(parity.and_then(std::result::Result::ok)))
                .and_then(|unlocked| unlocked.root()?.load())
                .and_then(|mut loaded| {
                    // The first attempt may have told the register what the operator accepts.
                    loaded.anchored.notice = loaded.anchored.notice.take().or(notice);
                    loaded.go_live(Some(error))
                }),
            (imported, _) => imported,
        };
        if imported.is_err() {
            // A thread that read ahead for it may hold the devices for a moment; they are free for
            // anyone all the same.
            devices.iter().for_each(|device| device.release());
            claimed.iter().flatten().for_each(parity::close);
        }
        imported
    }
}

/// The root whose trees an import opens.
struct Opened {
    root: Uberblock,
    /// It is the checkpoint's, and not the newest.
    is_back: bool,
    /// Segments of another root.
    beside: Option<Beside>,
    /// The checkpoint that the pool goes on having.
    checkpoint: Option<Uberblock>,
}

impl<'a> Rooted<'a> {
    /// Looks at the pool's checkpoint, if it has one, and goes back to it if the operator wants
    /// that: then the trees are those of its root, and all numbers go on behind the newest one.
    fn beside(self) -> Result<(Rooted<'a>, Opened)> {
        let newest = self.choice.root.uberblock.clone();
        let spec = self.unlocked.found.spec;
        let keys = self.unlocked.sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys));
        let medium = Medium {
            env: self.unlocked.found.env,
            config: &self.unlocked.found.pool.config,
            leaves: &self.unlocked.leaves,
            memory: spec.memory,
            keys: keys.as_ref(),
        };
        let here = Seen { tail: self.tail, space: self.space, blockio: self.blockio };
        let found = medium.checkpoint(&here, &newest)?;
        let (seen, opened) = match found {
            None if spec.to_checkpoint => {
                return Err(Error::NoCheckpoint { pool: medium.config.name.clone() });
            }
            None => (here, Opened { root: newest, is_back: false, beside: None, checkpoint: None }),
            Some(root) if spec.to_checkpoint => {
                let (rows, next) = (medium.rows(&here, &newest)?, here.tail.next_segment);
                let mut back = medium.see(&root)?;
                back.tail.next_dataset = back.tail.next_dataset.max(here.tail.next_dataset);
                let beside = Some(Beside::Left(rows, next));
                (back, Opened { root, is_back: true, beside, checkpoint: None })
            }
            Some(root) => {
                let rows = medium.rows(&medium.see(&root)?, &root)?;
                let beside = Some(Beside::Kept(rows));
                (here, Opened { root: newest, is_back: false, beside, checkpoint: Some(root) })
            }
        };
        let Seen { tail, space, blockio } = seen;
        let (unlocked, choice, behind) = (self.unlocked, self.choice, self.behind);
        Ok((Rooted { tail, space, blockio, unlocked, choice, behind }, opened))
    }

    /// Reads the tables, opens the datasets whose keys are there, and replays the log. Writes
    /// nothing.
    fn load(self) -> Result<Loaded<'a>> {
        let (rooted, mut opened) = self.beside()?;
        let Rooted { unlocked, choice, behind, tail, space, blockio } = rooted;
        let Unlocked { found, events, leaves, sealing, parity, restored } = unlocked;
        let Found { env, spec, pool: found, name } = found;
        let (config, root) = (&found.config, &choice.root);
        let uberblock = root.uberblock.clone();
        // Of the newest root unless the pool is taken back, and then of its checkpoint.
        let (meta, old_tail) = (opened.root.meta, opened.root.tail);
        let log = uberblock.log.filter(|_| !opened.is_back);
        let mut logs = log_device::find(env, &events, &found);
        let spares = spares::find(&found, &mut logs.aux);
        let caches = l2arc::find(&found, &mut logs.aux);
        let has_key = sealing.is_some();
        let plan = Plan {
            env: env.clone(),
            guid: config.pool,
            label_name: spec.new_name.as_ref().filter(|new| new.is_temporary).map(|_| config.name.clone()),
            name: name.clone(),
            host: spec.host.clone(),
            created_ns: config.created_ns,
            ashift: config.ashift,
            slot_size: config.slot_size,
            features: config.features.clone(),
            aux: logs.aux,
            anchor: choice.anchor,
            groups: config.groups.clone(),
            leaves,
            events,
            sealing,
            memory: spec.memory,
            read_only: spec.read_only,
            space,
            blockio,
        };
        let state = CommitState {
            tag: root.tag,
            last: Some(uberblock.clone()),
            retiring: false,
            tail: Some(old_tail),
            state: PoolState::Active,
            copied: None,
        };
        let table = Table::new(&name, tail.next_dataset);
        // Behind all that is known by name, so that the next root has a name that is looked for.
        let txg = behind.map_or(uberblock.txg, |(_, txg)| txg.max(uberblock.txg));
        let pool = plan.build(Some(meta), txg, state, table, Local::new(), tail.next_history);
        *pool.zil.log_devices.write() = logs.devices;
        *pool.devices.aux.spares.write() = spares;
        *pool.devices.errors.unproven.lock() = restored;
        *pool.core.identity.known_as.write() = Some(found.guid).filter(|guid| *guid != config.pool);
        pool.bring_tables();
        pool.load_space(&config.name, opened.beside.take())?;
        if let Some(checkpoint) = opened.checkpoint.take() {
            *pool.core.checkpoint.lock() = Keeping::found(checkpoint);
        }
        pool.load_table(&config.name, uberblock.txg)?;
        pool.datasets.update_quotas(None);
        pool.zil.load_held(&config.name, log)?;
        pool.devices.load_scans(&config.name)?;
        pool.begin_without_parted();
        let mut notices = Vec::new();
        if !spec.read_only {
            pool.core.space.set_healing(true);
            let promised = log.is_some() && config.state != PoolState::Exported;
            notices = pool.zil.do_without(&logs.missing, spec.accept_lost_log, promised)?;
        }
        // A key opens datasets.
        pool.bring_roots();
        if let Some(secret) = spec.secret.as_ref().filter(|_| has_key) {
            let root = pool.core.name();
            match pool.datasets.load_key(&root, secret, false) {
                // A change of key was cut off between the root dataset's row and the labels: the
                // old key opens the pool, and the new one its root dataset.
                Err(Error::WrongKey { .. }) => {}
                other => other?,
            }
        }
        let root = Root { uberblock, tag: root.tag };
        pool.open_unlocked()?;
        pool.core.update_limits();
        pool.core.health.committed_ns.store(root.uberblock.time_ns, Ordering::Release);
        if !spec.read_only
            && let Some(head) = log
        {
            // The register knows nothing of a root that the operator accepts. It writes nothing,
            // and what another daemon promises meanwhile moves the register, which can then not be
            // taken over.
            let known = pool.core.anchor().filter(|_| choice.accepted.is_none());
            let vouched = known.and_then(|anchor| anchor.held()).map(|(_, log)| log);
            notices.extend(pool.zil.replay_log(head, root.uberblock.txg, spec.accept_lost_log, vouched)?);
        }
        if opened.is_back && !spec.read_only {
            let (to, from) = (opened.root.txg, root.uberblock.txg);
            pool.core.note_in_history(&format!(
                "the pool was taken back from txg {from} to its checkpoint of txg {to}"
            ));
        }
        if spec.anchor.back.is_some() {
            let (from, to) = (txg, root.uberblock.txg);
            pool.check_objects(to)?;
            let _ = pool.core.health.went_back.set(WentBack { from, to, time_ns: root.uberblock.time_ns });
            let text = format!("the operator took the pool back from txg {from} to txg {to} (import -F)");
            pool.core.note_in_history(&text);
        }
        let anchored = Anchored { path: choice.path, accepted: choice.accepted, notice: choice.notice };
        let returning = logs.returning;
        Ok(Loaded { env, spec, pool, root, behind, anchored, notices, returning, caches, parity })
    }
}

/// How the root came to be the one that is opened.
struct Anchored {
    /// The register's path, for the labels.
    path: String,
    /// A root that the operator accepted in place of the anchored one.
    accepted: Option<Root>,
    /// For the history: what was accepted.
    notice: Option<String>,
}

/// Tables are in memory, datasets open, and the log is replayed.
struct Loaded<'a> {
    env: &'a Env,
    spec: &'a ImportSpec,
    pool: Pool,
    /// The root that is opened.
    root: Root,
    /// The newest root on the stores, if the pool is taken back.
    behind: Option<RootAge>,
    anchored: Anchored,
    /// For the history: what the operator gave up of the log.
    notices: Vec<String>,
    /// Log devices that were gone and are back.
    returning: Vec<u64>,
    caches: Vec<(u64, Option<Arc<dyn Device>>)>,
    /// The parity device.
    parity: Option<FoundParity>,
}

/// Claims the epoch of what this import will write to stores of whole objects; 0 where there is
/// none. Without an anchor, this fences the former writer: it looks for our claim before it
/// calls a commit durable. Commits of others since we read the root begin with the txg
/// behind it, in an epoch from its own on; and if many came, the root itself is gone.
///
/// Of a pool that is taken back the newest root on the stores is looked at in place of the one that
/// is opened: nothing may have come behind that one.
fn claim_epoch(pool: &Pool, root: &Uberblock, behind: Option<RootAge>) -> Result<u64> {
    let core = &pool.core;
    let (before, txg) = behind.unwrap_or((core.space.epoch(), root.txg));
    let anchor = core.anchor();
    let epoch = core.space.claim_epoch(anchor.as_ref().map_or(0, |anchor| anchor.status().epoch))?;
    let Some(epoch) = epoch else { return Ok(0) };
    if anchor.is_none() {
        // All of it is asked for by name, after the claim, and side by side. The root that was
        // read is still there, and none is behind it, nor one of its number in a later epoch:
        // a writer that was fenced may have come later with its last root. And no owner of a
        // later epoch has deleted roots, for then these may be among them [stores.4].
        let next = (before..epoch).map(|other| (other, txg.next()));
        let later = (before + 1..epoch).map(|other| (other, txg));
        let opened = (root.age().0, root.txg);
        let asked: Vec<(u64, Txg)> = [opened].into_iter().chain(next).chain(later).collect();
        let mut found: Vec<_> = asked.iter().map(|_| Ok(false)).collect();
        let mut pruned: Vec<_> = (before + 1..epoch).map(|_| Ok(false)).collect();
        let mut once = Ok(false);
        let mut jobs: Vec<Job<'_>> = vec![Box::new(|| once = core.space.creates_once())];
        for ((epoch, txg), found) in asked.iter().zip(&mut found) {
            jobs.push(Box::new(|| *found = core.space.has_root(*epoch, *txg)));
        }
        for (other, pruned) in (before + 1..epoch).zip(&mut pruned) {
            jobs.push(Box::new(move || *pruned = core.space.is_pruned(other)));
        }
        core.env.tasks.run_waiting(jobs);
        if !once? {
            return Err(Error::Unfenced { pool: core.name() });
        }
        let found = found.into_iter().collect::<std::result::Result<Vec<bool>, _>>()?;
        let pruned = pruned.into_iter().collect::<std::result::Result<Vec<bool>, _>>()?;
        if !found[0] || found[1..].contains(&true) || pruned.contains(&true) {
            return Err(Error::RootMoved { pool: core.name(), txg: root.txg });
        }
    }
    Ok(epoch)
}

impl Pool {
    /// Refuses a root of which the stores lack an object: commits since then may have deleted some.
    fn check_objects(&self, txg: Txg) -> Result<()> {
        let gone = self.core.space.lost_objects()?;
        let Some(first) = gone.first().map(|id| object_names::segment(*id)) else { return Ok(()) };
        Err(Error::RootObjects { pool: self.core.name(), txg, gone: gone.len(), first })
    }
}

impl Loaded<'_> {
    /// Takes the pool over: the register first, then the labels and a first commit. Then its tasks
    /// begin. `lacked_room` is how an attempt before this one ended, for want of room.
    fn go_live(self, lacked_room: Option<Error>) -> Result<Pool> {
        // All that can refuse was looked at: an import that fails shall fence nobody.
        let before = self.pool.core.space.epoch();
        let epoch = match self.spec.read_only {
            true => 0,
            false => claim_epoch(&self.pool, &self.root.uberblock, self.behind)?,
        };
        // A pool that is taken back has rivals: the roots that it leaves behind.
        let is_next = epoch == before + 1 && self.behind.is_none();
        let pool = self.pool;
        // The labels say what is so from now on: where the register is, or that there is none.
        let listed = pool.devices.aux.listed.read().iter().find(|aux| aux.class == AuxClass::Anchor).cloned();
        pool.syncer.unlist_anchor();
        if let Some(anchor) = pool.core.anchor() {
            let Anchored { path, accepted, .. } = &self.anchored;
            let listed = listed.filter(|aux| aux.path == *path);
            pool.devices.aux.listed.write().push(listed.unwrap_or_else(|| anchor::aux(self.env, path)));
            pool.core.features.write().extend(Feature::known(crate::commit::anchor::FEATURE));
            if !self.spec.read_only {
                // Before the first write: the former holder of the pool is fenced.
                let log = |_: &Root| pool.zil.log_found(self.root.uberblock.log);
                anchor.take_over(accepted.clone().map(|root| (root.clone(), log(&root))), epoch)?;
            }
            let held = anchor.held().map(|(root, _)| root);
            let is_anchored = held.as_ref() == Some(&self.root);
            assert!(self.spec.read_only || is_anchored, "what is opened is what is anchored [anchor.3]");
        }
        if let Some(notice) = &self.anchored.notice {
            pool.note_accepted(notice);
        }
        if let Some(error) = lacked_room {
            // An older root is opened: the newer one is what is left if this import fails, too.
            let is_newest = self.behind.is_none() && !self.spec.to_checkpoint;
            if self.spec.read_only || !is_newest || pool.devices.give_back_free() == 0 {
                return Err(error);
            }
        }
        // Before the first write, which it shall cover.
        pool.devices.attach_parity(self.parity)?;
        // On stores of objects the claim is what fences others, and nothing was promised yet: the
        // labels and the first commit, which are round trips, come behind the answer. Unless there
        // may be rivals: then others shall find a root of ours before anybody sees what this host
        // opened [stores.5].
        let is_behind = pool.core.space.is_all_objects()
            && self.returning.is_empty()
            && !self.spec.read_only
            && (is_next || pool.core.anchor().is_some());
        if !self.spec.read_only {
            pool.zil.mend_logs();
            self.notices.iter().for_each(|notice| pool.note_log_given_up(notice));
            pool.syncer.leftovers_due();
            pool.devices.labels_due.mark();
            pool.core.health.changed.note();
            if !is_behind {
                pool.syncer.commit()?;
            }
            pool.forget_checkpoint_feature();
            if pool.zil.take_back_logs(&self.returning) {
                pool.syncer.commit()?;
            }
            pool.forget_parted(|| pool.syncer.commit())?;
            let is_resilvering = pool
                .devices
                .scan_status()
                .is_some_and(|scan| scan.kind == ScanKind::Resilver && scan.state == ScanState::Active);
            if !is_resilvering {
                pool.devices.resilver_if_needed();
            }
            pool.devices.resume_moves();
        }
        // Last: what has a task of its own must not outlive an import that fails.
        pool.devices.begin_caches(self.caches);
        if is_behind {
            pool.syncer.stores.first_is_due(pool.core.env.clock.monotonic_ns());
        }
        let pool = pool.start();
        if is_behind && !pool.core.env.tasks.is_concurrent() {
            // The next step makes it.
            pool.core.txgs.commits.request_sync(pool.core.txgs.gate.open_txg());
        }
        if !self.spec.read_only {
            // The rest is freed when its key is loaded, or by the next receive.
            let _ = pool.datasets.discard_broken_off();
        }
        Ok(pool)
    }
}

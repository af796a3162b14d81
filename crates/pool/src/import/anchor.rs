//! The pool and its anchor: which root is opened, and how an anchor comes and goes. The register
//! itself is the room `steadfast_anchor`; this module decides what its record means for a pool.
//!
//! ## Which root is opened
//! A pool has an anchor if its labels, its newest uberblock, this host's memory or the operator
//! says so; one of them is enough. Then the anchored root A is compared with the newest uberblock N
//! that the devices hold [anchor.3]:
//!
//! | found | meaning | opened |
//! |---|---|---|
//! | N is A | as it should be | A |
//! | N follows A by one and names it as parent | a crash between uberblock and register | A; N was never acknowledged |
//! | N is newer in any other way | somebody committed without this register, or the register was put back | nothing |
//! | N is older, another, or none, and A's tail is there | uberblocks were lost or hidden | A, out of the record |
//! | N is older or another, and A's tail is not there | the devices were put back to an earlier copy | nothing |
//!
//! "Nothing" is a refusal that says which of the two cases it is. `accept_rollback` opens N
//! instead, and notes it in the history.
//!
//! ## How an anchor is added
//! Register, labels, first commit, in this order. A crash after the first leaves a register that no
//! pool names, as if the command had not been given. A crash after the second leaves a register
//! that already holds the newest root, as if the command had succeeded.
//!
//! ## How an anchor is removed
//! One commit whose uberblock names no anchor moves the register for the last time and marks it as
//! retired; then the labels. A crash between: import finds the register retired at the newest root,
//! and finishes.

use crate::Pool;
use std::io;
use std::sync::Arc;

use steadfast_anchor::{Anchor, AnchorRecord, Holding, LogHead, Register, Root, Start, Witness};
use steadfast_crypto::Key;
use steadfast_device::objects::Store;
use steadfast_env::Env;
use steadfast_format::{AuxClass, AuxConfig, Feature, LabelConfig, PoolGuid, Txg};
use steadfast_intent_log::Vouch;
use steadfast_por::parity::Medium;

use crate::commit::anchor::FEATURE;
use crate::core::error::{Error, Result};
use crate::core::events::EventKind;
use crate::devices::probe::{FoundUberblock, RootAge};

/// Where registers, this host's memory of them, and parity devices are: files for the daemon,
/// memory for a test.
pub trait Registers: Send + Sync {
    /// The parity device at a path, for this pool alone.
    ///
    /// # Errors
    /// It cannot be opened, or somebody uses it. Those who have none refuse all.
    fn parity(&self, path: &str) -> io::Result<Box<dyn Medium>> {
        let _ = path;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The store at an address, for tiles of a parity device. Nothing is asked of it.
    ///
    /// # Errors
    /// It cannot be opened. Those who know no stores refuse all.
    fn tiles(&self, address: &str) -> io::Result<Arc<dyn Store>> {
        let _ = address;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The register at a path, which need not exist.
    fn register(&self, path: &str) -> Arc<dyn Register>;
    /// This host's memory of a pool's register.
    fn witness(&self, pool: PoolGuid) -> Option<Arc<dyn Witness>>;
}

/// Options of an anchor, on create and import.
#[derive(Clone, Default)]
pub struct AnchorWish {
    /// Where registers are. Without it a pool that has an anchor is not opened.
    pub registers: Option<Arc<dyn Registers>>,
    /// The register. On create: this pool gets an anchor. On import: here, wherever the labels say
    /// it is.
    pub path: Option<String>,
    /// Import: open what the devices hold, though it is not what the register holds. The operator's
    /// decision.
    pub accept_rollback: bool,
    /// Import: open what the devices hold, though the register is lost; the pool has no anchor
    /// afterwards.
    pub accept_lost: bool,
    /// Import without the right to write: open no root newer than this one (`zpool import -F`).
    /// Blocks of an older root may be overwritten; reading them is then an error.
    pub as_of: Option<Txg>,
    /// Import: go back to an older root (`zpool import -F`).
    pub back: Option<GoBack>,
}

/// The way back to an older root of a pool on stores alone and without an anchor. All objects that
/// it names are looked for before anything is changed. Without the right to write it is only looked
/// at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GoBack {
    /// The newest root, which the operator gives up. If there is a newer one by now, somebody went
    /// on, and the import is refused.
    pub from: RootAge,
    /// The older root.
    pub to: RootAge,
}

impl AnchorWish {
    /// True if a new pool gets an anchor.
    pub(crate) fn is_wanted(&self) -> bool {
        self.path.is_some() && self.registers.is_some()
    }
}

/// Root that import opens, with the anchor to go on with.
pub(crate) struct Choice {
    pub root: FoundUberblock,
    pub anchor: Option<Anchor>,
    /// The register's path, for the labels.
    pub path: String,
    /// A root that the operator accepted in place of the anchored one.
    pub accepted: Option<Root>,
    /// For the history: what was accepted.
    pub notice: Option<String>,
}

impl Choice {
    fn without(root: FoundUberblock, notice: Option<String>) -> Choice {
        Choice { root, anchor: None, path: String::new(), accepted: None, notice }
    }
}

fn found(root: Root) -> FoundUberblock {
    FoundUberblock { uberblock: root.uberblock, tag: root.tag }
}

/// Decides which root of a pool is opened. `readable` says whether a root's commit tail is on the
/// devices.
pub(crate) fn choose(
    env: &Env,
    config: &LabelConfig,
    wish: &AnchorWish,
    key: Option<Key>,
    newest: Option<FoundUberblock>,
    readable: impl Fn(&FoundUberblock) -> bool,
) -> Result<Choice> {
    let pool = config.name.clone();
    let listed = config.aux.iter().find(|aux| aux.class == AuxClass::Anchor);
    let labelled = listed.is_some() || config.features.iter().any(|feature| feature.name == FEATURE);
    let rooted = newest.as_ref().is_some_and(|newest| newest.uberblock.anchor != 0);
    let witness = wish.registers.as_ref().and_then(|registers| registers.witness(config.pool));
    let remembered = witness.as_ref().and_then(|witness| witness.recall());
    let remembered = remembered.and_then(|bytes| AnchorRecord::decode(&bytes[..]).ok());
    let remembered = remembered.is_some_and(|record| record.pool == config.pool);
    let none = || Error::NoUberblock { pool: config.name.clone() };
    if !labelled && !rooted && !remembered && wish.path.is_none() {
        return Ok(Choice::without(newest.ok_or_else(none)?, None));
    }
    let lost = |newest: Option<FoundUberblock>, why: &str| {
        witness.iter().for_each(|witness| _ = witness.forget());
        let newest = newest.ok_or_else(none)?;
        let txg = newest.uberblock.txg;
        let notice = format!("the operator gave up the pool's anchor and accepted txg {txg}: {why}");
        Ok(Choice::without(newest, Some(notice)))
    };
    let path = wish.path.clone().or_else(|| listed.map(|aux| aux.path.clone()));
    let (Some(path), Some(registers)) = (path, &wish.registers) else {
        let who = match (labelled, rooted) {
            (true, _) => "its labels say so, and not where it is",
            (_, true) => "its root says so, and its labels do not: they were changed",
            _ => {
                "this host saw it, and its labels deny it: they were changed, or put back to before it was added"
            }
        };
        return if wish.accept_lost {
            lost(newest, who)
        } else {
            Err(Error::AnchorUnnamed { pool, reason: who })
        };
    };
    let register = registers.register(&path);
    let holding = match Holding::read(&*register, config.pool, key.as_ref()) {
        Ok(holding) => holding,
        Err(error) if wish.accept_lost => return lost(newest, &error.to_string()),
        Err(source) => return Err(Error::AnchorUnusable { pool, source }),
    };
    let record = holding.record();
    let put_back = |newest: &FoundUberblock| Error::PutBack {
        pool: config.name.clone(),
        found: newest.uberblock.txg,
        anchored: record.txg(),
        older_seconds: record.root.time_ns.saturating_sub(newest.uberblock.time_ns) / 1_000_000_000,
    };
    if record.retired {
        let newest = newest.ok_or_else(none)?;
        return match (newest.tag == record.root_tag, labelled || rooted) {
            // The labels were not reached any more.
            (true, _) => {
                witness.iter().for_each(|witness| _ = witness.forget());
                Ok(Choice::without(newest, None))
            }
            (false, true) if wish.accept_rollback => {
                let notice = format!(
                    "the operator accepted a rollback to txg {}, before the anchor was removed at txg {}",
                    newest.uberblock.txg,
                    record.txg()
                );
                witness.iter().for_each(|witness| _ = witness.forget());
                Ok(Choice::without(newest, Some(notice)))
            }
            (false, true) => Err(put_back(&newest)),
            (false, false) => Err(Error::AnchorRetired { pool, register: path }),
        };
    }
    let mut notice = None;
    if let Some(witness) = &witness
        && let Err(source) = holding.check_witness(&*register, &**witness)
    {
        if !wish.accept_rollback {
            return Err(Error::AnchorUnusable { pool, source });
        }
        notice = Some(format!("the operator accepted a register that was put back: {source}"));
    }
    let anchored = holding.root();
    let accept = |newest: FoundUberblock, why: Error| {
        if !wish.accept_rollback {
            return Err(why);
        }
        let notice = format!("the operator accepted txg {}: {why}", newest.uberblock.txg);
        let accepted = Root { uberblock: newest.uberblock.clone(), tag: newest.tag };
        Ok((newest, Some(accepted), Some(notice)))
    };
    let follows = |newest: &FoundUberblock| {
        newest.uberblock.txg == anchored.uberblock.txg.next() && newest.uberblock.parent == anchored.tag
    };
    let (root, accepted, notice) = match newest {
        Some(newest) if newest.tag == anchored.tag => {
            (newest, notice.is_some().then(|| anchored.clone()), notice)
        }
        Some(newest) if follows(&newest) => {
            (found(anchored.clone()), notice.is_some().then(|| anchored.clone()), notice)
        }
        Some(newest) if newest.uberblock.txg > anchored.uberblock.txg => {
            let (anchored, txg) = (anchored.uberblock.txg, newest.uberblock.txg);
            accept(newest, Error::AnchorBehind { pool, register: path.clone(), anchored, found: txg })?
        }
        newest => {
            let held = found(anchored.clone());
            match newest {
                _ if readable(&held) => (held, notice.is_some().then(|| anchored.clone()), notice),
                Some(newest) => {
                    let why = put_back(&newest);
                    accept(newest, why)?
                }
                None => return Err(none()),
            }
        }
    };
    let start = Start::TakeOver(holding);
    let anchor = Anchor::new(env, config.pool, register, witness, key, start);
    Ok(Choice { root, anchor: Some(anchor), path, accepted, notice })
}

/// The register of a pool that is being made, or of one that has none: over what is there, or not,
/// and the epoch of its first record.
pub(crate) fn begin(
    env: &Env,
    pool: PoolGuid,
    wish: &AnchorWish,
    key: Option<Key>,
    (replace, epoch): (bool, u64),
) -> Result<Option<(Anchor, AuxConfig)>> {
    let (Some(path), Some(registers)) = (&wish.path, &wish.registers) else { return Ok(None) };
    let register = registers.register(path);
    register.check_vacant(replace).map_err(steadfast_anchor::Error::from)?;
    let new = Start::New { replace, epoch };
    let anchor = Anchor::new(env, pool, register, registers.witness(pool), key, new);
    Ok(Some((anchor, aux(env, path))))
}

/// The anchor as the labels list it.
pub(crate) fn aux(env: &Env, path: &str) -> AuxConfig {
    AuxConfig::new(AuxClass::Anchor, env.random.nonzero_u64(), path.to_owned())
}

/// The anchor as the intent log sees it.
struct Voucher(Arc<Anchor>);

/// The anchor as voucher of the pool's intent log.
pub(crate) fn voucher(anchor: &Arc<Anchor>) -> Arc<dyn Vouch> {
    Arc::new(Voucher(Arc::clone(anchor)))
}

impl Vouch for Voucher {
    fn is_ours(&self) -> bool {
        self.0.check().is_ok()
    }

    fn vouch(&self, promised: LogHead) -> bool {
        self.0.advance_log(promised).is_ok()
    }

    fn answered(&self) {
        self.0.remember();
    }
}

impl Pool {
    /// Gives the pool an anchor at the path of `wish`. With `dry_run` only says whether it would.
    /// Fails without `force` if the path holds something already. Durable when it returns.
    pub fn add_anchor(&self, wish: &AnchorWish, force: bool, dry_run: bool) -> Result<()> {
        self.core.check_writable()?;
        if let Some(anchor) = self.core.anchor() {
            return Err(Error::AnchorThere { pool: self.core.name(), register: anchor.identity() });
        }
        let key = self.core.sealing.as_ref().map(|sealing| steadfast_anchor::mac_key(sealing.keys.master()));
        let first = (force, self.core.space.epoch().max(1));
        let begun = begin(&self.core.env, self.core.identity.guid, wish, key, first)?;
        let (anchor, aux) = begun.expect("a path and a place for registers are given");
        if dry_run {
            return Ok(());
        }
        {
            // No commit runs meanwhile, and no group is under way: the register begins with the
            // root that is the newest, and with all that was promised behind it.
            let _turn = self.core.sync_turn.lock();
            self.zil.log.paused(|promised| -> Result<()> {
                let (uberblock, tag) = {
                    let state = self.core.commit_state.lock();
                    (state.last.clone().expect("a pool that stands has a root"), state.tag)
                };
                let is_ours = uberblock.log.is_some_and(|head| head.epoch == self.zil.log.epoch());
                let promised = if is_ours { promised } else { LogHead::default() };
                anchor.advance(Root { uberblock, tag }, Some(promised))?;
                let feature = Feature::known(FEATURE).expect("this code knows it");
                self.core.features.write().push(feature);
                self.devices.aux.listed.write().push(aux);
                self.devices.write_labels_or(&[], || self.syncer.unlist_anchor())?;
                let anchor = Arc::new(anchor);
                self.zil.log.set_vouch(Some(voucher(&anchor)));
                *self.core.anchor.write() = Some(anchor);
                Ok(())
            })?;
        }
        self.core.commit_changes()
    }

    /// Lets the pool live without the anchor at this path; the register is marked as retired. From
    /// now on nothing notices if the pool is put back to an earlier copy. Durable when it returns.
    pub fn remove_anchor(&self, path: &str) -> Result<()> {
        let register = self.core.anchor().map(|anchor| anchor.identity());
        if register.as_deref() != Some(path) {
            return Err(Error::NoSuchAnchor { pool: self.name(), path: path.to_owned() });
        }
        self.core.check_writable()?;
        {
            let mut state = self.core.commit_state.lock();
            state.retiring = true;
            self.devices.labels_due.mark();
        }
        self.core.commit_changes()
    }

    /// Notes in history and events what an operator accepted of the log.
    pub(crate) fn note_log_given_up(&self, notice: &str) {
        self.core.events.note(EventKind::LogGivenUp { notice: notice.to_owned() });
        self.core.note_in_history(notice);
    }

    /// Notes in history and events what an operator accepted.
    pub(crate) fn note_accepted(&self, notice: &str) {
        self.core.events.note(EventKind::RootAccepted { notice: notice.to_owned() });
        self.core.note_in_history(notice);
    }
}

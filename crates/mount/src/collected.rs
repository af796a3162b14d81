//! Writes that the kernel collects in its page cache (`writeback_cache`): how long, and how much,
//! it may hold back, so that a killed daemon loses a few seconds and `write(2)` tells of a full
//! pool.
//!
//! ## Theory
//! `write(2)` returns when its bytes are in the kernel's pages. They come later, as WRITE requests
//! that nobody waits for, so a refusal would lose what was accepted. Two properties of the kernel
//! (Linux 6.18) keep the promise:
//!
//! - It holds back at most a *bound* for each mount, which the daemon sets. Before it is reached
//!   the kernel makes writers wait.
//! - It asks for attributes before each `write(2)` (GETATTR with the handle) once their time has
//!   run out, and an error of the answer is the error of `write(2)`.
//!
//! So there are two states. *Ample*: there is room for what the kernel may hold back, in the pool
//! and in each quota that applies; the kernel asks nothing. *Tight*: attributes have no time to
//! live, so the kernel asks before each `write(2)`. The answer is that of an admission of all that
//! the write may take, together with all that was promised before and has not come
//! ([`crate::promised`]).
//!
//! While the pool cannot commit (its host is full, its store is away) the mount is tight too. Pages
//! that the kernel holds by then were accepted, and a program that waits for them (`fsync`,
//! `close`, the start of another program) cannot be killed. So memory takes them beyond its limit
//! ([`Patience::Accepted`]), and new writes wait, or fail, where the kernel asks.
//!
//! ## Invariants
//! [collected.1] In the ample state the mounts of a pool that are in use claim no more space
//!      together than there is, and each holds back no more content than its claim is for, but for
//!      the smallest bound. The state changes while others leave room for four times that.
//! [collected.2] In the tight state the pages of every `write(2)` that was answered with success
//!      are in [`Promised`] until they come or were handed over. An admission counts what they may
//!      take, and waits for room only where nothing is promised, or after all of it came.
//! [collected.3] A promised write is admitted even if others (another mount, a network client) used
//!      up the room meanwhile: into the pool's reserve, past a quota.
//! [collected.4] A page that comes while the pool cannot commit waits for nothing, as long as
//!      memory holds less of such pages than the kernel may hold back.
//! [collected.5] Nothing is held back for longer than [`INTERVAL`] and the time that writing takes.
//!
//! ## The bound
//! A page takes more than its bytes when it comes: a unit more where it is sealed, each copy, and
//! its place in the tree ([`WriteRoom::page`]). So a bound is counted in space, and claimed from
//! the pool ([`Claim`]). A mount claims five eighths of what the others, and the tight state,
//! leave: one alone half of the room for flat pages of 4 KiB, two mounts five thirteenths each. In
//! the tight state it is the smallest bound. The rest is for others until this mount looks again,
//! which is after a quarter of the bound has come, and at least every [`INTERVAL`]. A lower bound
//! makes writers wait until pages have come; until then the claim is that of the bound before. A
//! mount without open files claims nothing.
//!
//! Space that the cleaner has yet to gain counts as room: pages that come wait for it. Quotas have
//! no claims. As several file systems may share one, its bound is a quarter of it.
//!
//! ## Limits
//! A mapping promises nothing: if there is no room for a page that was changed through it,
//! `msync(2)` and `fsync(2)` fail, as on ZFS; ext4 raises SIGBUS at the store. Of a write of
//! io_uring or AIO the size is not known: it counts as one of 1 MiB.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use steadfast_format::Owner;
use steadfast_fuse::{Errno, HeldPages, LogEvent, LogSink, Notifier, Reply, dirty_threshold, may_be_writing};
use steadfast_posix::{Claim, Patience, WriteClaim, WriteRoom};

use crate::promised::{Planned, PlannedFile, Promised};
use crate::snapshots::SnapshotFolders;
use crate::teller::{Content, StillFile, Teller};

/// Time between two hand-overs of all changed pages: that of two commits. So a killed daemon loses
/// two of them at most.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// The same in the tight state, so that what is promised is soon settled.
const INTERVAL_TIGHT: Duration = Duration::from_secs(1);
/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;
/// Smallest bound. With less the kernel passes the bound by as much again.
const BOUND_MIN: u64 = 32 << 20;
/// With less room than this a mount, or an owner, is tight.
const TIGHT_BELOW: u64 = 4 * BOUND_MIN;
/// With so much room it is ample again.
const AMPLE_FROM: u64 = TIGHT_BELOW + 2 * BOUND_MIN;
/// Requests that may wait for pages to be handed over. Others must serve these pages.
const WAITING_MAX: u32 = 8;
/// From an answer to a program until its pages have changed, where its thread cannot be seen.
const UNDER_WAY: Duration = Duration::from_millis(1);
/// Time for pages to come where nobody can wait for them.
const TIME_FOR_PAGES: Duration = Duration::from_millis(200);
/// Longest wait of an unmount for a hand-over.
const PARTING_MAX: Duration = Duration::from_secs(1);

/// Longest wait of a network client for others who have pages handed over.
const CLIENT_PATIENCE: Duration = Duration::from_secs(1);

/// A place among those who wait for pages.
struct Waits<'w>(&'w AtomicU32);

impl Waits<'_> {
    fn of(waiting: &AtomicU32) -> Option<Waits<'_>> {
        let waits = Waits(waiting);
        (waiting.fetch_add(1, Ordering::AcqRel) < WAITING_MAX).then_some(waits)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ways to the kernel.
struct Transport {
    pages: HeldPages,
    notifier: Notifier,
    /// Part of the kernel's dirty memory that the mount may have, in per cent.
    percent: u8,
    log: Option<LogSink>,
}

/// State of one mount's collected writes.
#[derive(Default)]
pub(crate) struct Collected {
    /// Agreed with the kernel.
    is_on: AtomicBool,
    /// Something is tight: the mount or an owner.
    is_tight: AtomicBool,
    level: Mutex<Level>,
    woken: Condvar,
    /// Bytes that came since the last look at the room, and after how many to look again.
    came: AtomicU64,
    look_after: AtomicU64,
    promised: Mutex<Promised>,
    /// Requests that wait for pages.
    waiting: AtomicU32,
    /// Requests of network clients that wait for them.
    clients: AtomicU32,
    /// Held while pages are handed over.
    gate: Mutex<()>,
    /// Tells the kernel what changed behind its back.
    pub(crate) teller: Arc<Teller>,
    transport: OnceLock<Transport>,
}

#[derive(Default)]
struct Level {
    /// The whole mount is tight.
    all: bool,
    /// The pool cannot commit.
    is_halted: bool,
    /// Owners who are tight.
    owners: Vec<Owner>,
    /// Bytes that the kernel may hold back; `None` is what it lets be dirty at all.
    bound: Option<u64>,
    /// The bound that the kernel knows, once it was told one.
    told: Option<Option<u64>>,
    /// The greatest bound that it knew in the interval before this one, and in this one.
    known: [u64; 2],
    /// Space for what it may hold back. [collected.1]
    claim: Option<Claim>,
    /// Bytes that the kernel lets be dirty.
    threshold: Option<u64>,
    /// The keeper has something to do at once.
    is_due: bool,
    /// A file is open that the kernel may hold pages of.
    is_used: bool,
    /// How many were opened so far.
    opens: u64,
    has_ended: bool,
}

/// The bound for so much space of the pool's, a page of which takes `page` bytes, and so much room
/// in quotas. `None` if the kernel's own limit is lower.
fn bound_for(space: u64, page: u64, in_quotas: Option<u64>, threshold: Option<u64>) -> Option<u64> {
    let content = space / page.max(PAGE) * PAGE;
    let bound = in_quotas.map_or(content, |left| content.min(left / 4)).max(BOUND_MIN);
    // Steps, so that it changes seldom.
    let step = (1 << bound.ilog2()) / 8;
    let bound = bound / step * step;
    threshold.is_none_or(|threshold| bound < threshold).then_some(bound)
}

impl Level {
    /// Follows the room. True if something became tight.
    fn follow(&mut self, room: &WriteRoom) -> bool {
        let Some(mut claim) = self.claim.take() else { return self.follow_beside(room, 0) };
        let mut tightens = false;
        // [collected.1]
        claim.choose(|others| {
            tightens = self.follow_beside(room, others);
            let known = self.known[0].max(self.known[1]);
            let most = self.bound.or(self.threshold).unwrap_or(0).max(known);
            if self.is_used { (most / PAGE).saturating_mul(room.page) } else { 0 }
        });
        self.claim = Some(claim);
        tightens
    }

    /// The same where other mounts of the pool claim so much of it.
    fn follow_beside(&mut self, room: &WriteRoom, others: u64) -> bool {
        let limit = |was: bool| if was { AMPLE_FROM } else { TIGHT_BELOW };
        let left = room.pool.saturating_sub(others);
        let all = room.bytes.min(left) < limit(self.all);
        let is_tight = |owner: &Owner, left: u64| left < limit(self.owners.contains(owner));
        let owners: Vec<Owner> = room
            .owners
            .iter()
            .filter(|(owner, left)| is_tight(owner, *left))
            .map(|(owner, _)| *owner)
            .collect();
        // Those who are tight write nothing that is not promised.
        let ample = room.owners.iter().filter(|(owner, _)| !owners.contains(owner)).map(|(_, left)| *left);
        let in_quotas = ample.chain(room.quota).min();
        let tightens = all && !self.all
            || room.is_halted && !self.is_halted
            || owners.iter().any(|owner| !self.owners.contains(owner));
        (self.all, self.is_halted, self.owners) = (all, room.is_halted, owners);
        let space = if all { 0 } else { left.saturating_sub(TIGHT_BELOW) / 8 * 5 };
        self.bound = bound_for(space, room.page, in_quotas, self.threshold);
        tightens
    }

    /// The bound that the kernel knows, in bytes.
    fn told_bytes(&self) -> u64 {
        self.told.map_or(0, |told| told.or(self.threshold).unwrap_or(0))
    }

    fn is_tight(&self) -> bool {
        self.all || self.is_halted || !self.owners.is_empty()
    }
}

impl Collected {
    pub(crate) fn init(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// The kernel collects writes.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// How long pages that come may wait: the kernel lets nobody die who waits for them.
    pub(crate) fn patience(&self) -> Patience {
        Patience::Accepted { most: self.level.lock().threshold.unwrap_or(BOUND_MIN) }
    }

    /// The mount or an owner is tight.
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }

    /// Writes to files of this user and group have to be asked for.
    pub(crate) fn is_tight_for(&self, uid: u32, gid: u32) -> bool {
        if !self.is_tight() {
            return false;
        }
        let level = self.level.lock();
        level.all
            || level.is_halted
            || [Owner::user(uid), Owner::group(gid)].iter().any(|owner| level.owners.contains(owner))
    }

    /// A file was opened that the kernel may hold pages of.
    pub(crate) fn note_opened(&self, room: &WriteRoom, files: impl FnOnce() -> Vec<u64>) {
        let was_used = {
            let mut level = self.level.lock();
            level.opens += 1;
            std::mem::replace(&mut level.is_used, true)
        };
        self.look(room, files);
        if !was_used {
            self.woken.notify_one();
        }
    }

    /// Pages came, to a pool that can commit or not. True if it is time to look at the room.
    pub(crate) fn note_came(&self, bytes: u64, is_halted: bool) -> bool {
        let came = self.came.fetch_add(bytes, Ordering::Relaxed) + bytes;
        came >= self.look_after.load(Ordering::Relaxed) || is_halted && !self.is_tight()
    }

    /// Follows the room. `files`: those that the kernel may hold pages of.
    pub(crate) fn look(&self, room: &WriteRoom, files: impl FnOnce() -> Vec<u64>) {
        self.came.store(0, Ordering::Relaxed);
        let mut level = self.level.lock();
        let tightens = level.follow(room);
        self.look_after.store(level.bound.unwrap_or(u64::MAX).min(room.bytes / 4) / 4, Ordering::Relaxed);
        self.is_tight.store(level.is_tight(), Ordering::Relaxed);
        if tightens || level.told != Some(level.bound) {
            level.is_due = true;
            self.woken.notify_one();
        }
        drop(level);
        if tightens {
            self.let_ask(files());
        }
    }

    /// From now on the kernel asks before it writes to these files: an answer given before has no
    /// time left.
    fn let_ask(&self, files: Vec<u64>) {
        let Some(transport) = self.transport.get() else { return };
        for ino in files {
            transport.notifier.inval_inode(ino, -1, 0).ok();
        }
    }

    /// Promises a write, if `ask` admits it together with all that was promised. `ask` waits for
    /// room only if it is told to. `files`: number and generation of those that the kernel may hold
    /// pages of. `thread`: the writer.
    pub(crate) fn promise(
        &self,
        thread: u32,
        file: &PlannedFile,
        planned: Planned,
        ask: impl Fn(WriteClaim, bool) -> Reply<()>,
        files: impl Fn() -> Vec<(u64, u64)>,
    ) -> Reply<()> {
        let mut waits = false;
        self.promised.lock().end_call(thread);
        loop {
            let (claim, version) = {
                let promised = self.promised.lock();
                waits |= promised.is_empty();
                (promised.claim_with(file, planned), promised.version())
            };
            match ask(claim, waits) {
                Ok(()) => {
                    let mut promised = self.promised.lock();
                    // Others may have been promised something meanwhile.
                    if promised.version() == version {
                        promised.add(thread, file, planned);
                        return Ok(());
                    }
                }
                Err(errno) if waits => return Err(errno),
                // The true cost of pages is known when they come. So nobody waits for room, and
                // nobody is refused, because of what others were promised.
                Err(errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EAGAIN)) => {
                    if !self.hand_over_all(&files) && errno != Errno::EAGAIN {
                        return Err(errno);
                    }
                    waits = true;
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Bytes of a file came. True if they were promised.
    pub(crate) fn came(&self, ino: u64, offset: u64, bytes: u64) -> bool {
        let mut promised = self.promised.lock();
        !promised.is_empty() && promised.take(ino, offset, bytes)
    }

    /// Has the pages of all files handed over, and waits for them. `files`: number and generation
    /// of those that may have some. False if that is not possible now.
    pub(crate) fn hand_over_all(&self, files: impl FnOnce() -> Vec<(u64, u64)>) -> bool {
        let waits = Waits::of(&self.waiting);
        waits.is_some() && self.hand_over(files, None, &self.gate.lock())
    }

    /// The same for one file.
    pub(crate) fn hand_over_one(&self, file: (u64, u64)) -> bool {
        let waits = Waits::of(&self.waiting);
        waits.is_some() && self.hand_over(|| vec![file], Some(file.0), &self.gate.lock())
    }

    /// The same for a network client. Its threads take no place of those who serve the mount, and
    /// wait for others a limited time only.
    pub(crate) fn hand_over_to_client(&self, file: (u64, u64)) -> bool {
        let waits = Waits::of(&self.clients);
        let gate = waits.as_ref().and_then(|_| self.gate.try_lock_for(CLIENT_PATIENCE));
        gate.is_some_and(|gate| self.hand_over(|| vec![file], Some(file.0), &gate))
    }

    fn hand_over(
        &self,
        files: impl FnOnce() -> Vec<(u64, u64)>,
        only: Option<u64>,
        _gate: &MutexGuard<'_, ()>,
    ) -> bool {
        let Some(transport) = self.transport.get() else { return false };
        if self.promised.lock().depart(only, may_be_writing) {
            std::thread::sleep(UNDER_WAY);
        }
        // [promised.2]
        let handed_over = match transport.pages.finish(&files()) {
            // A user's daemon can start them, and give them time.
            Ok(false) => {
                let started = transport.pages.start().is_ok();
                std::thread::sleep(TIME_FOR_PAGES);
                started
            }
            finished => finished.is_ok(),
        };
        if handed_over {
            self.promised.lock().arrive(only);
        }
        handed_over
    }

    /// Has the kernel keep a file still, as [`Teller::keep_still`].
    pub(crate) fn keep_still(&self, file: (u64, u64)) -> Option<StillFile> {
        self.teller.keep_still(&self.transport.get()?.pages, file)
    }

    /// Tells the kernel sizes and times of files, which it takes from nobody but itself. `look` as
    /// for [`Teller::tell`].
    pub(crate) fn tell(&self, files: &[u64], look: impl Fn(u64) -> Option<(Content, bool)> + Sync) {
        if let Some(transport) = self.transport.get() {
            self.teller.tell(&transport.pages, files, look);
        }
    }

    /// Starts the keeper, which hands pages over from time to time. It ends with
    /// [`Collected::end`], or with the mount.
    pub(crate) fn start(
        self: &Arc<Collected>,
        pages: HeldPages,
        notifier: Notifier,
        percent: u8,
        log: Option<LogSink>,
        claim: Claim,
        mount: &Arc<SnapshotFolders>,
    ) -> std::io::Result<()> {
        self.level.lock().claim = Some(claim);
        let _ = self.transport.set(Transport { pages, notifier, percent, log });
        let (keeper, mount) = (Arc::clone(self), Arc::downgrade(mount));
        let thread = std::thread::Builder::new().name("page keeper".into());
        thread.spawn(move || keeper.keep(&mount)).map(drop)
    }

    /// Nothing more is handed over. The caller may unmount.
    pub(crate) fn end(&self) {
        self.level.lock().has_ended = true;
        self.woken.notify_one();
        drop(self.gate.try_lock_for(PARTING_MAX));
    }

    /// Keeps the keeper and the teller from using the mount while `act` runs: a descriptor of its
    /// top folder would make the mount busy.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        let _gates = (self.gate.try_lock_for(PARTING_MAX), self.teller.pause(PARTING_MAX));
        act()
    }

    fn keep(&self, mount: &Weak<SnapshotFolders>) {
        let mut last = Instant::now();
        loop {
            let bound = {
                let mut level = self.level.lock();
                let interval = if level.is_tight() { INTERVAL_TIGHT } else { INTERVAL };
                while !level.has_ended && !level.is_due {
                    let left = interval.saturating_sub(last.elapsed());
                    if !level.is_used {
                        self.woken.wait(&mut level);
                        last = Instant::now();
                    } else if left.is_zero() || self.woken.wait_for(&mut level, left).timed_out() {
                        break;
                    }
                }
                if level.has_ended {
                    return;
                }
                level.is_due = false;
                level.threshold = dirty_threshold();
                (level.told != Some(level.bound)).then_some(level.bound)
            };
            let Some(served) = mount.upgrade() else { return };
            if let Some(bound) = bound {
                self.tell_bound(bound);
            }
            let opens = self.level.lock().opens;
            let (room, files) = {
                let head = served.head.read();
                (head.fs.write_room(), head.may_be_dirty())
            };
            // The mount may end meanwhile.
            drop(served);
            {
                let mut level = self.level.lock();
                // A file may have been opened since.
                level.is_used = !files.is_empty() || level.opens != opens;
            }
            self.look(&room, || files.iter().map(|(ino, _)| *ino).collect());
            if self.is_tight() {
                // An answer that was on its way may have come behind the last such call.
                let ask_for = || self.let_ask(files.iter().map(|(ino, _)| *ino).collect());
                ask_for();
                self.hand_over_all(|| {
                    // Others who hold it wait for the gate, behind somebody who waits to change it.
                    mount.upgrade().map_or_else(Vec::new, |mount| mount.head.read_recursive().may_be_dirty())
                });
                ask_for();
            }
            if last.elapsed() >= INTERVAL || !files.is_empty() && self.is_tight() {
                last = Instant::now();
                let _gate = self.gate.lock();
                if let Some(transport) = self.transport.get()
                    && !self.level.lock().has_ended
                {
                    transport.pages.start().ok();
                    let mut level = self.level.lock();
                    level.known = [level.known[1], level.told_bytes()];
                }
            }
        }
    }

    fn tell_bound(&self, bound: Option<u64>) {
        let Some(transport) = self.transport.get() else { return };
        if let Err(error) = transport.pages.set_bound(bound, transport.percent)
            && let Some(log) = &transport.log
            && self.level.lock().told.is_none()
        {
            log(&LogEvent::DirtyLimitNotSet { message: error.to_string() });
        }
        let mut level = self.level.lock();
        level.told = Some(bound);
        level.known[1] = level.known[1].max(level.told_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_posix::{Claims, WriteTerms};

    const MIB: u64 = 1 << 20;

    fn room(bytes: u64, owners: &[(u32, u64)]) -> WriteRoom {
        let owners = owners.iter().map(|(id, left)| (Owner::user(*id), *left)).collect();
        WriteRoom { bytes, pool: bytes, quota: None, page: PAGE + 1024, owners, is_halted: false }
    }

    #[test]
    fn the_bound_is_below_half_of_the_room_and_the_state_changes_before_it_is_reached() {
        let mut level = Level { threshold: Some(4 << 30), ..Level::default() };
        for mib in (TIGHT_BELOW / MIB..40 << 10).step_by(100) {
            assert!(!level.follow(&room(mib * MIB, &[])), "{mib} MiB");
            let bound = level.bound.unwrap_or(4 << 30);
            assert!(bound <= mib * MIB / 2 && bound >= BOUND_MIN, "{mib} MiB: {bound}");
            assert!(bound >= ((mib * MIB - TIGHT_BELOW) / 2 * 8 / 9).min(4 << 30), "{mib} MiB: {bound}");
        }
        assert_eq!(level.bound, None, "where there is much room the kernel's own limit is lower");
        assert!(level.follow(&room(TIGHT_BELOW - 1, &[])) && level.is_tight());
        assert!(!level.follow(&room(AMPLE_FROM - 1, &[])) && level.is_tight(), "not to and fro");
        assert!(!level.follow(&room(AMPLE_FROM, &[])) && !level.is_tight());
    }

    /// Looks of several mounts of one pool until nothing changes. Gives their bounds, in MiB.
    fn settle(mounts: &mut [Level], room: &WriteRoom) -> Vec<u64> {
        for _ in 0..8 {
            for level in &mut *mounts {
                level.follow(room);
                level.told = Some(level.bound);
                // Two intervals end.
                level.known = [0, level.told_bytes()];
            }
        }
        mounts.iter().map(|level| level.bound.expect("less than the kernel's") / MIB).collect()
    }

    #[test]
    fn mounts_of_one_pool_hold_back_no_more_together_than_there_is_room_for() {
        let claims = Claims::default();
        let mount = || Level {
            threshold: Some(1 << 40),
            is_used: true,
            claim: Some(claims.join()),
            ..Level::default()
        };
        let gib = room(1 << 30, &[]);
        let mut mounts: Vec<Level> = (0..9).map(|_| mount()).collect();
        // Each page takes 5 KiB here.
        assert_eq!(settle(&mut mounts[..1], &gib), [448]);
        for used in 2..=9 {
            let bounds = settle(&mut mounts[..used], &gib);
            let space = bounds.iter().sum::<u64>() * 5 / 4;
            assert!((560..=1024).contains(&space), "{used}: {bounds:?} take {space} MiB");
            assert!(
                bounds.iter().max() <= bounds.iter().min().map(|least| least * 3 / 2).as_ref(),
                "{bounds:?}"
            );
        }
        for level in &mut mounts[1..] {
            level.is_used = false;
            level.follow(&gib);
        }
        assert_eq!(settle(&mut mounts[..1], &gib), [448], "the others are idle");
    }

    #[test]
    fn a_lower_bound_gives_space_to_others_once_pages_have_come() {
        let claims = Claims::default();
        let (claim, mut other) = (Some(claims.join()), claims.join());
        let mut level = Level { threshold: Some(1 << 40), is_used: true, claim, ..Level::default() };
        let mut claimed = || {
            let mut bytes = 0;
            other.choose(|others| {
                bytes = others;
                0
            });
            bytes / MIB
        };
        assert_eq!(
            (settle(std::slice::from_mut(&mut level), &room(1 << 30, &[])), claimed()),
            (vec![448], 560)
        );
        level.follow(&room(512 * MIB, &[]));
        level.told = Some(level.bound);
        assert_eq!((level.bound, claimed()), (Some(192 * MIB), 560), "the kernel may hold as much yet");
        settle(std::slice::from_mut(&mut level), &room(512 * MIB, &[]));
        assert_eq!(claimed(), 240);
        drop(level);
        assert_eq!(claimed(), 0, "the mount is gone");
    }

    #[test]
    fn pages_that_take_more_and_quotas_make_the_bound_lower() {
        let mut level = Level { threshold: Some(1 << 40), ..Level::default() };
        let mut bound = |room: &WriteRoom| {
            level.follow(room);
            level.bound.expect("less than the kernel's") / MIB
        };
        let gib = room(1 << 30, &[]);
        // Sealed, and each block three times.
        assert_eq!(bound(&WriteRoom { page: 25 << 10, ..gib.clone() }), 88);
        assert_eq!(bound(&WriteRoom { quota: Some(512 * MIB), ..gib.clone() }), 128, "others may share it");
        // The cleaner is to gain half of it.
        assert_eq!(bound(&WriteRoom { bytes: 512 * MIB, ..gib }), 448);
    }

    #[test]
    fn an_owner_without_room_does_not_hold_up_others() {
        let mut level = Level::default();
        assert!(level.follow(&room(64 << 30, &[(7, MIB), (8, 1 << 30)])));
        assert_eq!((level.all, level.owners.as_slice()), (false, &[Owner::user(7)][..]));
        assert_eq!(level.bound, Some(256 * MIB), "that of the other owner");
        assert!(!level.follow(&room(64 << 30, &[(7, MIB), (8, 1 << 30)])), "known");
        assert!(level.follow(&room(64 << 30, &[(7, MIB), (8, MIB)])));
        assert!(!level.follow(&room(64 << 30, &[])) && !level.is_tight(), "the quotas are gone");
    }

    #[test]
    fn a_pool_that_cannot_commit_is_asked_before_each_write() {
        let collected = Collected::default();
        let halted = |is_halted| WriteRoom { is_halted, ..room(64 << 30, &[]) };
        collected.look(&halted(false), Vec::new);
        assert!(!collected.is_tight() && !collected.note_came(4096, false));
        assert!(collected.note_came(4096, true), "the first page that comes");
        let asked = std::cell::Cell::new(false);
        collected.look(&halted(true), || {
            asked.set(true);
            Vec::new()
        });
        assert!(asked.get() && collected.is_tight_for(7, 7), "attributes have no time left");
        assert!(!collected.note_came(4096, true), "known");
        collected.look(&halted(false), Vec::new);
        assert!(!collected.is_tight_for(7, 7) && !collected.is_tight());
    }

    fn file(ino: u64) -> PlannedFile {
        PlannedFile { ino, size: 0, terms: WriteTerms::flat(128 << 10) }
    }

    #[test]
    fn what_is_promised_counts_until_it_comes() {
        let collected = Collected::default();
        let ask = |claim: WriteClaim, _| if claim.space <= 100 << 10 { Ok(()) } else { Err(Errno::ENOSPC) };
        let promise = |ino, offset, bytes| {
            let planned = Planned { offset: Some(offset), bytes };
            collected.promise(0, &file(ino), planned, ask, Vec::new)
        };
        promise(5, 0, 60_000).unwrap();
        promise(6, 0, 30_000).unwrap();
        assert_eq!(promise(7, 0, 20_000), Err(Errno::ENOSPC));
        assert_eq!(promise(7, 0, 200_000), Err(Errno::ENOSPC));
        promise(6, 0, 4096).expect("a page that was promised");
        assert!(!collected.came(7, 0, 10), "a page of a mapping was not promised");
        assert!(collected.came(5, 0, 60_000) && !collected.came(5, 0, 60_000));
        promise(7, 0, 20_000).unwrap();
    }

    #[test]
    fn a_write_waits_for_room_only_where_nothing_is_promised() {
        let collected = Collected::default();
        let planned = Planned { offset: Some(0), bytes: 1 };
        let ask = |claim: WriteClaim, waits: bool| match (claim.records, waits) {
            (1, true) => Ok(()),
            (_, false) => Err(Errno::EAGAIN),
            (_, true) => Err(Errno::ENOSPC),
        };
        collected.promise(1, &file(5), planned, ask, Vec::new).unwrap();
        let refused = collected.promise(2, &file(6), planned, ask, Vec::new);
        assert_eq!(refused, Err(Errno::ENOSPC), "pages could not be handed over, so it waited");
    }
}

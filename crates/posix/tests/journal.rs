//! The calls of the file system to its journal, with a journal that is a script.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::support::World;
use steadfast_dataset::{Answer, Dataset, Drafted, Durable, Inode, Journal, JournalMode, Settings};
use steadfast_env::Env;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::{InodeId, LogRecord};

/// How long somebody is waited for who is not to wait: only a test that fails takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// While it makes something durable, an operator takes it away from its dataset.
#[derive(Default)]
struct TakenAway {
    dataset: OnceLock<Arc<Dataset>>,
    /// He was not kept waiting.
    is_gone: AtomicBool,
}

impl Journal for TakenAway {
    fn make_durable(&self, _: &Dataset, _: &Arc<Inode>, _: Duration, _: &dyn Fn() -> bool) -> Durable {
        let dataset = Arc::clone(self.dataset.get().expect("the test sets it"));
        let (tell, hear) = channel();
        std::thread::spawn(move || {
            dataset.set_journal(None, JournalMode::Off);
            // The waiter is gone already if it waited in vain.
            tell.send(()).ok();
        });
        self.is_gone.store(hear.recv_timeout(PATIENCE).is_ok(), Ordering::Relaxed);
        Durable::Yes
    }

    fn log_pending(&self, _: &Dataset) -> Durable {
        Durable::CommitInstead
    }

    fn make_durable_later(&self, dataset: &Dataset, inode: &Arc<Inode>, answer: Answer) {
        answer(self.make_durable(dataset, inode, PATIENCE, &|| true));
    }
}

#[test]
fn the_journal_can_be_changed_while_somebody_waits_for_it() {
    for later in [false, true] {
        let world = World::new(Env::seeded(1), Settings::default());
        let journal = Arc::new(TakenAway::default());
        assert!(journal.dataset.set(Arc::clone(world.fs.dataset())).is_ok());
        world.fs.dataset().set_journal(Some(Arc::clone(&journal) as _), JournalMode::Ordered);
        let file = world.file("f");
        if later {
            let (tell, hear) = channel();
            world.fs.fsync_later(file, move |durable| tell.send(durable).expect("heard"));
            assert_eq!(hear.recv().expect("answered"), Ok(()));
        } else {
            assert_eq!(world.fs.fsync(file), Ok(()));
        }
        assert!(journal.is_gone.load(Ordering::Relaxed), "later: {later}");
        assert_eq!(world.fs.dataset().journal_mode(), JournalMode::Off);
    }
}

#[test]
fn what_was_done_before_a_journal_came_is_not_said_to_be_in_it() {
    let mut world = World::new(Env::seeded(1), Settings::default());
    let file = world.file("f");
    let dataset = Arc::clone(world.fs.dataset());
    let asked = [dataset.inode(InodeId(file)).expect("there")];
    let draft = || dataset.draft(Some(&asked), 1 << 20).expect("readable");
    // The call that installs it is held at the gate when others see the journal already.
    let brings = world.txgs.gate.still(|_| {
        let (to, journal) = (Arc::clone(&dataset), Arc::new(TakenAway::default()));
        let brings = std::thread::spawn(move || to.set_journal(Some(journal), JournalMode::Ordered));
        while dataset.journal_mode() == JournalMode::Off {
            std::thread::yield_now();
        }
        assert!(matches!(draft(), Drafted::CommitInstead), "nothing was noted of it");
        brings
    });
    brings.join().expect("no panic");
    let drafted = world.txgs.gate.still(|_| draft());
    assert!(matches!(drafted, Drafted::CommitInstead), "until it is committed");
    world.commit();
    world.fs.write(file, 0, b"noted", false).expect("written");
    assert!(matches!(world.txgs.gate.still(|_| draft()), Drafted::Group(_)));
}

#[test]
fn a_file_that_nobody_holds_goes_with_its_name_and_one_that_is_held_becomes_an_orphan() {
    for is_held in [false, true] {
        let mut world = World::new(Env::seeded(1), Settings::default());
        let empty = world.blocks.live();
        let dataset = Arc::clone(world.fs.dataset());
        dataset.set_journal(Some(Arc::new(TakenAway::default())), JournalMode::Ordered);
        let file = world.file("f");
        world.fs.write(file, 0, &[1; 50_000], false).expect("written");
        world.fs.setxattr(file, b"user.a", &[1; 9_000], 0).expect("set");
        world.commit();
        if is_held {
            world.fs.open(file).expect("there");
        }
        world.fs.unlink(1, b"f").expect("there");
        let drafted = world.txgs.gate.still(|_| dataset.draft(None, 1 << 20)).expect("readable");
        let Drafted::Group(draft) = drafted else { panic!("a name went") };
        let records = LogRecord::decode_all(&draft.body, draft.records).expect("just made");
        let orphan = NamesKey::Orphan(InodeId(file)).encode();
        let is_of_orphan = |record: &&LogRecord<'_>| match record {
            LogRecord::Set { key, .. } | LogRecord::Removed { key } => *key == orphan,
            _ => false,
        };
        let is_gone = |record: &LogRecord<'_>| matches!(record, LogRecord::Gone { inode } if inode.0 == file);
        assert_eq!(records.iter().filter(is_of_orphan).count(), usize::from(is_held), "{records:?}");
        assert_eq!(records.iter().any(is_gone), !is_held, "{records:?}");
        if is_held {
            world.fs.release(file);
        }
        world.commit();
        world.check();
        assert_eq!(world.fs.dataset().orphans().expect("listed"), []);
        assert_eq!(world.blocks.live(), empty, "held: {is_held}");
    }
}

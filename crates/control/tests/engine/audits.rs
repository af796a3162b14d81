//! Audits of pools with a parity device, by command and by schedule.

use super::costs::{on_a_folder, set, status};
use super::*;
use std::os::unix::fs::OpenOptionsExt;
use steadfast_control::api::{
    PoolAudit, PoolAuditRecords, PoolRecover, PoolRecovery, PoolReguid, RecoverOutcome, RecoveryState,
    VdevClass, VdevKind, VdevSpec,
};
use steadfast_control::audit_record::{SignedRecord, read_all};

const HOUR: u64 = 3600;
const O_NONBLOCK: i32 = 0o4000;

/// Names of the objects of segments, the largest first.
fn segments(house: &House) -> Vec<std::path::PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![house.folder.join("objects/seg")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => found.push((entry.metadata().unwrap().len(), entry.path())),
            }
        }
    }
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

fn add(house: &House, path: &std::path::Path) -> Result<Outcome, Refusal> {
    let vdevs =
        vec![VdevSpec { class: VdevClass::Parity, kind: VdevKind::Plain, devices: vec![path.to_owned()] }];
    let add = PoolAdd {
        name: "tank".into(),
        vdevs,
        force: false,
        dry_run: false,
        allow_mismatch: false,
        loss_ppm: None,
        tiles: None,
    };
    house.host().call(&caller(), add)
}

/// Recovers, as the command does.
fn recovered(house: &House) -> RecoverOutcome {
    let begun = house
        .host()
        .call(&caller(), PoolRecover { name: "tank".into(), memory: None, rekey: false, loss_ppm: None })
        .unwrap();
    let ended = ended(house);
    assert_eq!(ended.number, begun.number);
    ended.outcome.unwrap_or_else(|| panic!("{:?}", ended.refused))
}

/// The recovery of the pool, once it has ended.
fn ended(house: &House) -> RecoveryState {
    let look = || {
        let look = PoolRecovery { name: "tank".into(), stop: false, patience_ms: 100 };
        house.host().call(&caller(), look).unwrap()
    };
    until("a recovery ends", || !look().running);
    look()
}

/// Waits for a minute at most.
fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

fn audits(house: &House) -> Vec<String> {
    classes(house)
        .into_iter()
        .filter_map(|class| class.split_once("audit_").map(|(_, w)| w.to_owned()))
        .collect()
}

#[test]
fn a_schedule_asks_by_itself_and_says_what_is_lost() {
    let (clock, house) = on_a_folder("audits");
    let audit = |samples| {
        house.host().call(&caller(), PoolAudit { name: "tank".into(), samples, agent: None, files: true })
    };
    assert_eq!(audit(None).unwrap_err().code, Code::ParityNone);
    let path = house.folder.join("parity.img");
    assert_eq!(add(&house, &path).unwrap_err().code, Code::ParityUnusable);
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    assert_eq!(add(&house, &path).unwrap_err().code, Code::ParitySmall);
    file.set_len(128 << 20).unwrap();
    add(&house, &path).unwrap();
    assert_eq!(add(&house, &path).unwrap_err().code, Code::ParityExists);
    // Content that was there before comes in by and by.
    let note = || status(&house).vdevs.into_iter().find(|vdev| vdev.class == VdevClass::Parity).unwrap().note;
    for _ in 0..3_000 {
        if note().is_some_and(|note| note.contains("all covered")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    house.host().audit_by_schedule();
    assert!(audits(&house).is_empty(), "no schedule is set");
    assert_eq!(set(&house, "audit", "yearly").unwrap_err().code, Code::PropValue);
    set(&house, "audit", "hourly").unwrap();
    house.host().audit_by_schedule();
    house.host().audit_by_schedule();
    assert_eq!(audits(&house), ["finish"], "once an hour");

    let lost = segments(&house).remove(0);
    let bytes = std::fs::read(&lost).unwrap();
    std::fs::remove_file(&lost).unwrap();
    let now = clock.wall_seconds.load(Ordering::SeqCst) + HOUR + 1;
    clock.wall_seconds.store(now, Ordering::SeqCst);
    house.host().audit_by_schedule();
    assert_eq!(audits(&house), ["finish", "failure"]);
    assert!(status(&house).messages.iter().any(|message| message.code == Code::AuditFailed));
    let asked = audit(Some(2000)).unwrap();
    assert!(!asked.is_held());
    // Files in these cells are named as it asked. They may come back, so status has none.
    let content = asked.content.unwrap();
    assert!(content.live_cells > 0 && content.unread == 0, "{content:?}");
    assert!(content.spared > 0 || !content.files.is_empty() || !content.metadata.is_empty(), "{content:?}");
    assert!(status(&house).errors.is_empty());
    // Each of the three left a record, of command and of schedule alike.
    let kept = house.host().call(&caller(), PoolAuditRecords { name: "tank".into() }).unwrap();
    let records = read_all(&kept.lines.join("\n"), Some(&kept.key)).unwrap();
    let held: Vec<bool> = records.iter().map(|found| found.record.is_held()).collect();
    assert_eq!(held, [true, false, false]);
    let [first, .., last] = &records[..] else { panic!("{records:?}") };
    assert_eq!((first.record.number, last.record.number), (1, 3));
    assert_eq!(first.record.covered(), Some(1.0));
    assert!(first.record.requests > 0 && first.record.strata.iter().any(|stratum| stratum.part == "tiles"));
    let all = |found: &SignedRecord| found.record.strata.iter().find(|s| s.part == "all").cloned().unwrap();
    assert!(all(first).seed.is_some() && all(first).seed != all(last).seed, "each with a fresh seed");
    assert!(all(first).answers != all(last).answers && all(last).samples == 2000);
    // The last one is in the metrics of the pool.
    let info = house.host().call(&caller(), PoolList::default()).unwrap().remove(0);
    assert!(info.audit.is_some_and(|audit| audit.failed > 0 && audit.samples >= 2000), "{info:?}");
    // A folder that cannot be written makes no audit fail.
    std::fs::remove_dir_all(house.folder.join("run/audits")).unwrap();
    std::fs::write(house.folder.join("run/audits"), b"").unwrap();
    let outcome = audit(Some(10)).unwrap();
    assert!(outcome.record.is_none() && outcome.no_record.is_some(), "{outcome:?}");
    assert!(outcome.covered_bytes > 0 && outcome.covered_bytes == outcome.stored_bytes, "{outcome:?}");
    std::fs::remove_file(house.folder.join("run/audits")).unwrap();
    let recovered = recovered(&house);
    assert!(recovered.lost.is_empty() && recovered.restored.len() == 1, "{recovered:?}");
    assert!(std::fs::read(&lost).unwrap() == bytes, "the same object");
    assert!(status(&house).messages.is_empty());
}

/// [audits.4]
#[test]
fn a_schedule_asks_all_over_the_hour() {
    let (clock, house) = covered("spread");
    set(&house, "audit", "hourly").unwrap();
    assert!(note(&house).contains(", any byte is asked for every 0."), "{}", note(&house));
    house.host().audit_by_schedule();
    assert_eq!(audits(&house), ["finish"], "the first one asks at once");
    let begun = clock.wall_seconds.load(Ordering::SeqCst);
    let at = |minute: u64| {
        clock.wall_seconds.store(begun + 60 * minute, Ordering::SeqCst);
        house.host().audit_by_schedule();
        audits(&house).len()
    };
    let ended = (1..=60).find(|minute| at(*minute) > 1).expect("it ends within the hour");
    assert!(ended > 55, "{ended}");
    let kept = house.host().call(&caller(), PoolAuditRecords { name: "tank".into() }).unwrap();
    let records = read_all(&kept.lines.join("\n"), Some(&kept.key)).unwrap();
    let record = &records.last().unwrap().record;
    assert!(record.is_held() && (record.ended_ns - record.begun_ns) / 60_000_000_000 > 45);
    let of = |part: &str| -> Vec<_> { record.strata.iter().filter(|stratum| stratum.part == part).collect() };
    let all = of("all");
    assert_eq!((all.len(), all.iter().map(|stratum| stratum.samples).sum::<u32>()), (12, 2759));
    assert!(all.iter().all(|stratum| (229..=230).contains(&stratum.samples)));
    let seeds: std::collections::BTreeSet<_> = all.iter().map(|stratum| stratum.seed.clone()).collect();
    assert_eq!(seeds.len(), 12, "each batch has a seed of its own");
    assert_eq!(of("newest").iter().map(|stratum| stratum.samples).sum::<u32>(), 459);
    assert_eq!(of("tiles").iter().map(|stratum| stratum.samples).sum::<u32>(), 2);

    // A loss is told by the batch that finds it, and the next audit begins behind it.
    let begun = clock.wall_seconds.load(Ordering::SeqCst);
    let at = |minute: u64| {
        clock.wall_seconds.store(begun + 60 * minute, Ordering::SeqCst);
        house.host().audit_by_schedule();
        audits(&house).len()
    };
    assert_eq!(at(20), 2);
    let lost = segments(&house).remove(0);
    let bytes = std::fs::read(&lost).unwrap();
    std::fs::remove_file(&lost).unwrap();
    let found = (21..=60).find(|minute| at(*minute) > 2).expect("it is found out");
    assert!(found <= 31, "{found}");
    assert_eq!(audits(&house), ["finish", "finish", "failure"]);
    std::fs::write(&lost, bytes).unwrap();
    // One whose daemon did not run for long asks for all at once.
    assert_eq!(at(60 + 240), 4);
    assert_eq!(audits(&house)[3], "finish");
}

/// A pool on a folder that a code covers, with content.
fn covered(name: &str) -> (Arc<Shown>, House) {
    let (clock, house) = on_a_folder(name);
    let path = house.folder.join("parity.img");
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    add(&house, &path).unwrap();
    let note = || status(&house).vdevs.into_iter().find(|vdev| vdev.class == VdevClass::Parity).unwrap().note;
    for _ in 0..3_000 {
        if note().is_some_and(|note| note.contains("all covered")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (clock, house)
}

/// [audits.3]
#[test]
fn a_schedule_asks_an_agent_and_the_store_if_that_is_silent() {
    let (clock, house) = covered("audit-agents");
    let records = || {
        let kept = house.host().call(&caller(), PoolAuditRecords { name: "tank".into() }).unwrap();
        read_all(&kept.lines.join("\n"), Some(&kept.key)).unwrap()
    };
    let an_hour_later = || {
        let now = clock.wall_seconds.load(Ordering::SeqCst) + HOUR + 1;
        clock.wall_seconds.store(now, Ordering::SeqCst);
        house.host().audit_by_schedule();
    };
    set(&house, "audit", "hourly").unwrap();
    for wrong in ["nowhere", ":7531", "a b:1", "host:0", "host:70000", "[::1:5"] {
        assert_eq!(set(&house, "auditagent", wrong).unwrap_err().code, Code::PropValue, "{wrong}");
    }

    // Nobody listens there: cells are read from the store, and nothing is said to be lost.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    set(&house, "auditagent", &address).unwrap();
    house.host().audit_by_schedule();
    assert_eq!(audits(&house), ["finish"]);
    let is_silent = || classes(&house).iter().filter(|class| class.contains("agent_silent")).count();
    assert_eq!(is_silent(), 1);
    let parts = |record: &SignedRecord| -> Vec<String> {
        record.record.strata.iter().map(|stratum| stratum.part.clone()).collect()
    };
    let first = records().remove(0);
    assert!(first.record.is_held() && parts(&first).contains(&"all".to_owned()), "{first:?}");
    assert!(!parts(&first).contains(&"agent".to_owned()));
    // By command, no audit is made where an agent does not answer, and nothing is said to be lost.
    let asked = PoolAudit { name: "tank".into(), samples: Some(50), agent: Some(address), files: false };
    let refused = house.host().call(&caller(), asked).unwrap_err();
    assert_eq!(refused.code, Code::AgentSilent);
    assert!(refused.what.contains("no answer of the agent at 127.0.0.1:"), "{}", refused.what);
    assert_eq!((audits(&house), records().len()), (vec!["finish".to_owned()], 1));
    assert!(status(&house).messages.iter().all(|message| message.code != Code::AuditFailed));
    assert_eq!(is_silent(), 1);

    // One that answers: one sum, and no cell is read by us.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    set(&house, "auditagent", &listener.local_addr().unwrap().to_string()).unwrap();
    let objects = house.folder.join("objects");
    std::thread::spawn(move || {
        let address = format!("file://{}", objects.display());
        let device = steadfast_control::stores::look(std::path::Path::new(&address)).unwrap();
        let limits = steadfast_control::agent::AGENT;
        steadfast_control::agent::serve(&listener, &*device, limits, &mut |_, _| ())
    });
    an_hour_later();
    let last = records().pop().unwrap();
    assert_eq!(parts(&last), ["agent", "tiles"], "{last:?}");
    assert!(last.record.is_held() && is_silent() == 1);

    // An agent beside a store that lost an object: a failure, and the store is asked.
    std::fs::remove_file(segments(&house).remove(0)).unwrap();
    an_hour_later();
    let last = records().pop().unwrap();
    assert!(!last.record.is_held() && parts(&last).starts_with(&["agent".to_owned(), "all".to_owned()]));
}

/// [recoveries.1] [recoveries.2] [recoveries.3]: the store is held while a recovery reads it.
#[test]
fn a_recovery_runs_beside_other_commands() {
    let (_, house) = covered("recoveries");
    let recover = || {
        house
            .host()
            .call(&caller(), PoolRecover { name: "tank".into(), memory: None, rekey: false, loss_ppm: None })
    };
    let look =
        |stop| house.host().call(&caller(), PoolRecovery { name: "tank".into(), stop, patience_ms: 100 });
    assert_eq!(look(true).unwrap_err().code, Code::RecoveryNone);
    assert_eq!(look(false).unwrap(), RecoveryState::default());

    // An object that is a pipe: who reads it waits until somebody writes.
    let held = segments(&house).remove(0);
    let bytes = std::fs::read(&held).unwrap();
    let pipe = || {
        std::fs::remove_file(&held).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&held).status().unwrap().success());
    };
    let let_go = || {
        // Nobody may ever open it, if the recovery is told to end first.
        let is_read = || {
            let pipe = std::fs::File::options().write(true).custom_flags(O_NONBLOCK).open(&held);
            pipe.is_ok() || !look(false).is_ok_and(|state| state.running)
        };
        until("somebody reads the pipe", is_read);
        let _ = std::fs::remove_file(&held);
    };
    pipe();
    let begun = recover().unwrap();
    assert!(begun.running && begun.number == 1, "{begun:?}");
    assert_eq!(recover().unwrap().number, 1, "another command waits for the same one");
    let note = || {
        let vdevs = status(&house).vdevs;
        vdevs.into_iter().find(|vdev| vdev.class == VdevClass::Parity).and_then(|vdev| vdev.note)
    };
    assert!(note().is_some_and(|note| note.contains("a recovery has looked at")), "{:?}", note());
    // Others get their turn, but for those that change the devices.
    set(&house, "comment", "beside a recovery").unwrap();
    let reguid = PoolReguid { name: "tank".into(), guid: None };
    assert_eq!(house.host().call(&caller(), reguid).unwrap_err().code, Code::RecoveryActive);
    assert!(look(false).unwrap().running);
    let_go();
    let ended_of = ended(&house);
    let outcome = ended_of.outcome.clone().unwrap_or_else(|| panic!("{ended_of:?}"));
    assert!(outcome.lost.is_empty() && outcome.restored.len() == 1, "{outcome:?}");
    assert!(std::fs::read(&held).unwrap() == bytes && note().is_some_and(|note| !note.contains("looked")));

    // One that is told to end ends without an outcome, and the next one begins anew.
    pipe();
    assert_eq!(recover().unwrap().number, 2);
    look(true).unwrap();
    let_go();
    let stopped = ended(&house);
    assert!(stopped.outcome.is_none(), "{stopped:?}");
    assert!(stopped.refused.is_some_and(|refusal| refusal.what.contains("stopped")));
    assert_eq!(recovered(&house).restored.len(), 1);
    assert!(std::fs::read(&held).unwrap() == bytes);

    // An export ends it, and waits for that.
    pipe();
    assert!(recover().unwrap().running);
    std::thread::scope(|scope| {
        let export = PoolExport { name: "tank".into(), force: false };
        let exported = scope.spawn(|| house.host().call(&caller(), export));
        let_go();
        exported.join().unwrap().unwrap();
    });
    assert!(look(false).is_err(), "the pool is exported");
}

/// [recoveries.6]: a recovery is told to end when it has found what only the journal has. Passes
/// wait, status says so, and an import begins the next one.
#[test]
fn a_recovery_that_was_cut_off_goes_on_behind_an_import() {
    let (_, house) = covered("owed");
    let recover = PoolRecover { name: "tank".into(), memory: None, rekey: false, loss_ppm: None };
    let look =
        |stop| house.host().call(&caller(), PoolRecovery { name: "tank".into(), stop, patience_ms: 100 });
    let is_owed = || status(&house).messages.into_iter().find(|message| message.code == Code::RecoveryOwed);
    let objects = segments(&house);
    let (lost, held) = (&objects[1], &objects[0]);
    let bytes = [lost, held].map(|object| std::fs::read(object).unwrap());
    std::fs::remove_file(lost).unwrap();
    std::fs::remove_file(held).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(held).status().unwrap().success());
    house.host().call(&caller(), recover).unwrap();
    let cells = (bytes[1].len() as u64).div_ceil(4096);
    until("all is read but the pipe", || {
        let state = look(false).unwrap();
        state.of > 0 && state.done + cells >= state.of
    });
    assert!(is_owed().is_none(), "it is under way");
    look(true).unwrap();
    until("somebody reads the pipe", || {
        let pipe = std::fs::File::options().write(true).custom_flags(O_NONBLOCK).open(held);
        pipe.is_ok() || !look(false).unwrap().running
    });
    assert!(ended(&house).outcome.is_none());
    std::fs::remove_file(held).unwrap();
    std::fs::write(held, &bytes[1]).unwrap();
    let message = is_owed().expect("status says so");
    assert!(message.what.contains("its journal is "), "{}", message.what);
    house.export("tank", false).unwrap();
    let mut back = house.import_request("tank", None);
    back.search = vec![format!("file://{}", house.folder.join("objects").display()).into()];
    house.host().call(&caller(), back).unwrap();
    assert!(is_owed().is_some() && look(false).unwrap().number == 0);
    house.host().look_after();
    let outcome = ended(&house).outcome.expect("it ended well");
    assert!(outcome.lost.is_empty(), "{outcome:?}");
    assert!(std::fs::read(lost).unwrap() == bytes[0]);
    assert!(is_owed().is_none());
}

/// By command, and by itself where it was begun: the code is made anew behind a recovery.
#[test]
fn a_code_is_made_anew_by_command() {
    let (_, house) = covered("rekeyed");
    let recover = |rekey| {
        let begun = house
            .host()
            .call(&caller(), PoolRecover { name: "tank".into(), memory: None, rekey, loss_ppm: None });
        let ended = ended(&house);
        assert_eq!(ended.number, begun.unwrap().number);
        ended.outcome.unwrap_or_else(|| panic!("{:?}", ended.refused))
    };
    assert!(recover(false).rekeyed.is_none(), "nothing is lost");
    std::fs::remove_file(segments(&house).remove(0)).unwrap();
    let outcome = recover(true);
    assert!(outcome.restored.len() == 1 && outcome.rekey_refused.is_none(), "{outcome:?}");
    let rekeyed = outcome.rekeyed.unwrap();
    assert!(rekeyed.left_out.is_empty() && rekeyed.rounds == 1);
    std::fs::remove_file(segments(&house).remove(0)).unwrap();
    let outcome = recover(false);
    assert!(outcome.restored.len() == 1 && outcome.lost.is_empty() && outcome.rekeyed.is_none());
    assert!(classes(&house).iter().any(|class| class.contains("rekey_finish")));

    // For another loss, which audits and status know from then on.
    let to = |loss_ppm| {
        let wish = PoolRecover { name: "tank".into(), memory: None, rekey: true, loss_ppm: Some(loss_ppm) };
        house.host().call(&caller(), wish)
    };
    let begun = to(40_000).unwrap();
    let ended = ended(&house);
    assert_eq!(ended.number, begun.number);
    assert!(ended.outcome.is_some_and(|outcome| outcome.rekeyed.is_some()));
    assert!(note(&house).contains("up to 4 % may be lost"), "{}", note(&house));
    let audited = house
        .host()
        .call(&caller(), PoolAudit { name: "tank".into(), samples: None, agent: None, files: false })
        .unwrap();
    assert!(audited.is_held() && audited.loss_ppm == 40_000);
    // ln(2^-40) / ln(1 - 0.02)
    assert_eq!(audited.strata[0].samples, 1373);
    std::fs::remove_file(segments(&house).remove(0)).unwrap();
    assert!(recover(false).lost.is_empty());
}

/// A parity device is made for a loss that the operator names.
#[test]
fn a_parity_device_is_made_for_a_loss() {
    let (_, house) = on_a_folder("losses");
    let path = house.folder.join("parity.img");
    std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
    let add = |loss_ppm| {
        let class = VdevClass::Parity;
        let vdevs = vec![VdevSpec { class, kind: VdevKind::Plain, devices: vec![path.clone()] }];
        let name = "tank".into();
        let add = PoolAdd {
            name,
            vdevs,
            force: false,
            dry_run: false,
            allow_mismatch: false,
            loss_ppm,
            tiles: None,
        };
        house.host().call(&caller(), add)
    };
    add(Some(100_000)).unwrap();
    assert!(note(&house).contains("up to 10 % may be lost"), "{}", note(&house));
}

/// `zpool create ... parity PATH`: refused before anything is made, and made with the pool.
#[test]
fn a_pool_is_created_with_its_parity_device() {
    let house = House::new("parity-at-once");
    let folder = |name: &str| {
        std::fs::create_dir_all(house.folder.join(name)).unwrap();
        format!("file://{}", house.folder.join(name).display())
    };
    let path = house.folder.join("parity.img");
    let sized = |bytes| std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    let request = |device: &str| {
        let mut request = house.create_request("tank", "none.img");
        request.vdevs[0].devices = vec![device.into()];
        let class = VdevClass::Parity;
        request.vdevs.push(VdevSpec { class, kind: VdevKind::Plain, devices: vec![path.clone()] });
        request
    };
    let create = |request: &PoolCreate, dry_run| {
        house.create_pool(PoolCreate { dry_run, ..request.clone() }).map(drop).map_err(|refusal| refusal.code)
    };
    let is_empty = |name: &str| std::fs::read_dir(house.folder.join(name)).unwrap().next().is_none();

    // Refusals come before the pool is made, by a dry run, too.
    let on_store = request(&folder("objects"));
    sized(1 << 20);
    let small = house.create_pool(on_store.clone()).unwrap_err();
    assert_eq!(small.code, Code::ParitySmall);
    let needed: u64 = small.fields["needed"].parse().unwrap();
    assert_eq!(create(&on_store, true), Err(Code::ParitySmall));
    let on_file = request(&house.image("disk.img").display().to_string());
    assert_eq!(create(&on_file, true), Err(Code::ParityStores));
    let without =
        PoolCreate { vdevs: on_store.vdevs[..1].to_vec(), loss_ppm: Some(20_000), ..on_store.clone() };
    assert_eq!(create(&without, false), Err(Code::PropCreation));
    let much = PoolCreate { loss_ppm: Some(900_000), ..on_store.clone() };
    assert_eq!(create(&much, false), Err(Code::PropValue));
    assert!(is_empty("objects"), "nothing was made");

    // As large as it was told, and in use at once.
    sized(needed);
    assert_eq!(create(&on_store, true), Ok(()));
    assert!(is_empty("objects"));
    assert_eq!(create(&on_store, false), Ok(()));
    assert!(note(&house).contains("up to 2 % may be lost"), "{}", note(&house));
    house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();

    // It has the header of that pool: as with `zpool add`, -f takes it.
    let wished = PoolCreate {
        loss_ppm: Some(40_000),
        tiles: Some(folder("far")),
        temporary_name: Some("lake".into()),
        ..request(&folder("others"))
    };
    assert_eq!(create(&request(&folder("others")), true), Err(Code::ParityForeign));
    sized(192 << 20);
    assert_eq!(create(&wished, false), Ok(()));
    let pool = house.host().call(&caller(), PoolStatus { names: vec!["lake".into()] }).unwrap().remove(0);
    let parity = pool.vdevs.into_iter().find(|vdev| vdev.class == VdevClass::Parity).unwrap();
    let note = parity.note.unwrap();
    assert!(note.contains("up to 4 % may be lost") && note.contains("/far"), "{note}");
    house.export("lake", false).unwrap();
}

/// `zpool destroy` leaves the tiles for `zpool import -D`, and names their folder.
#[test]
fn tiles_of_a_destroyed_pool_are_named() {
    let (_, house) = on_a_folder("tiles-left");
    let (path, far) = (house.folder.join("parity.img"), house.folder.join("far"));
    std::fs::create_dir(&far).unwrap();
    std::fs::File::create(&path).unwrap().set_len(192 << 20).unwrap();
    let address = format!("file://{}", far.display());
    let add = PoolAdd {
        name: "tank".into(),
        vdevs: vec![VdevSpec { class: VdevClass::Parity, kind: VdevKind::Plain, devices: vec![path] }],
        force: false,
        dry_run: false,
        allow_mismatch: false,
        loss_ppm: None,
        tiles: Some(address.clone()),
    };
    house.host().call(&caller(), add).unwrap();
    let destroyed = house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();
    let left = destroyed.warnings.iter().find(|warning| warning.code == Code::TilesLeft);
    let left = left.unwrap_or_else(|| panic!("{:?}", destroyed.warnings));
    assert!(left.what.contains(&format!("{address}/parity/")), "{left:?}");
    assert!(left.action.contains(&format!("steadfast store clean -f '{address}/parity/")), "{left:?}");
}

/// The note of the parity device in status.
fn note(house: &House) -> String {
    let parity = status(house).vdevs.into_iter().find(|vdev| vdev.class == VdevClass::Parity);
    parity.and_then(|parity| parity.note).unwrap_or_default()
}

/// A pool on image files: a schedule asks each of them, and the outcome is told as of stores.
/// [audits.4]
#[test]
fn a_schedule_samples_files_and_disks() {
    let real = Env::real();
    let clock =
        Arc::new(Shown { real: Arc::clone(&real.clock), wall_seconds: AtomicU64::new(1_800_000_000) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let house = House::within(Env { clock: shown, ..real }, "audit-disks");
    let images = ["a.img", "b.img"].map(|name| house.folder.join(name));
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(128 << 20).unwrap();
    }
    let mut request = house.create_request("tank", "none.img");
    request.vdevs[0] =
        VdevSpec { class: VdevClass::Main, kind: VdevKind::Mirror, devices: images.clone().into() };
    house.create_pool(request).unwrap();
    let audit = |samples, agent| {
        house.host().call(&caller(), PoolAudit { name: "tank".into(), samples, agent, files: true })
    };
    assert_eq!(audit(None, Some("127.0.0.1:1".into())).unwrap_err().code, Code::ParityNone, "no store");
    // All that an empty pool has was written by the last commit, into segments that are open.
    assert!(audit(Some(100), None).unwrap().strata.is_empty());
    (0..20).for_each(|at| _ = house.create_fs(&format!("tank/fs{at}"), &[], None).unwrap());
    let outcome = audit(Some(100), None).unwrap();
    assert!(outcome.is_held() && outcome.by_device && outcome.record.is_none(), "{outcome:?}");
    let samples: Vec<u32> = outcome.strata.iter().map(|stratum| stratum.samples).collect();
    assert_eq!(samples, [100, 100], "{outcome:?}");
    let records = house.host().call(&caller(), PoolAuditRecords { name: "tank".into() });
    assert_eq!(records.unwrap_err().code, Code::AuditUnsigned);
    assert!(status(&house).audit.unwrap().starts_with("200 samples held "), "{:?}", status(&house).audit);

    set(&house, "audit", "hourly").unwrap();
    let begun = clock.wall_seconds.load(Ordering::SeqCst);
    let at = |minute: u64| {
        clock.wall_seconds.store(begun + 60 * minute, Ordering::SeqCst);
        house.host().audit_by_schedule();
        audits(&house).len()
    };
    let before = audits(&house).len();
    let ended = (1..=60).find(|minute| at(*minute) > before).expect("it ends within the hour");
    assert!(ended > 55, "{ended}");
    assert!(status(&house).audit.unwrap().starts_with("5518 samples held "), "{:?}", status(&house).audit);

    // Zeros over one side: the next batch says so, and status is red until the next audit.
    let side = std::fs::OpenOptions::new().write(true).open(&images[1]).unwrap();
    let zeros = vec![0; 1 << 20];
    (1..127_u64).for_each(|mib| std::os::unix::fs::FileExt::write_all_at(&side, &zeros, mib << 20).unwrap());
    let found = (61..=120).find(|minute| at(*minute) > before + 1).expect("it is found out");
    assert!(found <= ended + 12, "{found}");
    assert_eq!(audits(&house).last().unwrap(), "failure");
    let wrong =
        |message: &Refusal| message.code == Code::AuditWrong && message.what.contains(" were not held");
    assert!(status(&house).messages.iter().any(wrong), "{:?}", status(&house).messages);
    let again = audit(None, None).unwrap();
    let bad: Vec<_> = again.strata.iter().filter(|stratum| stratum.held < stratum.samples).collect();
    assert!(bad.iter().all(|stratum| stratum.device.ends_with("b.img")), "{bad:?}");
}

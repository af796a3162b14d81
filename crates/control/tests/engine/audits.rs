//! Audits of pools with a parity device, by command and by schedule.

use super::costs::{on_a_folder, set, status};
use super::*;
use steadfast_control::api::{PoolAudit, PoolRecover, VdevClass, VdevKind, VdevSpec};

const HOUR: u64 = 3600;

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
    let add = PoolAdd { name: "tank".into(), vdevs, force: false, dry_run: false, allow_mismatch: false };
    house.host().call(&caller(), add)
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
    let audit = |samples| house.host().call(&caller(), PoolAudit { name: "tank".into(), samples });
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
    assert!(!audit(Some(2000)).unwrap().is_held());
    let recovered = house.host().call(&caller(), PoolRecover { name: "tank".into() }).unwrap();
    assert!(recovered.lost.is_empty() && recovered.restored.len() == 1, "{recovered:?}");
    assert!(std::fs::read(&lost).unwrap() == bytes, "the same object");
    assert!(status(&house).messages.is_empty());
}

//! Audits of files and disks: samples of what each device stores, read from the device itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{self, ROOT, handles, import, import_spec, key, mount, noise, spec};
use steadfast_device::{Device, MemoryDevice, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::{GroupClass, SegmentId};
use steadfast_pool::{
    AuditReport, CreateSpec, GroupHandles, Pool, Redundancy, ScanRow, ScanState, ScrubCommand, StratumReport,
    scan,
};

const FILES: u64 = 12;
const UNIT: u32 = 4096;
/// So many that no cell of these pools is left out but for one case in 10^5.
const ALL: u32 = 12_000;
/// Files of a pool that is audited whole many times, and as many samples for each of its cells.
const FEW: u64 = 4;
const ALL_OF_FEW: u32 = 4_000;

const SINGLE: (Redundancy, usize) = (Redundancy::None, 2);
const LAYOUTS: [(Redundancy, usize); 4] =
    [SINGLE, (Redundancy::Mirror, 2), (Redundancy::Raidz(1), 3), (Redundancy::Raidz(2), 5)];

fn groups((redundancy, _): (Redundancy, usize), devices: &[Arc<MemoryDevice>]) -> Vec<GroupHandles> {
    match redundancy {
        Redundancy::None => GroupHandles::alone(handles(devices)),
        _ => vec![GroupHandles { redundancy, class: GroupClass::Normal, devices: handles(devices) }],
    }
}

fn empty(env: &Env, layout: (Redundancy, usize)) -> (Vec<Arc<MemoryDevice>>, Pool) {
    let device = |at| Arc::new(MemoryDevice::new(&format!("device {at}"), 64 << 20));
    let devices: Vec<_> = (0..layout.1).map(device).collect();
    let spec = CreateSpec { groups: groups(layout, &devices), ..spec(Vec::new(), None) };
    let pool = Pool::create(env, spec).expect("a pool");
    (devices, pool)
}

fn fill(pool: &Pool, dataset: &str, files: std::ops::Range<u64>) {
    let (fs, handle) = mount(pool, dataset);
    for file in files {
        let name = format!("file{file}");
        let _ = fs.unlink(ROOT, name.as_bytes());
        common::write_file(&fs, ROOT, name.as_bytes(), &noise(file + 1, 300_000));
    }
    drop((fs, handle));
    pool.sync().expect("committed");
}

fn check(pool: &Pool, files: u64) {
    let (fs, handle) = mount(pool, "tank");
    for file in 0..files {
        assert!(common::read_file(&fs, ROOT, format!("file{file}").as_bytes()) == noise(file + 1, 300_000));
    }
    drop((fs, handle));
}

/// A scrub, which closes what is open first.
fn scrub(pool: &Pool) -> ScanRow {
    pool.devices().scrub(ScrubCommand::Start).expect("begun");
    for _ in 0..100_000 {
        if pool.scan_remaining() == [0, 0] {
            let scan = pool.state().scan.expect("there was one");
            assert_eq!(scan.state, ScanState::Finished);
            return scan;
        }
        pool.step();
    }
    panic!("{:?}", pool.state().scan);
}

fn audit(pool: &Pool, samples: u32) -> AuditReport {
    pool.devices().audit(samples).expect("an audit")
}

fn of<'r>(report: &'r AuditReport, device: &str) -> &'r StratumReport {
    report.strata.iter().find(|stratum| stratum.device == device).expect("it was asked")
}

fn bad(report: &AuditReport) -> Vec<(&str, u32)> {
    let failed = report.strata.iter().filter(|stratum| stratum.held < stratum.samples);
    failed.map(|stratum| (&*stratum.device, stratum.samples - stratum.held)).collect()
}

/// A unit of a device between its labels.
fn place(unit: u32) -> SegmentPlace {
    SegmentPlace { segment: SegmentId(1), slot: unit, slot_size: UNIT }
}

fn unit_of(device: &MemoryDevice, unit: u32) -> Vec<u8> {
    let mut bytes = vec![0; UNIT as usize];
    device.read_segment(place(unit), 0, &mut bytes).expect("readable");
    bytes
}

fn units(device: &MemoryDevice) -> std::ops::Range<u32> {
    0..u32::try_from((device.character().size_bytes - (1 << 20)) / u64::from(UNIT)).expect("small")
}

/// Units of a device that hold something.
fn written(device: &MemoryDevice) -> Vec<u32> {
    units(device).filter(|unit| unit_of(device, *unit).iter().any(|byte| *byte != 0)).collect()
}

/// Zeros over some units of a device.
fn wipe(device: &MemoryDevice, units: impl Iterator<Item = u32>) {
    units.for_each(|unit| device.append_segment(place(unit), 0, &[0; UNIT as usize]).expect("written"));
    device.flush().expect("flushed");
}

/// Any unit may be spoilt: an audit with enough samples finds it if a scrub would, names the
/// device, and puts right as much as a scrub would. Units that neither misses are nobody's.
#[test]
fn an_audit_finds_what_a_scrub_would_find() {
    for layout in LAYOUTS {
        let env = Env::simulated(3);
        let (devices, pool) = empty(&env, layout);
        fill(&pool, "tank", 0..FEW);
        scrub(&pool);
        let clean = audit(&pool, ALL_OF_FEW);
        assert!(clean.is_held() && clean.by_device && clean.strata.len() == layout.1, "{clean:?}");
        assert!(clean.strata.iter().all(|stratum| stratum.samples == ALL_OF_FEW), "{clean:?}");
        let (mut found, mut right, mut nobodys) = (0, 0, 0);
        for (at, device) in devices.iter().enumerate() {
            let all = written(device);
            for unit in all.iter().copied().skip(5 + at).step_by(all.len() / 12) {
                let before = unit_of(device, unit);
                let spoilt: Vec<u8> = before.iter().map(|byte| byte ^ 0x55).collect();
                device.append_segment(place(unit), 0, &spoilt).expect("written");
                let report = audit(&pool, ALL_OF_FEW);
                let path = format!("device {at}");
                let what = format!("{layout:?} unit {unit} of {path}: {report:?}");
                if report.is_held() {
                    let scan = scrub(&pool);
                    assert_eq!((scan.repaired, scan.lost), (0, 0), "{what}");
                    nobodys += 1;
                } else {
                    found += 1;
                    // Raidz columns of the pool's own metadata are told by the row.
                    let of_device = of(&report, &path);
                    assert!(of_device.held < of_device.samples, "{what}");
                    let (_, _, reason) = &of_device.failed[0];
                    assert!(reason.starts_with("other bytes than were written; "), "{what}");
                    let counted = |at: usize| pool.state().leaves[at].counts.checksum_errors;
                    assert_eq!(counted(at), 1, "{what}");
                    assert!((0..layout.1).all(|other| other == at || counted(other) == 0), "{what}");
                    if unit_of(device, unit) == before {
                        assert!(reason.ends_with("put right"), "{what}");
                        right += 1;
                    } else {
                        assert_eq!(layout.0, Redundancy::None, "{what}");
                        assert!(reason.ends_with("nothing is there to put it right from"), "{what}");
                        let names: Vec<_> =
                            pool.state().damaged.iter().filter_map(|file| file.path.clone()).collect();
                        assert!(
                            names.len() == 1 && names[0].windows(4).any(|part| part == b"file"),
                            "{what} {names:?}"
                        );
                    }
                }
                if unit_of(device, unit) == spoilt {
                    device.append_segment(place(unit), 0, &before).expect("written");
                }
                pool.clear_errors(&[]);
            }
        }
        assert!(found >= 8 * layout.1 && found > nobodys, "{layout:?}: {found} found, {nobodys} nobody's");
        assert!(layout.0 == Redundancy::None || right == found, "{layout:?}: {right} of {found} put right");
        check(&pool, FEW);
        assert!(audit(&pool, ALL_OF_FEW).is_held());
        pool.export().expect("exported");
    }
}

/// As often as samples of all of a device should, they find a part of it that is bad: with
/// checksums of chunks, and by pointers.
#[test]
fn a_bad_part_is_found_as_often_as_the_formula_says() {
    for layout in [SINGLE, (Redundancy::Raidz(1), 3)] {
        let env = Env::simulated(9);
        let (devices, pool) = empty(&env, layout);
        fill(&pool, "tank", 0..FILES);
        scrub(&pool);
        // Nothing is put right, so that each audit meets the same damage.
        pool.export().expect("exported");
        let all = written(&devices[1]);
        let (first, count) = (all.len() / 3, all.len() / 10);
        wipe(&devices[1], all[first..first + count].iter().copied());
        let (mut pools, _) = scan(handles(&devices));
        let read_only = steadfast_pool::ImportSpec { read_only: true, ..import_spec(None) };
        let pool = Pool::import(&env, pools.remove(0), &read_only).expect("imported");
        let many = audit(&pool, 40_000);
        let told = of(&many, "device 1");
        let part = f64::from(told.samples - told.held) / f64::from(told.samples);
        assert!((0.04..0.16).contains(&part), "{part} of the samples");
        assert!(told.failed[0].2.ends_with("not put right") || layout == SINGLE, "{:?}", told.failed[0]);
        let (audits, samples) = (400, 10);
        let mut missed = 0;
        for _ in 0..audits {
            let report = audit(&pool, samples);
            assert!(bad(&report).iter().all(|(device, _)| *device == "device 1"), "{report:?}");
            missed += u32::from(report.is_held());
        }
        let chance = (1.0 - part).powi(10);
        let (expected, sigma) =
            (f64::from(audits) * chance, (f64::from(audits) * chance * (1.0 - chance)).sqrt());
        assert!(
            (f64::from(missed) - expected).abs() < 4.0 * sigma,
            "{layout:?}: missed {missed}, {expected:.0} ± {sigma:.0} expected"
        );
        pool.export().expect("exported");
    }
}

/// A side of a mirror that holds nothing any more: the other one is held, and reads are served.
#[test]
fn a_wiped_side_of_a_mirror_is_put_right_by_audits_and_a_scrub() {
    let env = Env::simulated(5);
    let (devices, pool) = empty(&env, (Redundancy::Mirror, 2));
    fill(&pool, "tank", 0..FILES);
    pool.export().expect("exported");
    wipe(&devices[1], units(&devices[1]));
    let pool = import(&env, handles(&devices), None).expect("imported");
    let report = audit(&pool, 2759);
    assert_eq!(bad(&report).len(), 1, "{report:?}");
    let told = of(&report, "device 1");
    assert_eq!(of(&report, "device 0").held, 2759);
    // Samples that lie in what was put right already count as wrong: they were read before.
    assert!(told.held < 100 && told.failed[0].2.ends_with("put right"), "{told:?}");
    let counts = |at: usize| pool.state().leaves[at].counts;
    assert!(
        counts(1).checksum_errors > 100
            && counts(1).repaired_bytes > 1 << 20
            && counts(0).checksum_errors == 0
    );
    check(&pool, FILES);
    scrub(&pool);
    assert!(audit(&pool, 2759).is_held());
    pool.export().expect("exported");
}

/// A device that is away is told, and the others are asked. The next root tells of the audit.
#[test]
fn a_device_that_is_away_is_told_and_the_outcome_is_kept() {
    let env = Env::simulated(6);
    let (devices, pool) = empty(&env, (Redundancy::Raidz(1), 3));
    let nothing = audit(&pool, 50);
    assert!(nothing.is_held() && nothing.strata.len() == 3, "{nothing:?}");
    // Most of it is in segments that are still being filled.
    fill(&pool, "tank", 0..FILES);
    let whole = audit(&pool, 300);
    assert!(whole.is_held() && whole.absent.is_empty(), "{whole:?}");
    assert!(whole.coverage.covered as f64 > 0.97 * whole.coverage.stored as f64, "{:?}", whole.coverage);
    assert!(whole.read_bytes < 3 * 300 * (16 << 10) + (1 << 20) && whole.reads < 1200, "{whole:?}");
    pool.export().expect("exported");
    let pool = import(&env, handles(&devices[..2]), None).expect("imported");
    let kept = pool.state().audited.expect("the root tells");
    assert_eq!((kept.samples, kept.failed), (900, 0));
    let report = audit(&pool, 300);
    assert!(report.is_held() && report.strata.len() == 2, "{report:?}");
    assert_eq!(report.absent, ["device 2"]);
    let share = report.coverage.covered as f64 / report.coverage.stored as f64;
    assert!((0.6..0.7).contains(&share), "{share} of what is stored");
    assert_eq!(pool.state().audited.map(|audit| audit.samples), Some(600));
    // The pool's own metadata, too, whose rows lack a column.
    assert!(audit(&pool, ALL).is_held());
    pool.export().expect("exported");
}

/// Content whose key is not loaded is drawn as far as manifests list it, and found bad.
#[test]
fn sealed_content_is_drawn_without_its_key() {
    let env = Env::simulated(7);
    let (devices, pool) = empty(&env, SINGLE);
    pool.datasets().create_dataset("tank/vault", BTreeMap::new(), Some(key(&env, &[4; 32]))).expect("made");
    fill(&pool, "tank/vault", 0..FILES);
    scrub(&pool);
    let open = audit(&pool, 500);
    assert!(open.is_held() && open.locked.is_empty(), "{open:?}");
    pool.datasets().unload_key("tank/vault").expect("unloaded");
    let shut = audit(&pool, 500);
    assert!(shut.is_held(), "{shut:?}");
    assert_eq!(shut.locked, ["tank/vault"]);
    let (with, without) = (open.coverage.covered, shut.coverage.covered);
    assert!(with > FILES * 300_000 && without as f64 > 0.99 * with as f64, "{with} and {without} bytes");
    let all = written(&devices[0]);
    wipe(&devices[0], all[all.len() / 3..all.len() / 2].iter().copied());
    assert_eq!(bad(&audit(&pool, 500)).first().map(|(device, _)| *device), Some("device 0"));
}

/// Beside writers, the cleaner and commits nothing is called wrong that is right.
#[test]
fn beside_changes_nothing_is_wrong() {
    for layout in [SINGLE, (Redundancy::Raidz(1), 3), (Redundancy::Mirror, 2)] {
        let env = Env::real();
        let (_, pool) = empty(&env, layout);
        fill(&pool, "tank", 0..FILES);
        let stop = AtomicBool::new(false);
        let mut samples = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let (fs, handle) = mount(&pool, "tank");
                    for file in 0..40 {
                        let name = format!("churn{}", (round + file) % 60);
                        let _ = fs.unlink(ROOT, name.as_bytes());
                        common::write_file(&fs, ROOT, name.as_bytes(), &noise(round + file, 400_000));
                    }
                    drop((fs, handle));
                    pool.sync().expect("committed");
                    round += 1;
                }
            });
            for _ in 0..40 {
                let report = audit(&pool, 400);
                if !report.is_held() {
                    stop.store(true, Ordering::Relaxed);
                }
                assert!(report.is_held(), "{layout:?}: {report:?}");
                samples += report.strata.iter().map(|stratum| stratum.samples).sum::<u32>();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(samples > 40 * 400, "{samples}");
        assert!(pool.state().leaves.iter().all(|leaf| leaf.counts.checksum_errors == 0));
        check(&pool, FILES);
        pool.export().expect("exported");
    }
}

/// Audits as long as something goes on: as many as fit, and one at least.
fn held_while(pool: &Pool, goes_on: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let audits = scope.spawn(|| {
            loop {
                let report = audit(pool, 200);
                assert!(report.is_held(), "{report:?}");
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        goes_on();
        stop.store(true, Ordering::Relaxed);
        audits.join().expect("each audit is held");
    });
}

/// Waits for a minute at most.
fn until(is_so: impl Fn() -> bool) {
    let ended = (0..6000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_so()
    });
    assert!(ended, "it ends within a minute");
}

/// Samples of segments that move are drawn where these lie: while a device leaves, and while
/// another one is rebuilt in place of one that is gone.
#[test]
fn a_pool_whose_segments_move_is_held() {
    let env = Env::real();
    let (_, pool) = empty(&env, SINGLE);
    fill(&pool, "tank", 0..90);
    held_while(&pool, || {
        pool.devices().remove_groups(&["device 1".to_owned()], false).expect("begun");
        until(|| pool.move_remaining().is_none() && pool.state().leaves.len() == 1);
    });
    let report = audit(&pool, 300);
    assert!(report.is_held() && report.strata.len() == 1, "{report:?}");
    assert!(report.coverage.covered as f64 > 0.97 * report.coverage.stored as f64, "{report:?}");
    check(&pool, FILES);
    pool.export().expect("exported");

    let (devices, pool) = empty(&env, (Redundancy::Raidz(1), 3));
    fill(&pool, "tank", 0..90);
    pool.export().expect("exported");
    let pool = import(&env, handles(&devices[..2]), None).expect("imported");
    let new = Arc::new(MemoryDevice::new("new", 64 << 20));
    held_while(&pool, || {
        pool.replace("device 2", common::handle(&new), false).expect("begun");
        until(|| pool.scan_remaining() == [0, 0] && pool.state().leaves.len() == 3);
    });
    let report = audit(&pool, 300);
    assert!(report.is_held() && report.absent.is_empty(), "{report:?}");
    assert_eq!(of(&report, "new").samples, 300);
    assert!(pool.state().leaves.iter().all(|leaf| leaf.counts.checksum_errors == 0));
    check(&pool, FILES);
    pool.export().expect("exported");
}

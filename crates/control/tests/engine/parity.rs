//! Parity devices that come to pools: what they would write over, and what stays if they fail.

use super::*;
use std::os::unix::fs::FileExt;

/// Creates or adds with this parity device, beside other devices.
struct Wish<'w> {
    parity: &'w Path,
    beside: Vec<VdevSpec>,
    force: bool,
}

impl<'w> Wish<'w> {
    fn of(parity: &'w Path) -> Wish<'w> {
        Wish { parity, beside: Vec::new(), force: false }
    }

    fn vdevs(&self) -> Vec<VdevSpec> {
        let parity = one(VdevClass::Parity, self.parity);
        self.beside.iter().cloned().chain([parity]).collect()
    }

    /// Of the pool `tank`.
    fn add(&self, house: &House, dry_run: bool) -> Result<Outcome, Refusal> {
        let (name, force) = ("tank".into(), self.force);
        let (allow_mismatch, loss_ppm, tiles) = (false, None, None);
        let add = PoolAdd { name, vdevs: self.vdevs(), force, dry_run, allow_mismatch, loss_ppm, tiles };
        house.host().call(&caller(), add)
    }

    /// Of a new pool `lake` on the folder `objects`.
    fn create(&self, house: &House, dry_run: bool) -> Result<Outcome, Refusal> {
        let mut request = house.create_request("lake", "unused.img");
        request.vdevs = vec![one(VdevClass::Main, Path::new(&store(house, "objects")))];
        request.vdevs.extend(self.vdevs());
        house.create_pool(PoolCreate { dry_run, force: self.force, ..request })
    }
}

fn one(class: VdevClass, device: &Path) -> VdevSpec {
    VdevSpec { class, kind: VdevKind::Plain, devices: vec![device.to_owned()] }
}

/// Address of a folder of the house as a store.
fn store(house: &House, folder: &str) -> String {
    let folder = house.folder.join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    format!("file://{}", folder.display())
}

/// A pool `tank` on a folder of its own.
fn tank(house: &House) {
    let mut request = house.create_request("tank", "unused.img");
    request.vdevs = vec![one(VdevClass::Main, Path::new(&store(house, "tank")))];
    house.create_pool(request).unwrap();
}

fn parity_of(house: &House, pool: &str) -> Option<VdevReport> {
    let report = house.host().call(&caller(), PoolStatus { names: vec![pool.into()] }).unwrap().remove(0);
    report.vdevs.into_iter().find(|vdev| vdev.class == VdevClass::Parity)
}

/// A disk keeps its content though it is named as a parity device. A dry run says so.
#[test]
fn a_parity_device_holds_nothing_that_it_would_write_over() {
    let house = House::new("parity-vacant");
    tank(&house);
    let ext4 = house.image("ext4.img");
    File::options().write(true).open(&ext4).unwrap().write_all_at(&[0x53, 0xef], 1080).unwrap();
    house.create_pool(house.create_request("old", "old.img")).unwrap();
    let mut cached = house.create_request("cached", "cached.img");
    cached.vdevs.push(one(VdevClass::Cache, &house.image("cache.img")));
    house.create_pool(cached).unwrap();
    let old = house.image("old.img");
    let refused = |parity: &Path, code: Code, word: &str| {
        let before = std::fs::read(parity).unwrap();
        for dry_run in [true, false] {
            let wish = Wish::of(parity);
            for refused in [wish.create(&house, dry_run), wish.add(&house, dry_run)] {
                let refused = refused.unwrap_err();
                assert_eq!(refused.code, code, "{refused:?}");
                assert!(refused.what.contains(word), "{refused:?}");
            }
        }
        assert!(std::fs::read(parity).unwrap() == before, "it was written over");
    };
    refused(&old, Code::VdevInUse, "the imported pool 'old'");
    for pool in ["old", "cached"] {
        house.export(pool, false).unwrap();
    }
    refused(&ext4, Code::VdevForeign, "holds an ext2, ext3 or ext4 file system");
    refused(&old, Code::VdevForeign, "'old'");
    refused(&house.image("cache.img"), Code::VdevForeign, "'cached'");
    let folder = house.folder.join("objects");
    assert_eq!(Wish::of(&folder).create(&house, true).unwrap_err().code, Code::VdevKind);

    // -f takes both, as it takes them as other devices.
    let forced = |parity| Wish { force: true, ..Wish::of(parity) };
    forced(&ext4).create(&house, true).unwrap();
    forced(&old).add(&house, true).unwrap();
    assert!(parity_of(&house, "tank").is_none());
    forced(&ext4).create(&house, false).unwrap();
    forced(&old).add(&house, false).unwrap();
    assert!(parity_of(&house, "lake").is_some() && parity_of(&house, "tank").is_some());
    let request = PoolImportScan { search: vec![house.folder.clone()], destroyed: false };
    let found = house.host().call(&caller(), request).unwrap();
    assert_eq!(found.iter().map(|pool| &pool.name).collect::<Vec<_>>(), ["cached"], "no label is left");
    assert!(std::fs::read_dir(folder).unwrap().next().is_some());
}

/// The parity device of a pool that is exported, and one whose pool is gone, is no other pool's
/// device by mistake: not at once, when a part of its header is blank still, and not later.
#[test]
fn a_parity_device_becomes_no_other_device_by_mistake() {
    let house = House::new("parity-taken");
    tank(&house);
    let image = house.image("parity.img");
    Wish::of(&image).add(&house, false).unwrap();
    house.export("tank", false).unwrap();
    let create = |class, device: &Path, force| {
        let mut request = house.create_request("other", "other.img");
        match class {
            VdevClass::Main => request.vdevs = vec![one(class, device)],
            _ => request.vdevs.push(one(class, device)),
        }
        house.create_pool(PoolCreate { force, dry_run: force, ..request })
    };
    // Each copy of the header by itself.
    let bytes = std::fs::read(&image).unwrap();
    let blank = [0; 4096];
    for at in [0, 4096] {
        let header =
            [&bytes[..4096], &bytes[4096..8192]].into_iter().find(|copy| copy.starts_with(b"SFparity"));
        let file = File::options().write(true).open(&image).unwrap();
        file.write_all_at(header.expect("one of them"), at).unwrap();
        file.write_all_at(&blank, 4096 - at).unwrap();
        for class in [VdevClass::Main, VdevClass::Log, VdevClass::Cache, VdevClass::Spare] {
            let refused = create(class, &image, false).unwrap_err();
            assert_eq!(refused.code, Code::VdevForeign, "{refused:?}");
            assert!(refused.what.contains("holds the parity of a pool"), "{refused:?}");
            create(class, &image, true).unwrap();
        }
        // Of another parity device the pool tells.
        assert_eq!(Wish::of(&image).create(&house, true).unwrap_err().code, Code::ParityForeign);
    }
}

/// One file is not two devices of a command, whatever its paths, not even with -f.
#[test]
fn a_parity_device_is_no_other_device_of_its_command() {
    let house = House::new("parity-twice");
    tank(&house);
    let (image, alias) = (house.image("log.img"), house.folder.join("alias"));
    std::os::unix::fs::symlink(&image, &alias).unwrap();
    for class in [VdevClass::Log, VdevClass::Cache, VdevClass::Anchor] {
        for (force, dry_run) in [(false, true), (false, false), (true, false)] {
            let wish = Wish { beside: vec![one(class, &image)], force, ..Wish::of(&alias) };
            for refused in [wish.create(&house, dry_run), wish.add(&house, dry_run)] {
                let code = refused.unwrap_err().code;
                // An image is no anchor unless that is forced.
                let is_occupied = class == VdevClass::Anchor && !force && code == Code::VdevForeign;
                assert!(code == Code::VdevTwice || is_occupied, "{class:?}: {code:?}");
            }
        }
    }
    let bytes = std::fs::read(&image).unwrap();
    assert!(bytes.len() == 64 << 20 && bytes.iter().all(|byte| *byte == 0), "nothing was written");
    // While a pool has it as its parity device, it is nobody's else.
    Wish::of(&image).add(&house, false).unwrap();
    for force in [false, true] {
        let wish = Wish { force, ..Wish::of(&alias) };
        assert_eq!(wish.create(&house, false).unwrap_err().code, Code::VdevInUse);
    }
    house.export("tank", false).unwrap();
    let mut back = house.import_request("tank", None);
    back.search = vec![store(&house, "tank").into()];
    house.host().call(&caller(), back).unwrap();
    assert_eq!(parity_of(&house, "tank").unwrap().state, Health::Online);
}

/// A dry run looks for the store of the tiles and for its keys.
#[test]
fn a_dry_run_looks_for_the_store_of_tiles() {
    let house = House::new("parity-dry-tiles");
    tank(&house);
    let (image, far) = (house.folder.join("parity.img"), store(&house, "far"));
    File::create(&image).unwrap().set_len(192 << 20).unwrap();
    let asked = |tiles: &str| {
        let tiles = Some(tiles.to_owned());
        let mut create = house.create_request("lake", "unused.img");
        create.vdevs = vec![one(VdevClass::Main, Path::new(&store(&house, "objects")))];
        create.vdevs.extend(Wish::of(&image).vdevs());
        let create = PoolCreate { dry_run: true, tiles: tiles.clone(), ..create };
        let (name, vdevs, loss_ppm) = ("tank".into(), Wish::of(&image).vdevs(), None);
        let (force, allow_mismatch, dry_run) = (false, false, true);
        let add = PoolAdd { name, vdevs, force, dry_run, allow_mismatch, loss_ppm, tiles };
        [house.create_pool(create), house.host().call(&caller(), add)]
            .map(|outcome| outcome.map(drop).map_err(|refusal| refusal.code))
    };
    assert_eq!(asked(&far), [Ok(()), Ok(())]);
    assert_eq!(asked(&format!("{far}/none")), [Err(Code::StoreFailed); 2]);
    let keys = house.folder.join("none.keys");
    let unknown = format!("s3://bucket/tank?endpoint=http://127.0.0.1:1&credentials={}", keys.display());
    assert_eq!(asked(&unknown), [Err(Code::StoreKeys); 2]);
    assert!(std::fs::read_dir(house.folder.join("far")).unwrap().next().is_none());
}

/// A file that takes no write is found out before -f ends an older pool for it.
#[test]
fn a_parity_device_that_takes_no_write_costs_no_older_pool() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let house = House::new("parity-sealed");
    let mut older = house.create_request("older", "unused.img");
    older.vdevs = vec![one(VdevClass::Main, Path::new(&store(&house, "objects")))];
    house.create_pool(older).unwrap();
    house.export("older", false).unwrap();
    let sealed = File::from(memfd_create("parity", MemfdFlags::ALLOW_SEALING).unwrap());
    sealed.set_len(64 << 20).unwrap();
    fcntl_add_seals(&sealed, SealFlags::WRITE).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&sealed);
    let path = PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id()));
    let refused = Wish { force: true, ..Wish::of(&path) }.create(&house, false).unwrap_err();
    assert_eq!(refused.code, Code::ParityUnusable, "{refused:?}");
    assert!(refused.what.ends_with("; no pool was created; nothing is lost"), "{refused:?}");
    let mut back = house.import_request("older", None);
    back.search = vec![store(&house, "objects").into()];
    house.host().call(&caller(), back).unwrap();
}

//! The medium of a parity device: who has it, and what a command that failed leaves of it.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{MIB, handle};
use crate::covered::{CAPACITY, PATH, TILES, World, fill, parity};
use steadfast_anchor::{Register, Witness};
use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, ObjectDevice, Store, StoreFault};
use steadfast_format::PoolGuid;
use steadfast_pool::{Error, LOSS_PPM, ParityMedium, ParityWish, Pool, Registers, scan};

/// A file, or a disk, that one at a time may use, and that may fail.
struct Claimed {
    file: Mutex<Option<File>>,
    is_claimed: Arc<AtomicBool>,
    /// Writes from here on fail.
    fails_at: u64,
}

impl Claimed {
    fn with<T>(&self, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        self.file.lock().unwrap().as_ref().map_or_else(|| Err(io::Error::other("let go of")), work)
    }
}

impl ParityMedium for Claimed {
    fn size(&self) -> io::Result<u64> {
        self.with(ParityMedium::size)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|file| ParityMedium::read(file, at, out))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if at + bytes.len() as u64 > self.fails_at {
            return Err(io::Error::other("a bad block"));
        }
        self.with(|file| ParityMedium::write(file, at, bytes))
    }

    fn flush(&self) -> io::Result<()> {
        self.with(ParityMedium::flush)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.with(|file| ParityMedium::grow(file, bytes))
    }

    fn release(&self) {
        if self.file.lock().unwrap().take().is_some() {
            self.is_claimed.store(false, Ordering::SeqCst);
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.release();
    }
}

/// The trusted corner of a world whose parity device is one opener's alone.
struct Claims {
    world: World,
    is_claimed: Arc<AtomicBool>,
}

impl Claims {
    fn claim(&self, fails_at: u64) -> io::Result<Box<Claimed>> {
        if self.is_claimed.swap(true, Ordering::SeqCst) {
            return Err(io::Error::other("it is in use"));
        }
        let file = Mutex::new(Some(self.world.corner.0.lock().unwrap()[PATH].try_clone()?));
        Ok(Box::new(Claimed { file, is_claimed: Arc::clone(&self.is_claimed), fails_at }))
    }
}

impl Registers for Claims {
    fn register(&self, path: &str) -> Arc<dyn Register> {
        self.world.corner.register(path)
    }

    fn witness(&self, _: PoolGuid) -> Option<Arc<dyn Witness>> {
        None
    }

    fn parity(&self, _: &str) -> io::Result<Box<dyn ParityMedium>> {
        Ok(self.claim(u64::MAX)?)
    }

    fn tiles(&self, address: &str) -> io::Result<Arc<dyn Store>> {
        self.world.corner.tiles(address)
    }
}

fn imported(claims: &Arc<Claims>, device: &Arc<ObjectDevice>) -> Result<Pool, Error> {
    let found = scan(vec![handle(device)]).0.pop().expect("a pool");
    let mut spec = crate::common::import_spec(None);
    spec.anchor.registers = Some(Arc::clone(claims) as Arc<dyn Registers>);
    Pool::import(&claims.world.env, found, &spec)
}

/// A pool that lets go of its devices lets go of the parity device, whoever still has a hand on the
/// pool: the import behind an export, a failed import or a removal finds it free.
#[test]
fn the_parity_device_is_free_when_its_pool_lets_go_of_it() {
    let claims = Arc::new(Claims { world: World::new(71), is_claimed: Arc::default() });
    let world = &claims.world;
    let first = world.create();
    let add = |pool: &Pool| pool.devices().add_parity(PATH, claims.claim(u64::MAX).unwrap(), true, false);
    add(&first).expect("a parity device");
    fill(&first, 0..2);
    assert!(claims.claim(u64::MAX).is_err(), "it is in use");
    first.export().expect("exported");

    // One that fails behind the claim: the store takes no write.
    let store = Arc::new(
        world.store.handle(|request| (request.operation == Operation::Write).then_some(StoreFault::Fails)),
    );
    let device = Arc::new(ObjectDevice::open(store, Some(CAPACITY), [7; 16]).expect("a store"));
    assert!(imported(&claims, &device).is_err());

    let second = imported(&claims, &world.device(2)).expect("imported");
    assert_eq!(parity(&second).trouble, None, "the first one is still there, and has let go of it");
    second.devices().remove_parity(PATH).expect("removed");
    add(&second).expect("the same device once more");
    drop((first, second));
}

/// `-f` writes over the labels of a pool, but not before the store of the tiles is opened, and each
/// part of the device has been tried.
#[test]
fn a_refused_parity_device_keeps_the_labels_that_it_carries() {
    let claims = Claims { world: World::new(72), is_claimed: Arc::default() };
    let (pool, size) = (claims.world.create(), 192 * MIB);
    claims.world.corner.put(PATH, size);
    let labels = vec![0x5a; usize::try_from(MIB).unwrap()];
    claims.world.corner.write(PATH, &labels, 0);
    claims.world.corner.write(PATH, &labels, size - MIB);
    let before = claims.world.corner.bytes(PATH);
    let store = |address: &str| -> io::Result<Arc<dyn Store>> {
        assert_eq!(address, TILES);
        Err(io::Error::other("no keys"))
    };
    let add = |wish, fails_at| {
        let medium = claims.claim(fails_at).unwrap();
        pool.devices().add_parity_for(wish, PATH, medium, true, false)
    };
    let away = ParityWish { loss_ppm: LOSS_PPM, tiles: Some((TILES, &store)) };
    let error = add(away, u64::MAX).unwrap_err();
    assert!(error.to_string().contains("no keys"), "{error}");
    // At the end, amid the tiles, and amid the journal.
    for fails_at in [size - MIB, size / 2, size / 8] {
        let error = add(ParityWish::of(LOSS_PPM), fails_at).unwrap_err();
        assert!(error.to_string().contains("a bad block"), "{error}");
    }
    assert!(claims.world.corner.bytes(PATH) == before, "nothing is lost");
    let found = MemoryStore::new("tiles");
    let store = |_: &str| Ok(Arc::new(found.handle(|_| None)) as Arc<dyn Store>);
    add(ParityWish { loss_ppm: LOSS_PPM, tiles: Some((TILES, &store)) }, u64::MAX).expect("it is added");
    assert!(claims.world.corner.bytes(PATH) != before);
}

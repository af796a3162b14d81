//! Copies of a device, and several paths to one, at import.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_device::{FileDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_pool::{DeviceHandle, Error, FoundPool, Pool, scan};

use super::common::{MIB, import_spec, spec};

fn open(path: &Path) -> DeviceHandle {
    let device = FileDevice::open(path, &OpenOptions::WRITE).expect("it opens");
    DeviceHandle { path: path.display().to_string(), device: Arc::new(device) }
}

/// The pool on these paths.
fn look(paths: &[&PathBuf]) -> FoundPool {
    let open = |path: &&PathBuf| {
        let device = FileDevice::open(path, &OpenOptions::PEEK).expect("it opens");
        DeviceHandle { path: path.display().to_string(), device: Arc::new(device) }
    };
    let (mut pools, others) = scan(paths.iter().map(open).collect());
    assert_eq!((pools.len(), others.len()), (1, 0));
    pools.remove(0)
}

fn paths(found: &FoundPool) -> Vec<&str> {
    found.devices.iter().map(|device| device.handle.path.as_str()).collect()
}

/// Refused, with both paths in the message.
fn is_refused(found: FoundPool) {
    let both: Vec<String> = paths(&found).iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(both.len(), 2);
    match Pool::import(&Env::real(), found, &import_spec(None)) {
        Err(error @ Error::Copies { .. }) => {
            assert!(both.iter().all(|path| error.to_string().contains(path)), "{error}");
        }
        other => panic!("{:?}", other.map(|_| "imported")),
    }
}

/// Imports what is at one path, and exports it a few commits later.
fn use_it(path: &Path) {
    let (mut pools, _) = scan(vec![open(path)]);
    Pool::import(&Env::real(), pools.remove(0), &import_spec(None))
        .expect("imports")
        .export()
        .expect("exports");
}

#[test]
fn of_copies_the_one_at_the_path_in_its_label_is_imported_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (image, before, behind) = (at("m.img"), at("a.img"), at("z.img"));
    fs::File::create(&image).and_then(|file| file.set_len(64 * MIB)).expect("an image");
    Pool::create(&Env::real(), spec(vec![open(&image)], None)).expect("a pool").export().expect("exports");
    fs::copy(&image, &before).expect("a copy");
    fs::copy(&image, &behind).expect("a copy");
    // The names before and behind it in the alphabet change nothing.
    for order in [[&before, &image, &behind], [&behind, &image, &before], [&image, &before, &behind]] {
        assert_eq!(paths(&look(&order)), [image.to_str().unwrap()]);
    }
    // Two paths to one file are one device.
    fs::hard_link(&image, at("0.img")).expect("a link");
    assert_eq!(paths(&look(&[&at("0.img"), &image])), [image.to_str().unwrap()]);
    assert_eq!(paths(&look(&[&at("0.img"), &before])), [at("0.img").to_str().unwrap()]);
    fs::remove_file(at("0.img")).expect("removed");
    // Nothing lies where the labels say: a copy is not taken for the pool.
    fs::rename(&image, at("moved.img")).expect("moved");
    is_refused(look(&[&before, &at("moved.img")]));
    fs::rename(at("moved.img"), &image).expect("moved");
    // The copy was imported where it is: both lie where their labels say.
    use_it(&behind);
    is_refused(look(&[&image, &behind]));
    // It was moved then. Of it and the old image neither is certain to be meant.
    fs::rename(&behind, &before).expect("moved");
    is_refused(look(&[&image, &before]));
    // One path alone is as the operator says.
    use_it(&image);
    use_it(&before);
}

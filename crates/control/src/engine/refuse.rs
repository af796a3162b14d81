//! The pool's errors as refusals. Each error has its code and its fields; this adds fields and
//! actions that depend on more than its kind.

use crate::refusal::{Code, Refusal, SHOWS_DEVICES};
use steadfast_format::medium;
use steadfast_pool::Error;

/// Action if a group is full.
const GROUP_FULL: &str = "Replace a device of the group with `zpool replace {pool} DEVICE NEW`, or add another group with `zpool add`.";

/// Action if a device is too small for its place.
const PLACE_SMALL: &str =
    "Use a device of at least {needed} bytes; `truncate -s {needed} {device}` enlarges an image file.";

/// Action if a file system that would be replaced has children or snapshots.
const NOT_ALONE: &str = "Receive it under another name, or destroy them first with `zfs destroy -r NAME`.";

/// Action if the paths of all devices do not fit a label.
const PATHS_LONG: &str =
    "Place the devices under shorter paths, for example by a symbolic link to their directory.";

/// Action if the root file system of a pool would be replaced.
const INTO_ROOT: &str = "Add -F to replace the content of the root, if it has no snapshots; or receive it below: `zfs create {pool}/NAME && zfs receive -d -F {pool}/NAME`.";

/// The refusal of an error of a pool during a receive.
pub(super) fn receive(error: Error) -> Refusal {
    let exists = |name: &str| Refusal::new(Code::StreamExists, error.to_string()).with("fs", name);
    match &error {
        Error::HasChildren { name, .. } | Error::HasSnapshots { name, .. } => {
            exists(name).advising(NOT_ALONE)
        }
        Error::RootDataset { name } | Error::DestinationExists { name } if !name.contains('/') => {
            exists(name).advising(INTO_ROOT).with("pool", name)
        }
        _ => pool(error),
    }
}

/// The refusal of an error of the pool of this name.
pub(super) fn of_pool(error: Error, name: &str) -> Refusal {
    pool(error).with("pool", name)
}

/// The refusal of an error of a pool.
pub(super) fn pool(error: Error) -> Refusal {
    if let Some(full) = error.full_device() {
        return with_fields(Refusal::new(Code::HostFull, error.to_string()), full.fields());
    }
    let refusal = Refusal::new(code(error.code()), error.to_string());
    let refusal = match &error {
        Error::GroupSize { devices, most, .. } if devices > most => refusal.advising(GROUP_FULL),
        Error::TooSmall { needed, .. } if *needed > medium::DEVICE_SIZE_MIN => refusal.advising(PLACE_SMALL),
        Error::LabelTooLong { .. } => refusal.advising(PATHS_LONG),
        Error::NoSuchLog { .. } | Error::NoSuchAnchor { .. } => refusal.advising(SHOWS_DEVICES),
        _ => refusal,
    };
    let refusal = with_fields(refusal, error.fields());
    match error {
        Error::TrimActive { what, .. } | Error::TrimNone { what, .. } | Error::TrimOut { what, .. } => {
            refusal.with("word", what.verb())
        }
        Error::MissingDevices { missing, .. } => refusal.with("missing", missing.join(",")),
        Error::HasChildren { children, .. } => refusal.with("children", children.join(",")),
        Error::HasSnapshots { snapshots, .. } => refusal.with("snapshots", snapshots.join(",")),
        Error::HasClones { clones, .. } => refusal.with("clone", clones.join(" ")),
        // `zfs release` takes one tag.
        Error::SnapshotHeld { tags, .. } => refusal.with("tag", tags.first().cloned().unwrap_or_default()),
        Error::KeyNeeded { datasets, .. } => refusal.with("others", datasets.join(" ")),
        Error::FilesystemLimit { .. } => refusal.with("property", "filesystem_limit"),
        Error::SnapshotLimit { .. } => refusal.with("property", "snapshot_limit"),
        _ => refusal,
    }
}

/// The refusal of an error of a device.
pub(crate) fn device(error: &steadfast_device::Error) -> Refusal {
    with_fields(Refusal::new(code(error.code()), error.to_string()), error.fields())
}

/// The code of this text. The test checks that the catalogue has those of all errors.
fn code(text: &str) -> Code {
    Code::parse(text).unwrap_or(Code::Internal)
}

fn with_fields(refusal: Refusal, fields: Vec<(&'static str, String)>) -> Refusal {
    fields.into_iter().fold(refusal, |refusal, (role, text)| refusal.with(role, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_anchor::RegisterError;
    use steadfast_format::{DecodeError, PoolGuid, Txg};

    #[test]
    fn the_catalogue_has_the_codes_of_the_pool() {
        // [error.1]
        let absent: Vec<_> = Error::CODES.iter().filter(|text| Code::parse(text).is_none()).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }

    #[test]
    fn devices_and_anchors_have_several_codes() {
        // [error.1]
        use steadfast_device::Error as Device;
        let device = || "a.img".to_owned();
        let refused = [
            (Device::NotFound { device: device() }, Code::VdevMissing),
            (Device::WrongType { device: device(), found: "", wanted: "" }, Code::VdevKind),
            (Device::Busy { device: device(), holder: None }, Code::VdevInUse),
            (Device::TooSmall { device: device(), size_bytes: 1, min_bytes: 2 }, Code::VdevSmall),
            (Device::Poisoned { device: device() }, Code::VdevIo),
        ];
        for (error, code) in refused {
            let refusal = super::device(&error);
            assert_eq!((refusal.code, refusal.fields["device"].as_str()), (code, "a.img"));
            assert_eq!(pool(error.into()), refusal);
        }

        use steadfast_anchor::Error as Anchor;
        let (register, reason) = (|| "tank.anchor".to_owned(), String::new);
        let refused = [
            (RegisterError::Missing { register: register() }.into(), Code::AnchorMissing),
            (RegisterError::Damaged { register: register(), reason: reason() }.into(), Code::AnchorDamaged),
            (RegisterError::Unfit { register: register(), reason: reason() }.into(), Code::AnchorUnfit),
            (RegisterError::Occupied { register: register(), contents: reason() }.into(), Code::VdevForeign),
            (
                RegisterError::Unreachable { register: register(), reason: reason() }.into(),
                Code::AnchorSilent,
            ),
            (Anchor::Foreign { register: register(), found: PoolGuid(1) }, Code::AnchorForeign),
            (Anchor::Forged { register: register() }, Code::AnchorDamaged),
            (
                Anchor::Undecodable { register: register(), source: DecodeError::Magic { structure: "" } },
                Code::AnchorDamaged,
            ),
            (
                Anchor::Behind { register: register(), seq: 1, txg: Txg(1), seen_seq: 2, seen_txg: Txg(2) },
                Code::AnchorOld,
            ),
            (
                Anchor::Fenced {
                    register: register(),
                    seq: 2,
                    epoch: 2,
                    txg: Txg(2),
                    ours_seq: 1,
                    ours_epoch: 1,
                },
                Code::AnchorFenced,
            ),
        ];
        for (source, code) in refused {
            let error = Error::AnchorUnusable { pool: "tank".to_owned(), source };
            let refusal = pool(error);
            assert_eq!((refusal.code, refusal.fields["pool"].as_str()), (code, "tank"));
        }
    }

    #[test]
    fn advice_names_the_subjects() {
        let error = Error::StillInUse { pool: "tank".to_owned(), path: "/d/a.img".to_owned() };
        let advice = pool(error).advice();
        assert!(advice.starts_with("`zpool replace tank /d/a.img NEW`"), "{advice}");

        let small = |needed| Error::TooSmall { path: "a.img".to_owned(), bytes: 1, needed };
        let advice = |needed| pool(small(needed)).advice();
        assert_eq!(advice(medium::DEVICE_SIZE_MIN), Code::VdevSmall.action().replace("{device}", "a.img"));
        let needed = medium::DEVICE_SIZE_MIN + 1;
        assert!(advice(needed).contains(&format!("`truncate -s {needed} a.img`")), "{}", advice(needed));
    }
}

//! The columns of the engine experiment, and how each is made.

use super::request::EngineRequest;
use crate::context::Context;
use crate::file_systems::{Kind, Recipe};

/// Keys of all columns, in their order. The first that takes part is what ratios refer to.
pub const KEYS: [&str; 8] = ["ext4", "xfs", "btrfs", "gocryptfs", "memfs", "plain", "lz4", "sealed"];

/// Bytes of a device for which mke2fs(8) makes one inode by default.
const INODE_BYTES: u64 = 16 << 10;

/// Files and directories that an arm holds at most at one time, with a tenth to spare.
fn inodes(request: &EngineRequest) -> u64 {
    let sizes = request.sizes();
    let curve = if request.wants("files") { sizes.counts.last().copied().unwrap_or(0) } else { 0 };
    (curve + sizes.files + sizes.sources) / 10 * 11
}

/// All columns that are asked for.
pub(super) fn recipes(request: &EngineRequest, context: &Context) -> Vec<Recipe> {
    let wanted = |key: &&str| request.arms.as_ref().is_none_or(|only| only.iter().any(|name| name == key));
    let image = request.sizes().image;
    KEYS.into_iter().filter(wanted).map(|key| recipe(key, image, request, context)).collect()
}

/// The column with this key, on an image of so many bytes.
pub(super) fn recipe(
    key: &'static str,
    image_bytes: u64,
    request: &EngineRequest,
    context: &Context,
) -> Recipe {
    let beside = |name: &str| context.steadfast.parent().map(|at| at.join("examples").join(name));
    let on_loop = |file_system| Kind::Loop { file_system, words: "-q", options: "" };
    let ours = |words| Kind::Ours { words, property: None };
    let (label, kind) = match key {
        "ext4" => {
            // ext4 fixes its number of inodes at mkfs: one for 16 KiB of the device by default.
            let words = match inodes(request) {
                files if files * INODE_BYTES > image_bytes => format!("-q -N {files}").leak(),
                _ => "-q",
            };
            ("ext4", Kind::Loop { file_system: "ext4", words, options: "" })
        }
        "xfs" => ("xfs", on_loop("xfs")),
        "btrfs" => ("btrfs", on_loop("btrfs")),
        "gocryptfs" => ("gocryptfs on ext4", Kind::Gocryptfs),
        "memfs" => {
            let program = request.memfs.clone().or_else(|| beside("memfs")).unwrap_or_default();
            ("empty FUSE file system", Kind::Memory { program })
        }
        "lz4" => ("steadfast, lz4", ours("-O compression=lz4")),
        "sealed" => (
            "steadfast, encrypted",
            ours("-O compression=off -O encryption=on -O keyformat=raw -O keylocation=file://KEY"),
        ),
        _ => ("steadfast, compression off", ours("-O compression=off")),
    };
    Recipe { key, label, kind, image_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Form;

    #[test]
    fn ext4_has_an_inode_for_each_file_of_the_curve() {
        let inodes_of = |request: &EngineRequest| {
            let context = Context { steadfast: "steadfast".into(), version: String::new() };
            let image = request.sizes().image;
            match recipe("ext4", image, request, &context).kind {
                Kind::Loop { words, .. } => match words.split_once("-N ") {
                    Some((_, number)) => number.parse().unwrap(),
                    None => image / INODE_BYTES,
                },
                other => panic!("{other:?}"),
            }
        };
        for (quick, long) in [(true, false), (false, false), (false, true)] {
            let request =
                EngineRequest { form: Form { quick, tiny: false }, long, ..EngineRequest::default() };
            let most = *request.sizes().counts.last().unwrap();
            // A thousand files have a directory.
            assert!(inodes_of(&request) >= most + most / 1000, "{most}");
        }
        let without = EngineRequest { only: Some(vec!["file".to_owned()]), ..EngineRequest::default() };
        assert_eq!(inodes_of(&without), without.sizes().image / INODE_BYTES);
    }
}

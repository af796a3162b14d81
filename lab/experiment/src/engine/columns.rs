//! The columns of the engine experiment, and how each is made.

use super::args::EngineRequest;
use crate::Context;
use crate::arms::{Kind, Recipe};

/// Keys of all columns, in their order. The first that takes part is what ratios refer to.
pub const KEYS: [&str; 8] = ["ext4", "xfs", "btrfs", "gocryptfs", "memfs", "plain", "lz4", "sealed"];

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
        "ext4" => ("ext4", on_loop("ext4")),
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

//! Damaged files, as `zpool status -v` and audits show them.

use crate::api::DataError;
use crate::engine::state::ImportedPool;
use steadfast_pool::DamagedFile;

/// Damaged files: one entry for each range, and one without a range for metadata.
pub(in crate::engine) fn data_errors(held: &ImportedPool, files: &[DamagedFile]) -> Vec<DataError> {
    let errors = files.iter().flat_map(|file| {
        let ranges = if file.ranges.is_empty() { vec![(0, 0)] } else { file.ranges.clone() };
        ranges.into_iter().map(move |(start, end)| DataError {
            dataset: file.dataset.clone(),
            mountpoint: held.mounted_at(&file.dataset),
            path: file.path.as_deref().map(legible),
            inode: file.inode,
            offset: start,
            length: end - start,
        })
    });
    errors.collect()
}

/// A path as text: bytes that are no UTF-8 as `\xff`, so that two names never look the same.
fn legible(path: &[u8]) -> String {
    let chunk =
        |chunk: std::str::Utf8Chunk<'_>| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii());
    path.utf8_chunks().map(chunk).collect()
}

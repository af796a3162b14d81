//! Writes the golden bytes as seeds into `fuzz/corpus/TARGET/`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, bytes) in support::all() {
        let targets = steadfast_format::fuzz::ALL.iter().map(|(target, _)| *target);
        let Some(target) =
            targets.filter(|target| name.starts_with(target)).max_by_key(|target| target.len())
        else {
            continue;
        };
        fs::create_dir_all(corpus.join(target))?;
        fs::write(corpus.join(target).join(&name), bytes)?;
    }
    Ok(())
}

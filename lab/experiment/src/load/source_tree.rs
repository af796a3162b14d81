//! A tree in the shape of a kernel's sources, made from a seed: directories a few deep, many small
//! files and few large ones, text that compresses about four to one.

use std::fs;
use std::path::Path;

use crate::load::files::Noise;

/// Files of a directory, about.
const FOLDER_FILES: u64 = 16;
/// Median size of a file, bytes, and how far sizes scatter (standard deviation of the natural
/// logarithm).
const MEDIAN: f64 = 4_700.0;
const SCATTER: f64 = 1.35;

/// Words of the text.
const VOCABULARY: [&str; 48] = [
    "static", "struct", "return", "unsigned", "const", "void", "int", "if", "else", "for", "while", "goto",
    "out", "err", "ret", "dev", "priv", "data", "lock", "list", "head", "next", "size", "len", "offset",
    "page", "inode", "bool", "true", "false", "NULL", "(", ")", "{", "}", ";", "->", "=", "==", "!=", "+",
    "&", "*", "0", "1", "u32", "u64", "/* */",
];

/// Makes `files` files below `root`, which must not be there. Returns their bytes.
pub fn make(root: &Path, files: u64, seed: u64) -> std::io::Result<u64> {
    let mut noise = Noise::new(seed);
    let folders = files.div_ceil(FOLDER_FILES).max(1);
    let mut total = 0;
    let mut names = vec![root.to_owned()];
    fs::create_dir(root)?;
    for number in 1..folders {
        // Below one of those that are there: most trees are three to five deep that way.
        let parent = noise.below(names.len() as u64) as usize;
        let folder = names[parent].join(format!("part{number}"));
        fs::create_dir(&folder)?;
        names.push(folder);
    }
    for number in 0..files {
        let folder = &names[noise.below(folders) as usize];
        // A sum of uniform numbers is close enough to a normal one.
        let normal = (0..12).map(|_| noise.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
        let size = (MEDIAN * (SCATTER * normal).exp()) as usize;
        let text = text(&mut noise, size.min(4 << 20));
        fs::write(folder.join(format!("source{number}.c")), &text)?;
        total += text.len() as u64;
    }
    Ok(total)
}

fn text(noise: &mut Noise, size: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(size + 32);
    while text.len() < size {
        let number = noise.number();
        for shift in [8, 14, 20, 26, 32, 38, 44, 50] {
            // Squared: some words are much more frequent than others, as in every language.
            let drawn = (number >> shift) as usize % 64;
            text.extend_from_slice(VOCABULARY[drawn * drawn * VOCABULARY.len() / 4096].as_bytes());
            text.push(b' ');
        }
        if number.is_multiple_of(3) {
            text.extend_from_slice(format!("name_{}", number >> 52).as_bytes());
        }
        text.extend_from_slice(b"\n\t");
    }
    text.truncate(size);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_tree_of_the_right_shape() {
        let dir = crate::host::workdir::Workdir::create(&std::env::temp_dir()).unwrap();
        let one = make(&dir.path().join("one"), 400, 5).unwrap();
        let two = make(&dir.path().join("two"), 400, 5).unwrap();
        assert_eq!(one, two);
        let mean = one / 400;
        assert!((6_000..30_000).contains(&mean), "mean size {mean}");
        let folders =
            fs::read_dir(dir.path().join("one")).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir());
        assert!(folders.count() > 1);
    }
}

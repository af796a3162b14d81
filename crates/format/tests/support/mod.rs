//! Golden bytes as text: hexadecimal pairs, `#` to the end of a line is a remark, `00*85` stands
//! for 85 such bytes.

use std::path::PathBuf;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

pub fn parse(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace()) {
        let (pair, count) = word.split_once('*').unwrap_or((word, "1"));
        let byte = u8::from_str_radix(pair, 16).unwrap_or_else(|_| panic!("{word:?} is no hexadecimal pair"));
        bytes.extend(std::iter::repeat_n(byte, count.parse().unwrap()));
    }
    bytes
}

/// Every golden file: name without its ending, and its bytes.
pub fn all() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = name.strip_suffix(".hex").unwrap_or_else(|| panic!("{name} is no golden file")).to_owned();
        found.push((name, parse(&std::fs::read_to_string(&path).unwrap())));
    }
    found.sort();
    found
}

//! Entry for fuzzers: each parser accepts any words or refuses them with a sentence.

use crate::catalog::CATALOG;
use crate::options::{Parsed, Syntax};
use steadfast_property::{Scope, parse_assignment, parse_size};

/// Splits the bytes at zeros into words. Checks that no parser panics, that the normal form of an
/// accepted command line parses to the same options, and that a parsed property value parses to
/// itself.
pub fn fuzz_options(bytes: &[u8]) {
    let words: Vec<String> =
        bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let commands = CATALOG.families.iter().flat_map(|(family, _)| family.commands);
    for syntax in commands.map(|command| &command.syntax).chain([&CATALOG.mount.syntax]) {
        read(syntax, &words);
    }
    for word in &words {
        let _ = parse_size(word);
        for scope in [Scope::Pool, Scope::Dataset] {
            let Ok((name, value)) = parse_assignment(scope, word) else { continue };
            let again = parse_assignment(scope, &format!("{name}={value}"));
            assert_eq!(again.as_ref(), Ok(&(name, value)), "{word:?}");
        }
    }
}

fn read(syntax: &Syntax, words: &[String]) {
    let parsed = match syntax.parse(words) {
        Ok(parsed) if parsed.help => return,
        Ok(parsed) => parsed,
        Err(sentence) => return assert!(!sentence.trim().is_empty()),
    };
    assert!((syntax.least..=syntax.most).contains(&parsed.operands.len()));
    let again = syntax.parse(&parsed.plainly()).expect("the normal form parses");
    let told = |parsed: &Parsed| (parsed.plainly(), parsed.operands.clone());
    assert_eq!(told(&again), told(&parsed));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fuzz target, bounded: known words, joined and damaged at random.
    #[test]
    fn whatever_is_typed_is_read_or_refused() {
        let random = steadfast_env::Env::seeded(17).random;
        let below = |bound: usize| usize::try_from(random.nonzero_u64() % bound as u64).unwrap();
        let known = [
            "-o",
            "-f",
            "-Hp",
            "--",
            "--json",
            "-",
            "tank",
            "tank/home",
            "compression=lz4",
            "quota=1.5G",
            "-oquota=1e9",
            "recordsize=128k",
            "user:x=y",
            "--help",
            "-O",
            "mountpoint=none",
            "-d",
            "size=",
            "=",
            "ashift=12",
            "\u{fc}",
        ];
        for _ in 0..20_000 {
            let mut line = Vec::new();
            for _ in 0..below(6) {
                line.extend_from_slice(known[below(known.len())].as_bytes());
                line.push(if below(9) == 0 { b'x' } else { 0 });
            }
            for _ in 0..below(3) {
                if !line.is_empty() {
                    let at = below(line.len());
                    line[at] = random.nonzero_u64().to_le_bytes()[0];
                }
            }
            fuzz_options(&line);
        }
    }
}

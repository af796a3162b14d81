//! Names of pools and datasets: the rules, and a sentence for each violation.

/// Longest name of a dataset, pool included, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Deepest nesting of datasets under a pool.
pub const NAME_DEPTH_MAX: usize = 50;

/// Longest tag that holds a snapshot, in bytes, as in ZFS.
pub const TAG_BYTES_MAX: usize = 255;

/// Why a name is not allowed. Prints as the sentence after "cannot create 'x': ".
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing between two slashes, or nothing at all.
    #[error(
        "a part of the name is empty: write POOL or POOL/CHILD, with one '/' between parts and none at the ends"
    )]
    EmptyPart,
    /// More bytes than [`NAME_BYTES_MAX`].
    #[error("the name has {bytes} bytes; at most 255 are allowed")]
    TooLong {
        /// Length found.
        bytes: usize,
    },
    /// More parts than [`NAME_DEPTH_MAX`].
    #[error("the name has {depth} levels; at most 50 are allowed")]
    TooDeep {
        /// Depth found.
        depth: usize,
    },
    /// A character outside the allowed set.
    #[error("the character {character:?} is not allowed: use letters, digits, '-', '_', '.', ':' and space")]
    Character {
        /// The first offender.
        character: char,
    },
    /// A part is `.` or `..`.
    #[error("'{part}' is not allowed as a part of the name, because paths give it another meaning")]
    Dots {
        /// The part found.
        part: String,
    },
    /// A pool's name starts with something other than a letter.
    #[error("a pool's name begins with a letter, not with {character:?}")]
    NoLetter {
        /// The first character.
        character: char,
    },
    /// A word with another meaning in device lists.
    #[error("names that begin with '{word}' are reserved: in a list of devices the word has another meaning")]
    Reserved {
        /// The reserved beginning.
        word: &'static str,
    },
    /// A slash in a pool's name.
    #[error("a pool's name has no '/': the pool would be '{pool}', and the rest a file system in it")]
    SlashInPool {
        /// The part before the slash.
        pool: String,
    },
    /// A snapshot or bookmark where a file system is wanted.
    #[error("'{mark}' names a snapshot or a bookmark; a file system is expected here")]
    Snapshot {
        /// `@` or `#`.
        mark: char,
    },
    /// A file system where a snapshot is wanted.
    #[error("the name has no '@': a snapshot is named FILESYSTEM@NAME")]
    NoSnapshot,
    /// Nothing after the `@`.
    #[error("the name ends after '@': a snapshot is named FILESYSTEM@NAME")]
    EmptySnapshot,
    /// More than one `@` or `#`.
    #[error("a name has one '@' or one '#' at most: FILESYSTEM@NAME")]
    TwoMarks,
    /// A pool's name ends in a space.
    #[error("the name ends in a space")]
    TrailingSpace,
}

/// Words with another meaning in device lists. The first four reserve every name that begins with
/// them.
const RESERVED_BEGINNINGS: [&str; 4] = ["mirror", "raidz", "draid", "spare"];
const RESERVED_WORDS: [&str; 6] = ["log", "cache", "special", "dedup", "anchor", "parity"];

/// Checks the name of a new pool.
///
/// # Errors
/// [`NameError`], which prints as one sentence.
pub fn check_pool_name(name: &str) -> Result<(), NameError> {
    if let Some((pool, _)) = name.split_once('/') {
        return Err(NameError::SlashInPool { pool: pool.to_owned() });
    }
    check_dataset_name(name)?;
    for word in RESERVED_BEGINNINGS {
        if name.starts_with(word) {
            return Err(NameError::Reserved { word });
        }
    }
    for word in RESERVED_WORDS {
        if name == word {
            return Err(NameError::Reserved { word });
        }
    }
    if name.ends_with(' ') {
        return Err(NameError::TrailingSpace);
    }
    Ok(())
}

/// Checks the name of a file system, its pool's name included (`tank/home`; `tank` alone is a file
/// system too).
///
/// # Errors
/// [`NameError`], which prints as one sentence.
pub fn check_dataset_name(name: &str) -> Result<(), NameError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    if let Some(mark) = name.chars().find(|c| matches!(c, '@' | '#')) {
        return Err(NameError::Snapshot { mark });
    }
    let depth = name.split('/').count() - 1;
    if depth >= NAME_DEPTH_MAX {
        return Err(NameError::TooDeep { depth });
    }
    for part in name.split('/') {
        if part.is_empty() {
            return Err(NameError::EmptyPart);
        }
        if part == "." || part == ".." {
            return Err(NameError::Dots { part: part.to_owned() });
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ');
        if let Some(character) = part.chars().find(|&c| !allowed(c)) {
            return Err(NameError::Character { character });
        }
    }
    match name.chars().next() {
        Some(first) if !first.is_ascii_alphabetic() => Err(NameError::NoLetter { character: first }),
        _ => Ok(()),
    }
}

/// Checks the name of a snapshot, its file system's included (`tank/home@monday`).
///
/// # Errors
/// [`NameError`], which prints as one sentence.
pub fn check_snapshot_name(name: &str) -> Result<(), NameError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    let Some((dataset, snapshot)) = name.split_once('@') else { return Err(NameError::NoSnapshot) };
    check_dataset_name(dataset)?;
    if snapshot.is_empty() {
        return Err(NameError::EmptySnapshot);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ');
    match snapshot.chars().find(|&c| !allowed(c)) {
        Some('@' | '#') => Err(NameError::TwoMarks),
        Some(character) => Err(NameError::Character { character }),
        None if snapshot == "." || snapshot == ".." => Err(NameError::Dots { part: snapshot.to_owned() }),
        None => Ok(()),
    }
}

/// True if this can be a tag that holds a snapshot: 1 to [`TAG_BYTES_MAX`] bytes, and no control
/// characters.
#[must_use]
pub fn is_tag(text: &str) -> bool {
    (1..=TAG_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_bytes_and_no_control_characters() {
        let long = "a".repeat(255);
        for tag in ["keep", " ", "a/b@c", "für immer", &long] {
            assert!(is_tag(tag), "{tag:?}");
        }
        for tag in ["", "a\nb", "\u{85}", &format!("{long}a")] {
            assert!(!is_tag(tag), "{tag:?}");
        }
    }

    #[test]
    fn names_of_the_source_reports_are_allowed() {
        for name in ["zfs_compress", "zfs_encrypt", "mypool", "tank-1.2:x y", "t"] {
            assert_eq!(check_pool_name(name), Ok(()), "{name}");
        }
        for name in ["zfs_encrypt/encrypted", "tank/a/b c/1", "tank/.hidden", "tank/..."] {
            assert_eq!(check_dataset_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_not_allowed_says_which_character() {
        assert_eq!(check_pool_name("ta%nk"), Err(NameError::Character { character: '%' }));
        assert!(check_pool_name("ta\nnk").unwrap_err().to_string().contains("'\\n'"));
        assert_eq!(check_dataset_name("tank/ä"), Err(NameError::Character { character: 'ä' }));
        assert_eq!(check_pool_name("1tank"), Err(NameError::NoLetter { character: '1' }));
        assert_eq!(check_pool_name("-tank"), Err(NameError::NoLetter { character: '-' }));
        assert_eq!(check_dataset_name("tank@now"), Err(NameError::Snapshot { mark: '@' }));
    }

    #[test]
    fn a_snapshot_has_a_file_system_and_a_name() {
        for name in ["tank@a", "tank/home@2026-11-22_10:00", "tank@a b.c"] {
            assert_eq!(check_snapshot_name(name), Ok(()), "{name}");
        }
        assert_eq!(check_snapshot_name("tank"), Err(NameError::NoSnapshot));
        assert_eq!(check_snapshot_name("tank@"), Err(NameError::EmptySnapshot));
        assert_eq!(check_snapshot_name("tank@a@b"), Err(NameError::TwoMarks));
        assert_eq!(check_snapshot_name("@a"), Err(NameError::EmptyPart));
        assert_eq!(check_snapshot_name("tank@a/b"), Err(NameError::Character { character: '/' }));
        assert_eq!(check_snapshot_name("tank@a%b"), Err(NameError::Character { character: '%' }));
        assert!(matches!(check_snapshot_name("tank@.."), Err(NameError::Dots { .. })));
        let long = format!("tank@{}", "a".repeat(251));
        assert_eq!(check_snapshot_name(&long), Err(NameError::TooLong { bytes: 256 }));
    }

    #[test]
    fn empty_dotted_long_deep_and_reserved_names_are_refused() {
        for name in ["", "/", "/tank", "tank/", "tank//a"] {
            assert_eq!(check_dataset_name(name), Err(NameError::EmptyPart), "{name:?}");
        }
        assert!(matches!(check_dataset_name("tank/../a"), Err(NameError::Dots { .. })));
        assert!(matches!(check_dataset_name(&"a".repeat(256)), Err(NameError::TooLong { bytes: 256 })));
        assert_eq!(check_dataset_name(&"a".repeat(255)), Ok(()));
        assert!(matches!(check_dataset_name(&["a"; 51].join("/")), Err(NameError::TooDeep { depth: 50 })));
        assert_eq!(check_dataset_name(&["a"; 50].join("/")), Ok(()));
        for name in ["mirror", "mirror2", "raidz1", "spares", "log", "anchor", "draid"] {
            assert!(matches!(check_pool_name(name), Err(NameError::Reserved { .. })), "{name}");
        }
        assert_eq!(check_pool_name("logs"), Ok(()));
        assert_eq!(check_pool_name("tank/a"), Err(NameError::SlashInPool { pool: "tank".into() }));
        assert_eq!(check_pool_name("tank "), Err(NameError::TrailingSpace));
    }
}

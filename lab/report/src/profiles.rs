//! Parameter files that the program carries: `-f profile:NAME`.

use std::path::Path;
use steadfast_lab_params::{Disk, Files};

/// Name, what it is, text.
const PROFILES: [(&str, &str, &str); 3] = [
    ("iozone", "lun= size= record= seconds=", include_str!("../../workloads/profiles/iozone.parm")),
    (
        "readers",
        "anchor= files= size= clients= seconds=",
        include_str!("../../workloads/profiles/readers.parm"),
    ),
    (
        "writers",
        "anchor= files= size= clients= seconds=",
        include_str!("../../workloads/profiles/writers.parm"),
    ),
];

/// Files of the disk, and profiles by their names.
pub(crate) struct Carried;

impl Files for Carried {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let Some(name) = path.to_str().and_then(|path| path.strip_prefix("profile:")) else {
            return Disk.read(path);
        };
        let found = PROFILES.iter().find(|(known, _, _)| *known == name);
        found.map(|(_, _, text)| text.as_bytes().to_vec()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// Lines for the help.
pub(crate) fn help() -> String {
    let lines = PROFILES.iter().map(|(name, values, _)| format!("  -f profile:{name:<8} {values}\n"));
    format!("\nprofiles, with the values they need:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_params::{Request, parse_with};

    #[test]
    fn every_profile_is_read_with_the_values_that_the_help_names() {
        for (name, values, _) in PROFILES {
            let value = |word: &str| match word {
                "lun" | "anchor" => "/x",
                "size" => "1m",
                "record" => "4k",
                _ => "4",
            };
            let replacements = values
                .split_whitespace()
                .map(|word| word.trim_end_matches('='))
                .map(|word| (word.to_owned(), value(word).to_owned()))
                .collect();
            let request = Request { replacements, ..Request::file(format!("profile:{name}")) };
            let plan = parse_with(&request, &Carried).unwrap();
            assert!(plan.runs.len() >= 2 && plan.warnings.is_empty(), "{name}: {:?}", plan.warnings);
        }
        assert!(parse_with(&Request::file("profile:none"), &Carried).is_err());
    }
}

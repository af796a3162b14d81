//! Cases that are known to fail, each with its reason: `known-failures.txt`.

use std::collections::BTreeMap;

const TEXT: &str = include_str!("../known-failures.txt");

/// Marks a suite in a guest, over NFS.
const OVER_NFS: &str = "@nfs";

/// Case to reason, for one suite, on the mount or over NFS.
pub(crate) fn of(suite: &str, over_nfs: bool) -> BTreeMap<String, String> {
    rows(TEXT)
        .filter(|(of, ..)| match of.strip_suffix(OVER_NFS) {
            Some(of) => over_nfs && of == suite,
            None => !over_nfs && *of == suite,
        })
        .map(|(_, case, why)| (case.to_owned(), why.to_owned()))
        .collect()
}

/// Suite, case, reason of every line that is neither blank nor a comment.
fn rows(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let mut words = line.splitn(3, char::is_whitespace);
        (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default().trim(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    #[test]
    fn every_known_failure_names_a_suite_and_has_a_reason() {
        for (of, case, why) in rows(TEXT) {
            let of = of.strip_suffix(OVER_NFS).unwrap_or(of);
            assert!(suite::ALL.iter().any(|suite| suite.name == of), "{of} {case}: no such suite");
            assert!(why.split(' ').count() >= 3, "{of} {case}: say why, not `{why}`");
        }
    }
}

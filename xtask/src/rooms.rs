//! The table of rooms in docs/DESIGN.md, section 3, says what the manifests say.

use std::collections::{BTreeMap, BTreeSet};

/// The head of the table.
const HEAD: &str = "| crate | depends on |";

/// Findings about the table, given what each crate's manifest says it imports.
pub fn check(design: &str, imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut told = BTreeMap::new();
    for line in design.lines().skip_while(|line| !line.starts_with(HEAD)).skip(2) {
        let Some(row) = line.strip_prefix("| `") else { break };
        let Some((name, rest)) = row.split_once("` |") else {
            findings.push(format!("docs/DESIGN.md: a row of the table of rooms has one crate: {line}"));
            continue;
        };
        let cell = rest.split('|').next().unwrap_or_default().trim();
        let names = cell.split(", ").map(|name| name.replace('_', "-")).filter(|name| name != "-");
        told.insert(name.to_owned(), names.collect::<BTreeSet<String>>());
    }
    for (name, imports) in imports {
        let list = if imports.is_empty() {
            "-".to_owned()
        } else {
            imports.iter().cloned().collect::<Vec<_>>().join(", ")
        };
        match told.get(name) {
            Some(told) if told == imports => {}
            Some(_) => findings.push(format!("docs/DESIGN.md: the manifest of `{name}` says: {list}")),
            None => findings.push(format!("docs/DESIGN.md: the table of rooms lacks `{name}`: {list}")),
        }
    }
    for name in told.keys().filter(|name| !imports.contains_key(*name)) {
        findings.push(format!("docs/DESIGN.md: the table of rooms has `{name}`, which is no crate"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(rows: &str) -> Vec<String> {
        let design = format!("text\n\n| crate | depends on | owns |\n|---|---|---|\n{rows}\n\n| `x` | y |\n");
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let imports = BTreeMap::from([
            ("env".to_owned(), set(&[])),
            ("intent_log".to_owned(), set(&["env", "lab-params"])),
        ]);
        check(&design, &imports)
    }

    #[test]
    fn a_true_table_has_no_findings() {
        let rows = "| `env` | - | time |\n| `intent_log` | env, lab_params | a log |";
        assert_eq!(findings(rows), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_surplus_or_more_than_one_is_noticed() {
        for rows in [
            "| `env` | - | a |\n| `intent_log` | env | a |",
            "| `env` | - | a |\n| `intent_log` | env, lab-params, tree | a |",
            "| `env` | - | a |\n| `intent_log` | env, lab-params, and more | a |",
            "| `env` | - | a |",
            "| `env` | - | a |\n| `intent_log` | env, lab-params | a |\n| `gone` | - | a |",
        ] {
            assert_eq!(findings(rows).len(), 1, "{rows}");
        }
        assert_eq!(findings("| `env`, `intent_log` | - | a |").len(), 3);
    }
}

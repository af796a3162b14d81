//! `cargo xtask clients`: programs that others wrote for ZFS, from their registries, against ours.

use std::path::Path;

use crate::check::{PACKAGES, Runner};

/// Marks the line of a test that says why it did not run.
const SKIPPED: &str = "SKIPPED ";

/// Installs and runs each program of `tests/tests/clients/`, or those whose test is named, prints a
/// table, and writes the page that lists them if all was run. True if none failed.
pub fn run(root: &Path, names: &[String]) -> bool {
    let runner = Runner::new(root);
    runner.packages(PACKAGES, true);
    if !runner.cargo(&["build", "--quiet", "--package", "steadfast"]) {
        return false;
    }
    let filter = names.first().map_or_else(|| "clients::".to_owned(), |name| format!("::{name}"));
    let mut command = runner.cargo_command();
    command.args(["test", "--quiet", "--package", "steadfast-tests", "--test", "main"]);
    command.args([filter.as_str(), "--", "--show-output", "--format", "pretty", "--test-threads", "2"]);
    command.env("STEADFAST_LONG", "1");
    if names.is_empty() {
        command.env("UPDATE", "1");
    }
    let Ok(output) = command.output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{}", table(&text));
    if !output.status.success() {
        print!("\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// One line for each program: its test, and how that ended.
fn table(told: &str) -> String {
    let mut text = String::new();
    for line in told.lines() {
        let Some((name, end)) = line.strip_prefix("test clients::").and_then(|rest| rest.split_once(" ... "))
        else {
            continue;
        };
        let name = name.rsplit("::").next().unwrap_or(name);
        let section = format!("::{name} stdout ----\n");
        let said =
            told.split_once(&section).map_or("", |(_, said)| said.split("\n\n").next().unwrap_or(said));
        let end = match (end, said.lines().find_map(|line| line.strip_prefix(SKIPPED))) {
            ("ok", None) => "ran as the page says".to_owned(),
            ("ok", Some(why)) => format!("{SKIPPED}{why}"),
            (end, _) => end.to_owned(),
        };
        text.push_str(&format!("{name:<28} {end}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_skipped_is_none_that_ran() {
        let told = "test clients::python::bzfs ... ok\ntest clients::debian::sanoid ... FAILED\n\
                    test clients::compiled::zrepl ... ok\n\nsuccesses:\n\n\
                    ---- clients::compiled::zrepl stdout ----\nSKIPPED zrepl: no network\n\n\nsuccesses:\n";
        let rows = table(told);
        let rows: Vec<&str> = rows.lines().map(|line| line[28..].trim()).collect();
        assert_eq!(rows, ["ran as the page says", "FAILED", "SKIPPED zrepl: no network"]);
    }
}

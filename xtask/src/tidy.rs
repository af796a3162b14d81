//! House rules that the compiler does not know. Each rule has a test here that makes it fire.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::labels::Labels;
use crate::ratchet::{self, Counts, Rule};
use crate::{circles, prose, rooms};

/// Most lines a source file may have.
const LINES: Rule = Rule { name: "lines", goal: 1_000, advice: "split it" };
/// Folders of the pool, the lowest first: none imports from a later one, from `import` or the root.
const POOL_ROOMS: &[&str] = &["core", "devices", "log", "datasets", "streams", "commit"];
/// Most files that may import one another in a loop.
const CIRCLE: Rule = Rule { name: "circle", goal: 8, advice: "`cargo xtask circles` shows it; cut it" };

/// Rooms from the metal upwards: a crate imports only crates of a lower rank (docs/DESIGN.md,
/// section 3).
const RANKS: &[(&str, u32)] = &[
    ("env", 0),
    ("format", 0),
    ("property", 0),
    ("model", 0),
    ("cache", 1),
    ("crypto", 1),
    ("device", 1),
    ("anchor", 2),
    ("bucket", 2),
    ("por", 2),
    ("vdev", 2),
    ("segment", 3),
    ("blockio", 4),
    ("tree", 4),
    ("txg", 4),
    ("dataset", 5),
    ("intent_log", 6),
    ("posix", 6),
    ("fuse", 6),
    ("nbd", 6),
    ("refs", 6),
    ("nfs", 7),
    ("pool", 7),
    ("inspect", 8),
    ("mount", 8),
    ("sim", 9),
    ("control", 9),
    ("cli", 10),
];

/// Rooms that may start threads and read clocks themselves: the world itself, and the fronts.
const WORLDLY: &[&str] = &["env", "fuse", "nfs", "mount", "control", "cli"];

/// Rooms in which `unsafe` may stand.
const UNSAFE_ROOMS: &[&str] = &["device", "fuse", "por", "vdev"];

/// Declaration of a helper that plants a bug, the rooms that may have one, and the simulator, which
/// no crate may depend on.
const PLANTS: &str = "fn planted";
const PLANTERS: &[&str] = &["env", "sim"];
const SIMULATOR: &str = "steadfast-sim";

/// All findings in the tree at `root`, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let (mut findings, counts) = read(root);
    findings.extend(ratchet::check(root, &counts));
    findings.sort();
    findings
}

/// Writes the counts of today into the list of ratchets where they are smaller.
///
/// # Errors
/// Of the system.
pub fn lower(root: &Path) -> std::io::Result<()> {
    ratchet::lower(root, &read(root).1)
}

/// Findings of the rules that are walls, and counts for those that are ratchets.
fn read(root: &Path) -> (Vec<String>, Counts) {
    let (mut findings, mut counts, mut labels) = (Vec::new(), Counts::default(), Labels::default());
    let (mut design, mut imports) = (String::new(), BTreeMap::new());
    for file in files(root) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        check_text(&name, &text, &mut findings);
        if name.ends_with(".md") {
            check_links(root, &file, &name, &text, &mut findings);
        }
        if name.ends_with(".rs") && !name.starts_with("xtask/") {
            counts.add(LINES, &name, text.lines().count());
            prose::count(shelf(&name), &text, &mut counts);
        }
        // Decisions and measurements are of their day.
        if !name.starts_with("xtask/") && !name.contains("/decisions/") && !name.contains("/measurements/") {
            labels.read(&name, &text, &mut counts);
        }
        if name.ends_with("/Cargo.toml") {
            let folder = file.parent().unwrap_or(root);
            check_left_out(&name, &text, |path| sources(&folder.join(path)), &mut findings);
            if let Some(room) = room(&name) {
                imports.insert(room.to_owned(), own_imports(&text));
            }
        }
        if name == "docs/DESIGN.md" {
            design = text;
        }
    }
    findings.extend(labels.findings());
    findings.extend(rooms::check(&design, &imports));
    for (name, circles) in circles::of_tree(root) {
        counts.add(CIRCLE, &name, circles.first().map_or(0, Vec::len));
    }
    for (from, to) in circles::upward(&root.join("crates/pool/src"), POOL_ROOMS) {
        findings.push(format!("crates/pool/src/{from} imports {to}, which is above it (decision 0140)"));
    }
    check_dependency_notes(root, &mut findings);
    (findings, counts)
}

/// The text of a source file, or of all below a folder.
fn sources(path: &Path) -> String {
    if path.is_dir() {
        let texts = files(path).into_iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
        texts.map(|file| fs::read_to_string(file).unwrap_or_default()).collect::<Vec<_>>().join("\n")
    } else {
        fs::read_to_string(path).unwrap_or_default()
    }
}

/// A target whose tests a manifest leaves out has none.
fn check_left_out(name: &str, manifest: &str, sources: impl Fn(&str) -> String, findings: &mut Vec<String>) {
    let mut section = "";
    let mut path = "src";
    for line in manifest.lines() {
        if line.starts_with('[') {
            (section, path) = (line.trim(), "src");
        } else if let Some(named) = line.strip_prefix("path = ") {
            path = named.trim_matches('"');
        }
        let is_lib = section == "[lib]";
        if line == "doctest = false" && has_doctest(&sources("src")) {
            findings.push(format!("{name}: doctest = false, but there are doctests"));
        }
        if line == "test = false" && (is_lib || section == "[[bin]]") && sources(path).contains("#[test]") {
            findings.push(format!("{name}: test = false, but there are tests in {path}"));
        }
    }
}

/// True if a fence in a doc comment opens a block of Rust.
fn has_doctest(text: &str) -> bool {
    let mut is_open = false;
    for line in text.lines().map(str::trim_start) {
        let Some(fence) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            continue;
        };
        let Some(language) = fence.trim().strip_prefix("```") else { continue };
        if !is_open && language != "text" {
            return true;
        }
        is_open = !is_open;
    }
    false
}

/// The folder that counts of a file go to: `crates/NAME`, `lab/NAME`, `tests`.
fn shelf(name: &str) -> &str {
    let depth = if name.starts_with("crates/") || name.starts_with("lab/") { 2 } else { 1 };
    name.match_indices('/').nth(depth - 1).map_or(name, |(at, _)| &name[..at])
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                let skipped = name.starts_with("target")
                    || matches!(name.as_str(), ".git" | "corpus" | "artifacts" | "output");
                if !skipped {
                    folders.push(path);
                }
            } else if ["rs", "md", "toml", "sh"].iter().any(|end| name.ends_with(end)) || name == "run" {
                found.push(path);
            }
        }
    }
    found
}

/// The room a file belongs to: `crates/NAME/...`.
fn room(name: &str) -> Option<&str> {
    name.strip_prefix("crates/")?.split('/').next()
}

fn check_text(name: &str, text: &str, findings: &mut Vec<String>) {
    if name.starts_with("xtask/") {
        return; // holds the very words it looks for
    }
    let code = name.ends_with(".rs");
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        for path in ["/work/", "/farm/", "/root/."] {
            if line.contains(path) {
                findings.push(format!("{name}:{at}: a path of one machine"));
            }
        }
        if !code {
            continue;
        }
        for unfinished in ["todo!(", "unimplemented!(", "FIXME", "XXX"] {
            if line.contains(unfinished) {
                findings.push(format!("{name}:{at}: {unfinished} is unfinished business"));
            }
        }
        if let Some(room) = room(name)
            && name.contains("/src/")
            && !WORLDLY.contains(&room)
        {
            for worldly in ["SystemTime::now", "Instant::now", "thread::spawn", "thread::sleep", "rand::rng"]
            {
                if line.contains(worldly) && !line.trim_start().starts_with("//") {
                    findings.push(format!("{name}:{at}: {worldly} belongs to `env`"));
                }
            }
        }
    }
    if code && text.contains(PLANTS) && !room(name).is_some_and(|room| PLANTERS.contains(&room)) {
        findings.push(format!("{name}: only the simulator may plant bugs"));
    }
    if let Some(room) = room(name)
        && name.ends_with("/src/lib.rs")
        && !UNSAFE_ROOMS.contains(&room)
        && !text.contains("#![forbid(unsafe_code)]")
    {
        findings.push(format!("{name}: lacks #![forbid(unsafe_code)]"));
    }
    if name.ends_with("/Cargo.toml") {
        check_imports(name, text, findings);
        let depends = |line: &str| line.starts_with(SIMULATOR) && line.contains('=');
        if text.lines().any(depends) {
            findings.push(format!("{name}: {SIMULATOR} plants bugs; nobody may depend on it"));
        }
    }
}

/// Names of our own crates in a manifest's dependencies, without those only tests use.
fn own_imports(text: &str) -> BTreeSet<String> {
    let mut imports = BTreeSet::new();
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.trim();
        } else if section.starts_with("[dependencies")
            && let Some((key, _)) = line.split_once('=')
            && let Some(name) = key.trim().strip_prefix("steadfast-")
        {
            imports.insert(name.trim_end_matches(".workspace").to_owned());
        }
    }
    imports
}

fn check_imports(name: &str, text: &str, findings: &mut Vec<String>) {
    // A folder has underscores where its package has hyphens.
    let rank = |room: &str| {
        let room = room.replace('-', "_");
        RANKS.iter().find(|(known, _)| *known == room).map(|(_, rank)| *rank)
    };
    for import in own_imports(text) {
        // The hostile store imports nothing of ours: it is a stranger, too.
        if name.starts_with("lab/") && !import.starts_with("lab-") && import != "hostile" {
            findings.push(format!("{name}: the lab is a stranger to the engine and may not import {import}"));
        }
        if let Some(room) = room(name)
            && !import.starts_with("lab-")
        {
            match (rank(room), rank(&import)) {
                (Some(above), Some(below)) if above > below => {}
                (Some(_), Some(_)) => {
                    findings.push(format!("{name}: {room} may not import {import} (imports go downward)"))
                }
                _ => findings.push(format!("{name}: {room} or {import} has no rank in xtask/src/tidy.rs")),
            }
        } else if let Some(room) = room(name)
            && !matches!(room, "cli" | "control")
        {
            findings.push(format!("{name}: only the fronts may import the lab"));
        }
    }
}

/// Every external dependency of a crate has a line under docs/decisions/dependencies.
fn check_dependency_notes(root: &Path, findings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for file in files(root).into_iter().filter(|file| file.ends_with("Cargo.toml")) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let mut inside = false;
        for line in text.lines() {
            if line.starts_with('[') {
                inside = line.contains("dependencies") && !line.contains("profile");
                continue;
            }
            let Some((key, _)) = line.split_once('=') else { continue };
            let key = key.trim().trim_end_matches(".workspace");
            if inside && !key.is_empty() && !key.starts_with('#') && !key.starts_with("steadfast") {
                seen.insert(key.to_owned());
            }
        }
    }
    for name in seen {
        if !root.join(format!("docs/decisions/dependencies/{name}.md")).exists() {
            findings.push(format!("docs/decisions/dependencies/{name}.md: missing; say what {name} saves, brings, and how we would leave"));
        }
    }
}

/// Relative links of a document lead somewhere.
fn check_links(root: &Path, file: &Path, name: &str, text: &str, findings: &mut Vec<String>) {
    for piece in text.split("](").skip(1) {
        let Some(end) = piece.find(')') else { continue };
        let link = piece[..end].split('#').next().unwrap_or("");
        if link.is_empty() || link.contains("://") || link.contains(' ') || link.starts_with("mailto:") {
            continue;
        }
        let base = if link.starts_with('/') { root } else { file.parent().unwrap_or(root) };
        if !base.join(link.trim_start_matches('/')).exists() {
            findings.push(format!("{name}: link to {link}, which does not exist"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_text(name, text, &mut findings);
        findings
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        assert_eq!(findings("crates/tree/src/lib.rs", "#![forbid(unsafe_code)]\n"), Vec::<String>::new());
    }

    #[test]
    fn clocks_and_threads_are_noticed_outside_env() {
        assert_eq!(findings("crates/tree/src/a.rs", "let t = Instant::now();").len(), 1);
        assert_eq!(findings("crates/env/src/a.rs", "let t = Instant::now();").len(), 0);
    }

    #[test]
    fn unfinished_business_is_noticed() {
        assert_eq!(findings("lab/params/src/a.rs", "todo!()").len(), 1);
    }

    #[test]
    fn a_long_file_and_a_large_circle_are_noticed() {
        for rule in [LINES, CIRCLE] {
            let mut counts = Counts::default();
            counts.add(rule, "crates/tree", rule.goal);
            assert_eq!(counts.findings("").len(), 0);
            counts.add(rule, "crates/tree", 1);
            assert_eq!(counts.findings("").len(), 1);
        }
    }

    #[test]
    fn tests_that_a_manifest_leaves_out_are_noticed() {
        let left_out = |manifest: &str, source: &str| {
            let mut findings = Vec::new();
            check_left_out("crates/a/Cargo.toml", manifest, |_| source.to_owned(), &mut findings);
            findings.len()
        };
        assert_eq!(left_out("[lib]\ndoctest = false\n", "/// ```\n/// f();\n/// ```\n"), 1);
        assert_eq!(left_out("[lib]\ndoctest = false\n", "/// ```text\n/// f();\n/// ```\n"), 0);
        assert_eq!(left_out("[[bin]]\npath = \"src/main.rs\"\ntest = false\n", "#[test]\nfn a() {}"), 1);
        assert_eq!(left_out("[lib]\ntest = false\n", "#[test]\nfn a() {}"), 1);
        assert_eq!(left_out("[lib]\n", "#[test]\nfn a() {}"), 0);
    }

    #[test]
    fn counts_go_to_the_crate_of_a_file() {
        assert_eq!(shelf("crates/pool/src/a.rs"), "crates/pool");
        assert_eq!(shelf("tests/tests/a.rs"), "tests");
    }

    #[test]
    fn a_room_without_forbid_unsafe_is_noticed() {
        assert_eq!(findings("crates/tree/src/lib.rs", "").len(), 1);
        assert_eq!(findings("crates/fuse/src/lib.rs", "").len(), 0);
    }

    #[test]
    fn only_the_simulator_plants_bugs_and_nobody_depends_on_it() {
        let text = "fn planted(&self) -> Option<Bug> { Some(Bug::HashIgnored) }";
        assert_eq!(findings("crates/pool/src/a.rs", text).len(), 1);
        assert_eq!(findings("lab/load/src/a.rs", text).len(), 1);
        assert_eq!(findings("crates/sim/src/a.rs", text).len(), 0);
        let manifest = "[dev-dependencies]\nsteadfast-sim = { path = \"../sim\" }\n";
        assert_eq!(findings("crates/control/Cargo.toml", manifest).len(), 1);
    }

    #[test]
    fn imports_go_downward() {
        let manifest = "[dependencies]\nsteadfast-pool = { path = \"../pool\" }\n";
        assert_eq!(findings("crates/tree/Cargo.toml", manifest).len(), 1);
        assert_eq!(findings("crates/cli/Cargo.toml", manifest).len(), 0);
        assert_eq!(findings("lab/params/Cargo.toml", manifest).len(), 1);
    }
}

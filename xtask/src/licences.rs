//! `cargo xtask licences`: the rules of `deny.toml` about licences, banned packages, versions and
//! sources, checked over `cargo metadata`. cargo-deny checks the same, but compiles 167 packages
//! first.
//!
//! Everything is a finding that is not understood: a package without a licence, an expression that
//! does not parse, a rule that is missing in `deny.toml`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The only registry that packages may come from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The part of `deny.toml` that is checked here.
#[derive(Debug, Default, PartialEq)]
struct Rules {
    /// Platforms whose packages count.
    targets: Vec<String>,
    /// Licences, with their exception if they have one, as SPDX writes them.
    allow: Vec<String>,
    /// Packages nobody may depend on.
    deny: Vec<String>,
    /// Packages that may be there in two versions.
    skip: Vec<String>,
}

/// All findings about the packages of the workspace at `root`, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let text = match std::fs::read_to_string(root.join("deny.toml")) {
        Ok(text) => text,
        Err(error) => return vec![format!("deny.toml: {error}")],
    };
    let rules = match Rules::read(&text) {
        Ok(rules) => rules,
        Err(sentence) => return vec![format!("deny.toml: {sentence}")],
    };
    let mut command = Command::new("cargo");
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]).current_dir(root);
    rules.targets.iter().for_each(|target| _ = command.args(["--filter-platform", target]));
    let output = match command.output() {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            return vec![format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim())];
        }
        Err(error) => return vec![format!("cargo metadata: {error}")],
    };
    match serde_json::from_slice(&output) {
        Ok(metadata) => check_metadata(&rules, &metadata),
        Err(error) => vec![format!("cargo metadata: {error}")],
    }
}

impl Rules {
    /// Reads the lists by their keys. Every string between `key = [` and the closing `]` counts.
    fn read(text: &str) -> Result<Rules, String> {
        let text: String =
            text.lines().map(|line| line.split('#').next().unwrap_or("")).collect::<Vec<_>>().join("\n");
        let list = |key: &str| -> Result<Vec<String>, String> {
            let head = format!("\n{key} = [");
            let (_, rest) = text.split_once(&head).ok_or_else(|| format!("no list `{key}`"))?;
            let (inside, _) = rest.split_once(']').ok_or_else(|| format!("the list `{key}` has no end"))?;
            let found: Vec<String> =
                inside.split('"').skip(1).step_by(2).map(|item| item.trim().to_owned()).collect();
            if found.is_empty() { Err(format!("the list `{key}` is empty")) } else { Ok(found) }
        };
        for rule in ["multiple-versions = \"deny\"", "unknown-registry = \"deny\"", "unknown-git = \"deny\""]
        {
            if !text.contains(rule) {
                return Err(format!("no line `{rule}`"));
            }
        }
        Ok(Rules {
            targets: list("targets")?,
            allow: list("allow")?,
            deny: list("deny")?,
            skip: list("skip")?,
        })
    }
}

fn check_metadata(rules: &Rules, metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    let root = metadata["workspace_root"].as_str().unwrap_or("");
    let Some(packages) = metadata["packages"].as_array().filter(|packages| !packages.is_empty()) else {
        return vec!["cargo metadata: no packages".to_owned()];
    };
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str();
        let (Some(name), Some(version)) = (text("name"), text("version")) else {
            findings.push("cargo metadata: a package without a name or version".to_owned());
            continue;
        };
        versions.entry(name).or_default().push(version);
        match text("license").map(|expression| allows(&rules.allow, expression)) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => findings.push(format!(
                "{name} {version}: its licence, {}, is not allowed by deny.toml",
                text("license").unwrap_or_default()
            )),
            Some(Err(sentence)) => findings.push(format!("{name} {version}: its licence: {sentence}")),
            None => findings.push(format!("{name} {version}: names no licence")),
        }
        let is_ours = package["source"].is_null()
            && text("manifest_path")
                .is_some_and(|path| !root.is_empty() && Path::new(path).starts_with(root));
        if !is_ours && text("source") != Some(CRATES_IO) {
            findings.push(format!("{name} {version}: comes from {}, not from crates.io", package["source"]));
        }
        if rules.deny.iter().any(|denied| denied == name) {
            findings.push(format!("{name} {version}: is banned by deny.toml"));
        }
    }
    for (name, versions) in &versions {
        if versions.len() > 1 && !rules.skip.iter().any(|skipped| skipped == name) {
            findings.push(format!("{name}: in several versions: {}", versions.join(", ")));
        }
    }
    for name in &rules.skip {
        if versions.get(name.as_str()).is_none_or(|versions| versions.len() < 2) {
            findings.push(format!("deny.toml: skip names {name}, which has one version: delete the entry"));
        }
    }
    findings.sort();
    findings
}

/// True if a SPDX expression holds with only the licences `allow`. A slash is OR, as packages wrote
/// before SPDX.
fn allows(allow: &[String], expression: &str) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Expression { allow, words: &words };
    let holds = reader.either()?;
    if reader.words.is_empty() { Ok(holds) } else { Err(format!("'{expression}' does not parse")) }
}

/// The rest of an expression that is being read.
struct Expression<'a> {
    allow: &'a [String],
    words: &'a [&'a str],
}

impl Expression<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut holds = self.both()?;
        while self.take("OR") {
            holds |= self.both()?;
        }
        Ok(holds)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut holds = self.one()?;
        while self.take("AND") {
            holds &= self.one()?;
        }
        Ok(holds)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let holds = self.either()?;
            return if self.take(")") { Ok(holds) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let mut name = self.name()?;
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.name()?);
        }
        Ok(self.allow.contains(&name))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.words.split_first() {
            Some((word, rest)) if !["OR", "AND", "WITH", "(", ")"].contains(word) => {
                self.words = rest;
                Ok((*word).to_owned())
            }
            _ => Err("a licence's name is missing".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TOML: &str = "[graph]\ntargets = [\"x\"]\n[licenses]\nallow = [\n  \"MIT\", # a remark \"GPL-3.0\"\n  \
        \"Apache-2.0 WITH LLVM-exception\",\n]\n[bans]\nmultiple-versions = \"deny\"\nskip = [\n  { crate = \"twice\" },\n]\n\
        deny = [\n  { crate = \"openssl\" },\n]\n[sources]\nunknown-registry = \"deny\"\nunknown-git = \"deny\"\n";

    fn rules() -> Rules {
        Rules::read(TOML).expect("rules")
    }

    fn allowed(expression: &str) -> bool {
        allows(&rules().allow, expression).expect("an expression")
    }

    fn package(name: &str, version: &str, licence: Value, source: Value) -> Value {
        let manifest = format!("/tree/{name}/Cargo.toml");
        json!({"name": name, "version": version, "license": licence, "source": source, "manifest_path": manifest})
    }

    /// Findings about `more` beside what is as it should be.
    fn findings(more: Vec<Value>) -> Vec<String> {
        let good = |name, version| package(name, version, json!("MIT"), json!(CRATES_IO));
        let mut packages = vec![good("twice", "1.0.0"), good("twice", "2.0.0"), good("one", "1.0.0")];
        packages.push(package("ours", "0.1.0", json!("MIT"), Value::Null));
        packages.extend(more);
        check_metadata(&rules(), &json!({"workspace_root": "/tree", "packages": packages}))
    }

    #[test]
    fn rules_are_read_and_a_missing_one_is_a_finding() {
        let expected = Rules {
            targets: vec!["x".to_owned()],
            allow: vec!["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()],
            deny: vec!["openssl".to_owned()],
            skip: vec!["twice".to_owned()],
        };
        assert_eq!(rules(), expected);
        for line in TOML.lines().filter(|line| line.contains('=') && !line.contains("crate")) {
            let key = line.split(' ').next().expect("a key");
            assert!(Rules::read(&TOML.replace(key, "other")).is_err(), "without {key}");
        }
    }

    #[test]
    fn expressions_hold_as_spdx_says() {
        for holds in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND MIT",
            "GPL-3.0 AND GPL-2.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception AND MIT",
        ] {
            assert!(allowed(holds), "{holds}");
        }
        for fails in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR GPL-3.0) AND GPL-3.0",
            "Apache-2.0",
            "MIT WITH LLVM-exception",
            "mit",
        ] {
            assert!(!allowed(fails), "{fails}");
        }
        for nonsense in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "AND MIT", "MIT WITH", "()"] {
            assert!(allows(&rules().allow, nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn good_packages_have_no_findings() {
        assert_eq!(findings(Vec::new()), Vec::<String>::new());
    }

    #[test]
    fn each_wrong_package_is_a_finding() {
        for (name, licence, source, says) in [
            ("gpl", json!("GPL-3.0"), json!(CRATES_IO), "is not allowed"),
            ("none", Value::Null, json!(CRATES_IO), "names no licence"),
            ("odd", json!("MIT OR"), json!(CRATES_IO), "is missing"),
            ("git", json!("MIT"), json!("git+https://github.com/a/b"), "not from crates.io"),
            ("other", json!("MIT"), json!("registry+https://example.org/index"), "not from crates.io"),
            ("openssl", json!("MIT"), json!(CRATES_IO), "is banned"),
            ("one", json!("MIT"), json!(CRATES_IO), "in several versions"),
        ] {
            let found = findings(vec![package(name, "9.0.0", licence, source)]);
            assert!(found.len() == 1 && found[0].contains(says), "{name}: {found:?}");
        }
        let mut outside = package("far", "1.0.0", json!("MIT"), Value::Null);
        outside["manifest_path"] = json!("/elsewhere/far/Cargo.toml");
        assert!(findings(vec![outside])[0].contains("not from crates.io"));
    }

    #[test]
    fn an_exception_that_nothing_needs_and_an_empty_answer_are_findings() {
        let one = package("one", "1.0.0", json!("MIT"), json!(CRATES_IO));
        let found = check_metadata(&rules(), &json!({"workspace_root": "/tree", "packages": [one]}));
        assert!(found.len() == 1 && found[0].contains("skip names twice"), "{found:?}");
        assert_eq!(check_metadata(&rules(), &json!({})).len(), 1);
    }

    /// The rules of this repository, so that a change of `deny.toml` that is not understood is
    /// found by its test.
    #[test]
    fn our_own_rules_are_understood() {
        let rules = Rules::read(include_str!("../../deny.toml")).expect("rules");
        assert_eq!(rules.targets.len(), 2);
        assert!(rules.allow.contains(&"MIT".to_owned()) && rules.deny.contains(&"openssl".to_owned()));
    }
}

//! `cargo xtask circles`: files of a crate that import one another in a loop.
//!
//! An edge leads from a file to the file that defines what it names: by `crate::`, `super::`,
//! `self::` or a child module's name, in a `use` or in the middle of code. A name that a module
//! only hands on counts as what it is handed on from, and a `pub use` is no edge unless the code
//! beside it uses the name, so a crate's `lib.rs` that declares modules and re-exports is in no
//! circle. Modules of tests are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a crate in one circle; those of two files and more.
pub type Circle = Vec<String>;

/// A module: one file, or one `mod name { ... }` inside of a file.
#[derive(Debug, Default)]
struct Module {
    file: usize,
    children: BTreeMap<String, usize>,
    parent: Option<usize>,
    /// Names that this module defines itself.
    defines: BTreeSet<String>,
    /// Names imported: (name here, path).
    imports: Vec<(String, Vec<String>)>,
    /// Those of them that are imported for others, by `pub use`.
    handed_on: BTreeSet<String>,
    /// Modules whose names are all imported.
    globs: Vec<Vec<String>>,
    /// All paths that the code names, and all words.
    paths: Vec<Vec<String>>,
    words: BTreeSet<String>,
}

/// The modules of one crate.
#[derive(Default)]
struct Crate {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
}

/// Reads the crate whose sources are below `src`.
fn read(src: &Path) -> Crate {
    let mut house = Crate::default();
    let root = if src.join("lib.rs").exists() { src.join("lib.rs") } else { src.join("main.rs") };
    house.add_file(&root, src, None);
    house
}

/// Circles of files in the crate whose sources are below `src`, the largest first.
pub fn of_crate(src: &Path) -> Vec<Circle> {
    let house = read(src);
    let edges = house.edges();
    let mut circles: Vec<Circle> = components(&edges)
        .into_iter()
        .filter(|circle| circle.len() > 1)
        .map(|circle| {
            let mut names: Vec<String> = circle.iter().map(|file| house.name(*file, src)).collect();
            names.sort();
            names
        })
        .collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Imports in the crate whose sources are below `src` that lead from a file of one of `folders` to
/// a file of a later one, or to a file that is in none of them: (importing file, imported file).
/// The folders stand in order, the lowest first.
pub fn upward(src: &Path, folders: &[&str]) -> Vec<(String, String)> {
    let house = read(src);
    let floor = |name: &str| {
        let folder = name.split_once('/').map(|(folder, _)| folder);
        folder.and_then(|folder| folders.iter().position(|known| *known == folder)).unwrap_or(folders.len())
    };
    let mut found = Vec::new();
    for (file, imported) in house.edges().iter().enumerate() {
        let from = house.name(file, src);
        let names = imported.iter().map(|file| house.name(*file, src));
        found.extend(names.filter(|name| floor(name) > floor(&from)).map(|name| (from.clone(), name)));
    }
    found
}

/// Crates of the tree at `root`, each with its circles.
pub fn of_tree(root: &Path) -> BTreeMap<String, Vec<Circle>> {
    let mut found = BTreeMap::new();
    for shelf in ["crates", "lab"] {
        let entries = fs::read_dir(root.join(shelf)).into_iter().flatten().flatten();
        for src in entries.map(|entry| entry.path().join("src")).filter(|src| src.is_dir()) {
            let name = src.parent().and_then(|folder| folder.strip_prefix(root).ok()).unwrap_or(&src);
            found.insert(name.display().to_string(), of_crate(&src));
        }
    }
    found
}

impl Crate {
    /// Path of a file below the crate's sources.
    fn name(&self, file: usize, src: &Path) -> String {
        self.files[file].strip_prefix(src).unwrap_or(src).display().to_string()
    }

    /// Reads a file and the files of the modules that it declares. `folder` is where those are.
    fn add_file(&mut self, path: &Path, folder: &Path, parent: Option<usize>) -> Option<usize> {
        let text = fs::read_to_string(path).ok()?;
        let file = self.files.len();
        self.files.push(path.to_path_buf());
        let tokens = tokens(&text);
        let module = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        self.read(module, &tokens, folder);
        Some(module)
    }

    /// Reads the code of a module.
    fn read(&mut self, module: usize, tokens: &[String], folder: &Path) {
        let mut at = 0;
        let mut path_attribute = None;
        while at < tokens.len() {
            let word = tokens[at].as_str();
            match word {
                "#" if is(tokens, at + 1, "[") => {
                    let end = closing(tokens, at + 1);
                    let attribute = &tokens[at + 2..end];
                    if attribute.join(" ") == "cfg ( test )" {
                        at = end_of_item(tokens, end + 1);
                        continue;
                    }
                    if let ["path", "=", file] = attribute.iter().map(String::as_str).collect::<Vec<_>>()[..]
                    {
                        path_attribute = Some(file.trim_matches('"').to_owned());
                    }
                    at = end + 1;
                    continue;
                }
                "mod" if at + 2 < tokens.len() && is_name(&tokens[at + 1]) => {
                    let name = tokens[at + 1].clone();
                    if is(tokens, at + 2, ";") {
                        let here = match path_attribute.take() {
                            Some(file) => Some(folder.join(file)),
                            None => [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")]
                                .into_iter()
                                .find(|path| path.exists()),
                        };
                        let is_test = name == "tests" || name.ends_with("_tests");
                        if let Some(path) = here.filter(|_| !is_test)
                            && let Some(child) = self.add_file(&path, &folder.join(&name), Some(module))
                        {
                            self.modules[module].children.insert(name, child);
                        }
                        at += 3;
                        continue;
                    }
                    if is(tokens, at + 2, "{") {
                        let end = closing(tokens, at + 2);
                        let child = self.modules.len();
                        let file = self.modules[module].file;
                        self.modules.push(Module { file, parent: Some(module), ..Module::default() });
                        self.modules[module].children.insert(name.clone(), child);
                        self.read(child, &tokens[at + 3..end], &folder.join(&name));
                        at = end + 1;
                        continue;
                    }
                }
                "use" => {
                    let end = (at..tokens.len()).find(|at| tokens[*at] == ";").unwrap_or(tokens.len());
                    let is_public = at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")");
                    self.read_use(module, &tokens[at + 1..end], is_public);
                    at = end + 1;
                    continue;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => {
                    let name = if is(tokens, at + 1, "mut") { at + 2 } else { at + 1 };
                    if tokens.get(name).is_some_and(|name| is_name(name)) {
                        self.modules[module].defines.insert(tokens[name].clone());
                    }
                }
                "macro_rules" if is(tokens, at + 1, "!") => {
                    if let Some(name) = tokens.get(at + 2) {
                        self.modules[module].defines.insert(name.clone());
                    }
                }
                _ => {}
            }
            if is_name(word) {
                let is_inner = at > 0 && matches!(tokens[at - 1].as_str(), "::" | "." | "in");
                if is(tokens, at + 1, "::") && !is_inner {
                    let mut path = vec![word.to_owned()];
                    let mut end = at + 1;
                    while is(tokens, end, "::") && tokens.get(end + 1).is_some_and(|next| is_name(next)) {
                        path.push(tokens[end + 1].clone());
                        end += 2;
                    }
                    self.modules[module].paths.push(path);
                }
                self.modules[module].words.insert(word.to_owned());
            }
            at += 1;
        }
    }

    /// Reads what stands between `use` and its semicolon.
    fn read_use(&mut self, module: usize, tokens: &[String], is_public: bool) {
        let mut leaves = Vec::new();
        let mut at = 0;
        use_tree(tokens, &mut at, &mut Vec::new(), &mut leaves);
        for (mut path, alias) in leaves {
            let last = path.last().cloned().unwrap_or_default();
            if last == "*" {
                path.pop();
                self.modules[module].globs.push(path);
                continue;
            }
            if last == "self" {
                path.pop();
            }
            let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
            if is_public {
                self.modules[module].handed_on.insert(name.clone());
            }
            self.modules[module].imports.push((name, path));
        }
    }

    /// The file that defines what a path names in a module; `None` if that is of another crate.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        if depth > 12 {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut here = match first.as_str() {
            "crate" => 0,
            "self" => module,
            "super" => self.modules[module].parent?,
            name => {
                if let Some(child) = self.modules[module].children.get(name) {
                    *child
                } else {
                    let (_, target) = self.modules[module]
                        .imports
                        .iter()
                        .find(|(known, path)| known == name && *path != [name])?;
                    let whole = [target.as_slice(), rest].concat();
                    return self.resolve(module, &whole, depth + 1);
                }
            }
        };
        while let Some((name, more)) = rest.split_first() {
            if name == "super" {
                here = self.modules[here].parent?;
            } else if let Some(child) = self.modules[here].children.get(name) {
                here = *child;
            } else {
                return Some(self.home(here, name, more, depth));
            }
            rest = more;
        }
        Some(self.modules[here].file)
    }

    /// The file of a name that is looked for in a module: its own, or the one that it is handed on
    /// from.
    fn home(&self, module: usize, name: &str, rest: &[String], depth: usize) -> usize {
        let here = &self.modules[module];
        if here.defines.contains(name) {
            return here.file;
        }
        if let Some((_, path)) = here.imports.iter().find(|(known, _)| known == name) {
            let whole = [path.as_slice(), rest].concat();
            return self.resolve(module, &whole, depth + 1).unwrap_or(here.file);
        }
        for glob in &here.globs {
            if depth < 12
                && let Some(other) = self.module_of(module, glob)
                && other != module
                && self.knows(other, name, depth + 1)
            {
                return self.home(other, name, rest, depth + 1);
            }
        }
        here.file
    }

    /// True if a module defines a name or hands it on.
    fn knows(&self, module: usize, name: &str, depth: usize) -> bool {
        let here = &self.modules[module];
        here.defines.contains(name)
            || here.children.contains_key(name)
            || here.imports.iter().any(|(known, _)| known == name)
            || (depth < 12
                && here.globs.iter().any(|glob| {
                    self.module_of(module, glob)
                        .is_some_and(|other| other != module && self.knows(other, name, depth + 1))
                }))
    }

    /// The module that a path names as a whole.
    fn module_of(&self, module: usize, path: &[String]) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let mut here = match first.as_str() {
            "crate" => 0,
            "self" => module,
            "super" => self.modules[module].parent?,
            name => *self.modules[module].children.get(name)?,
        };
        for name in rest {
            here = if name == "super" {
                self.modules[here].parent?
            } else {
                *self.modules[here].children.get(name)?
            };
        }
        Some(here)
    }

    /// For each file the files it imports.
    fn edges(&self) -> Vec<BTreeSet<usize>> {
        let mut edges = vec![BTreeSet::new(); self.files.len()];
        for (at, module) in self.modules.iter().enumerate() {
            let is_used = |name: &String| !module.handed_on.contains(name) || module.words.contains(name);
            let imported = module.imports.iter().filter(|(name, _)| is_used(name)).map(|(_, path)| path);
            for path in imported.chain(&module.paths) {
                edges[module.file].extend(self.resolve(at, path, 0));
            }
            for glob in &module.globs {
                let Some(other) = self.module_of(at, glob) else { continue };
                let used = module.words.iter().filter(|word| self.knows(other, word, 0));
                edges[module.file].extend(used.map(|word| match self.modules[other].children.get(word) {
                    Some(child) => self.modules[*child].file,
                    None => self.home(other, word, &[], 0),
                }));
            }
        }
        for (at, edges) in edges.iter_mut().enumerate() {
            edges.remove(&at);
        }
        edges
    }
}

/// Words, `::`, strings and single signs of Rust code, without comments and lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut found = Vec::new();
    let mut index = 0;
    while index < chars.len() {
        let start = index;
        match at(index) {
            '/' if at(index + 1) == '/' => {
                while index < chars.len() && at(index) != '\n' {
                    index += 1;
                }
            }
            '/' if at(index + 1) == '*' => {
                index += 2;
                while index < chars.len() && !(at(index) == '*' && at(index + 1) == '/') {
                    index += 1;
                }
                index += 2;
            }
            'r' if at(index + 1) == '"' || (at(index + 1) == '#' && matches!(at(index + 2), '"' | '#')) => {
                let hashes = chars[index + 1..].iter().take_while(|sign| **sign == '#').count();
                index += 2 + hashes;
                let ends =
                    |index: usize| at(index) == '"' && (1..=hashes).all(|more| at(index + more) == '#');
                while index < chars.len() && !ends(index) {
                    index += 1;
                }
                index += 1 + hashes;
                found.push("\"\"".to_owned());
            }
            '"' => {
                index += 1;
                while index < chars.len() && at(index) != '"' {
                    index += if at(index) == '\\' { 2 } else { 1 };
                }
                index += 1;
                found.push(chars[start..index.min(chars.len())].iter().collect());
            }
            '\'' => {
                // A character, or a lifetime.
                if at(index + 1) == '\\' {
                    index += 3;
                    while index < chars.len() && at(index) != '\'' {
                        index += 1;
                    }
                    index += 1;
                } else if at(index + 2) == '\'' {
                    index += 3;
                } else {
                    index += 1;
                    while at(index).is_alphanumeric() || at(index) == '_' {
                        index += 1;
                    }
                }
            }
            ':' if at(index + 1) == ':' => {
                index += 2;
                found.push("::".to_owned());
            }
            sign if sign.is_alphanumeric() || sign == '_' => {
                while at(index).is_alphanumeric() || at(index) == '_' {
                    index += 1;
                }
                found.push(chars[start..index].iter().collect());
            }
            sign => {
                index += 1;
                if !sign.is_whitespace() {
                    found.push(sign.to_string());
                }
            }
        }
    }
    found
}

fn is(tokens: &[String], at: usize, word: &str) -> bool {
    tokens.get(at).is_some_and(|token| token == word)
}

fn is_name(token: &str) -> bool {
    token.starts_with(|sign: char| sign.is_alphabetic() || sign == '_')
}

/// Where the bracket at `open` is closed.
fn closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Behind the item that begins at `at`: after its block or its semicolon.
fn end_of_item(tokens: &[String], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => return at + 1,
            "{" => return closing(tokens, at) + 1,
            "[" | "(" => at = closing(tokens, at) + 1,
            _ => at += 1,
        }
    }
    at
}

/// Paths of a `use`, each with the name it is given if that is another.
fn use_tree(
    tokens: &[String],
    at: &mut usize,
    prefix: &mut Vec<String>,
    leaves: &mut Vec<(Vec<String>, Option<String>)>,
) {
    let depth = prefix.len();
    loop {
        match tokens.get(*at).map(String::as_str) {
            Some("::") => *at += 1,
            Some("{") => {
                *at += 1;
                while *at < tokens.len() && !is(tokens, *at, "}") {
                    use_tree(tokens, at, prefix, leaves);
                    if is(tokens, *at, ",") {
                        *at += 1;
                    }
                }
                *at += 1;
                break;
            }
            Some(word) if word == "*" || (is_name(word) && word != "as") => {
                prefix.push(word.to_owned());
                *at += 1;
                if !is(tokens, *at, "::") {
                    let alias = is(tokens, *at, "as").then(|| tokens.get(*at + 1).cloned()).flatten();
                    if alias.is_some() {
                        *at += 2;
                    }
                    leaves.push((prefix.clone(), alias));
                    break;
                }
            }
            Some(_) => {
                *at += 1;
                break;
            }
            None => break,
        }
    }
    prefix.truncate(depth);
}

/// Strongly connected components (Tarjan).
fn components(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    struct Walk<'a> {
        edges: &'a [BTreeSet<usize>],
        index: Vec<Option<usize>>,
        low: Vec<usize>,
        stack: Vec<usize>,
        found: Vec<Vec<usize>>,
        next: usize,
    }
    impl Walk<'_> {
        fn visit(&mut self, node: usize) {
            self.index[node] = Some(self.next);
            self.low[node] = self.next;
            self.next += 1;
            self.stack.push(node);
            for &other in &self.edges[node] {
                match self.index[other] {
                    None => {
                        self.visit(other);
                        self.low[node] = self.low[node].min(self.low[other]);
                    }
                    Some(index) if self.stack.contains(&other) => self.low[node] = self.low[node].min(index),
                    Some(_) => {}
                }
            }
            if Some(self.low[node]) == self.index[node] {
                let from = self.stack.iter().position(|other| *other == node).unwrap_or(0);
                let circle = self.stack.split_off(from);
                self.found.push(circle);
            }
        }
    }
    let count = edges.len();
    let mut walk = Walk {
        edges,
        index: vec![None; count],
        low: vec![0; count],
        stack: Vec::new(),
        found: Vec::new(),
        next: 0,
    };
    for node in 0..count {
        if walk.index[node].is_none() {
            walk.visit(node);
        }
    }
    walk.found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(name: &str, files: &[(&str, &str)]) -> Vec<Circle> {
        with(name, files, of_crate)
    }

    fn with<T>(name: &str, files: &[(&str, &str)], look: impl FnOnce(&Path) -> T) -> T {
        let src = std::env::temp_dir().join(format!("steadfast-circles-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = src.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let found = look(&src);
        fs::remove_dir_all(src).expect("removed");
        found
    }

    #[test]
    fn a_loop_is_found_through_a_facade_that_is_not_in_it() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod tests;\npub use a::{One, self as first}; pub use b::*;"),
            ("a.rs", "use crate::Two; pub struct One; // crate::c::Three"),
            ("b/mod.rs", "mod inner; pub struct Two; fn f() { inner::g() }"),
            ("b/inner.rs", "fn g() { let a: super::super::One; }"),
            ("c.rs", "use crate::a::One; pub struct Three;"),
            ("tests.rs", "use crate::c::Three;"),
        ];
        assert_eq!(circles("facade", &files), [["a.rs", "b/inner.rs", "b/mod.rs"]]);
    }

    #[test]
    fn a_root_that_defines_what_its_modules_use_is_in_the_circle() {
        let files = [
            (
                "lib.rs",
                "mod a; mod b; mod c; pub use a::One; pub use c::Two; pub struct Error(One); fn f() { b::g() }",
            ),
            ("a.rs", "use super::*; pub struct One(Error);"),
            ("c.rs", "pub struct Two(crate::Error);"),
            ("b.rs", "pub fn g() {}\n#[cfg(test)]\nmod t { use crate::a::One; }"),
        ];
        assert_eq!(circles("root", &files), [["a.rs", "lib.rs"]]);
    }

    #[test]
    fn what_imports_downward_is_no_circle() {
        let files = [
            ("lib.rs", "pub mod a; pub mod b;"),
            (
                "a.rs",
                r##"use crate::b::{self, x::{Y}}; fn f(c: char) -> bool { c == '"' } fn g() { b::h::<u8>(r#"crate::a"#) }"##,
            ),
            ("b.rs", "pub fn h<T>() {} pub mod x { pub struct Y<'a>(&'a str); } // crate::a"),
        ];
        assert_eq!(circles("down", &files), Vec::<Circle>::new());
    }

    #[test]
    fn an_import_of_a_later_folder_or_of_the_root_is_upward() {
        let files = [
            ("lib.rs", "mod low; mod high; pub struct Whole;"),
            ("low/mod.rs", "pub mod a; pub mod b; use crate::high::One;"),
            ("low/a.rs", "use crate::Whole;"),
            ("low/b.rs", "use super::a; pub struct Two; #[cfg(test)] mod tests { use crate::Whole; }"),
            ("high/mod.rs", "use crate::low::b::Two; pub struct One;"),
        ];
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let found = with("upward", &files, |src| upward(src, &["low", "high"]));
        assert_eq!(found, [pair("low/mod.rs", "high/mod.rs"), pair("low/a.rs", "lib.rs")]);
    }
}

//! `cargo xtask book`: README, documents, measurements and decisions as one site, by mdBook.
//!
//! docs/README.md is the only list. Its headings become parts, its links chapters, in that order. A
//! chapter `X.md` has the documents of the folder `x/` below it, a `README.md` those of its own
//! folder: first as it links them, then the rest by name. A document that is not reached is an
//! error, so none can be left out.
//!
//! Sources are copied into the target folder at their own relative paths, so links between
//! documents hold in the site as they do on a forge. Only three are changed: `README.md` is called
//! `index.md` there, a folder leads to its `README.md`, and a link to anything that is not in the
//! site becomes its text.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::check::Runner;

/// Installed beside the build when it is first asked for, and never by the check.
const MDBOOK: (&str, &str) = ("mdbook", "0.5.4");

/// The list of documents.
const INDEX: &str = "docs/README.md";
/// One line a crate: one page together.
const DEPENDENCIES: &str = "docs/decisions/dependencies";

const SETTINGS: &str = r#"[book]
title = "Steadfast"
language = "en"

[build]
build-dir = "html"
create-missing = false

[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
no-section-label = true
smart-punctuation = false
additional-css = ["book.css"]

[output.html.fold]
enable = true

[output.html.print]
enable = false
"#;

/// Writes the site to `target/book/html`. True if it is there and all its links lead somewhere.
pub fn run(root: &Path) -> bool {
    let runner = Runner::new(root);
    let folder = runner.target().join("book");
    let prepared = Book::of(root).and_then(|book| book.write(root, &folder));
    if let Err(error) = prepared {
        println!("book: {error}");
        return false;
    }
    runner.tool(MDBOOK);
    let mut build = runner.command(Path::new(MDBOOK.0));
    if !build.arg("build").arg(&folder).status().is_ok_and(|status| status.success()) {
        return false;
    }
    let site = folder.join("html");
    let broken = broken(&site);
    broken.iter().for_each(|link| println!("book: {link}"));
    let front = site.join("index.html");
    println!("{}", fs::canonicalize(&front).unwrap_or(front).display());
    broken.is_empty()
}

/// A document and the ones below it.
struct Chapter {
    /// Below the root of the repository.
    path: PathBuf,
    title: String,
    below: Vec<Chapter>,
}

/// All documents in the order of reading.
struct Book {
    /// Chapters under the headings of the index; the first part, before any heading, has no name.
    parts: Vec<(String, Vec<Chapter>)>,
}

impl Book {
    /// The documents that docs/README.md lists.
    fn of(root: &Path) -> Result<Book, String> {
        let index = read(&root.join(INDEX))?;
        let front = [PathBuf::from("README.md"), PathBuf::from(INDEX)];
        let mut seen: Vec<PathBuf> = front.to_vec();
        let mut parts = vec![(String::new(), Vec::new())];
        for path in front {
            parts[0].1.push(Chapter { title: title(root, &path)?, path, below: Vec::new() });
        }
        for section in index.split("\n## ") {
            let mut chapters = Vec::new();
            for link in links(section) {
                let Some(path) = document(root, Path::new(INDEX), &link.target) else { continue };
                if !seen.contains(&path) {
                    chapters.push(chapter(root, path, &mut seen)?);
                }
            }
            let heading = section.lines().next().unwrap_or_default();
            if !chapters.is_empty() {
                parts.push((heading.to_owned(), chapters));
            }
        }
        let lost: Vec<String> = below(root, Path::new("docs"))
            .into_iter()
            .filter(|path| !seen.contains(path) && !path.starts_with(DEPENDENCIES))
            .map(|path| path.display().to_string())
            .collect();
        if lost.is_empty() { Ok(Book { parts }) } else { Err(format!("{INDEX} does not lead to {lost:?}")) }
    }

    /// mdBook's list of chapters.
    fn summary(&self) -> String {
        let mut text = String::from("# Summary\n");
        for (heading, chapters) in &self.parts {
            if heading.is_empty() {
                text.push('\n');
                for chapter in chapters {
                    text.push_str(&format!("[{}]({})\n", chapter.title, in_site(&chapter.path).display()));
                }
            } else {
                text.push_str(&format!("\n# {heading}\n\n"));
                chapters.iter().for_each(|chapter| chapter.list(0, &mut text));
            }
        }
        text
    }

    /// Sources and settings of the site.
    fn write(&self, root: &Path, folder: &Path) -> Result<(), String> {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let source = folder.join("src");
        for chapter in self.parts.iter().flat_map(|(_, chapters)| chapters) {
            chapter.write(root, &source)?;
        }
        save(&source.join("SUMMARY.md"), &self.summary())?;
        save(&folder.join("book.toml"), SETTINGS)?;
        save(&folder.join("book.css"), include_str!("book.css"))
    }
}

impl Chapter {
    fn list(&self, depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        text.push_str(&format!("{indent}- [{}]({})\n", self.title, in_site(&self.path).display()));
        self.below.iter().for_each(|chapter| chapter.list(depth + 1, text));
    }

    fn write(&self, root: &Path, source: &Path) -> Result<(), String> {
        let text = if self.path == Path::new(DEPENDENCIES) {
            dependencies(root)?
        } else {
            let text = read(&root.join(&self.path))?;
            for picture in pictures(&text) {
                let from = beside(&self.path, &picture);
                let to = source.join(&from);
                fs::create_dir_all(to.parent().unwrap_or(source)).map_err(|error| error.to_string())?;
                fs::copy(root.join(&from), &to).map_err(|error| format!("{}: {error}", from.display()))?;
            }
            for_site(root, &self.path, &text)
        };
        save(&source.join(in_site(&self.path)), &text)?;
        self.below.iter().try_for_each(|chapter| chapter.write(root, source))
    }
}

fn chapter(root: &Path, path: PathBuf, seen: &mut Vec<PathBuf>) -> Result<Chapter, String> {
    seen.push(path.clone());
    if path == Path::new(DEPENDENCIES) {
        return Ok(Chapter { path, title: "Dependencies".to_owned(), below: Vec::new() });
    }
    let folder = if path.ends_with("README.md") {
        path.parent().map(Path::to_path_buf)
    } else {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        path.parent().map(|parent| parent.join(stem))
    };
    let folder = folder.filter(|folder| folder.starts_with("docs") && root.join(folder).is_dir());
    let mut members = Vec::new();
    if let Some(folder) = &folder {
        let text = read(&root.join(&path))?;
        let linked = links(&text).into_iter().filter_map(|link| document(root, &path, &link.target));
        members.extend(linked.filter(|member| member.parent() == Some(folder)));
        members.extend(below(root, folder).into_iter().filter(|member| !member.starts_with(DEPENDENCIES)));
    }
    let mut lower = Vec::new();
    for member in members {
        if !seen.contains(&member) {
            lower.push(chapter(root, member, seen)?);
        }
    }
    Ok(Chapter { title: title(root, &path)?, path, below: lower })
}

/// The first heading of a document.
fn title(root: &Path, path: &Path) -> Result<String, String> {
    let text = read(&root.join(path))?;
    let heading = text.lines().find(|line| line.starts_with('#'));
    let heading = heading.ok_or_else(|| format!("{} has no heading", path.display()))?;
    Ok(heading.trim_start_matches('#').trim().replace('`', ""))
}

/// All documents in a folder and below it, by name.
fn below(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            found.extend(below(root, &path));
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The document that a link of another one leads to; none if it leads out of the documents.
fn document(root: &Path, from: &Path, target: &str) -> Option<PathBuf> {
    let target = target.split('#').next().filter(|target| !target.is_empty() && !target.contains("://"))?;
    let path = beside(from, target);
    if path == Path::new(DEPENDENCIES) {
        return Some(path);
    }
    let path = if root.join(&path).is_dir() { path.join("README.md") } else { path };
    (path.extension().is_some_and(|end| end == "md") && root.join(&path).exists()).then_some(path)
}

/// Path of what a document names relative to itself.
fn beside(document: &Path, target: &str) -> PathBuf {
    let mut path = document.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    path
}

/// Where a document lies in the site's sources.
fn in_site(path: &Path) -> PathBuf {
    if path == Path::new(DEPENDENCIES) {
        path.join("index.md")
    } else if path.ends_with("README.md") {
        path.with_file_name("index.md")
    } else {
        path.to_path_buf()
    }
}

/// `[text](target)` in a document.
struct Link {
    start: usize,
    end: usize,
    text: String,
    target: String,
}

/// Links of a document, without those that stand in code.
fn links(text: &str) -> Vec<Link> {
    let mut found: Vec<Link> = Vec::new();
    let (mut open, mut in_code) = (None, false);
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let is_block = line.starts_with("    ");
        if is_block || line.trim().is_empty() {
            (open, in_code) = (None, false);
        }
        for (index, sign) in line.char_indices().filter(|_| !is_block) {
            let at = line_start + index;
            match sign {
                '`' => in_code = !in_code,
                _ if in_code || found.last().is_some_and(|link| at < link.end) => {}
                '[' => open = Some(at),
                ']' if text[at..].starts_with("](") => {
                    let (Some(start), Some(length)) = (open.take(), text[at..].find(')')) else { continue };
                    if !text[..start].ends_with('!') {
                        let (words, target) = (&text[start + 1..at], &text[at + 2..at + length]);
                        let (words, target) = (words.to_owned(), target.to_owned());
                        found.push(Link { start, end: at + length + 1, text: words, target });
                    }
                }
                _ => {}
            }
        }
        line_start += line.len();
    }
    found
}

/// Pictures of a document, as it names them.
fn pictures(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (mark, close) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
        for piece in text.split(mark).skip(1) {
            let name = piece.split(close).next().unwrap_or_default();
            if [".svg", ".png"].iter().any(|end| name.ends_with(end)) && !name.contains("://") {
                found.push(name.to_owned());
            }
        }
    }
    found
}

/// The text of a document with links as the site has them.
fn for_site(root: &Path, path: &Path, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for link in links(text) {
        out.push_str(&text[at..link.start]);
        at = link.end;
        let (target, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
        let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
        if target.is_empty() || target.contains("://") {
            out.push_str(&text[link.start..link.end]);
        } else if let Some(document) = document(root, path, target) {
            let there = from_to(&in_site(path), &in_site(&document));
            out.push_str(&format!("[{}]({there}{anchor})", link.text));
        } else {
            out.push_str(&link.text);
        }
    }
    out.push_str(&text[at..]);
    out
}

/// The relative path from one document to another.
fn from_to(from: &Path, to: &Path) -> String {
    let from: Vec<Component<'_>> = from.parent().unwrap_or(Path::new("")).components().collect();
    let to: Vec<Component<'_>> = to.components().collect();
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = (shared..from.len()).map(|_| "..".to_owned());
    let down = to[shared..].iter().map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

/// The notes on dependencies as one page.
fn dependencies(root: &Path) -> Result<String, String> {
    let mut page = String::from("# Dependencies\n");
    for path in below(root, Path::new(DEPENDENCIES)) {
        page.push_str(&format!("\n{}\n", read(&root.join(path))?.trim()));
    }
    Ok(page)
}

/// Links of the site that lead nowhere.
fn broken(site: &Path) -> Vec<String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![site.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "html") && !path.ends_with("404.html") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                pages.insert(path, text);
            }
        }
    }
    let mut found = Vec::new();
    for (page, text) in &pages {
        for piece in text.split("href=\"").chain(text.split("src=\"")).skip(1) {
            let link = piece.split('"').next().unwrap_or_default();
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if link.starts_with('<') || target.contains(':') || target.starts_with("//") {
                continue;
            }
            let there = if target.is_empty() { page.clone() } else { site.join(beside(page, target)) };
            let holds = |text: &String| anchor.is_empty() || text.contains(&format!("id=\"{anchor}\""));
            if !there.exists() || !pages.get(&there).is_none_or(holds) {
                let page = page.strip_prefix(site).unwrap_or(page);
                found.push(format!("{}: link to {link}, which leads nowhere", page.display()));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_document_is_a_chapter_once() {
        let summary = Book::of(&root()).unwrap_or_else(|error| panic!("{error}")).summary();
        for path in below(&root(), Path::new("docs")) {
            let wanted = if path.starts_with(DEPENDENCIES) { Path::new(DEPENDENCIES) } else { &path };
            let place = format!("({})", in_site(wanted).display());
            assert_eq!(summary.matches(&place).count(), 1, "{place}\n{summary}");
        }
        assert!(summary.starts_with("# Summary\n\n[Steadfast](index.md)\n"), "{summary}");
    }

    #[test]
    fn the_list_of_decisions_says_of_each_what_its_title_says() {
        let folder = Path::new("docs/decisions");
        let list = read(&root().join(folder).join("README.md")).unwrap();
        for path in below(&root(), folder) {
            if path.starts_with(DEPENDENCIES) || path.ends_with("README.md") {
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = read(&root().join(&path)).unwrap();
            let decided = text.lines().next().and_then(|line| line.strip_prefix("# ")?.split_once(": "));
            let (number, decided) = decided.unwrap_or_else(|| panic!("{name} does not begin '# NNNN: ...'"));
            assert!(name.starts_with(&format!("{number}-")), "{name} calls itself {number}");
            let row = format!("| [{number}]({name}) | {decided}");
            assert!(list.contains(&row), "docs/decisions/README.md has no row\n{row} |");
            assert_eq!(list.matches(&format!("| [{number}](")).count(), 1, "two records are {number}");
        }
    }

    #[test]
    fn files_that_contributors_are_sent_to_exist() {
        let text = read(&root().join("docs/CONTRIBUTING.md")).unwrap();
        let named = text.split('`').skip(1).step_by(2);
        let paths = named
            .filter(|code| ["crates/", "lab/", "tests/", "fuzz/"].iter().any(|top| code.starts_with(top)));
        let paths: Vec<&str> =
            paths.filter(|path| !path.contains(['*', ' ']) && !path.contains("NAME")).collect();
        assert!(paths.len() > 30, "{paths:?}");
        for path in paths {
            assert!(root().join(path).exists(), "docs/CONTRIBUTING.md names {path}, which is not there");
        }
    }

    /// Each row of "Twelve questions": its search finds the word in the head of the file it names.
    #[test]
    fn the_twelve_questions_are_answered_by_their_searches() {
        let text = read(&root().join("docs/CONTRIBUTING.md")).unwrap();
        let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split_once("`heads '"));
        let mut questions = 0;
        for (question, row) in rows {
            let (word, row) = row.split_once("'`").unwrap();
            let file = row.split('`').nth(1).unwrap();
            let source = read(&root().join(file)).unwrap();
            let found = source.lines().any(|line| line.starts_with("//!") && line.contains(word));
            assert!(found, "{question}: the head of {file} does not name '{word}'");
            questions += 1;
        }
        assert_eq!(questions, 12);
    }

    #[test]
    fn links_are_those_of_the_site() {
        let text = "[a\nz](../README.md#x) `[b](c.md)` [d](../crates/env/Cargo.toml) [e](https://e.org) ![f](img/f.svg)\n    [g](h.md)\n";
        let site = for_site(&root(), Path::new("docs/DESIGN.md"), text);
        assert_eq!(
            site,
            "[a\nz](../index.md#x) `[b](c.md)` d [e](https://e.org) ![f](img/f.svg)\n    [g](h.md)\n"
        );
        let folder = for_site(&root(), Path::new("README.md"), "[x](docs/decisions/)\n");
        assert_eq!(folder, "[x](docs/decisions/index.md)\n");
        assert_eq!(pictures("![f](img/f.svg) <img src=\"a.png\">"), ["img/f.svg", "a.png"]);
        assert_eq!(from_to(Path::new("docs/a/b.md"), Path::new("docs/c.md")), "../c.md");
    }
}

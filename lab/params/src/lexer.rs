//! From files to statements.
//!
//! # Rules (verified against 5.04.07 by its simulation mode)
//!
//! [lexer.1] Leading blanks are dropped; a line that is empty or begins with `/`, `#` or `*` is
//!      comment; a line that begins with `eof` ends its file.
//! [lexer.2] Everything from the first blank outside double quotes is comment. It is lost
//!      *silently* in vdbench; here what looks like a lost parameter is warned about.
//! [lexer.3] After that cut, a trailing comma joins the next line.
//! [lexer.4] `$name` and `!name` are replaced from the command line; one that cannot be replaced
//!      refuses the file, and so does a replacement that nothing uses. `$host` and `!host` stand
//!      for the name of a host, `#host` for its number: the line is there once for each `hd=`
//!      before it. `#hosts` is their number.
//! [lexer.5] `include=file` stands alone on its line, is looked for beside the including file and
//!      then in the current directory, and does not nest.

use crate::error::{Error, ErrorKind, Place, Warning};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// vdbench's own limit on lines, over all files together.
const LINES_MAX: usize = 32_768;
/// Nobody writes such a line; a hostile file would.
const STATEMENT_CHARS_MAX: usize = 1 << 20;

/// Of all lines that are there once for each host.
const COPIED_CHARS_MAX: usize = 8 << 20;

/// One value, as written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Value {
    /// Without its quotes.
    pub text: String,
    /// Quoted values are never ranges, wildcards or numbers with a minus between.
    pub quoted: bool,
}

/// `keyword=value` or `keyword=(value,...)`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Item {
    /// As written.
    pub keyword: String,
    /// At least one.
    pub values: Vec<Value>,
    /// Whether it stood in parentheses: only then are ranges ranges.
    pub listed: bool,
    /// Where the keyword stands.
    pub place: Place,
}

/// One logical line: at least one item.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Statement {
    /// In the order written.
    pub items: Vec<Item>,
}

/// Where files come from: the disk, or a test.
pub trait Files {
    /// The whole text of a file.
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>>;
}

/// Files of this machine.
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

/// A command-line replacement `name=value`.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    pub name: String,
    pub value: String,
    pub used: bool,
}

pub(crate) struct Lexer<'a> {
    pub files: &'a dyn Files,
    pub replacements: Vec<Replacement>,
    pub warnings: Vec<Warning>,
    /// Lines as read, for `parmfile.html`.
    pub copy: String,
    lines: usize,
    /// Names of `hd=` so far.
    hosts: Vec<String>,
    /// Names that the words of an `hd=` line make; the number is that of `clients=`.
    host_names: HostNames,
    /// `clients=` of `hd=default`.
    clients: u32,
    /// Characters of lines that are there once for each host.
    copied: usize,
}

/// The one word in whose list there are equal signs.
const REPLAY: &str = "replay";

/// Words that stand for a host, the longest first.
const HOST_WORDS: [&str; 4] = ["#hosts", "#host", "$host", "!host"];

/// Finds the names of hosts in an `hd=` line; keeps the number of `clients=` for lines that follow.
pub(crate) type HostNames = fn(&[Item], &mut u32) -> Vec<String>;

impl<'a> Lexer<'a> {
    pub(crate) fn new(
        files: &'a dyn Files,
        replacements: Vec<Replacement>,
        host_names: HostNames,
    ) -> Lexer<'a> {
        Lexer {
            files,
            replacements,
            warnings: Vec::new(),
            copy: String::new(),
            lines: 0,
            hosts: Vec::new(),
            host_names,
            clients: 0,
            copied: 0,
        }
    }

    /// All statements of one file and of what it includes.
    pub(crate) fn file(&mut self, path: &Path) -> Result<Vec<Statement>, Error> {
        let name: Arc<str> = path.to_string_lossy().into();
        let place = Place { file: name.clone(), line: 0 };
        let bytes = self.files.read(path).map_err(|cause| {
            let text = match cause.kind() {
                std::io::ErrorKind::NotFound => format!("Requested parameter file does not exist: {name}"),
                _ => format!("Requested parameter file cannot be read: {name}"),
            };
            let mut error = Error::new(ErrorKind::Unreadable, &place, &name, text);
            error.place = None;
            if cause.kind() == std::io::ErrorKind::NotFound { error } else { error.hint(cause.to_string()) }
        })?;
        self.copy += &format!("* Contents of parameter file: {name}\n\n");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.text(path, &name, &text, false)
    }

    /// All statements of a text.
    pub(crate) fn text(
        &mut self,
        path: &Path,
        name: &Arc<str>,
        text: &str,
        included: bool,
    ) -> Result<Vec<Statement>, Error> {
        let mut statements = Vec::new();
        let mut open: Vec<(char, u32)> = Vec::new();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let place = Place { file: name.clone(), line: index as u32 + 1 };
            self.lines += 1;
            if self.lines > LINES_MAX {
                let text = format!("more than {LINES_MAX} lines of parameters");
                return Err(Error::new(ErrorKind::TooLarge, &place, "", text));
            }
            self.copy += line;
            self.copy.push('\n');
            let line = line.trim_start_matches(is_blank);
            if line.is_empty() || line.starts_with(['/', '#', '*']) {
                continue;
            }
            if line.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("eof")) {
                break;
            }
            let kept = self.cut(line, &place)?;
            let kept = self.replace(kept, &place)?;
            if kept.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("include=")) && open.is_empty() {
                statements.extend(self.include(path, &kept[8..], &place, included)?);
                continue;
            }
            let joined = kept.ends_with(',');
            open.extend(kept.chars().map(|c| (c, place.line)));
            if open.len() > STATEMENT_CHARS_MAX {
                return Err(Error::new(ErrorKind::TooLarge, &place, "", "this line never ends".into()));
            }
            if !joined {
                self.line(&std::mem::take(&mut open), name, &mut statements)?;
            }
        }
        if let Some(&(_, line)) = open.last() {
            let place = Place { file: name.clone(), line };
            while open.last().is_some_and(|(c, _)| *c == ',') {
                open.pop();
            }
            self.warnings
                .push(Warning { place, text: "the last line ends with a comma, but no line follows".into() });
            if !open.is_empty() {
                self.line(&open, name, &mut statements)?;
            }
        }
        Ok(statements)
    }

    /// One logical line: a statement, or one for each host.
    fn line(
        &mut self,
        line: &[(char, u32)],
        name: &Arc<str>,
        statements: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let text: String = line.iter().map(|(c, _)| *c).collect();
        if !HOST_WORDS.iter().any(|word| text.contains(word)) {
            let statement = items(line, name)?;
            if statement.items.first().is_some_and(|item| item.keyword.eq_ignore_ascii_case("hd")) {
                self.hosts.extend((self.host_names)(&statement.items, &mut self.clients));
            }
            statements.push(statement);
            return Ok(());
        }
        let each = HOST_WORDS[1..].iter().any(|word| text.replace(HOST_WORDS[0], "").contains(word));
        let hosts = if self.hosts.is_empty() { vec!["localhost".to_string()] } else { self.hosts.clone() };
        let count = hosts.len().to_string();
        for (number, host) in (1..).zip(if each { &hosts[..] } else { &hosts[..1] }) {
            self.lines += 1;
            let place = Place { file: name.clone(), line: line.first().map_or(0, |(_, line)| *line) };
            let too_large = |text: String| Err(Error::new(ErrorKind::TooLarge, &place, "", text));
            if self.lines > LINES_MAX {
                return too_large(format!("more than {LINES_MAX} lines of parameters, one for each host"));
            }
            let number = number.to_string();
            let mut made = Vec::with_capacity(line.len());
            let mut at = 0;
            while at < line.len() {
                let here =
                    |word: &&&str| word.chars().eq(line[at..].iter().map(|(c, _)| *c).take(word.len()));
                let word = HOST_WORDS.iter().find(here);
                let value = match word {
                    Some(&"#hosts") => &count,
                    Some(&"#host") => &number,
                    Some(_) => host,
                    None => {
                        made.push(line[at]);
                        at += 1;
                        continue;
                    }
                };
                made.extend(value.chars().map(|c| (c, line[at].1)));
                if self.copied + made.len() > COPIED_CHARS_MAX {
                    return too_large("this line, once for each host, never ends".into());
                }
                at += word.map_or(1, |word| word.len());
            }
            self.copied += made.len();
            statements.push(items(&made, name)?);
        }
        Ok(())
    }

    /// [lexer.2]: the line without its comment.
    fn cut<'l>(&mut self, line: &'l str, place: &Place) -> Result<&'l str, Error> {
        let mut quoted = false;
        let mut end = line.len();
        for (at, c) in line.char_indices() {
            if c == '"' {
                quoted = !quoted;
            } else if !quoted && is_blank(c) {
                end = at;
                break;
            }
        }
        if quoted {
            let error = Error::new(
                ErrorKind::Syntax,
                place,
                line,
                "a double quote is opened and never closed".into(),
            );
            return Err(error);
        }
        let (kept, rest) = line.split_at(end);
        let rest = rest.trim_matches(is_blank);
        if looks_lost(rest) {
            let text = format!(
                "everything after a blank is comment, so '{rest}' is ignored; remove the blank before it"
            );
            self.warnings.push(Warning { place: place.clone(), text });
        }
        Ok(kept)
    }

    /// [lexer.4]
    fn replace(&mut self, line: &str, place: &Place) -> Result<String, Error> {
        let mut out = String::with_capacity(line.len());
        let mut rest = line;
        let mut quoted = false;
        while let Some(c) = rest.chars().next() {
            quoted ^= c == '"';
            let tail = &rest[c.len_utf8()..];
            let is_name = tail.chars().next().is_some_and(|next| next.is_ascii_alphabetic() || next == '_');
            if (c != '$' && c != '!') || !is_name {
                out.push(c);
                rest = tail;
                continue;
            }
            let found = self
                .replacements
                .iter_mut()
                .filter(|r| tail.starts_with(&r.name))
                .max_by_key(|r| r.name.len());
            match found {
                Some(replacement) => {
                    replacement.used = true;
                    out += &replacement.value;
                    rest = &tail[replacement.name.len()..];
                }
                // A host's name is put in when the line is whole.
                None if tail.starts_with("host") => {
                    out.push(c);
                    rest = tail;
                }
                // A quoted command may well hold a shell's own variable.
                None if quoted => {
                    out.push(c);
                    rest = tail;
                }
                None => {
                    let name: String =
                        tail.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                    let word = format!("{c}{name}");
                    let text = format!("no value for {word} is given on the command line");
                    return Err(Error::new(ErrorKind::Unresolved, place, &word, text)
                        .hint(format!("add {name}=value after the options")));
                }
            }
        }
        Ok(out)
    }

    /// [lexer.5]
    fn include(
        &mut self,
        path: &Path,
        value: &str,
        place: &Place,
        nested: bool,
    ) -> Result<Vec<Statement>, Error> {
        let wanted = value.trim_matches('"').trim_end_matches(',');
        if nested {
            let text = format!("include={wanted} is in a file that is itself included");
            return Err(Error::new(ErrorKind::NotYet, place, "include", text).hint("includes do not nest"));
        }
        let beside = path.parent().map_or_else(|| PathBuf::from(wanted), |dir| dir.join(wanted));
        let found = [beside, PathBuf::from(wanted)].into_iter().find_map(|at| {
            let bytes = self.files.read(&at).ok()?;
            Some((at, bytes))
        });
        let Some((at, bytes)) = found else {
            let text = format!("Requested parameter file does not exist: {wanted}");
            return Err(Error::new(ErrorKind::Unreadable, place, wanted, text));
        };
        let name: Arc<str> = at.to_string_lossy().into();
        self.copy += &format!("\n* Contents of include file: {name}\n\n");
        self.text(&at, &name, &String::from_utf8_lossy(&bytes), true)
    }

    /// [lexer.4], the other half.
    pub(crate) fn refuse_unused(&self) -> Result<(), Error> {
        let Some(unused) = self.replacements.iter().find(|r| !r.used) else { return Ok(()) };
        let place = Place { file: "command line".into(), line: 0 };
        let text = format!("'{}={}' replaces nothing", unused.name, unused.value);
        Err(Error::new(ErrorKind::Unresolved, &place, &unused.name, text)
            .hint(format!("no parameter file contains ${}", unused.name)))
    }
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\0'
}

/// `,interval=1` or `size=4m`, but not `# size=4m`.
fn looks_lost(rest: &str) -> bool {
    if rest.is_empty() || rest.starts_with(['#', '*', '/', '-', ';']) {
        return false;
    }
    let word = rest.trim_start_matches(',').split(is_blank).next().unwrap_or("");
    let Some((name, value)) = word.split_once('=') else { return false };
    !name.is_empty() && !value.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic())
}

/// Splits one logical line. Each character carries its line number, because lines may be joined.
fn items(line: &[(char, u32)], name: &Arc<str>) -> Result<Statement, Error> {
    let mut items = Vec::new();
    let mut at = 0;
    let place = |at: usize| {
        let line = line.get(at).or(line.last()).map_or(0, |(_, line)| *line);
        Place { file: name.clone(), line }
    };
    while at < line.len() {
        let start = at;
        while at < line.len() && !matches!(line[at].0, '=' | ',' | '(' | ')' | '"') {
            at += 1;
        }
        let keyword: String = line[start..at].iter().map(|(c, _)| c).collect();
        if at >= line.len() || line[at].0 != '=' || keyword.is_empty() {
            let mut word = keyword;
            if word.is_empty() {
                word = line[start..].iter().take(20).map(|(c, _)| c).collect();
            }
            let text = format!("'{word}' is not of the form keyword=value");
            let hint = "is an equal sign missing, or parentheses around a list?";
            return Err(Error::new(ErrorKind::Syntax, &place(start), &word, text).hint(hint));
        }
        at += 1;
        let item_place = place(start);
        let listed = at < line.len() && line[at].0 == '(';
        let mut values = Vec::new();
        if listed {
            at += 1;
            loop {
                let (value, next) = value(line, at, true, &keyword, &item_place)?;
                values.push(value);
                at = next;
                match line.get(at).map(|(c, _)| *c) {
                    Some(',') => at += 1,
                    Some(')') => break,
                    _ => {
                        let text = format!("the list of {keyword}= is opened with '(' and never closed");
                        return Err(Error::new(ErrorKind::Syntax, &item_place, &keyword, text));
                    }
                }
            }
            at += 1;
        } else {
            let (value, next) = value(line, at, false, &keyword, &item_place)?;
            values.push(value);
            at = next;
        }
        match line.get(at).map(|(c, _)| *c) {
            None => {}
            Some(',') => at += 1,
            Some(c) => {
                let text = format!("a comma is missing before '{c}' after the value of {keyword}=");
                return Err(Error::new(ErrorKind::Syntax, &place(at), &keyword, text));
            }
        }
        items.push(Item { keyword, values, listed, place: item_place });
    }
    Ok(Statement { items })
}

fn value(
    line: &[(char, u32)],
    mut at: usize,
    listed: bool,
    keyword: &str,
    place: &Place,
) -> Result<(Value, usize), Error> {
    let mut text = String::new();
    let mut quoted = false;
    let mut inside = false;
    while let Some(&(c, _)) = line.get(at) {
        match c {
            '"' => {
                inside = !inside;
                quoted = true;
            }
            _ if inside => text.push(c),
            ',' => break,
            ')' if listed => break,
            // `replay=(file,repeat=2)`.
            '=' if listed && REPLAY.starts_with(&keyword.to_ascii_lowercase()) && keyword.len() > 2 => {
                text.push(c)
            }
            '=' | '(' | ')' => {
                let text = format!("'{c}' inside the value of {keyword}=");
                let hint = "is a comma missing before it? If it is meant, put the value in double quotes";
                return Err(Error::new(ErrorKind::Syntax, place, keyword, text).hint(hint));
            }
            _ => text.push(c),
        }
        at += 1;
    }
    if text.is_empty() && !quoted {
        let error = Error::new(ErrorKind::Syntax, place, keyword, format!("{keyword}= has no value"));
        return Err(error);
    }
    Ok((Value { text, quoted }, at))
}

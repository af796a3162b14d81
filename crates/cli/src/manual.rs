//! Manual pages, made from the tables that the parser and `--help` read.
//!
//! The pages are in the language of man(7), which every Unix formats.

use crate::command::{Catalog, Command, Door, Family, NotBuilt};
use crate::examples;
use crate::message::capital;
use crate::options::{Flag, Syntax};
use std::fmt::Write as _;
use steadfast_control::{Code, Refusal};
use steadfast_property::{DATASET, POOL, Property};

/// A page: the name of its file, and its text.
pub struct Page {
    /// `steadfast-pool-create.8` and the like.
    pub file: String,
    /// In the language of man(7).
    pub text: String,
}

/// Section of commands.
const VERBS: u8 = 8;
/// Section of miscellanea.
const MISCELLANEA: u8 = 7;

/// All pages.
#[must_use]
pub fn pages(catalog: &Catalog) -> Vec<Page> {
    let mut pages = Vec::new();
    for (family, word) in catalog.families {
        let title = joined(&["steadfast", word]);
        pages.push(overview(catalog, family, word, &title));
        for command in family.commands {
            let name = joined(&[&title, command.names[0]]);
            pages.push(of_command(command, family, word, &name));
        }
        for door in family.doors {
            pages.push(of_door(door, &joined(&[&title, door.name])));
        }
    }
    let [name, other_names @ ..] = catalog.mount_names;
    pages.push(of_mount_helper(catalog.mount, name));
    pages.extend(other_names.map(|other_name| Page {
        file: format!("{other_name}.{VERBS}"),
        text: format!(".so man{VERBS}/{name}.{VERBS}\n"),
    }));
    pages.push(properties());
    pages.push(codes());
    pages
}

fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("-")
}

/// Escapes a text, so that none of its characters is a request or an escape sequence.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for (index, line) in text.lines().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if line.starts_with(['.', '\'']) {
            out.push_str("\\&");
        }
        out.push_str(&line.replace('\\', "\\e").replace('-', "\\-"));
    }
    out
}

fn page(name: &str, section: u8, summary: &str, body: &str) -> Page {
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        ".TH {} {section} \"\" \"Steadfast {version}\" \"Steadfast Manual\"\n.SH NAME\n{} \\- {}\n{body}",
        name.to_uppercase(),
        plain(name),
        plain(first_sentence(summary)),
    );
    Page { file: format!("{name}.{section}"), text }
}

/// The first sentence of a description, without its full stop.
fn first_sentence(doc: &str) -> &str {
    let line = doc.lines().next().unwrap_or_default();
    line.split_once(". ").map_or(line, |(first, _)| first).trim_end_matches('.')
}

fn flag_name(flag: &Flag) -> String {
    let mut names = Vec::new();
    if flag.letter != '\0' {
        names.push(format!("\\fB\\-{}\\fR", flag.letter));
    }
    if !flag.long.is_empty() {
        names.push(format!("\\fB\\-\\-{}\\fR", plain(flag.long)));
    }
    let mut name = names.join(", ");
    if !flag.value.is_empty() {
        let _ = write!(name, " \\fI{}\\fR", plain(flag.value));
    }
    name
}

fn options(syntax: &Syntax) -> String {
    if syntax.flags.is_empty() {
        return String::new();
    }
    let mut text = ".SH OPTIONS\n".to_owned();
    // An option that is refused says so when it is typed.
    for flag in syntax.flags.iter().filter(|flag| !is_refused(flag)) {
        let _ = writeln!(text, ".TP\n{}\n{}.", flag_name(flag), plain(&capital(flag.doc)));
    }
    text
}

/// True for an option of ZFS that is understood in order to be refused.
pub(crate) fn is_refused(flag: &Flag) -> bool {
    flag.doc.starts_with("refused")
}

const EXIT: &str =
    ".SH EXIT STATUS\n0: success. 1: something was refused or failed. 2: wrong command line.\n";

fn of_command(command: &Command, family: &Family, word: &str, name: &str) -> Page {
    let mut forms = Vec::new();
    for verb in command.names {
        match word {
            "" => forms.push(format!("steadfast {verb}")),
            word => forms.extend([format!("steadfast {word} {verb}"), format!("{} {verb}", family.name)]),
        }
    }
    let found = examples::of(family.name, word, command.names);
    of_syntax(command, &forms, word, name, &examples::section(&found, plain))
}

fn of_mount_helper(command: &Command, name: &str) -> Page {
    of_syntax(command, &[name.to_owned()], "", name, MOUNTING)
}

/// A page of a command that is called in these forms, with `more` behind its options.
fn of_syntax(command: &Command, forms: &[String], word: &str, name: &str, more: &str) -> Page {
    let mut body = ".SH SYNOPSIS\n".to_owned();
    for form in forms {
        let _ = writeln!(body, "\\fB{}\\fR{}\n.br", plain(form), plain(&command.syntax.usage()));
    }
    let _ = writeln!(body, ".SH DESCRIPTION\n{}", plain(command.doc));
    body.push_str(&options(&command.syntax));
    body.push_str(more);
    body.push_str(EXIT);
    body.push_str(&see_also(word));
    page(name, VERBS, command.doc, &body)
}

/// Section of the mount helper: its callers, and the options it ignores.
const MOUNTING: &str = "\
.SH HOW MOUNT CALLS IT
.BR mount (8)
calls \\fBmount.steadfast\\fR for a line of /etc/fstab with the type \\fBsteadfast\\fR. It calls
\\fBmount.fuse.steadfast\\fR, the same program, to change the options of a mount, because the kernel lists its type as
\\fBfuse.steadfast\\fR. It calls \\fBmount.zfs\\fR, which is the same too, for the type \\fBzfs\\fR.
.PP
.nf
\\fBmount \\-o remount,ro /home\\fR
.fi
.PP
After this command the kernel refuses all changes, and the daemon updates no access times. Without the helper
(\\fBmount \\-i \\-o remount,ro /home\\fR) only the kernel knows, and reading still updates access times in the pool.
.PP
.SH SYNC
\\fBsync\\fR(1) waits until all pools have committed, where the daemon is root's and Linux is 6.18 or newer. The kernel
does not pass \\fBsync \\-f\\fR and \\fBsyncfs\\fR(2) to FUSE: after them a file is as little durable as before. It is durable
after \\fBfsync\\fR(2), after \\fBzpool sync\\fR, or after ten seconds.
.SH OPTIONS OF OTHERS
Options for mount itself (\\fBnoauto\\fR, \\fBnofail\\fR, \\fBx\\-...\\fR) and options that the kernel lists for every FUSE
mount (\\fBuser_id=\\fR, \\fBdefault_permissions\\fR) are ignored.
";

fn of_door(door: &Door, name: &str) -> Page {
    let usage = plain(&format!("steadfast {} {}", door.name, door.usage));
    let body =
        format!(".SH SYNOPSIS\n\\fB{usage}\\fR\n.SH DESCRIPTION\n{}\n{}", plain(door.doc), see_also(""));
    page(name, VERBS, door.doc, &body)
}

fn see_also(word: &str) -> String {
    let family = joined(&["steadfast", word]);
    let properties = if word.is_empty() { "" } else { ",\n.BR steadfast\\-properties (7)" };
    format!(".SH SEE ALSO\n.BR {} (8){properties},\n.BR steadfast\\-codes (7)\n", plain(&family))
}

fn overview(catalog: &Catalog, family: &Family, word: &str, title: &str) -> Page {
    let summary = family.doc.lines().next().unwrap_or_default();
    let shown = title.replacen('-', " ", 1);
    let mut body = format!(".SH SYNOPSIS\n\\fB{}\\fR \\fIcommand\\fR ...\n", plain(&shown));
    if !word.is_empty() {
        let _ = writeln!(body, ".br\n\\fB{}\\fR \\fIcommand\\fR ...", plain(family.name));
    }
    let _ = writeln!(body, ".SH DESCRIPTION\n{}\n.SH COMMANDS", plain(family.doc));
    let entries = family
        .commands
        .iter()
        .map(|c| (c.names[0], c.syntax.usage(), c.doc))
        .chain(family.doors.iter().map(|door| (door.name, format!(" {}", door.usage), door.doc)));
    for (name, usage, doc) in entries {
        let _ = writeln!(body, ".TP\n\\fB{}\\fR{}\n{}", plain(name), plain(&usage), plain(doc));
    }
    if word.is_empty() {
        for (family, word) in catalog.families.iter().filter(|(_, word)| !word.is_empty()) {
            let doc = plain(family.doc);
            let _ = writeln!(body, ".TP\n\\fB{}\\fR \\fIcommand\\fR ...\n{doc}", plain(word));
        }
        body.push_str(ENVIRONMENT);
    }
    if !family.not_built.is_empty() {
        body.push_str(".SH NOT BUILT\n");
        for NotBuilt { name, reason, instead } in family.not_built {
            let text = format!("{}. {instead}", capital(reason));
            let _ = writeln!(body, ".TP\n\\fB{}\\fR\n{}", plain(name), plain(text.trim_end()));
        }
    }
    body.push_str(EXIT);
    let pages: Vec<String> = family
        .commands
        .iter()
        .map(|command| joined(&[title, command.names[0]]))
        .chain(family.doors.iter().map(|door| joined(&[title, door.name])))
        .map(|name| format!(".BR {} (8)", plain(&name)))
        .collect();
    let _ = writeln!(body, ".SH SEE ALSO\n{}", pages.join(",\n"));
    page(title, VERBS, summary, &body)
}

const ENVIRONMENT: &str = "\
.SH ENVIRONMENT
.TP
\\fBSTEADFAST_RUNTIME_DIR\\fR
Folder of the daemon's socket, lock and list of pools. Each folder has a daemon of its own.
.SH FILES
.TP
\\fI/run/steadfast\\fR, \\fI$XDG_RUNTIME_DIR/steadfast\\fR
The socket of root's daemon and of an ordinary user's. Without \\fBXDG_RUNTIME_DIR\\fR it is in
\\fI~/.local/state/steadfast/run\\fR.
.TP
\\fI/var/lib/steadfast/pools.json\\fR, \\fI~/.local/state/steadfast/pools.json\\fR
Pools that the daemon imports when it starts.
";

fn properties() -> Page {
    let mut body = String::new();
    let mut table = |heading: &str, table: &[Property]| {
        let _ = writeln!(body, ".SH {heading}");
        for property in table {
            let _ = writeln!(body, ".TP\n\\fB{}\\fR={}", plain(property.name), plain(property.values));
            let _ = writeln!(body, "{}", plain(property.doc));
            if let Some(default) = property.default.filter(|default| *default != "-") {
                let _ = writeln!(body, "Default: {}.", plain(&property.shown(default)));
            }
        }
    };
    table("PROPERTIES OF POOLS", POOL);
    table("PROPERTIES OF FILE SYSTEMS", DATASET);
    body.push_str(".SH SEE ALSO\n.BR steadfast\\-pool\\-set (8),\n.BR steadfast\\-fs\\-set (8)\n");
    page("steadfast-properties", MISCELLANEA, "properties of Steadfast's pools and file systems", &body)
}

fn codes() -> Page {
    let mut body = ".SH CODES\n".to_owned();
    for code in Code::ALL {
        let action = Refusal::new(*code, "").advice();
        let (name, meaning) = (plain(code.as_str()), plain(code.meaning()));
        let _ = writeln!(body, ".TP\n\\fB{name}\\fR\n{meaning}\n{}", plain(&action));
    }
    body.push_str(".SH SEE ALSO\n.BR steadfast (8)\n");
    page("steadfast-codes", MISCELLANEA, "Steadfast's message codes, with meaning and action", &body)
}

//! Manual pages, from the tables that the parser and `--help` read: there is one place where an option is described.
//!
//! The pages are in the language of man(7), which every Unix formats.

use crate::family::{Command, Door, Family};
use crate::options::{Flag, Syntax};
use crate::{steadfast, zfs, zpool};
use std::fmt::Write as _;
use steadfast_control::Code;
use steadfast_property::{DATASET, POOL, Property};

/// A page: the name of its file, and its text.
pub struct Page {
    /// `steadfast-pool-create.8` and the like.
    pub file: String,
    /// In the language of man(7).
    pub text: String,
}

/// The families, each with the word that our own commands put before theirs.
pub const FAMILIES: [(&Family, &str); 3] =
    [(&steadfast::FAMILY, ""), (&zpool::FAMILY, "pool"), (&zfs::FAMILY, "fs")];

/// Manual of the commands and their words.
const VERBS: u8 = 8;
/// Manual of what is neither command nor file.
const MISCELLANEA: u8 = 7;

/// All pages.
#[must_use]
pub fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    for (family, word) in FAMILIES {
        let title = joined(&["steadfast", word]);
        pages.push(overview(family, word, &title));
        for command in family.commands {
            let name = joined(&[&title, command.names[0]]);
            pages.push(of_command(command, family, word, &name));
        }
        for door in family.doors {
            pages.push(of_door(door, &joined(&[&title, door.name])));
        }
    }
    pages.push(of_command(&steadfast::MOUNT, &steadfast::FAMILY, "", "mount.steadfast"));
    pages.push(Page {
        file: format!("{}.{VERBS}", steadfast::MOUNT_OF_LISTED),
        text: format!(".so man{VERBS}/mount.steadfast.{VERBS}\n"),
    });
    pages.push(properties());
    pages.push(codes());
    pages
}

fn joined(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("-")
}

/// Text that means itself: no character of it is a request or an escape.
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
        plain(summary.trim_end_matches('.')),
    );
    Page { file: format!("{name}.{section}"), text }
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
    for flag in syntax.flags {
        let _ = writeln!(text, ".TP\n{}\n{}.", flag_name(flag), plain(&capital(flag.doc)));
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

const EXIT: &str = ".SH EXIT STATUS\n0 if all was done, 1 if something was refused or failed, 2 if the command was not \
                    understood.\n";

fn of_command(command: &Command, family: &Family, word: &str, name: &str) -> Page {
    let mut body = ".SH SYNOPSIS\n".to_owned();
    let own = name == "mount.steadfast";
    for verb in command.names {
        let forms = match (own, word) {
            (true, _) => vec![name.to_owned()],
            (false, "") => vec![format!("steadfast {verb}")],
            (false, word) => vec![format!("steadfast {word} {verb}"), format!("{} {verb}", family.name)],
        };
        for form in forms {
            let _ = writeln!(body, "\\fB{}\\fR{}\n.br", plain(&form), plain(&command.syntax.usage()));
        }
    }
    let _ = writeln!(body, ".SH DESCRIPTION\n{}", plain(command.doc));
    body.push_str(&options(&command.syntax));
    if own {
        body.push_str(MOUNTING);
    }
    body.push_str(EXIT);
    body.push_str(&see_also(word));
    page(name, VERBS, command.doc, &body)
}

/// Of the mount helper: who calls it, and what it passes over.
const MOUNTING: &str = "\
.SH HOW MOUNT CALLS IT
.BR mount (8)
calls \\fBmount.steadfast\\fR for a line of /etc/fstab with the type \\fBsteadfast\\fR, and \\fBmount.fuse.steadfast\\fR, which is
the same program, to change a mount that is there: the kernel lists its type as \\fBfuse.steadfast\\fR.
.PP
.nf
\\fBmount \\-o remount,ro /home\\fR
.fi
.PP
From then on the kernel refuses every change, and the daemon moves no access time. Without the helper
\\fBmount \\-i \\-o remount,ro /home\\fR tells only the kernel; reading goes on moving access times in the pool.
.PP
Words that concern only mount itself (\\fBnoauto\\fR, \\fBnofail\\fR, \\fBx\\-...\\fR) and those that the kernel lists for every FUSE
mount (\\fBuser_id=\\fR, \\fBdefault_permissions\\fR) are passed over.
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

fn overview(family: &Family, word: &str, title: &str) -> Page {
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
        for (family, word) in FAMILIES.iter().filter(|(_, word)| !word.is_empty()) {
            let doc = plain(family.doc);
            let _ = writeln!(body, ".TP\n\\fB{}\\fR \\fIcommand\\fR ...\n{doc}", plain(word));
        }
        body.push_str(ENVIRONMENT);
    }
    if !family.later.is_empty() {
        body.push_str(".SH NOT BUILT\n");
        for (name, why) in family.later {
            let why = if why.is_empty() { "Not yet." } else { why };
            let _ = writeln!(
                body,
                ".TP\n\\fB{}\\fR\n{}.",
                plain(name),
                plain(&capital(why.trim_end_matches('.')))
            );
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
Folder of the daemon's socket, lock and list of pools. Whoever names another folder has another daemon.
.SH FILES
.TP
\\fI/run/steadfast\\fR, \\fI$XDG_RUNTIME_DIR/steadfast\\fR
The socket of root's daemon and of an ordinary user's.
.TP
\\fI/var/lib/steadfast/pools.json\\fR, \\fI~/.local/state/steadfast/pools.json\\fR
The pools that the daemon imports when it starts.
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
        let action = code.action().replace(['{', '}'], "");
        let (name, meaning) = (plain(code.as_str()), plain(code.meaning()));
        let _ = writeln!(body, ".TP\n\\fB{name}\\fR\n{meaning}\n{}", plain(&action));
    }
    body.push_str(".SH SEE ALSO\n.BR steadfast (8)\n");
    page("steadfast-codes", MISCELLANEA, "what Steadfast's messages mean and what to do", &body)
}

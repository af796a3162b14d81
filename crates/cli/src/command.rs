//! Commands and families of commands, as types. [`crate::catalog`] lists them all.

use crate::options::{Parsed, Syntax};
use crate::session::{Failure, Session};
use crate::world::World;

/// Exit status of success.
pub const SUCCESS: u8 = 0;
/// Exit status of a command that failed.
pub const FAILED: u8 = 1;
/// Exit status of a wrong command line.
pub const USAGE: u8 = 2;

/// One command.
pub struct Command {
    /// Name, then its synonyms.
    pub names: &'static [&'static str],
    /// Options and operands.
    pub syntax: Syntax,
    /// Description; the first sentence is its summary.
    pub doc: &'static str,
    /// Runs the command.
    pub run: fn(&mut Session<'_, '_>, &Parsed) -> Result<(), Failure>,
}

/// A command with a parser of its own: the words behind its name are passed on unread.
pub struct Door {
    /// Name.
    pub name: &'static str,
    /// Options and operands in short.
    pub usage: &'static str,
    /// Description in one sentence.
    pub doc: &'static str,
    /// Runs the command and returns the exit status.
    pub run: fn(&mut World<'_>, &[String]) -> u8,
}

/// A command that is not built.
pub struct NotBuilt {
    /// Name.
    pub name: &'static str,
    /// Reason, without capital and full stop.
    pub reason: &'static str,
    /// Another way to reach the same; empty if there is none.
    pub instead: &'static str,
}

/// Commands that share a first word.
pub struct Family {
    /// ZFS's name, or ours where ZFS has none.
    pub name: &'static str,
    /// Our own name.
    pub own: &'static str,
    /// Description.
    pub doc: &'static str,
    /// Its commands.
    pub commands: &'static [Command],
    /// Its commands with parsers of their own.
    pub doors: &'static [Door],
    /// Commands that are not built.
    pub not_built: &'static [NotBuilt],
}

/// All commands of the program.
pub struct Catalog {
    /// The families, each with the word that our own commands put before theirs.
    pub families: &'static [(&'static Family, &'static str)],
    /// The helper of mount(8), which has a name of its own.
    pub mount: &'static Command,
    /// Its names; the first one is its manual page.
    pub mount_names: [&'static str; 3],
}

impl Catalog {
    /// Every command with the word before it, once for each of its names.
    pub fn commands(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static Command)> {
        self.families.iter().flat_map(|(family, word)| {
            family.commands.iter().flat_map(move |c| c.names.iter().map(move |name| (*word, *name, c)))
        })
    }
}

/// A text in lines of 80 columns at most, the first one and the others indented by so many spaces.
/// A part in brackets stays together.
fn wrapped(first: usize, others: usize, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), " ".repeat(first));
    let (mut word, mut depth, mut is_begun) = (String::new(), 0_usize, false);
    for part in text.split(' ') {
        if !word.is_empty() {
            word.push(' ');
        }
        word.push_str(part);
        depth = (depth + part.matches('[').count()).saturating_sub(part.matches(']').count());
        if depth > 0 {
            continue;
        }
        if is_begun && line.chars().count() + 1 + word.chars().count() > 80 {
            lines.push_str(&line);
            lines.push('\n');
            line = " ".repeat(others);
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(&word);
        is_begun = true;
        word.clear();
    }
    lines + line.as_str() + word.as_str() + "\n"
}

impl Family {
    /// The text of `help`. `shown` is the family's name as the operator typed it.
    #[must_use]
    pub fn help(&self, shown: &str) -> String {
        let mut text: String = self.doc.lines().map(|line| wrapped(0, 0, line)).collect();
        text += &format!("usage: {shown} command args ...\n");
        for command in self.commands {
            text += &wrapped(4, 12, &format!("{}{}", command.names[0], command.syntax.usage()));
            text += &wrapped(8, 8, command.doc);
        }
        for door in self.doors {
            text += &wrapped(4, 12, &format!("{} {}", door.name, door.usage));
            text += &wrapped(8, 8, door.doc);
        }
        if !self.not_built.is_empty() {
            let names: Vec<&str> = self.not_built.iter().map(|command| command.name).collect();
            text += &wrapped(0, 4, &format!("not built: {}", names.join(", ")));
        }
        let more = format!(
            "`{shown} command --help` lists the options of a command, `{shown} help properties` all properties."
        );
        text + &wrapped(0, 0, &more)
    }

    /// Names and descriptions of all its commands, synonyms and doors.
    #[must_use]
    pub fn verbs(&self) -> Vec<(&'static str, &'static str)> {
        let commands = self.commands.iter().flat_map(|c| c.names.iter().map(|name| (*name, c.doc)));
        commands.chain(self.doors.iter().map(|door| (door.name, door.doc))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::CATALOG;

    #[test]
    fn help_fits_a_terminal_and_begins_as_that_of_zfs() {
        for (family, _) in CATALOG.families {
            let help = family.help(family.name);
            let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
            assert_eq!(wide, Vec::<&str>::new(), "{}", family.name);
            assert!(help.contains(&format!("\nusage: {} command args ...\n", family.name)), "{help}");
        }
    }
}

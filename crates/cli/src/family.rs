//! Which commands there are, under which names, and how a command line finds its command.

use crate::options::{Parsed, Syntax};
use crate::world::World;
use crate::{steadfast, zfs, zpool};
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::path::Path;
use steadfast_control::client::Client;
use steadfast_control::{Code, Refusal};

/// Exit status of success.
pub const SUCCESS: u8 = 0;
/// Exit status of a command that failed.
pub const FAILED: u8 = 1;
/// Exit status of a command that was not understood.
pub const USAGE: u8 = 2;

/// One command.
pub struct Command {
    /// Its name, and other names it answers to.
    pub names: &'static [&'static str],
    /// What it takes.
    pub syntax: Syntax,
    /// What it does, in one sentence.
    pub doc: &'static str,
    /// Does it.
    pub run: fn(&mut Session<'_, '_>, &Parsed) -> Result<(), Failure>,
}

/// A command of another room, with a command line of its own: everything behind its name is passed on unread.
pub struct Door {
    /// Its name.
    pub name: &'static str,
    /// Its options and operands in short.
    pub usage: &'static str,
    /// What it does, in one sentence.
    pub doc: &'static str,
    /// Does it, and returns the exit status.
    pub run: fn(&mut World<'_>, &[String]) -> u8,
}

/// Commands that share a first word.
pub struct Family {
    /// ZFS's name, or ours where ZFS has none.
    pub name: &'static str,
    /// Our own words for it.
    pub own: &'static str,
    /// What it is about.
    pub doc: &'static str,
    /// Its commands.
    pub commands: &'static [Command],
    /// Commands of other rooms.
    pub doors: &'static [Door],
    /// Commands of ZFS that are not built, each with why or what to do instead, where there is something to say.
    pub later: &'static [(&'static str, &'static str)],
}

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// It was not understood.
    Usage(String),
    /// It was refused, while doing this ("cannot create 'tank'").
    Refused(String, Box<Refusal>),
    /// Everything has been said already; this is the exit status.
    Status(u8),
}

/// Adds what was being done to a refusal.
pub trait Doing<T> {
    /// `doing` reads like "cannot create 'tank'".
    ///
    /// # Errors
    /// The refusal with `doing`.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T> Doing<T> for Result<T, Refusal> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|refusal| Failure::Refused(doing(), Box::new(refusal)))
    }
}

/// One run of one command.
pub struct Session<'a, 'w> {
    /// What is outside.
    pub world: &'a mut World<'w>,
    /// What will be printed on standard output.
    pub out: String,
    /// The command as typed.
    pub typed: String,
    /// How messages name the commands: in the words the operator used.
    pub words: Words,
    client: Option<Client>,
    pub(crate) failed: bool,
}

/// The operator's vocabulary.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Words {
    /// `zpool list`.
    Zfs,
    /// `steadfast pool list`.
    Own,
}

impl Session<'_, '_> {
    /// The daemon.
    ///
    /// # Errors
    /// Why there is none.
    pub fn daemon(&mut self) -> Result<&mut Client, Refusal> {
        if self.client.is_none() {
            let runtime = self.world.runtime();
            self.client = Some((self.world.connect)(&runtime, &self.typed)?);
        }
        Ok(self.client.as_mut().expect("it was connected just now"))
    }

    /// Asks the daemon.
    ///
    /// # Errors
    /// What the daemon refuses.
    pub fn ask<C: steadfast_control::api::Call>(&mut self, request: C) -> Result<C::Answer, Refusal> {
        self.daemon()?.call(request)
    }

    /// Asks the daemon for a stream, which goes to or comes from this descriptor. What `say` makes of its progress goes to standard
    /// error.
    ///
    /// # Errors
    /// What the daemon refuses.
    pub fn stream<C: steadfast_control::api::Call>(
        &mut self,
        request: C,
        data: BorrowedFd<'_>,
        say: &dyn Fn(&str, u64) -> String,
    ) -> Result<C::Answer, Refusal> {
        self.daemon()?;
        let err = &mut *self.world.err;
        let client = self.client.as_mut().expect("it was connected just now");
        client.call_with(request, Some(data), &mut |what, bytes| {
            let _ = err.write_all(say(what, bytes).as_bytes());
        })
    }

    /// Adds a line to standard output.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.out.push_str(text.as_ref());
        self.out.push('\n');
    }

    /// Prints what has been gathered for standard output. False if nobody reads it any more.
    pub fn flush(&mut self) -> bool {
        let text = std::mem::take(&mut self.out);
        self.world.out.write_all(text.as_bytes()).and_then(|()| self.world.out.flush()).is_ok()
    }

    /// Hangs up; the next question connects anew.
    pub fn disconnect(&mut self) {
        self.client = None;
    }

    /// Tells of a failure and goes on; the exit status will be 1.
    pub fn complain(&mut self, doing: &str, refusal: &Refusal) {
        self.failed = true;
        let text = explain(doing, refusal, self.words);
        self.tell(&text);
    }

    /// Tells of warnings that came with a success. What was asked for was done, but not all that goes with it.
    pub fn warn(&mut self, doing: &str, warnings: &[Refusal]) {
        for warning in warnings {
            self.complain(doing, warning);
        }
    }

    /// Writes to standard error.
    pub fn tell(&mut self, text: &str) {
        let _ = self.world.err.write_all(text.as_bytes());
    }
}

/// A refusal in words: what, what it means, what to do, and where to read on.
#[must_use]
pub fn explain(doing: &str, refusal: &Refusal, words: Words) -> String {
    let what = crate::table::tame(&refusal.what);
    let advice = in_words(&crate::table::tame(&refusal.advice()), words);
    let mut text = if doing.is_empty() { String::new() } else { format!("{doing}: ") };
    let _ = writeln!(text, "{what}");
    let _ = writeln!(text, "  meaning: {}", crate::table::tame(&refusal.meaning));
    let _ = writeln!(text, "  action:  {advice} See operations/messages.md, {}.", refusal.code);
    text
}

/// Commands inside a sentence, in the operator's vocabulary.
fn in_words(text: &str, words: Words) -> String {
    match words {
        Words::Zfs => text.to_owned(),
        Words::Own => text.replace("`zpool ", "`steadfast pool ").replace("`zfs ", "`steadfast fs "),
    }
}

/// Runs the command line `arguments`, the first of which is the name the program was called by. Returns the exit
/// status.
pub fn run(world: &mut World<'_>, arguments: &[String]) -> u8 {
    let called = arguments.first().map_or("steadfast", String::as_str);
    let name = Path::new(called).file_name().map_or("steadfast".into(), |n| n.to_string_lossy());
    let mut rest = arguments.get(1..).unwrap_or_default();
    let (family, words) = match &*name {
        "zpool" => (&zpool::FAMILY, Words::Zfs),
        "zfs" => (&zfs::FAMILY, Words::Zfs),
        "vdbench" => return (steadfast::BENCH.run)(world, rest),
        "mount.steadfast" | steadfast::MOUNT_OF_LISTED => {
            return one(world, &steadfast::MOUNT, Words::Own, &name, rest);
        }
        _ => {
            if let [option, dir, tail @ ..] = rest
                && option == "--runtime-dir"
            {
                world.surroundings.runtime_dir = Some(world.absolute(dir));
                rest = tail;
            }
            match rest.first().map(String::as_str) {
                Some("pool") => {
                    rest = &rest[1..];
                    (&zpool::FAMILY, Words::Own)
                }
                Some("fs") => {
                    rest = &rest[1..];
                    (&zfs::FAMILY, Words::Own)
                }
                _ => (&steadfast::FAMILY, Words::Own),
            }
        }
    };
    let shown = match words {
        Words::Zfs => family.name,
        Words::Own => family.own,
    };
    let Some((verb, tail)) = rest.split_first() else {
        print(world, true, &format!("missing command\n{}", family.help(shown)));
        return USAGE;
    };
    match verb.as_str() {
        "help" if tail == ["properties"] => {
            print(world, false, &steadfast_property::document());
            SUCCESS
        }
        "-h" | "-?" | "--help" | "help" => {
            print(world, false, &family.help(shown));
            SUCCESS
        }
        "-V" | "--version" | "version" => {
            print(world, false, &format!("steadfast-{}\n", env!("CARGO_PKG_VERSION")));
            SUCCESS
        }
        verb => match family.commands.iter().find(|c| c.names.contains(&verb)) {
            Some(command) => one(world, command, words, &format!("{shown} {verb}"), tail),
            None if family.doors.iter().any(|door| door.name == verb) => {
                let door = family.doors.iter().find(|door| door.name == verb).expect("the guard found it");
                (door.run)(world, tail)
            }
            None if family.later.iter().any(|(name, _)| *name == verb) => {
                let why = family.later.iter().find(|(name, _)| *name == verb).map_or("", |(_, why)| why);
                let what = if why.is_empty() {
                    format!("'{shown} {verb}' is not yet built")
                } else {
                    format!("'{shown} {verb}' is not built: {why}")
                };
                let refusal = Refusal::new(Code::Later, what);
                print(world, true, &explain("", &refusal, words));
                FAILED
            }
            None => {
                print(
                    world,
                    true,
                    &format!("unrecognized command '{}'\n{}", crate::table::tame(verb), family.help(shown)),
                );
                USAGE
            }
        },
    }
}

fn one(world: &mut World<'_>, command: &Command, words: Words, shown: &str, tail: &[String]) -> u8 {
    let usage = |sentence: &str| {
        format!("{sentence}\nusage:\n    {shown}{}\n{}", command.syntax.usage(), command.syntax.explain())
    };
    let parsed = match command.syntax.parse(tail) {
        Ok(parsed) if parsed.help => {
            print(world, false, &usage(command.doc));
            return SUCCESS;
        }
        Ok(parsed) => parsed,
        Err(sentence) => {
            print(world, true, &usage(&crate::table::tame(&sentence)));
            return USAGE;
        }
    };
    let typed = std::iter::once(shown).chain(tail.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let mut session = Session { world, out: String::new(), typed, words, client: None, failed: false };
    let result = (command.run)(&mut session, &parsed);
    let (out, mut failed) = (std::mem::take(&mut session.out), session.failed);
    print(world, false, &out);
    match result {
        Ok(()) => {}
        Err(Failure::Status(status)) => return status,
        Err(Failure::Refused(doing, refusal)) => {
            print(world, true, &explain(&doing, &refusal, words));
            failed = true;
        }
        Err(Failure::Usage(sentence)) => {
            print(world, true, &usage(&crate::table::tame(&sentence)));
            return USAGE;
        }
    }
    if failed { FAILED } else { SUCCESS }
}

/// Prints. A reader that has gone (`| head`) is no failure.
fn print(world: &mut World<'_>, error: bool, text: &str) {
    let stream = if error { &mut *world.err } else { &mut *world.out };
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}

impl Family {
    fn help(&self, shown: &str) -> String {
        let mut text = format!("{}\nusage: {shown} COMMAND ...\n", self.doc);
        for command in self.commands {
            let _ = writeln!(text, "    {}{}", command.names[0], command.syntax.usage());
            let _ = writeln!(text, "        {}", command.doc);
        }
        for door in self.doors {
            let _ = writeln!(text, "    {} {}\n        {}", door.name, door.usage, door.doc);
        }
        if !self.later.is_empty() {
            let names: Vec<&str> = self.later.iter().map(|(name, _)| *name).collect();
            let _ = writeln!(text, "not yet built: {}", names.join(", "));
        }
        let _ = writeln!(
            text,
            "`{shown} COMMAND --help` explains the options of a command, `{shown} help properties` all properties."
        );
        text
    }
}

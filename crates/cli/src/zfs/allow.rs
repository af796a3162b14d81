//! `zfs allow` and `zfs unallow`.

use crate::command::Command;
use crate::options::{Flag, MANY, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::collections::BTreeSet;
use steadfast_control::api::{Allowed, FsAllow, FsAllowed};
use steadfast_control::owners;
use steadfast_property::{Who, set_name};

const LOCAL: Flag = flag('l', "on the file system itself only");
const DESCENDENT: Flag = flag('d', "on the file systems below it only");
const EVERYONE: Flag = flag('e', "for everyone");
const USERS: Flag = flag('u', "the names are of users");
const GROUPS: Flag = flag('g', "the names are of groups");
const SETS: Flag = flag('s', "the name is of a permission set, as @work, which holds permissions");
const AT_CREATION: Flag = flag('c', "for the creator of each new file system below, on that one");

pub(super) const ALLOW: Command = Command {
    names: &["allow"],
    syntax: Syntax {
        flags: &[LOCAL, DESCENDENT, EVERYONE, USERS, GROUPS, SETS, AT_CREATION],
        operands: "[user|group|everyone|@set[,...] permission|@set[,...]] filesystem|volume",
        least: 1,
        most: 3,
    },
    doc: "Lists the permissions on a file system, or gives users permissions.",
    run: |session: &mut Session<'_, '_>, parsed: &Parsed| match parsed.operands.as_slice() {
        [name] if !parsed.has('e') && !parsed.has('c') => list(session, name),
        _ => change(session, parsed, false),
    },
};

pub(super) const UNALLOW: Command = Command {
    names: &["unallow"],
    syntax: Syntax {
        flags: &[
            LOCAL,
            DESCENDENT,
            EVERYONE,
            USERS,
            GROUPS,
            flag('r', "from all file systems below too"),
            SETS,
            AT_CREATION,
        ],
        operands: "user|group|everyone|@set[,...] [permission|@set[,...]] filesystem|volume",
        least: 1,
        most: MANY,
    },
    doc: "Takes permissions from users: those listed, or all.",
    run: |session: &mut Session<'_, '_>, parsed: &Parsed| change(session, parsed, true),
};

fn change(session: &mut Session<'_, '_>, parsed: &Parsed, take: bool) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    let mut words: Vec<&str> = parsed.operands.iter().map(String::as_str).collect();
    let name = words.pop().unwrap_or_default();
    let kinds: Vec<char> = ['e', 'u', 'g', 's', 'c'].into_iter().filter(|flag| parsed.has(*flag)).collect();
    let is_apart = kinds.contains(&'s') || kinds.contains(&'c');
    if kinds.len() > 1 {
        return usage("-e, -u, -g, -s and -c cannot be combined");
    }
    if is_apart && (parsed.has('l') || parsed.has('d')) {
        return usage("-s and -c cannot be combined with -l or -d");
    }
    let who = match (parsed.has('e') || parsed.has('c'), words.is_empty()) {
        (true, _) => "everyone",
        (false, true) if parsed.has('s') => return usage("missing set name"),
        (false, true) => return usage("missing user or group argument"),
        (false, false) => words.remove(0),
    };
    let permissions = match words.as_slice() {
        [list] => list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        [] if take => Vec::new(),
        [] => return usage("missing permissions argument"),
        _ => return usage("too many arguments"),
    };
    let who = match (parsed.has('s'), parsed.has('c')) {
        (true, _) => match set_name(who) {
            Some(name) => vec![Who::Set(name.to_owned()).to_string()],
            None => {
                let rule = "the name of a set is '@' and at most 63 letters, digits, '-', '_', '.' and ':'";
                return usage(&format!("invalid set name '{}': {rule}", tame(who)));
            }
        },
        (false, true) => vec![Who::Creator.to_string()],
        (false, false) => {
            who.split(',').map(|name| number(parsed, name)).collect::<Result<Vec<String>, Failure>>()?
        }
    };
    let both = parsed.has('l') == parsed.has('d');
    let request = FsAllow {
        name: name.to_owned(),
        who,
        permissions,
        local: both || parsed.has('l'),
        descendent: !is_apart && (both || parsed.has('d')),
        take,
        recursive: take && parsed.has('r'),
    };
    session.ask(request).doing(|| format!("cannot set permissions on '{}'", tame(name)))?;
    Ok(())
}

/// A user or group by number. Without -u or -g a name is everyone, a user, or else a group.
fn number(parsed: &Parsed, name: &str) -> Result<String, Failure> {
    let given = parsed.has('u') || parsed.has('g');
    if name == "everyone" && !given {
        return Ok(Who::Everyone.to_string());
    }
    let find = |group: bool| {
        let by_name = owners::names(group).into_iter().find(|(_, known)| known == name);
        by_name.map(|(id, _)| id).or_else(|| name.parse().ok())
    };
    let user = if parsed.has('g') { None } else { find(false).map(Who::User) };
    let who = user.or_else(|| if parsed.has('u') { None } else { find(true).map(Who::Group) });
    who.map(|who| who.to_string()).ok_or_else(|| {
        Failure::Usage(format!("invalid user or group '{}': it has no number here", tame(name)))
    })
}

/// The permissions in the form of ZFS.
fn list(session: &mut Session<'_, '_>, name: &str) -> Result<(), Failure> {
    let request = FsAllowed { name: name.to_owned() };
    let found = session.ask(request).doing(|| format!("cannot list permissions on '{}'", tame(name)))?;
    let (users, groups) = (owners::names(false), owners::names(true));
    let shown = |who: &str| {
        let named =
            |kind: &str, id: &str, names: &owners::Names| match id.parse().ok().and_then(|id| names.get(&id))
            {
                Some(name) => format!("{kind} {name}"),
                None => format!("{kind} (unknown: {id})"),
            };
        match who.split_at_checked(1) {
            Some(("u", id)) => named("user", id, &users),
            Some(("g", id)) => named("group", id, &groups),
            _ => "everyone".to_owned(),
        }
    };
    let mut last = "";
    for at in 0..found.len() {
        if found[at].dataset == last {
            continue;
        }
        last = &found[at].dataset;
        let here: Vec<&Allowed> = found.iter().filter(|allowed| allowed.dataset == last).collect();
        session.line(format!("{:-<70}", format!("---- Permissions on {} ", tame(last))));
        let of = |local: bool, descendent: bool, allowed: &Allowed| -> Vec<String> {
            let all: BTreeSet<&String> = allowed.local.union(&allowed.descendent).collect();
            let is_here = |p: &&&String| {
                (allowed.local.contains(**p), allowed.descendent.contains(**p)) == (local, descendent)
            };
            all.iter().filter(is_here).map(|p| tame(p)).collect()
        };
        let list = |allowed: &Allowed| allowed.local.iter().map(|p| tame(p)).collect::<Vec<_>>().join(",");
        let (sets, here): (Vec<&Allowed>, Vec<&Allowed>) =
            here.into_iter().partition(|allowed| allowed.who.starts_with('s'));
        let (creators, here): (Vec<&Allowed>, Vec<&Allowed>) =
            here.into_iter().partition(|allowed| allowed.who == "c");
        if !sets.is_empty() {
            session.line("Permission sets:");
        }
        for set in sets {
            session.line(format!("\t{} {}", tame(&set.who[1..]), list(set)));
        }
        for creator in creators {
            session.line(format!("Create time permissions:\n\t{}", list(creator)));
        }
        for (heading, local, descendent) in [
            ("Local permissions:", true, false),
            ("Descendent permissions:", false, true),
            ("Local+Descendent permissions:", true, true),
        ] {
            let rows: Vec<(String, Vec<String>)> = here
                .iter()
                .map(|allowed| (shown(&allowed.who), of(local, descendent, allowed)))
                .filter(|(_, permissions)| !permissions.is_empty())
                .collect();
            if !rows.is_empty() {
                session.line(heading);
            }
            for (who, permissions) in rows {
                session.line(format!("\t{} {}", tame(&who), permissions.join(",")));
            }
        }
    }
    Ok(())
}

//! Completion scripts for shells, made from the tables that the parser and `--help` read.
//!
//! A script asks the running daemon for names of pools and file systems; it never starts a daemon.

use crate::command::{Catalog, Command};
use crate::manual::is_refused;
use crate::options::Flag;
use std::fmt::Write as _;
use steadfast_property::{DATASET, Kind, POOL, Property};

/// A shell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

impl Shell {
    /// By its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Shell> {
        match name {
            "bash" => Some(Shell::Bash),
            "zsh" => Some(Shell::Zsh),
            "fish" => Some(Shell::Fish),
            _ => None,
        }
    }
}

/// The script that a shell reads.
#[must_use]
pub fn script(catalog: &Catalog, shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(catalog),
        Shell::Zsh => zsh(catalog),
        Shell::Fish => fish(catalog),
    }
}

/// Kinds of names that can complete an operand, by the words of its help.
fn kinds(words: &str) -> Vec<&'static str> {
    let known = [
        // Names that do not exist yet.
        ("newpool", ""),
        ("newbookmark", ""),
        ("newsnapshot", ""),
        ("property=value", "settings"),
        ("name=value", ""),
        ("filesystem", "datasets"),
        ("newname", "datasets"),
        ("snapshot", "snapshots"),
        ("pool", "pools"),
        ("property", "properties"),
        ("vdevs", "devices"),
        ("vdev", "vdevs"),
        ("new-device", "files"),
        ("device", "devices"),
        ("folder", "files"),
        ("mountpoint", "files"),
        ("file", "files"),
    ];
    let mut found = Vec::new();
    let mut rest = words.to_owned();
    for (word, kind) in known {
        // Names of file systems are completed to those of snapshots too.
        let is_known = found.contains(&kind) || kind == "snapshots" && found.contains(&"datasets");
        if rest.contains(word) && !kind.is_empty() && !is_known {
            found.push(kind);
        }
        // `filesystem` contains `file`.
        rest = rest.replace(word, "");
    }
    found
}

/// Kinds of the first operand, and of those behind it.
fn places(command: &Command) -> (Vec<&'static str>, Vec<&'static str>) {
    let operands = command.syntax.operands;
    let (first, rest) = operands.split_once(' ').unwrap_or((operands, ""));
    let mut begin = kinds(first);
    if command.names[0] == "import" {
        // Pools that no daemon holds.
        begin.iter_mut().filter(|kind| **kind == "pools").for_each(|kind| *kind = "importable");
    }
    // Without a pool before it, a device is none of a pool's.
    begin.iter_mut().filter(|kind| **kind == "devices").for_each(|kind| *kind = "files");
    let mut behind = kinds(rest);
    if first.contains("...") || first.ends_with("[,...]]") {
        behind.extend(begin.iter().filter(|kind| !behind.contains(kind)).copied().collect::<Vec<_>>());
    }
    (begin, behind)
}

/// Kinds of all operands.
fn all_kinds(command: &Command) -> Vec<&'static str> {
    let (mut all, behind) = places(command);
    all.extend(behind.into_iter().filter(|kind| !all.contains(kind)).collect::<Vec<_>>());
    all
}

/// Kind of an option's value.
fn value_kind(flag: &Flag) -> &'static str {
    match (flag.letter, kinds(flag.value).first().copied()) {
        // Properties of the root file system of a new pool.
        ('O', Some("settings")) => "fs-settings",
        (_, Some("devices")) => "files",
        (_, Some(kind)) => kind,
        (_, None) => "other",
    }
}

/// The settings `name=value` of a table: with a value where there are words for it.
fn settings(table: &[Property]) -> String {
    let mut all = Vec::new();
    for property in
        table.iter().filter(|property| property.default.is_some() && !property.name.ends_with("..."))
    {
        match property.kind {
            Kind::Words(words) => all.extend(words.iter().map(|word| format!("{}={word}", property.name))),
            _ => all.push(format!("{}=", property.name)),
        }
    }
    all.join(" ")
}

/// All ways to write an option.
fn spellings(flag: &Flag) -> Vec<String> {
    let letter = (flag.letter != '\0').then(|| format!("-{}", flag.letter));
    let long = (!flag.long.is_empty()).then(|| format!("--{}", flag.long));
    letter.into_iter().chain(long).collect()
}

fn names_of(table: &[Property]) -> String {
    let names = table.iter().map(|property| property.name).filter(|name| !name.ends_with("..."));
    names.collect::<Vec<_>>().join(" ")
}

/// Literal words of an operand such as `run|pid|stop`.
fn choices(operands: &str) -> Vec<&str> {
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '|');
    if operands.contains('|') && plain(operands) { operands.split('|').collect() } else { Vec::new() }
}

/// Words that stand between devices.
const VDEV_WORDS: &str = "mirror raidz raidz1 raidz2 raidz3 log spare cache special";

const BASH_BEGIN: &str = r#"# Completion of steadfast, zpool and zfs for bash.

# With `@` among them, bash would complete a host's name behind it.
COMP_WORDBREAKS=${COMP_WORDBREAKS//@}

_steadfast_running() { steadfast daemon pid >/dev/null 2>&1; }

# Names of a kind; the words before the cursor are in `words`, the operands among them in `operands`.
_steadfast_names() {
    case $1 in
        pools) _steadfast_running && steadfast pool list -H -o name 2>/dev/null ;;
        datasets|snapshots)
            _steadfast_running || return
            if [[ $cur == *@* ]]; then
                steadfast fs list -H -o name -t snapshot -d 1 "${cur%%@*}" 2>/dev/null
            else
                steadfast fs list -H -o name 2>/dev/null
            fi ;;
        devices) _steadfast_running && ((${#operands[@]})) && steadfast pool list -vHP "${operands[0]}" 2>/dev/null \
            | awk -v pool="${operands[0]}" '$1 != pool { print $1 }' ;;
        importable) _steadfast_running && steadfast pool import "${searched[@]}" 2>/dev/null \
            | awk '$1 == "pool:" { print $2 }' ;;
        properties) echo "$properties" ;;
        settings) echo "$settings" ;;
        fs-settings) echo "$fs_settings" ;;
        vdevs) echo "$vdev_words"; compgen -f -- "$cur"; [[ $cur == /dev/* ]] || ls -d /dev/disk/by-id/* 2>/dev/null ;;
        files) compgen -f -- "$cur" ;;
        other) ;;
        *) echo "$1" ;;
    esac
}

_steadfast() {
    # bash divides words at `=` and `:` too; the words of the line are needed.
    local line=${COMP_LINE:0:$COMP_POINT} cur prev family= at=1 index
    local -a words operands=() searched=()
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local last=$((${#words[@]} - 1))
    cur=${words[last]} prev=${words[last-1]}
    case ${words[0]##*/} in
        zpool) family=pool ;;
        zfs) family=fs ;;
        *) case ${words[1]} in
               pool|fs) ((last > 1)) && { family=${words[1]}; at=2; } ;;
           esac ;;
    esac
    local offered= flags= valued= first= behind= properties= settings=
    COMPREPLY=()
    if ((last == at)); then
        case $family in
"#;

const BASH_END: &str = r#"    esac
    for ((index = at + 1; index < last; index++)); do
        if [[ " $valued " == *" ${words[index]}:"* ]]; then
            [[ ${words[index]} == -d ]] && searched+=(-d "${words[index+1]}")
            ((index++))
        elif [[ ${words[index]} != -* ]]; then
            operands+=("${words[index]}")
        fi
    done
    local kind kinds=$behind
    ((${#operands[@]})) || kinds=$first
    if [[ $cur == -* ]]; then
        offered=$flags
    elif [[ " $valued " =~ \ $prev:([a-z-]+)\  ]]; then
        offered=$(_steadfast_names "${BASH_REMATCH[1]}")
    else
        for kind in $kinds; do
            offered+=" $(_steadfast_names "$kind")"
        done
    fi
    COMPREPLY=($(compgen -W "$offered" -- "$cur"))
    # What bash replaces begins behind the last character at which it divides words.
    local breaks=${COMP_WORDBREAKS//[^:=]} begin=
    if [[ -n $breaks && $cur == *["$breaks"]* ]]; then
        begin=${cur%"${cur##*["$breaks"]}"}
        COMPREPLY=("${COMPREPLY[@]#"$begin"}")
    fi
    # A value follows, or the name of a snapshot.
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}

complete -F _steadfast steadfast zpool zfs
"#;

fn bash(catalog: &Catalog) -> String {
    let mut text = BASH_BEGIN.to_owned();
    for (family, word) in catalog.families {
        let mut names: Vec<&str> = family.verbs().into_iter().map(|(name, _)| name).collect();
        if word.is_empty() {
            names.extend(["pool", "fs"]);
        }
        let _ = writeln!(text, "            \"{word}\") offered=\"{}\" ;;", names.join(" "));
    }
    text.push_str(
        "        esac\n        COMPREPLY=($(compgen -W \"$offered\" -- \"$cur\"))\n        return\n    fi\n",
    );
    let _ = writeln!(
        text,
        "    local fs_settings=\"{}\" vdev_words=\"{VDEV_WORDS}\"\n    case $family in\n        \
         pool) properties=\"{}\" settings=\"{}\" ;;\n        fs) properties=\"{}\" settings=$fs_settings ;;\n    esac",
        settings(DATASET),
        names_of(POOL),
        settings(POOL),
        names_of(DATASET)
    );
    text.push_str("    case \"$family ${words[at]}\" in\n");
    for (word, name, command) in catalog.commands() {
        let flags: Vec<String> =
            command.syntax.flags.iter().filter(|flag| !is_refused(flag)).flat_map(spellings).collect();
        let valued: Vec<String> = command
            .syntax
            .flags
            .iter()
            .filter(|flag| !flag.value.is_empty())
            .flat_map(|flag| {
                spellings(flag).into_iter().map(move |spelling| format!("{spelling}:{}", value_kind(flag)))
            })
            .collect();
        let (mut first, behind) = places(command);
        first.extend(choices(command.syntax.operands));
        let _ = writeln!(
            text,
            "        \"{word} {name}\")\n            flags=\"{}\"\n            valued=\"{}\"\n            first=\"{}\" \
             behind=\"{}\" ;;",
            flags.join(" "),
            valued.join(" "),
            first.join(" "),
            behind.join(" ")
        );
    }
    text.push_str(BASH_END);
    text
}

/// Text inside single quotes of zsh and bash.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

const ZSH_BEGIN: &str = r#"#compdef steadfast zpool zfs
# Completion of steadfast, zpool and zfs for zsh.

_steadfast_running() { steadfast daemon pid >/dev/null 2>&1 }

_steadfast() {
    local family= at=2
    case ${words[1]:t} in
        zpool) family=pool ;;
        zfs) family=fs ;;
        *) case ${words[2]} in
               pool|fs) ((CURRENT > 2)) && { family=${words[2]}; at=3 } ;;
           esac ;;
    esac
    local -a verbs flags kinds properties settings names
    if ((CURRENT == at)); then
        case $family in
"#;

const ZSH_END: &str = r#"    esac
    if [[ ${words[CURRENT]} == -* ]]; then
        _describe -o option flags
        return
    fi
    local kind
    for kind in $kinds; do
        case $kind in
            pools) _steadfast_running && names=(${(f)"$(steadfast pool list -H -o name 2>/dev/null)"}) && compadd -a names ;;
            datasets|snapshots)
                _steadfast_running || continue
                if [[ $PREFIX == *@* ]]; then
                    names=(${(f)"$(steadfast fs list -H -o name -t snapshot -d 1 ${PREFIX%%@*} 2>/dev/null)"})
                else
                    names=(${(f)"$(steadfast fs list -H -o name 2>/dev/null)"})
                fi
                compadd -a names ;;
            devices)
                _steadfast_running || continue
                names=(${${(f)"$(steadfast pool list -vHP 2>/dev/null)"}##[[:blank:]]#})
                compadd -- ${names%%[[:blank:]]*} ;;
            importable)
                _steadfast_running || continue
                names=(${${(M)${(f)"$(steadfast pool import 2>/dev/null)"}:#*pool: *}##*pool: })
                compadd -a names ;;
            properties) compadd -a properties ;;
            settings) compadd -S '' -a settings ;;
            vdevs) compadd -- mirror raidz raidz1 raidz2 raidz3 log spare cache special; _files ;;
            files) _files ;;
            *) compadd -- $kind ;;
        esac
    done
}

_steadfast "$@"
"#;

fn zsh(catalog: &Catalog) -> String {
    let mut text = ZSH_BEGIN.to_owned();
    // `_describe` splits word and description at a colon.
    let entry = |name: &str, doc: &str| format!("'{}:{}'", name, quoted(&doc.replace(':', "\\:")));
    for (family, word) in catalog.families {
        let mut entries: Vec<String> = family.verbs().iter().map(|(name, doc)| entry(name, doc)).collect();
        if word.is_empty() {
            let inner = catalog.families.iter().filter(|(_, word)| !word.is_empty());
            entries.extend(inner.map(|(family, word)| entry(word, family.doc)));
        }
        let _ = writeln!(text, "            '{word}') verbs=({}) ;;", entries.join(" "));
    }
    text.push_str("        esac\n        _describe command verbs\n        return\n    fi\n");
    let _ = writeln!(
        text,
        "    case $family in\n        pool) properties=({}) settings=({}) ;;\n        \
         fs) properties=({}) settings=({}) ;;\n    esac",
        names_of(POOL),
        settings(POOL),
        names_of(DATASET),
        settings(DATASET)
    );
    text.push_str("    case \"$family ${words[at]}\" in\n");
    for (word, name, command) in catalog.commands() {
        let flags: Vec<String> = command
            .syntax
            .flags
            .iter()
            .filter(|flag| !is_refused(flag))
            .flat_map(|flag| spellings(flag).into_iter().map(|spelling| entry(&spelling, flag.doc)))
            .collect();
        let mut words = choices(command.syntax.operands);
        words.extend(all_kinds(command));
        let _ = writeln!(
            text,
            "        '{word} {name}')\n            flags=({})\n            kinds=({}) ;;",
            flags.join(" "),
            words.join(" ")
        );
    }
    text.push_str(ZSH_END);
    text
}

const FISH_BEGIN: &str = "\
# Completion of steadfast, zpool and zfs for fish.

function __steadfast_names
    steadfast daemon pid >/dev/null 2>&1; and steadfast $argv[1] list -H -o name 2>/dev/null
end

function __steadfast_snapshots
    set -l word (commandline -ct)
    string match -q '*@*' -- $word; or return
    steadfast daemon pid >/dev/null 2>&1; or return
    steadfast fs list -H -o name -t snapshot -d 1 (string split -m 1 @ -- $word)[1] 2>/dev/null
end

function __steadfast_devices
    steadfast daemon pid >/dev/null 2>&1; or return
    steadfast pool list -vHP 2>/dev/null | string trim | string replace -r '\\s.*' ''
end

function __steadfast_importable
    steadfast daemon pid >/dev/null 2>&1; or return
    steadfast pool import 2>/dev/null | string replace -rf '^ *pool: ' ''
end

complete -c steadfast -f
complete -c zpool -f
complete -c zfs -f
";

fn fish(catalog: &Catalog) -> String {
    let mut text = FISH_BEGIN.to_owned();
    let escaped = |doc: &str| doc.replace('\\', "\\\\").replace('\'', "\\'");
    for (family, word) in catalog.families {
        // Each family answers to two names; `steadfast` itself to one.
        let word = *word;
        let mut callers = vec![("steadfast".to_owned(), word)];
        if !word.is_empty() {
            callers.push((family.name.to_owned(), ""));
            let doc = escaped(family.doc);
            let _ = writeln!(text, "complete -c steadfast -n __fish_use_subcommand -a '{word}' -d '{doc}'");
        }
        for (caller, before) in callers {
            let names: Vec<&str> = family.verbs().into_iter().map(|(name, _)| name).collect();
            let none = names.join(" ");
            for (name, doc) in family.verbs() {
                let when = if before.is_empty() {
                    "__fish_use_subcommand".to_owned()
                } else {
                    format!(
                        "__fish_seen_subcommand_from {before}; and not __fish_seen_subcommand_from {none}"
                    )
                };
                let doc = escaped(doc);
                let _ = writeln!(text, "complete -c {caller} -n '{when}' -a '{name}' -d '{doc}'");
            }
            for command in family.commands {
                let names = command.names.join(" ");
                let inside = if before.is_empty() {
                    format!("__fish_seen_subcommand_from {names}")
                } else {
                    format!("__fish_seen_subcommand_from {before}; and __fish_seen_subcommand_from {names}")
                };
                for flag in command.syntax.flags.iter().filter(|flag| !is_refused(flag)) {
                    let mut line = format!("complete -c {caller} -n '{inside}'");
                    if flag.letter != '\0' {
                        let _ = write!(line, " -s {}", flag.letter);
                    }
                    if !flag.long.is_empty() {
                        let _ = write!(line, " -l {}", flag.long);
                    }
                    if !flag.value.is_empty() {
                        line.push_str(" -r");
                    }
                    let _ = writeln!(text, "{line} -d '{}'", escaped(flag.doc));
                }
                let operands = command.syntax.operands;
                let mut words: Vec<String> = choices(operands).into_iter().map(str::to_owned).collect();
                for kind in all_kinds(command) {
                    match kind {
                        "pools" => words.push("(__steadfast_names pool)".into()),
                        "datasets" => words.push("(__steadfast_names fs) (__steadfast_snapshots)".into()),
                        "snapshots" => words.push("(__steadfast_snapshots)".into()),
                        "devices" => words.push("(__steadfast_devices)".into()),
                        "importable" => words.push("(__steadfast_importable)".into()),
                        "settings" => words.push(settings(if word == "pool" { POOL } else { DATASET })),
                        "vdevs" => {
                            words.push(VDEV_WORDS.into());
                            _ = writeln!(text, "complete -c {caller} -n '{inside}' -F");
                        }
                        "properties" => {
                            words.push(names_of(if word == "pool" { POOL } else { DATASET }));
                        }
                        _ => _ = writeln!(text, "complete -c {caller} -n '{inside}' -F"),
                    }
                }
                if !words.is_empty() {
                    let _ = writeln!(text, "complete -c {caller} -n '{inside}' -a '{}'", words.join(" "));
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_known_by_their_words() {
        assert_eq!(kinds("[pool]... [interval [count]]"), ["pools"]);
        assert_eq!(kinds("property=value... filesystem..."), ["settings", "datasets"]);
        assert_eq!(kinds("pool vdev..."), ["pools", "vdevs"]);
        assert_eq!(kinds("pool newpool [device]..."), ["pools", "devices"]);
        assert_eq!(kinds("tag filesystem@snapshot..."), ["datasets"]);
        assert_eq!(kinds("[filesystem|mountpoint]"), ["datasets", "files"]);
        assert!(kinds("").is_empty());
        assert_eq!(choices("run|pid|stop"), ["run", "pid", "stop"]);
        assert!(choices("[filesystem|mountpoint]").is_empty());
    }
}

//! Completion scripts for shells, made from the tables that the parser and `--help` read.
//!
//! A script asks the running daemon for names of pools and file systems; it never starts a daemon.

use crate::command::Catalog;
use crate::options::Flag;
use std::fmt::Write as _;
use steadfast_property::{DATASET, POOL, Property};

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
        ("filesystem", "datasets"),
        ("newname", "datasets"),
        ("pool", "pools"),
        ("property", "properties"),
        ("vdev", "files"),
        ("device", "files"),
        ("folder", "files"),
        ("mountpoint", "files"),
        ("file", "files"),
    ];
    let mut found = Vec::new();
    let mut rest = words.to_owned();
    for (word, kind) in known {
        if rest.contains(word) && !found.contains(&kind) {
            found.push(kind);
        }
        // `filesystem` contains `file`.
        rest = rest.replace(word, "");
    }
    found
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

const BASH_BEGIN: &str = r#"# Completion of steadfast, zpool and zfs for bash.

_steadfast_running() { steadfast daemon pid >/dev/null 2>&1; }

_steadfast() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} family= at=1
    case ${COMP_WORDS[0]##*/} in
        zpool) family=pool ;;
        zfs) family=fs ;;
        *) case ${COMP_WORDS[1]} in
               pool|fs) ((COMP_CWORD > 1)) && { family=${COMP_WORDS[1]}; at=2; } ;;
           esac ;;
    esac
    local words= flags= valued= kinds= properties=
    COMPREPLY=()
    if ((COMP_CWORD == at)); then
        case $family in
"#;

const BASH_END: &str = r#"    esac
    if [[ $cur == -* ]]; then
        words=$flags
    elif [[ " $valued " == *" $prev:properties "* ]]; then
        words=$properties
    elif [[ " $valued " == *" $prev:files "* ]]; then
        COMPREPLY=($(compgen -f -- "$cur"))
        return
    elif [[ " $valued " != *" $prev:"* ]]; then
        local kind
        for kind in $kinds; do
            case $kind in
                pools) _steadfast_running && words+=" $(steadfast pool list -H -o name 2>/dev/null)" ;;
                datasets) _steadfast_running && words+=" $(steadfast fs list -H -o name 2>/dev/null)" ;;
                properties) words+=" $properties" ;;
                files) COMPREPLY+=($(compgen -f -- "$cur")) ;;
                *) words+=" $kind" ;;
            esac
        done
    fi
    COMPREPLY+=($(compgen -W "$words" -- "$cur"))
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
        let _ = writeln!(text, "            \"{word}\") words=\"{}\" ;;", names.join(" "));
    }
    text.push_str(
        "        esac\n        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n        return\n    fi\n",
    );
    let _ = writeln!(
        text,
        "    case $family in\n        pool) properties=\"{}\" ;;\n        fs) properties=\"{}\" ;;\n    esac",
        names_of(POOL),
        names_of(DATASET)
    );
    text.push_str("    case \"$family ${COMP_WORDS[at]}\" in\n");
    for (word, name, command) in catalog.commands() {
        let flags: Vec<String> = command.syntax.flags.iter().flat_map(spellings).collect();
        let valued: Vec<String> = command
            .syntax
            .flags
            .iter()
            .filter(|flag| !flag.value.is_empty())
            .flat_map(|flag| {
                let kind = kinds(flag.value).first().copied().unwrap_or("other");
                spellings(flag).into_iter().map(move |spelling| format!("{spelling}:{kind}"))
            })
            .collect();
        let mut words = choices(command.syntax.operands);
        words.extend(kinds(command.syntax.operands));
        let _ = writeln!(
            text,
            "        \"{word} {name}\")\n            flags=\"{}\"\n            valued=\"{}\"\n            kinds=\"{}\" ;;",
            flags.join(" "),
            valued.join(" "),
            words.join(" ")
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
    local -a verbs flags kinds properties names
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
            datasets) _steadfast_running && names=(${(f)"$(steadfast fs list -H -o name 2>/dev/null)"}) && compadd -a names ;;
            properties) compadd -a properties ;;
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
        "    case $family in\n        pool) properties=({}) ;;\n        fs) properties=({}) ;;\n    esac",
        names_of(POOL),
        names_of(DATASET)
    );
    text.push_str("    case \"$family ${words[at]}\" in\n");
    for (word, name, command) in catalog.commands() {
        let flags: Vec<String> = command
            .syntax
            .flags
            .iter()
            .flat_map(|flag| spellings(flag).into_iter().map(|spelling| entry(&spelling, flag.doc)))
            .collect();
        let mut words = choices(command.syntax.operands);
        words.extend(kinds(command.syntax.operands));
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
                for flag in command.syntax.flags {
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
                for kind in kinds(operands) {
                    match kind {
                        "pools" => words.push("(__steadfast_names pool)".into()),
                        "datasets" => words.push("(__steadfast_names fs)".into()),
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
        assert_eq!(kinds("property=value... filesystem..."), ["datasets", "properties"]);
        assert_eq!(kinds("pool vdev..."), ["pools", "files"]);
        assert_eq!(kinds("[filesystem|mountpoint]"), ["datasets", "files"]);
        assert!(kinds("").is_empty());
        assert_eq!(choices("run|pid|stop"), ["run", "pid", "stop"]);
        assert!(choices("[filesystem|mountpoint]").is_empty());
    }
}

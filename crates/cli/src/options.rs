//! Options and operands of a command line: one parser and one help text for all commands.
//!
//! Options are single letters as in ZFS, may be joined (`-Hp`), may carry their value in the same
//! word or the next (`-oname`, `-o name`), and may stand before or after operands; `--` ends them.
//! A few have long names (`--json`). `-h`, `-?` and `--help` print help.

use std::fmt::Write as _;

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Letter; `'\0'` for an option with a long name only.
    pub letter: char,
    /// Long name; empty for none.
    pub long: &'static str,
    /// Name of its value; empty for an option without a value. In square brackets if the option may
    /// be the last word, without one.
    pub value: &'static str,
    /// Its effect, in half a sentence.
    pub doc: &'static str,
}

/// An option without a value.
#[must_use]
pub const fn flag(letter: char, doc: &'static str) -> Flag {
    Flag { letter, long: "", value: "", doc }
}

/// An option with a value.
#[must_use]
pub const fn valued(letter: char, value: &'static str, doc: &'static str) -> Flag {
    Flag { letter, long: "", value, doc }
}

/// Number of operands without a limit.
pub const MANY: usize = usize::MAX;
/// `-H`.
pub const SCRIPTED: Flag = flag('H', "for scripts: no headings, tabs between columns");
/// `-p`.
pub const EXACT: Flag = flag('p', "exact numbers");
/// `-j`.
pub const JSON: Flag = flag('j', "as JSON").or("json");
/// `--json-int`.
pub const JSON_INT: Flag =
    Flag { letter: '\0', long: "json-int", value: "", doc: "with -j: numbers without quotes" };

/// How the description of an option begins that ZFS has and that is refused; the reason follows.
pub const REFUSED: &str = "refused: ";

impl Flag {
    /// May it be the last word, without a value?
    fn value_may_lack(&self) -> bool {
        self.value.starts_with('[')
    }

    /// The reason if it is refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&'static str> {
        self.doc.strip_prefix(REFUSED)
    }

    /// As typed: `-n`, or `--name`.
    #[must_use]
    pub fn name(&self) -> String {
        if self.letter == '\0' { format!("--{}", self.long) } else { format!("-{}", self.letter) }
    }

    /// With a long name too.
    #[must_use]
    pub const fn or(self, long: &'static str) -> Flag {
        Flag { long, ..self }
    }
}

/// Options and operands of a command.
#[derive(Clone, Copy, Debug)]
pub struct Syntax {
    /// Options.
    pub flags: &'static [Flag],
    /// Operands as help shows them.
    pub operands: &'static str,
    /// Least number of operands.
    pub least: usize,
    /// Greatest number of operands.
    pub most: usize,
}

/// A command line that fits its syntax.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    options: Vec<(Flag, String)>,
    /// Words that are not options.
    pub operands: Vec<String>,
    /// Help was requested; nothing else is checked.
    pub help: bool,
}

impl Parsed {
    /// Is the option with this letter there?
    #[must_use]
    pub fn has(&self, letter: char) -> bool {
        self.options.iter().any(|(flag, _)| flag.letter == letter)
    }

    /// How often the option with this letter is given.
    #[must_use]
    pub fn count(&self, letter: char) -> usize {
        self.values(letter).count()
    }

    /// Is the option with this long name there?
    #[must_use]
    pub fn has_long(&self, long: &str) -> bool {
        self.options.iter().any(|(flag, _)| flag.long == long)
    }

    /// The value of the option with this letter; the last, if it is given more than once.
    #[must_use]
    pub fn value(&self, letter: char) -> Option<&str> {
        self.values(letter).last()
    }

    /// The value of the option with this long name; the last, if it is given more than once.
    #[must_use]
    pub fn value_of_long(&self, long: &str) -> Option<&str> {
        self.options.iter().rfind(|(flag, _)| flag.long == long).map(|(_, value)| value.as_str())
    }

    /// All values of the option with this letter, in order.
    pub fn values(&self, letter: char) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(flag, _)| flag.letter == letter).map(|(_, value)| value.as_str())
    }

    /// The same command line in normal form: each option and each value a separate word, operands
    /// behind `--`.
    #[must_use]
    pub fn plainly(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (flag, value) in &self.options {
            words.push(match flag.letter {
                '\0' => format!("--{}", flag.long),
                letter => format!("-{letter}"),
            });
            if !flag.value.is_empty() {
                words.push(value.clone());
            }
        }
        words.push("--".to_owned());
        words.extend(self.operands.iter().cloned());
        words
    }

    /// The first option that is refused, and the reason.
    #[must_use]
    pub fn refused(&self) -> Option<(String, &'static str)> {
        self.options.iter().find_map(|(flag, _)| Some((flag.name(), flag.refusal()?)))
    }

    /// All options in the order given.
    pub fn ordered(&self) -> impl Iterator<Item = (char, &str)> {
        self.options.iter().map(|(flag, value)| (flag.letter, value.as_str()))
    }
}

impl Syntax {
    /// Reads words after the command's name.
    ///
    /// # Errors
    /// A sentence about the first wrong word.
    pub fn parse(&self, words: &[String]) -> Result<Parsed, String> {
        self.parse_as(words, false)
    }

    /// The same; with `options_first` the first operand ends the options, as in POSIX.
    ///
    /// # Errors
    /// A sentence about the first wrong word.
    pub fn parse_as(&self, words: &[String], options_first: bool) -> Result<Parsed, String> {
        let mut parsed = Parsed::default();
        let mut words = words.iter();
        let mut only_operands = false;
        while let Some(word) = words.next() {
            if only_operands || word == "-" || !word.starts_with('-') {
                parsed.operands.push(word.clone());
                only_operands |= options_first;
            } else if word == "--" {
                only_operands = true;
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, joined) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
                if name == "help" {
                    parsed.help = true;
                    continue;
                }
                let Some(flag) = self.flags.iter().find(|f| !f.long.is_empty() && f.long == name) else {
                    return Err(format!("invalid option '--{name}'"));
                };
                let value = match (flag.value.is_empty(), joined) {
                    (true, None) => String::new(),
                    (true, Some(_)) => return Err(format!("option '--{name}' takes no value")),
                    (false, Some(value)) => value.to_owned(),
                    (false, None) => words
                        .next()
                        .cloned()
                        .ok_or_else(|| format!("missing argument for '--{name}' option"))?,
                };
                parsed.options.push((*flag, value));
            } else {
                self.parse_letters(&word[1..], &mut words, &mut parsed)?;
            }
        }
        if parsed.help {
            return Ok(parsed);
        }
        if parsed.operands.len() < self.least {
            return Err(format!("missing argument: expected {}", self.operands));
        }
        if parsed.operands.len() > self.most {
            return Err(format!("too many arguments: unexpected '{}'", parsed.operands[self.most]));
        }
        Ok(parsed)
    }

    fn parse_letters<'a>(
        &self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a String>,
        parsed: &mut Parsed,
    ) -> Result<(), String> {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let Some(flag) = self.flags.iter().find(|f| f.letter == letter) else {
                if letter == '?' || letter == 'h' {
                    parsed.help = true;
                    return Ok(());
                }
                return Err(format!("invalid option '{letter}'"));
            };
            if flag.value.is_empty() {
                parsed.options.push((*flag, String::new()));
                continue;
            }
            let joined = rest.as_str();
            let value = match (joined, flag.value_may_lack()) {
                ("", true) => words.next().cloned().unwrap_or_default(),
                ("", false) => {
                    words.next().cloned().ok_or_else(|| format!("missing argument for '{letter}' option"))?
                }
                _ => joined.to_owned(),
            };
            parsed.options.push((*flag, value));
            return Ok(());
        }
        Ok(())
    }

    /// One line: options and operands.
    #[must_use]
    pub fn usage(&self) -> String {
        let mut text = String::new();
        let letters: String =
            self.flags.iter().filter(|f| f.value.is_empty() && f.letter != '\0').map(|f| f.letter).collect();
        if !letters.is_empty() {
            let _ = write!(text, " [-{letters}]");
        }
        for flag in self.flags {
            if flag.letter == '\0' {
                let space = if flag.value.is_empty() { "" } else { " " };
                let _ = write!(text, " [--{}{space}{}]", flag.long, flag.value);
            } else if !flag.value.is_empty() {
                let _ = write!(text, " [-{} {}]", flag.letter, flag.value);
            }
        }
        if !self.operands.is_empty() {
            let _ = write!(text, " {}", self.operands);
        }
        text
    }

    /// One line per option.
    #[must_use]
    pub fn explain(&self) -> String {
        let spelling = |flag: &Flag| {
            let mut name = match (flag.letter, flag.long) {
                ('\0', long) => format!("--{long}"),
                (letter, "") => format!("-{letter}"),
                (letter, long) => format!("-{letter}, --{long}"),
            };
            if !flag.value.is_empty() {
                let _ = write!(name, " {}", flag.value);
            }
            name
        };
        let width = self.flags.iter().map(|flag| spelling(flag).len()).max().unwrap_or(0);
        let mut text = String::new();
        for flag in self.flags {
            let _ = writeln!(text, "    {:<width$}  {}", spelling(flag), flag.doc);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNTAX: Syntax = Syntax {
        flags: &[
            flag('H', "no headings"),
            flag('p', "exact"),
            valued('o', "property", "which"),
            flag('j', "JSON").or("json"),
            Flag { letter: '\0', long: "json-int", value: "", doc: "numbers" },
            Flag { letter: '\0', long: "cache", value: "size", doc: "limit" },
            valued('c', "[name]", "some"),
        ],
        operands: "[pool]...",
        least: 1,
        most: 2,
    };

    fn parse(line: &str) -> Result<Parsed, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        SYNTAX.parse(&words)
    }

    #[test]
    fn the_first_operand_ends_the_options_if_that_is_asked_for() {
        let words = ["-H", "a", "-p"].map(str::to_owned);
        let parsed = SYNTAX.parse_as(&words, true).unwrap();
        assert_eq!((parsed.has('H'), parsed.has('p')), (true, false));
        assert_eq!(parsed.operands, ["a", "-p"]);
        assert_eq!(SYNTAX.parse(&words).unwrap().operands, ["a"]);
    }

    #[test]
    fn letters_join_and_values_stand_in_the_same_word_or_the_next() {
        let parsed = parse("-Hpo name tank -ohealth --json --json-int").unwrap();
        assert!(parsed.has('H') && parsed.has('p') && parsed.has('j') && parsed.has_long("json-int"));
        assert_eq!(parsed.values('o').collect::<Vec<_>>(), ["name", "health"]);
        assert_eq!(parsed.value('o'), Some("health"));
        assert_eq!(parsed.operands, ["tank"]);
    }

    #[test]
    fn two_dashes_end_the_options() {
        assert_eq!(parse("-- -H").unwrap().operands, ["-H"]);
        assert_eq!(parse("- x").unwrap().operands, ["-", "x"]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(parse("-x tank").unwrap_err(), "invalid option 'x'");
        assert_eq!(parse("--warp tank").unwrap_err(), "invalid option '--warp'");
        assert_eq!(parse("tank -o").unwrap_err(), "missing argument for 'o' option");
        assert_eq!(parse("tank -c").unwrap().value('c'), Some(""), "in brackets: it may lack its value");
        assert_eq!(parse("-c name tank").unwrap().value('c'), Some("name"));
        assert!(parse("").unwrap_err().starts_with("missing argument"));
        assert!(parse("a b c").unwrap_err().contains("'c'"));
        assert_eq!(parse("--json=1 a").unwrap_err(), "option '--json' takes no value");
    }

    #[test]
    fn descriptions_stand_in_one_column() {
        let text = SYNTAX.explain();
        let column = |doc: &str| text.lines().find_map(|line| line.find(doc)).expect(doc);
        assert_eq!(column("no headings"), column("which"));
        assert_eq!(column("limit"), column("JSON"));
        assert!(text.contains("    --cache size  limit\n"), "{text}");
    }

    #[test]
    fn help_needs_nothing_else() {
        for line in ["-h", "-?", "--help", "-H --help"] {
            assert!(parse(line).unwrap().help, "{line}");
        }
        assert_eq!(SYNTAX.usage(), " [-Hpj] [-o property] [--json-int] [--cache size] [-c [name]] [pool]...");
    }
}

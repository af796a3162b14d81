//! The words of each section, in the order in which an abbreviation is looked up.
//!
//! A word may be cut to any prefix of two or more characters, first match in the section's order
//! wins; words that vdbench takes only in full are marked. Words that are not carried out are here
//! too: *ignored* if they cannot change a result, *refused by name* if they would.

use crate::error::{Error, ErrorKind, nearest};
use crate::lexer::Item;

/// Sections, in the order a file must have them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Section {
    /// Before any definition.
    General,
    /// Hosts.
    Hd,
    /// Replay groups.
    Rg,
    /// File system definitions.
    Fsd,
    /// Storage definitions.
    Sd,
    /// Workload definitions on storage.
    Wd,
    /// Workload definitions on file systems.
    Fwd,
    /// Run definitions.
    Rd,
}

impl Section {
    /// The section that a line beginning with `word` opens.
    pub fn opened_by(word: &str) -> Option<Section> {
        let all =
            [Section::Hd, Section::Rg, Section::Fsd, Section::Sd, Section::Wd, Section::Fwd, Section::Rd];
        all.into_iter().find(|s| s.word().eq_ignore_ascii_case(word))
    }

    /// Its keyword.
    pub fn word(self) -> &'static str {
        match self {
            Section::General => "",
            Section::Hd => "hd",
            Section::Rg => "rg",
            Section::Fsd => "fsd",
            Section::Sd => "sd",
            Section::Wd => "wd",
            Section::Fwd => "fwd",
            Section::Rd => "rd",
        }
    }

    /// Raw and file sections of one rank may stand in either order.
    pub(crate) fn rank(self) -> u32 {
        match self {
            Section::General => 0,
            Section::Hd => 1,
            Section::Rg => 2,
            Section::Fsd | Section::Sd => 3,
            Section::Wd | Section::Fwd => 4,
            Section::Rd => 5,
        }
    }
}

/// Treatment of a word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Treatment {
    /// Carried out.
    Honour,
    /// Accepted; it cannot change what is measured.
    Ignore,
    /// Refused by name: carrying on would measure something else.
    Refuse,
}

/// One word of a section.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// In full.
    pub name: &'static str,
    /// Never abbreviated.
    pub exact: bool,
    /// Its treatment.
    pub treatment: Treatment,
}

const fn yes(name: &'static str) -> Keyword {
    Keyword { name, exact: false, treatment: Treatment::Honour }
}
const fn full(name: &'static str) -> Keyword {
    Keyword { name, exact: true, treatment: Treatment::Honour }
}
const fn ignored(name: &'static str) -> Keyword {
    Keyword { name, exact: false, treatment: Treatment::Ignore }
}
const fn refused(name: &'static str) -> Keyword {
    Keyword { name, exact: false, treatment: Treatment::Refuse }
}
const fn refused_full(name: &'static str) -> Keyword {
    Keyword { name, exact: true, treatment: Treatment::Refuse }
}

const GENERAL: &[Keyword] = &[
    yes("compratio"),
    yes("compression"),
    yes("compressionseed"),
    yes("create_anchors"),
    yes("data_errors"),
    yes("dataerrors"),
    full("dedupratio"),
    full("dedupunit"),
    full("dedupsets"),
    full("deduphotsets"),
    full("dedupflipflop"),
    ignored("messagescan"),
    yes("validate"),
    full("journal"),
    yes("histogram"),
    ignored("report"),
    yes("formatsds"),
    yes("formatxfersize"),
    yes("monitor"),
    yes("startcmd"),
    yes("endcmd"),
    full("loop"),
    yes("pattern"),
    ignored("pattern_buffer"),
    yes("timeout"),
    yes("abort_failed_skew"),
    yes("concatenatesds"),
    yes("fwd_thread_adjust"),
    ignored("ios_per_jvm"),
    yes("port"),
    ignored("report_run_totals"),
    ignored("showlba"),
    ignored("misc"),
    refused("psrset"),
    ignored("swat"),
    refused("unix2windows"),
    ignored("heartbeat_error"),
    ignored("auxreport"),
    Keyword { name: "debug", exact: true, treatment: Treatment::Ignore },
];

const HD: &[Keyword] = &[
    full("hd"),
    yes("system"),
    Keyword { name: "user", exact: true, treatment: Treatment::Ignore },
    ignored("shell"),
    ignored("vdbench"),
    ignored("jvms"),
    yes("clients"),
    refused("mount"),
    ignored("master"),
];

const RG: &[Keyword] = &[full("rg"), yes("devices")];

const SD: &[Keyword] = &[
    full("sd"),
    yes("lun"),
    yes("size"),
    yes("threads"),
    yes("openflags"),
    yes("range"),
    yes("hitarea"),
    yes("count"),
    yes("align"),
    yes("offset"),
    yes("host"),
    full("journal"),
    full("dedupratio"),
    full("dedupunit"),
    full("dedupsets"),
    full("deduphotsets"),
    yes("replay"),
    refused("streams"),
    refused("resetlun"),
    refused("resetbus"),
    ignored("kstat"),
    ignored("instance"),
];

const WD: &[Keyword] = &[
    full("wd"),
    full("sd"),
    yes("rdpct"),
    yes("readpct"),
    yes("wrpct"),
    yes("xfersize"),
    yes("seekpct"),
    yes("rhpct"),
    yes("whpct"),
    yes("skew"),
    yes("range"),
    yes("hotband"),
    yes("stride"),
    yes("streams"),
    yes("priority"),
    yes("iorate"),
    yes("host"),
    yes("threads"),
    yes("openflags"),
    refused_full("user"),
];

const FSD: &[Keyword] = &[
    full("fsd"),
    yes("anchor"),
    yes("depth"),
    yes("width"),
    yes("files"),
    yes("sizes"),
    yes("totalsize"),
    yes("workingsetsize"),
    yes("wss"),
    yes("shared"),
    yes("openflags"),
    yes("distribution"),
    yes("count"),
    full("journal"),
    full("mask"),
    ignored("log"),
    refused("cleanup"),
    refused_full("cloud"),
    refused("host"),
    full("dedupratio"),
    full("dedupunit"),
    full("dedupsets"),
    refused_full("deduphotsets"),
];

const FWD: &[Keyword] = &[
    full("fwd"),
    full("fsd"),
    yes("operation"),
    yes("xfersizes"),
    full("fileio"),
    yes("fileselect"),
    yes("threads"),
    yes("readpct"),
    yes("rdpct"),
    yes("stopafter"),
    yes("skew"),
    yes("target"),
    yes("host"),
    yes("openflags"),
];

const RD: &[Keyword] = &[
    full("rd"),
    full("wd"),
    full("fwd"),
    full("sd"),
    full("fsd"),
    yes("iorate"),
    yes("fwdrate"),
    yes("elapsed"),
    yes("interval"),
    yes("warmup"),
    yes("pause"),
    full("maxdata"),
    full("maxdataread"),
    full("maxdatawritten"),
    yes("curve"),
    yes("stopcurve"),
    yes("format"),
    yes("operations"),
    yes("foroperations"),
    yes("distribution"),
    yes("forxfersize"),
    yes("xfersize"),
    yes("forthreads"),
    yes("threads"),
    yes("forrdpct"),
    yes("rdpct"),
    yes("forrhpct"),
    yes("rhpct"),
    yes("forwhpct"),
    yes("whpct"),
    yes("forseekpct"),
    yes("seekpct"),
    yes("forhitarea"),
    yes("hitarea"),
    yes("forcompratio"),
    yes("compratio"),
    yes("forcompression"),
    yes("compression"),
    yes("fordepth"),
    yes("depth"),
    yes("forwidth"),
    yes("width"),
    yes("forfiles"),
    yes("files"),
    yes("forsizes"),
    yes("sizes"),
    yes("fortotalsize"),
    yes("totalsize"),
    yes("forwss"),
    yes("wss"),
    yes("openflags"),
    yes("startcmd"),
    yes("endcmd"),
    refused("mount"),
    yes("replay"),
];

/// The words of a section, in look-up order.
pub fn keywords(section: Section) -> &'static [Keyword] {
    match section {
        Section::General => GENERAL,
        Section::Hd => HD,
        Section::Rg => RG,
        Section::Fsd => FSD,
        Section::Sd => SD,
        Section::Wd => WD,
        Section::Fwd => FWD,
        Section::Rd => RD,
    }
}

/// Finds the word of an item, or refuses it with the nearest word as a suggestion.
pub(crate) fn find(section: Section, item: &Item) -> Result<Keyword, Error> {
    let word = item.keyword.to_ascii_lowercase();
    let table = keywords(section);
    let whole = table.iter().find(|k| k.name == word);
    let prefix = || table.iter().find(|k| !k.exact && word.len() >= 2 && k.name.starts_with(&word));
    if let Some(keyword) = whole.or_else(prefix) {
        if keyword.treatment == Treatment::Refuse {
            let (text, hint) = why_refused(section, keyword.name);
            return Err(Error::new(ErrorKind::NotYet, &item.place, keyword.name, text).hint(hint));
        }
        return Ok(*keyword);
    }
    let error = Error::new(
        ErrorKind::UnknownKeyword,
        &item.place,
        &item.keyword,
        format!("Unknown keyword: {}", item.keyword),
    );
    let here = match section {
        Section::General => "a general parameter".to_string(),
        section => format!("a parameter of {}=", section.word()),
    };
    let openers =
        if section == Section::General { &["hd", "rg", "sd", "fsd", "wd", "fwd", "rd"][..] } else { &[] };
    let known = table.iter().map(|k| k.name).chain(openers.iter().copied());
    Err(match nearest(&word, known) {
        Some(near) => error.hint(format!("as {here}, did you mean '{near}'?")),
        None => error.hint(format!("it is not {here}; see lab/README.md for the list")),
    })
}

/// Why a word is refused, and what there is instead.
fn why_refused(section: Section, name: &'static str) -> (String, &'static str) {
    let (text, hint) = match (section, name) {
        // vdbench 5.04.07 refuses these in the same words.
        (Section::Fsd, "cleanup") => (
            "'cleanup=' parameter is obsolete",
            "format=yes deletes files of an earlier format, -c does so once, format=clean only deletes",
        ),
        (Section::Fsd, "host") => (
            "No 'host=' parameter is allowed for a File System Definition (FSD)",
            "write host= on the fwd= that uses it",
        ),
        (Section::Fsd, "cloud") => ("cloud= (object stores) is not carried out", "only files are measured"),
        (Section::Fsd, "deduphotsets") => (
            "deduphotsets= are the first blocks of a storage (SD); a tree of files (FSD) has none",
            "use dedupsets= with few sets",
        ),
        (Section::Sd, "streams") => ("streams= belongs to the wd=, as since 5.04", "write it on the wd="),
        (Section::Sd, "resetlun" | "resetbus") => {
            ("buses and luns are not reset", "use startcmd= with a command of the operating system")
        }
        (Section::Hd | Section::Rd, "mount") => {
            ("the program mounts nothing", "mount it before, or use startcmd= on this machine")
        }
        (Section::Wd, "user") => ("a Java class cannot be loaded", "leave user= out"),
        (Section::General, "psrset") => ("processor sets of Solaris are not carried out", "use taskset(1)"),
        (Section::General, "unix2windows") => ("paths are not translated", "write them as they are here"),
        _ => {
            let hint = "to ignore it would change the results, so it is refused";
            return (format!("{name}= is not carried out"), hint);
        }
    };
    (text.to_string(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;

    fn look(section: Section, word: &str) -> Option<&'static str> {
        let place = Place { file: "t".into(), line: 1 };
        find(section, &Item { keyword: word.into(), values: vec![], listed: false, place })
            .ok()
            .map(|k| k.name)
    }

    #[test]
    fn abbreviations_take_the_first_word_in_the_sections_order() {
        assert_eq!(look(Section::Wd, "xf"), Some("xfersize"));
        assert_eq!(look(Section::Rd, "el"), Some("elapsed"));
        assert_eq!(look(Section::Rd, "in"), Some("interval"));
        assert_eq!(look(Section::Rd, "io"), Some("iorate"));
        assert_eq!(look(Section::Rd, "forx"), Some("forxfersize"));
        assert_eq!(look(Section::Rd, "dist"), Some("distribution"));
        assert_eq!(look(Section::Fsd, "size"), Some("sizes"));
        assert_eq!(look(Section::Sd, "SIZE"), Some("size"));
    }

    #[test]
    fn one_letter_and_exact_words_are_not_abbreviated() {
        assert_eq!(look(Section::Rd, "e"), None);
        assert_eq!(look(Section::Fwd, "filei"), None);
        assert_eq!(look(Section::Rd, "maxd"), None);
    }
}

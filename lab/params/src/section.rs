//! From statements to definitions, in file order, with the defaults of each section.

use crate::control::{self, Commands};
use crate::error::{Error, ErrorKind, Place, Warning};
use crate::hosts::{self, Host};
use crate::keyword::{Section, Treatment, find};
use crate::lexer::{Item, Statement};
use crate::model::*;
use crate::number::{Number, Unit, names, number, numbers, show_size};
use crate::read::{self, bad};
use crate::replay::{self, Replay};
use std::collections::HashSet;

/// vdbench's limit on workloads.
const DEFINITIONS_MAX: usize = 10_240;

/// One value of a loop, applied to the definitions of one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    Xfersize(XferSize),
    Threads(u32),
    Rdpct(f64),
    Rhpct(f64),
    Whpct(f64),
    Seekpct(Seek),
    Hitarea(u64),
    Compratio(f64),
    Depth(u32),
    Width(u32),
    Files(u64),
    Sizes(u64),
    Totalsize(u64),
    Workingset(u64),
    Operation(Operation),
}

/// One loop of a run definition: first coded is outermost.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub name: &'static str,
    pub values: Vec<(String, Setting)>,
}

/// `rd=`, before its names are resolved.
#[derive(Clone, Debug)]
pub(crate) struct Rd {
    pub name: String,
    pub wds: Option<Item>,
    pub fwds: Option<Item>,
    pub sds: Option<Item>,
    pub fsds: Option<Item>,
    pub iorate: Option<Item>,
    pub fwdrate: Option<Item>,
    pub elapsed: u64,
    pub interval: u64,
    pub warmup: u64,
    pub pause: u64,
    pub maxdata: [Option<DataLimit>; 3],
    pub curve: Option<Vec<f64>>,
    pub stopcurve: Option<f64>,
    pub format: Format,
    pub operations: Vec<Operation>,
    pub distribution: Option<Item>,
    pub loops: Vec<Loop>,
    pub openflags: Option<OpenFlags>,
    pub replay: Option<Replay>,
    pub startcmd: Commands,
    pub endcmd: Commands,
    pub place: Place,
}

/// A workload definition with its names as written.
#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    pub definition: T,
    pub names: Option<Item>,
    pub rdpct_said: bool,
    /// `seekpct=` was written: with `streams=` its default is sequential.
    pub seek_said: bool,
}

/// Everything a file defines.
pub(crate) struct Definitions {
    pub general: General,
    pub format: FormatTuning,
    pub sds: Vec<Sd>,
    pub wds: Vec<Named<Wd>>,
    pub fsds: Vec<Fsd>,
    pub fwds: Vec<Named<Fwd>>,
    pub rds: Vec<Rd>,
    pub warnings: Vec<Warning>,
    defaults: Defaults,
    open: Open,
    /// Names that are taken, by section: a file may define thousands.
    taken: HashSet<(&'static str, String)>,
    /// Groups of `rg=`.
    pub groups: Vec<replay::Group>,
    /// Hosts that `hd=` defined.
    pub hosts: Vec<Host>,
    /// `clients=` of `hd=default`.
    clients: u32,
    /// The open definition has said no `host=` of its own yet: what it has is from its default.
    hosts_inherited: bool,
}

struct Defaults {
    sd: Sd,
    wd: Named<Wd>,
    fsd: Fsd,
    fwd: Named<Fwd>,
    rd: Rd,
}

/// Which definition an item without its own section belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    General,
    Hd,
    Rg,
    Default(Section),
    Entry(Section),
    Format,
}

impl Definitions {
    pub(crate) fn new() -> Definitions {
        let place = Place { file: "".into(), line: 0 };
        let sd = Sd {
            name: String::new(),
            lun: String::new(),
            size: None,
            threads: 8,
            openflags: None,
            range: None,
            hitarea: 1 << 20,
            align: None,
            offset: 0,
            journal: None,
            replay: Vec::new(),
            dedup: None,
            parts: Vec::new(),
            luns: Vec::new(),
            place: place.clone(),
        };
        let wd = Wd {
            name: String::new(),
            sds: Vec::new(),
            rdpct: 100.0,
            xfersize: XferSize::Fixed(4096),
            seek: Seek::Percent(100.0),
            rhpct: 0.0,
            whpct: 0.0,
            skew: None,
            range: None,
            streams: 1,
            stride: None,
            hotband: None,
            priority: None,
            iorate: None,
            threads: None,
            hosts: Vec::new(),
            openflags: None,
            place: place.clone(),
        };
        let fsd = Fsd {
            name: String::new(),
            anchor: String::new(),
            depth: 1,
            width: 1,
            files: 10,
            sizes: vec![(4096, 100.0)],
            totalsize: None,
            workingset: None,
            shared: false,
            openflags: None,
            spread: Spread::Bottom,
            mask: None,
            dedup: None,
            journal: None,
            hosts: Vec::new(),
            share: None,
            place: place.clone(),
        };
        let fwd = Fwd {
            name: String::new(),
            fsds: Vec::new(),
            operations: vec![Operation::Read],
            xfersize: XferSize::Fixed(4096),
            fileio: FileIo::Sequential { delete: false, anywhere: false },
            select: FileSelect::Sequential,
            filter: FileFilter::Any,
            threads: 1,
            rdpct: None,
            stopafter: None,
            skew: None,
            target: None,
            hosts: Vec::new(),
            openflags: None,
            place: place.clone(),
        };
        let rd = Rd {
            name: String::new(),
            wds: None,
            fwds: None,
            sds: None,
            fsds: None,
            iorate: None,
            fwdrate: None,
            elapsed: 30,
            interval: 1,
            warmup: 0,
            pause: 0,
            maxdata: [None; 3],
            curve: None,
            stopcurve: None,
            format: Format::default(),
            operations: Vec::new(),
            distribution: None,
            loops: Vec::new(),
            openflags: None,
            replay: None,
            startcmd: Commands::default(),
            endcmd: Commands::default(),
            place,
        };
        Definitions {
            general: General::default(),
            format: FormatTuning::default(),
            sds: Vec::new(),
            wds: Vec::new(),
            fsds: Vec::new(),
            fwds: Vec::new(),
            rds: Vec::new(),
            warnings: Vec::new(),
            defaults: Defaults {
                sd,
                wd: Named { definition: wd, names: None, rdpct_said: false, seek_said: false },
                fsd,
                fwd: Named { definition: fwd, names: None, rdpct_said: false, seek_said: false },
                rd,
            },
            open: Open::General,
            taken: HashSet::new(),
            groups: Vec::new(),
            hosts: Vec::new(),
            clients: 0,
            hosts_inherited: true,
        }
    }

    /// Takes one logical line.
    pub(crate) fn statement(&mut self, statement: &Statement) -> Result<(), Error> {
        let Some(first) = statement.items.first() else { return Ok(()) };
        let mut items = statement.items.as_slice();
        // A keyword belongs to the section that is open: after rd=, a line with wd= is a parameter
        // of that rd.
        if let Some(section) =
            Section::opened_by(&first.keyword).filter(|s| s.rank() >= self.open_section().rank())
        {
            self.begin(section, first)?;
            items = &items[1..];
            if section == Section::Hd {
                let made = hosts::host(first, items, &self.hosts, &mut self.clients)?;
                self.hosts.extend(made);
            }
        }
        let mut count = None;
        for item in items {
            let keyword = find(self.open_section(), item)?;
            match keyword.treatment {
                Treatment::Ignore => {
                    let text = format!("{}= has no effect here and is ignored", keyword.name);
                    self.warnings.push(Warning { place: item.place.clone(), text });
                }
                _ if keyword.name == "count" => count = Some(item),
                _ => self.item(keyword.name, item)?,
            }
        }
        if let Some(item) = count {
            self.multiply(item)?;
        }
        self.finish()
    }

    fn open_section(&self) -> Section {
        match self.open {
            Open::General => Section::General,
            Open::Hd => Section::Hd,
            Open::Rg => Section::Rg,
            Open::Default(section) | Open::Entry(section) => section,
            Open::Format => Section::Fwd,
        }
    }

    fn begin(&mut self, section: Section, item: &Item) -> Result<(), Error> {
        self.hosts_inherited = true;
        let name = read::single(item)?.to_string();
        let place = item.place.clone();
        let total = self.sds.len() + self.wds.len() + self.fsds.len() + self.fwds.len() + self.rds.len();
        if total >= DEFINITIONS_MAX {
            return Err(Error::new(
                ErrorKind::TooLarge,
                &place,
                &name,
                format!("more than {DEFINITIONS_MAX} definitions"),
            ));
        }
        if section == Section::Hd {
            self.open = Open::Hd;
            return Ok(());
        }
        if section == Section::Rg {
            self.open = Open::Rg;
            let group = replay::group(item, &self.groups)?;
            self.groups.push(group);
            return Ok(());
        }
        if name.eq_ignore_ascii_case("default") {
            self.open = Open::Default(section);
            return Ok(());
        }
        if section == Section::Fwd && name.eq_ignore_ascii_case("format") {
            self.open = Open::Format;
            return Ok(());
        }
        self.open = Open::Entry(section);
        let twice = |what: &str| {
            let error = Error::new(ErrorKind::Duplicate, &place, &name, what.to_string());
            Err(error.hint("give the second one another name"))
        };
        let again = !self.taken.insert((section.word(), name.clone()));
        match section {
            Section::Sd => {
                if again {
                    return twice(&format!("An SD can only be defined once: sd={name}"));
                }
                self.sds.push(Sd { name, place, ..self.defaults.sd.clone() });
            }
            Section::Wd => {
                if again {
                    return twice(&format!("Duplicate WD names not allowed: {name}"));
                }
                let mut wd = self.defaults.wd.clone();
                (wd.definition.name, wd.definition.place) = (name, place);
                self.wds.push(wd);
            }
            Section::Fsd => {
                if again {
                    return twice(&format!("Duplicate FSD names not allowed: {name}"));
                }
                self.fsds.push(Fsd { name, place, ..self.defaults.fsd.clone() });
            }
            Section::Fwd => {
                if again {
                    return twice(&format!("Duplicate FWD names not allowed: {name}"));
                }
                let mut fwd = self.defaults.fwd.clone();
                (fwd.definition.name, fwd.definition.place) = (name, place);
                self.fwds.push(fwd);
            }
            _ => {
                if again {
                    return twice(&format!("Duplicate RD names not allowed: {name}"));
                }
                self.rds.push(Rd { name, place, ..self.defaults.rd.clone() });
            }
        }
        Ok(())
    }

    fn item(&mut self, name: &'static str, item: &Item) -> Result<(), Error> {
        let default = matches!(self.open, Open::Default(_));
        if name == "host" {
            return self.at_hosts(item);
        }
        match self.open {
            Open::General => general(&mut self.general, name, item),
            // `system=` and `clients=` were read with their hd=.
            Open::Hd => Ok(()),
            Open::Rg => {
                if let Some(group) = self.groups.last_mut() {
                    group.devices = replay::devices(item);
                }
                Ok(())
            }
            Open::Format => match name {
                "threads" => read::threads(item).map(|v| self.format.threads = v),
                "xfersizes" => read::bytes(item, 1).map(|v| self.format.xfersize = v.clamp(1, 1 << 30)),
                "openflags" => read::openflags(item).map(|v| self.format.openflags = Some(v)),
                _ => Err(bad(
                    item,
                    format!("fwd=format takes threads=, xfersize= and openflags=, not {name}="),
                )),
            },
            Open::Default(section) | Open::Entry(section) => {
                let none = || bad(item, "no definition is open");
                let general = self.general.dedup;
                match section {
                    Section::Sd if default => sd(&mut self.defaults.sd, name, item, general),
                    Section::Sd => sd(self.sds.last_mut().ok_or_else(none)?, name, item, general),
                    Section::Wd if default => wd(&mut self.defaults.wd, name, item),
                    Section::Wd => wd(self.wds.last_mut().ok_or_else(none)?, name, item),
                    Section::Fsd if default => fsd(&mut self.defaults.fsd, name, item, general),
                    Section::Fsd => fsd(self.fsds.last_mut().ok_or_else(none)?, name, item, general),
                    Section::Fwd if default => fwd(&mut self.defaults.fwd, name, item),
                    Section::Fwd => fwd(self.fwds.last_mut().ok_or_else(none)?, name, item),
                    _ if default && name == "format" => {
                        Err(bad(item, "format= is not allowed in rd=default"))
                    }
                    _ if default => rd(&mut self.defaults.rd, name, item),
                    _ => rd(self.rds.last_mut().ok_or_else(none)?, name, item),
                }
            }
        }
    }

    /// `host=` of a definition.
    fn at_hosts(&mut self, item: &Item) -> Result<(), Error> {
        let hosts = hosts::wanted(item, &self.hosts)?;
        let inherited = std::mem::replace(&mut self.hosts_inherited, false);
        let (section, default) = match self.open {
            Open::Entry(section) => (section, false),
            Open::Default(section) => (section, true),
            _ => return Ok(()),
        };
        match section {
            Section::Sd => {
                let sd = if default { Some(&mut self.defaults.sd) } else { self.sds.last_mut() };
                let Some(sd) = sd else { return Ok(()) };
                if inherited {
                    sd.luns.clear();
                }
                // Without a name: every host, which is what no entry says.
                if !hosts.is_empty() {
                    sd.luns.push((hosts, sd.lun.clone()));
                }
            }
            Section::Wd if default => self.defaults.wd.definition.hosts = hosts,
            Section::Fwd if default => self.defaults.fwd.definition.hosts = hosts,
            Section::Wd => {
                self.wds.last_mut().into_iter().for_each(|wd| wd.definition.hosts.clone_from(&hosts))
            }
            Section::Fwd => {
                self.fwds.last_mut().into_iter().for_each(|fwd| fwd.definition.hosts.clone_from(&hosts))
            }
            _ => {}
        }
        Ok(())
    }

    /// `count=(start,n)` on sd= and fsd=: the last definition becomes n of them.
    fn multiply(&mut self, item: &Item) -> Result<(), Error> {
        let list = numbers(item, Unit::Size)?;
        let [Number::Plain(start), Number::Plain(count)] = list.as_slice() else {
            return Err(bad(item, "count= takes (start,count)"));
        };
        if !(1.0..=DEFINITIONS_MAX as f64).contains(count) || !(0.0..=1e9).contains(start) {
            return Err(Error::new(
                ErrorKind::TooLarge,
                &item.place,
                "count",
                format!("count=({start},{count}) is out of range"),
            ));
        }
        let numbers = (*start as u64)..(*start as u64 + *count as u64);
        match self.open {
            Open::Entry(Section::Sd) => {
                let Some(model) = self.sds.pop() else { return Ok(()) };
                self.taken.remove(&("sd", model.name.clone()));
                let made = numbers.map(|n| Sd {
                    name: numbered(&model.name, n),
                    lun: numbered(&model.lun, n),
                    luns: model.luns.iter().map(|(on, lun)| (on.clone(), numbered_lun(lun, n))).collect(),
                    ..model.clone()
                });
                let made: Vec<Sd> = made.collect();
                self.taken.extend(made.iter().map(|sd| ("sd", sd.name.clone())));
                self.sds.extend(made);
            }
            Open::Entry(Section::Fsd) => {
                let Some(model) = self.fsds.pop() else { return Ok(()) };
                self.taken.remove(&("fsd", model.name.clone()));
                let made = numbers.map(|n| Fsd {
                    name: numbered(&model.name, n),
                    anchor: numbered(&model.anchor, n),
                    ..model.clone()
                });
                let made: Vec<Fsd> = made.collect();
                self.taken.extend(made.iter().map(|fsd| ("fsd", fsd.name.clone())));
                self.fsds.extend(made);
            }
            _ => return Err(bad(item, "count= belongs to sd= or fsd=")),
        }
        Ok(())
    }

    /// Checks that need the whole line.
    fn finish(&mut self) -> Result<(), Error> {
        let missing =
            |place: &Place, word: &str, text: String| Err(Error::new(ErrorKind::Missing, place, word, text));
        match self.open {
            Open::Rg => {
                let Some(group) = self.groups.last() else { return Ok(()) };
                if group.devices.is_empty() {
                    let text = format!("devices= is missing for rg={}", group.name);
                    return missing(&group.place, &group.name, text);
                }
            }
            Open::Entry(Section::Sd) => {
                let Some(sd) = self.sds.last() else { return Ok(()) };
                if sd.lun.is_empty() {
                    return missing(&sd.place, &sd.name, format!("lun= is missing for sd={}", sd.name));
                }
                // Devices below /dev/rdsk/ are raw by their nature.
                let raw = sd.lun.starts_with("/dev/")
                    && !["/dev/shm/", "/dev/rdsk/"].iter().any(|free| sd.lun.starts_with(free));
                if raw && sd.openflags.is_none() {
                    let text = format!("sd={}: a device below /dev/ needs openflags=", sd.name);
                    return missing(&sd.place, &sd.name, text).map_err(|e| e.hint("add openflags=o_direct"));
                }
            }
            Open::Entry(Section::Fsd) => {
                let Some(fsd) = self.fsds.last() else { return Ok(()) };
                if fsd.anchor.is_empty() {
                    return missing(
                        &fsd.place,
                        &fsd.name,
                        format!("anchor= is missing for fsd={}", fsd.name),
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Divides lines in which a second definition begins: a comma at the end of a line joins it to the
/// next one, and people leave it there. A word opens a section as it would at the start of a line.
pub(crate) fn divide(statements: Vec<Statement>) -> Vec<Statement> {
    let mut open = Section::General;
    let mut out: Vec<Statement> = Vec::with_capacity(statements.len());
    for statement in statements {
        let mut begins = true;
        for item in statement.items {
            let opened = Section::opened_by(&item.keyword).filter(|s| s.rank() >= open.rank());
            open = opened.unwrap_or(open);
            match out.last_mut().filter(|_| !begins && opened.is_none()) {
                Some(last) => last.items.push(item),
                None => out.push(Statement { items: vec![item] }),
            }
            begins = false;
        }
    }
    out
}

/// `sd%02d`, `x*`, or the number appended.
fn numbered(name: &str, n: u64) -> String {
    if let Some((before, rest)) = name.split_once('%') {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let Some(after) = rest[digits.len()..].strip_prefix('d') {
            let width = digits.parse::<usize>().unwrap_or(0).min(20);
            return if digits.starts_with('0') {
                format!("{before}{n:0width$}{after}")
            } else {
                format!("{before}{n:width$}{after}")
            };
        }
    }
    if name.contains('*') { name.replace('*', &n.to_string()) } else { format!("{name}{n}") }
}

/// The lun of a host; empty where it has the same as all.
fn numbered_lun(lun: &str, n: u64) -> String {
    if lun.is_empty() { String::new() } else { numbered(lun, n) }
}

fn general(general: &mut General, name: &str, item: &Item) -> Result<(), Error> {
    match name {
        "compratio" => general.compratio = read::compratio(item)?,
        "compression" => general.compratio = read::compression(item)?,
        "dedupratio" | "dedupunit" | "dedupsets" | "deduphotsets" | "dedupflipflop" => {
            dedup(&mut general.dedup, None, name, item)?;
        }
        "compressionseed" => {
            let text = read::single(item)?;
            let tod = text.eq_ignore_ascii_case("tod");
            general.seed = if tod { None } else { Some(read::plain(item, Unit::Size, 0.0, 1e15)? as u64) };
        }
        "create_anchors" => general.create_anchors = read::yes_or_no(item)?,
        "data_errors" | "dataerrors" => general.data_errors = control::errors(item)?,
        "timeout" => general.timeout = Some(control::timeout(item)?),
        "concatenatesds" => general.concatenate = read::yes_or_no(item)?,
        "fwd_thread_adjust" => general.thread_adjust = read::yes_or_no(item)?,
        "validate" => general.validate = control::validate(item)?,
        "journal" => general.journal = control::journal(item)?,
        "histogram" => general.histogram = Some(control::histogram(item)?),
        "monitor" => general.monitor = Some(read::single(item)?.to_string()),
        "startcmd" => general.startcmd = control::commands(item)?,
        "endcmd" => general.endcmd = control::commands(item)?,
        "loop" => general.repeat = control::repeat(item)?,
        "pattern" => general.pattern = Some(read::single(item)?.to_string()),
        "abort_failed_skew" => general.abort_failed_skew = Some(read::percent(item)?),
        "port" => general.port = Some(read::plain(item, Unit::Size, 1.0, 65_535.0)? as u16),
        "formatsds" => general.formatsds = read::yes_or_no(item)?,
        "formatxfersize" => general.formatxfersize = read::bytes(item, 512)?.min(1 << 30),
        _ => return Err(bad(item, format!("{name}= is not a general parameter"))),
    }
    Ok(())
}

/// The parameters of deduplication. Those that a storage does not set come from the general ones; a
/// unit of 0 is refused at the end of the file.
fn dedup(to: &mut Option<Dedup>, general: Option<Dedup>, name: &str, item: &Item) -> Result<(), Error> {
    let plain = Dedup {
        ratio: 1.0,
        unit: 0,
        sets: DedupSets::Percent(5.0),
        flipflop: FlipFlop::Never,
        hot: HotSets::default(),
    };
    let dedup = to.get_or_insert(general.unwrap_or(plain));
    match name {
        "dedupratio" => dedup.ratio = read::plain(item, Unit::Size, 1.0, 1e6)?,
        "dedupunit" => {
            let unit = read::bytes(item, 512)?;
            if !unit.is_multiple_of(512) || unit > 1 << 30 {
                return Err(bad(item, "dedupunit= must be a multiple of 512, up to 1g"));
            }
            dedup.unit = unit;
        }
        "dedupsets" => {
            dedup.sets = match number(read::single(item)?, Unit::Size) {
                Some(Number::Plain(count)) if (1.0..=1e12).contains(&count) => DedupSets::Count(count as u64),
                Some(Number::Percent(percent)) if percent > 0.0 && percent <= 100.0 => {
                    DedupSets::Percent(percent)
                }
                _ => return Err(bad(item, "dedupsets= takes a number or a percentage")),
            }
        }
        "deduphotsets" => dedup.hot = read::hot_sets(item)?,
        _ => {
            dedup.flipflop = match read::choice(item, read::single(item)?, &["no", "yes", "hot"])? {
                "yes" => FlipFlop::Always,
                "hot" => FlipFlop::Hot,
                _ => FlipFlop::Never,
            }
        }
    }
    Ok(())
}

fn sd(sd: &mut Sd, name: &str, item: &Item, general: Option<Dedup>) -> Result<(), Error> {
    match name {
        "dedupratio" | "dedupunit" | "dedupsets" | "deduphotsets" => {
            dedup(&mut sd.dedup, general, name, item)?
        }
        "lun" => {
            let lun = read::single(item)?.to_string();
            // `host=a,lun=x,host=b,lun=y`: each host has a file of another name.
            if let Some((_, own)) = sd.luns.last_mut().filter(|(_, own)| *own == sd.lun) {
                own.clone_from(&lun);
            }
            sd.lun = lun;
        }
        "size" => sd.size = Some(read::bytes(item, 512)?),
        "threads" => sd.threads = read::threads(item)?,
        "openflags" => sd.openflags = Some(read::openflags(item)?),
        "range" => sd.range = Some(read::range(item)?),
        // Every file of HCIBench says hitarea=0; it matters only where hits are asked for.
        "hitarea" => sd.hitarea = read::bytes(item, 0)?,
        "align" => sd.align = Some(read::bytes(item, 512)?),
        "offset" => sd.offset = read::bytes(item, 0)?,
        "replay" => sd.replay = replay::devices(item),
        "journal" => sd.journal = Some(read::single(item)?.to_string()),
        _ => return Err(bad(item, format!("{name}= is not a parameter of this line"))),
    }
    Ok(())
}

fn wd(named: &mut Named<Wd>, name: &str, item: &Item) -> Result<(), Error> {
    let wd = &mut named.definition;
    match name {
        "sd" => named.names = Some(item.clone()),
        "rdpct" | "readpct" => wd.rdpct = read::percent(item)?,
        "wrpct" => wd.rdpct = 100.0 - read::percent(item)?,
        "xfersize" => wd.xfersize = read::xfersize(item)?,
        "seekpct" => (wd.seek, named.seek_said) = (read::seek(item)?, true),
        "rhpct" => wd.rhpct = read::percent(item)?,
        "whpct" => wd.whpct = read::percent(item)?,
        "skew" => wd.skew = Some(read::percent(item)?),
        "range" => wd.range = Some(read::range(item)?),
        "openflags" => wd.openflags = Some(read::openflags(item)?),
        "streams" => wd.streams = read::threads(item)?,
        "stride" => wd.stride = Some(read::stride(item)?),
        "hotband" => wd.hotband = Some(read::range(item)?),
        "priority" => wd.priority = Some(read::plain(item, Unit::Size, 1.0, 1e4)? as u32),
        "iorate" => wd.iorate = Some(read::plain(item, Unit::Size, 0.001, 1e9)?),
        "threads" => wd.threads = Some(read::threads(item)?),
        _ => return Err(bad(item, format!("{name}= is not a parameter of this line"))),
    }
    Ok(())
}

fn fsd(fsd: &mut Fsd, name: &str, item: &Item, general: Option<Dedup>) -> Result<(), Error> {
    match name {
        "dedupratio" | "dedupunit" | "dedupsets" => dedup(&mut fsd.dedup, general, name, item)?,
        "anchor" => fsd.anchor = read::single(item)?.to_string(),
        "depth" => fsd.depth = read::plain(item, Unit::Size, 0.0, 64.0)? as u32,
        "width" => fsd.width = read::plain(item, Unit::Size, 1.0, 1e7)? as u32,
        "files" => fsd.files = read::plain(item, Unit::Size, 0.0, 1e7)? as u64,
        "sizes" => fsd.sizes = read::sizes(item)?,
        "totalsize" => fsd.totalsize = Some(read::bytes(item, 1)?),
        "workingsetsize" | "wss" => fsd.workingset = Some(read::bytes(item, 1)?),
        "shared" => fsd.shared = read::yes_or_no(item)?,
        "openflags" => fsd.openflags = Some(read::openflags(item)?),
        "journal" => fsd.journal = Some(read::single(item)?.to_string()),
        "mask" => fsd.mask = Some(read::mask(item)?),
        "distribution" => {
            let all = read::choice(item, read::single(item)?, &["bottom", "all"])? == "all";
            fsd.spread = if all { Spread::All } else { Spread::Bottom };
        }
        _ => return Err(bad(item, format!("{name}= is not a parameter of this line"))),
    }
    Ok(())
}

fn fwd(named: &mut Named<Fwd>, name: &str, item: &Item) -> Result<(), Error> {
    let fwd = &mut named.definition;
    match name {
        "fsd" => named.names = Some(item.clone()),
        "operation" => fwd.operations = operations(item)?,
        "xfersizes" => fwd.xfersize = read::xfersize(item)?,
        "fileio" => fwd.fileio = read::fileio(item)?,
        "fileselect" => (fwd.select, fwd.filter) = read::fileselect(item)?,
        "threads" => fwd.threads = read::threads(item)?,
        "readpct" | "rdpct" => {
            fwd.rdpct = Some(read::percent(item)?);
            named.rdpct_said = true;
        }
        "stopafter" => fwd.stopafter = Some(read::stopafter(item)?),
        "skew" => fwd.skew = Some(read::percent(item)?),
        "target" => fwd.target = Some(read::single(item)?.to_string()),
        "openflags" => fwd.openflags = Some(read::openflags(item)?),
        _ => return Err(bad(item, format!("{name}= is not a parameter of this line"))),
    }
    Ok(())
}

fn operations(item: &Item) -> Result<Vec<Operation>, Error> {
    let mut out = Vec::new();
    for value in &item.values {
        let operation = read::operation(item, &value.text)?;
        if !out.contains(&operation) {
            out.push(operation);
        }
    }
    Ok(out)
}

fn rd(rd: &mut Rd, name: &'static str, item: &Item) -> Result<(), Error> {
    match name {
        "wd" => rd.wds = Some(item.clone()),
        "fwd" => rd.fwds = Some(item.clone()),
        "sd" => rd.sds = Some(item.clone()),
        "fsd" => rd.fsds = Some(item.clone()),
        "iorate" => rd.iorate = Some(item.clone()),
        "fwdrate" => rd.fwdrate = Some(item.clone()),
        "elapsed" => rd.elapsed = read::seconds(item, 1)?,
        "interval" => rd.interval = read::seconds(item, 1)?,
        "warmup" => rd.warmup = read::seconds(item, 0)?,
        "pause" => rd.pause = read::seconds(item, 0)?,
        "maxdata" => rd.maxdata[0] = Some(data_limit(item)?),
        "maxdataread" => rd.maxdata[1] = Some(data_limit(item)?),
        "maxdatawritten" => rd.maxdata[2] = Some(data_limit(item)?),
        "curve" => {
            let list: Result<Vec<f64>, Error> = numbers(item, Unit::Size)?
                .into_iter()
                .map(|(Number::Plain(v) | Number::Percent(v))| match v {
                    v if v > 0.0 && v <= 1000.0 => Ok(v),
                    v => Err(bad(item, format!("curve=: {v} is not a percentage"))),
                })
                .collect();
            rd.curve = Some(list?);
        }
        "stopcurve" => rd.stopcurve = Some(read::plain(item, Unit::Size, 0.001, 1e6)?),
        "format" => rd.format = read::format(item)?,
        "startcmd" => rd.startcmd = control::commands(item)?,
        "endcmd" => rd.endcmd = control::commands(item)?,
        "operations" => rd.operations = operations(item)?,
        "distribution" => rd.distribution = Some(item.clone()),
        "openflags" => rd.openflags = Some(read::openflags(item)?),
        "replay" => rd.replay = Some(replay::replay(item)?),
        _ => {
            let made = make_loop(name, item)?;
            rd.loops.retain(|l| l.name != made.name);
            rd.loops.push(made);
        }
    }
    Ok(())
}

fn data_limit(item: &Item) -> Result<DataLimit, Error> {
    let value = read::plain(item, Unit::Size, 0.001, 4e18)?;
    Ok(if value < 100.0 { DataLimit::Times(value) } else { DataLimit::Bytes(value as u64) })
}

/// `forthreads=(1,2,4)`, `threads=4`: a list of settings.
fn make_loop(name: &'static str, item: &Item) -> Result<Loop, Error> {
    let name = if name == "format" { name } else { name.strip_prefix("for").unwrap_or(name) };
    let one = |text: &str| Item {
        keyword: item.keyword.clone(),
        values: vec![crate::lexer::Value { text: text.to_string(), quoted: false }],
        listed: false,
        place: item.place.clone(),
    };
    let mut values = Vec::new();
    match name {
        "operations" => {
            for operation in operations(item)? {
                values.push((operation.name().to_string(), Setting::Operation(operation)));
            }
        }
        "seekpct" => {
            for value in &item.values {
                let shown = value.text.clone();
                values.push((shown, Setting::Seekpct(read::seek_text(item, &value.text)?)));
            }
        }
        _ => {
            for number in numbers(item, Unit::Size)? {
                let (Number::Plain(value) | Number::Percent(value)) = number;
                let is_size = matches!(name, "xfersize" | "hitarea" | "sizes" | "totalsize" | "wss");
                let shown = if is_size { show_size(value) } else { format!("{value}") };
                let item = one(&format!("{value}"));
                let setting = match name {
                    "xfersize" => Setting::Xfersize(read::xfersize(&item)?),
                    "threads" => Setting::Threads(read::threads(&item)?),
                    "rdpct" => Setting::Rdpct(read::percent(&item)?),
                    "rhpct" => Setting::Rhpct(read::percent(&item)?),
                    "whpct" => Setting::Whpct(read::percent(&item)?),
                    "hitarea" => Setting::Hitarea(read::bytes(&item, 0)?),
                    "compratio" => Setting::Compratio(read::compratio(&item)?),
                    "compression" => Setting::Compratio(read::compression(&item)?),
                    "depth" => Setting::Depth(read::plain(&item, Unit::Size, 0.0, 64.0)? as u32),
                    "width" => Setting::Width(read::plain(&item, Unit::Size, 1.0, 1e7)? as u32),
                    "files" => Setting::Files(read::plain(&item, Unit::Size, 0.0, 1e7)? as u64),
                    "sizes" => Setting::Sizes(read::bytes(&item, 0)?),
                    "totalsize" => Setting::Totalsize(read::bytes(&item, 1)?),
                    "wss" => Setting::Workingset(read::bytes(&item, 1)?),
                    _ => return Err(bad(&item, format!("{name}= is not a parameter of this line"))),
                };
                values.push((shown, setting));
            }
        }
    }
    let name = if name == "operations" { "operation" } else { name };
    Ok(Loop { name, values })
}

/// All names an item means: ranges and trailing `*` resolved against `known`.
pub(crate) fn resolve(item: &Item, known: &[&str]) -> Result<Vec<String>, String> {
    let wanted = names(item).map_err(|e| e.text)?;
    let mut out: Vec<String> = Vec::new();
    for name in wanted {
        let found: Vec<&str> = match name.strip_suffix('*') {
            Some(prefix) => known.iter().copied().filter(|k| k.starts_with(prefix)).collect(),
            None => known.iter().copied().filter(|k| *k == name).collect(),
        };
        if found.is_empty() {
            return Err(name);
        }
        for name in found {
            if !out.iter().any(|o| o == name) {
                out.push(name.to_string());
            }
        }
    }
    Ok(out)
}

impl Definitions {
    /// `wd=default` as it stands at the end of the file: what an rd= with sd= alone uses.
    pub(crate) fn default_wd(&self) -> Wd {
        self.defaults.wd.definition.clone()
    }
}

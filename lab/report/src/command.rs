//! The `vdbench` command: its options, its exit status, its sentences.

use crate::clock::Moment;
use crate::output::Output;
use crate::page;
use crate::session::{RunRequest, run_reported};
use crate::utility;
use crate::{DISTRIBUTION, FAILURE, PRODUCT};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{FormatOverride, Plan, Repeat, Request, parse_text, parse_with, repeat_text};
use steadfast_lab_workload::{Engine, Options, execution_seed};

/// A command line, understood.
#[derive(Clone, Debug, Default)]
struct Command {
    request: Request,
    output: String,
    simulate: bool,
    /// `-t` and `-tf`: parameters of our own.
    quick: Option<Quick>,
    allow_idle: bool,
    watch: Vec<u32>,
    /// `--plain`: no live view.
    plain: bool,
    metrics: Option<String>,
    engine: Engine,
    from_arrival: bool,
    /// `--secret`.
    secret: Option<PathBuf>,
    /// `--seed`.
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Quick {
    Raw,
    Files,
}

const USAGE: &str = "usage:
  vdbench -f file [file ...] [-o dir] [options] [name=value ...] [+ parameters for each rd=]

  -f file...     Parameter files, read one after the other.
  -o dir         Output directory; 'dir+' takes the first free number, 'dir.tod' adds date and time. Default 'output'.
  -e seconds     elapsed= of every run.
  -i seconds     interval= of every run.
  -w seconds     warmup= of every run.
  -r rd          Begin at this run definition.
  -s             Simulate: print the runs, do nothing.
  -c             Before the first format or use, delete what earlier formats left below the anchors.
  -cy, -cn, -co  format=yes, no or only for every run.
  -v, -vr        Data validation: compares data read with data written; r: read again after each write,
  -vw, -vt       w: do not read before a write, t: remember the time of each write too.
  -j, -jr, -jro  Data validation with a journal; r: compare first what an earlier execution left, o: and nothing else,
  -jn, -jm,      n: entries need not be durable, m: only the map at the end of each run,
  -js, -ji       s: read only what was under way, i: and do not judge that.
  -l [n]         Repeat without end, or n times, or for ns, nm, nh (seconds, minutes, hours).
  -t, -tf        Short test of a raw file, or of a tree of files.
  --allow-idle   Exit with 0 even if a run found nothing to do.
  --engine E     auto, threads (one for each of threads=) or uring (io_uring, where the kernel has it).
  --response R   call (as vdbench: a response time spans the call) or arrival (it begins when the operation was due).
  --metrics A:P  Serve metrics for Prometheus over HTTP at address A, port P.
  --secret file  Secret shared with the agents of hd=; default: the environment's STEADFAST_BENCH_SECRET.
  --seed N       Repeat the random addresses and arrivals of the execution that printed this number.
  --plain        No live lines at the foot of a terminal.
  --watch pid    Report the processor time of this process too, such as a file system's daemon; may be repeated.

  parse          Picks columns and rows of a flatfile.html: -i file [-o file] [-c column ...] [-a] [-f column value ...]
  compare        Compares results: OLD NEW, or: old DIR ... new DIR ...; -o file writes the table there.
  print          Shows bytes: FILE ADDRESS [BYTES].
  agent          Carries out the part of a host (hd=): [--listen ADDRESS:PORT] [--secret FILE].
  secret         Makes a secret for masters and agents: FILE.

  name=value     Replaces $name and !name in the parameter files.

example 1: one file, 100% random reads of 4k at a rate of 100 for 10 seconds
  sd=sd1,lun=/tmp/testfile,size=64m
  wd=wd1,sd=sd1,xfersize=4096,readpct=100
  rd=run1,wd=wd1,iorate=100,elapsed=10,interval=1

example 2: a tree of files, written as fast as possible
  fsd=fsd1,anchor=/tmp/tree,depth=2,width=2,files=2,size=8m
  fwd=fwd1,fsd=fsd1,operation=write,xfersize=256k,fileio=sequential,fileselect=random,threads=2
  rd=run1,fwd=fwd1,fwdrate=max,format=yes,elapsed=10,interval=1
";

/// Carries out the `vdbench` command. `args` are without the program's name. Ends soon after `stop`
/// becomes true.
///
/// Returns the exit status: 0, or 157 for any failure, for a run in which nothing was done, and
/// when stopped.
pub fn vdbench_main(args: &[OsString], stop: &AtomicBool, out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let agent = match words.split_first() {
        Some((first, rest)) if first == "agent" => Some(crate::hosts::agent(rest, stop, out)),
        Some((first, rest)) if first == "secret" => Some(crate::hosts::secret(rest, out)),
        _ => None,
    };
    if let Some(done) = agent.or_else(|| utility::run(&words, out)) {
        return match done {
            Ok(()) => 0,
            Err(sentence) => {
                let _ = writeln!(err, "vdbench: {sentence}");
                FAILURE
            }
        };
    }
    // Writing to a terminal that is gone must not hide the exit status.
    let _ = write!(out, "\n\n{PRODUCT}\n{DISTRIBUTION}\nFor documentation, see lab/README.md.\n\n");
    let fail = |out: &mut dyn Write, err: &mut dyn Write, text: &str, sentence: &str| {
        let now = Moment::now().time();
        let _ = writeln!(out, "{now} ");
        for line in text.lines() {
            let _ = writeln!(out, "{now} {line}");
        }
        let _ = writeln!(out, "{now} ");
        let _ = out.flush();
        let _ = writeln!(err, "vdbench: {}", sentence.replace('\n', " "));
        FAILURE
    };
    let Some(args) = args.iter().map(|arg| arg.to_str().map(String::from)).collect::<Option<Vec<String>>>()
    else {
        return fail(out, err, "An argument is not UTF-8", "an argument is not UTF-8; rename the file.");
    };
    if args.iter().any(|arg| matches!(arg.as_str(), "-h" | "--help")) {
        let _ = write!(out, "{USAGE}{}", crate::profiles::help());
        return 0;
    }
    if args.is_empty() {
        let _ = write!(out, "{USAGE}{}", crate::profiles::help());
        return fail(out, err, "No input parameters specified", "no input parameters; name a file with -f.");
    }
    let command = match Command::parse(&args) {
        Ok(command) => command,
        Err(sentence) => return fail(out, err, &sentence, &sentence),
    };
    let plan = match command.plan() {
        Ok(plan) => plan,
        Err(error) => return fail(out, err, &error.text, &error.sentence()),
    };
    for warning in &plan.warnings {
        let _ = writeln!(err, "vdbench: {warning}");
    }
    let dir = page::resolve(&command.output, &Moment::now().compact());
    let unwritten = |out: &mut dyn Write, err: &mut dyn Write, error: &std::io::Error| {
        let text = format!("The reports in '{}' cannot be written: {error}", dir.display());
        fail(out, err, &text, &format!("{text}; choose another directory with -o."))
    };
    if command.simulate {
        let lines = plan.anchor_lines().into_iter().chain(plan.simulation());
        let made = Output::create(&dir, &plan, &shown(&args), out).and_then(|output| output.simulated(lines));
        return made.map_or_else(|error| unwritten(out, err, &error), |()| 0);
    }
    let seed = command.seed.unwrap_or_else(execution_seed);
    let mut words = shown(&args);
    if command.seed.is_none() {
        let behind = words.find(" + ").unwrap_or(words.len());
        words.insert_str(behind, &format!(" --seed {seed}"));
    }
    let scanned = args.iter().map(|arg| format!("input argument scanned: '{arg}'"));
    let seeded = format!("Addresses and arrivals are drawn from seed {seed}; --seed {seed} repeats them.");
    let opening = scanned.chain([seeded]).collect();
    let request = RunRequest {
        options: Options {
            watch: command.watch.clone(),
            output: dir.display().to_string(),
            engine: command.engine,
            draws: seed,
            from_arrival: command.from_arrival,
            ..Options::default()
        },
        allow_idle: command.allow_idle,
        opening,
        words,
        live: !command.plain && std::io::stdout().is_terminal(),
        metrics: command.metrics.clone(),
        secret: command.secret.clone(),
        ..RunRequest::new(&plan, &dir)
    };
    let reported = run_reported(&request, stop, out, &mut |_| {});
    command.remove_quick_files(&plan);
    match reported {
        Ok(reported) => match reported.failure {
            None => 0,
            Some(text) => {
                let _ = writeln!(err, "vdbench: {}", text.replace('\n', " "));
                FAILURE
            }
        },
        Err(error) => unwritten(out, err, &error),
    }
}

/// A command line as one would type it.
fn shown(args: &[String]) -> String {
    let mut line = String::from("vdbench");
    for arg in args {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
        line += &match arg.chars().all(plain) {
            true => format!(" {arg}"),
            false => format!(" '{}'", arg.replace('\'', "'\\''")),
        };
    }
    line
}

impl Command {
    fn parse(args: &[String]) -> Result<Command, String> {
        let mut command = Command { output: "output".into(), ..Command::default() };
        let mut at = 0;
        while at < args.len() {
            let arg = args[at].as_str();
            at += 1;
            if arg == "+" {
                command.request.appended = Some(args[at..].join(","));
                break;
            }
            if let Some(rest) = arg.strip_prefix("+").filter(|rest| rest.contains('=')) {
                let mut all = vec![rest.to_string()];
                all.extend_from_slice(&args[at..]);
                command.request.appended = Some(all.join(","));
                break;
            }
            if let Some(long) = arg.strip_prefix("--") {
                match long {
                    "allow-idle" => command.allow_idle = true,
                    "watch" => {
                        let pid = args.get(at).and_then(|pid| pid.parse().ok());
                        command.watch.push(pid.ok_or("option --watch takes the number of a process.")?);
                        at += 1;
                    }
                    "response" => {
                        command.from_arrival = match args.get(at).map(String::as_str) {
                            Some("arrival") => true,
                            Some("call") => false,
                            _ => return Err("option --response takes call or arrival.".into()),
                        };
                        at += 1;
                    }
                    "engine" => {
                        command.engine = match args.get(at).map(String::as_str) {
                            Some("auto") => Engine::Auto,
                            Some("threads") => Engine::Threads,
                            Some("uring") => Engine::Ring,
                            _ => return Err("option --engine takes auto, threads or uring.".into()),
                        };
                        at += 1;
                    }
                    "secret" => {
                        let file = args.get(at).ok_or("option --secret takes the name of a file.")?;
                        command.secret = Some(PathBuf::from(file));
                        at += 1;
                    }
                    "seed" => {
                        let number = args.get(at).and_then(|word| word.parse().ok());
                        command.seed = Some(number.ok_or("option --seed takes a number.")?);
                        at += 1;
                    }
                    "plain" => command.plain = true,
                    "metrics" => {
                        let address = args.get(at).filter(|word| word.contains(':')).cloned();
                        command.metrics = Some(
                            address.ok_or("option --metrics takes ADDRESS:PORT, such as 127.0.0.1:9400.")?,
                        );
                        at += 1;
                    }
                    _ => {
                        return Err(format!(
                            "unknown option --{long}; no arguments at all print the options."
                        ));
                    }
                }
                continue;
            }
            let Some(option) = arg.strip_prefix('-').filter(|o| !o.is_empty()) else {
                let (name, value) = arg.split_once('=').ok_or_else(|| {
                    format!(
                        "'{arg}' is neither an option nor name=value; parameter files are named behind -f."
                    )
                })?;
                command.request.replacements.push((name.to_string(), value.to_string()));
                continue;
            };
            match option {
                "t" => command.quick = Some(Quick::Raw),
                "tf" => command.quick = Some(Quick::Files),
                "s" => command.simulate = true,
                "c" => command.request.overrides.format = Some(FormatOverride::Clean),
                "cy" => command.request.overrides.format = Some(FormatOverride::Yes),
                "cn" => command.request.overrides.format = Some(FormatOverride::No),
                "co" => command.request.overrides.format = Some(FormatOverride::Only),
                "l" => at = command.repeated(args, at),
                _ => at = command.valued(option, args, at)?,
            }
        }
        if command.quick.is_none() && command.request.files.is_empty() {
            return Err("no parameter file; name one with -f.".into());
        }
        Ok(command)
    }

    /// `-v`, `-vr`, `-vw`, `-vt`, and combinations.
    fn validate(&mut self, letters: &str) -> Result<(), String> {
        let rules = self.request.overrides.validate.get_or_insert_default();
        for letter in letters.chars() {
            match letter {
                'r' | '2' => rules.reread = true,
                'w' => rules.preread = false,
                't' => rules.time = true,
                // "Quiet", of older releases.
                'q' => {}
                _ => return Err(format!("option -v may be followed by r, w and t, not '{letter}'.")),
            }
        }
        Ok(())
    }

    /// `-j` and its letters.
    fn journal(&mut self, letters: &str) -> Result<(), String> {
        let rules = self.request.overrides.journal.get_or_insert_default();
        for letter in letters.chars() {
            match letter {
                'r' => rules.recover = true,
                'o' => (rules.recover, rules.only) = (true, true),
                'n' => rules.noflush = true,
                'm' => rules.maponly = true,
                's' => rules.skip_read_all = true,
                'i' => rules.ignore_pending = true,
                _ => {
                    return Err(format!("option -j may be followed by r, o, n, m, s and i, not '{letter}'."));
                }
            }
        }
        Ok(())
    }

    /// `-l`, with a number if one follows.
    fn repeated(&mut self, args: &[String], at: usize) -> usize {
        let said = args.get(at).and_then(|text| repeat_text(text));
        self.request.overrides.repeat = Some(said.unwrap_or(Repeat::Forever));
        at + usize::from(said.is_some())
    }

    /// Options with a value, attached (`-fname`) or next.
    fn valued(&mut self, option: &str, args: &[String], at: usize) -> Result<usize, String> {
        let mut letters = option.chars();
        let letter = letters.next().unwrap_or(' ');
        let attached = letters.as_str();
        if letter == 'v' {
            return self.validate(attached).map(|()| at);
        }
        if letter == 'j' {
            return self.journal(attached).map(|()| at);
        }
        if letter == 'l'
            && let Some(repeat) = repeat_text(attached)
        {
            self.request.overrides.repeat = Some(repeat);
            return Ok(at);
        }
        // Traces of vdbench, and kstat on Solaris: they change nothing that is measured.
        if option == "k" || (letter == 'd' && attached.bytes().all(|b| b.is_ascii_digit()) && option != "d") {
            return Ok(at);
        }
        if !matches!(letter, 'f' | 'o' | 'e' | 'i' | 'w' | 'r' | 'm' | 'p') {
            return Err(format!("unknown option -{option}; no arguments at all print the options."));
        }
        let (value, mut next) = if attached.is_empty() {
            let value = args.get(at).filter(|v| !v.starts_with('-') || v.len() == 1);
            (value.ok_or_else(|| format!("option -{letter} needs a value."))?.as_str(), at + 1)
        } else {
            (attached, at)
        };
        let seconds = || {
            let plain = value.strip_suffix('s').unwrap_or(value);
            plain
                .parse::<u64>()
                .ok()
                .filter(|n| *n < 1 << 32)
                .ok_or_else(|| format!("option -{letter} takes seconds, not '{value}'."))
        };
        match letter {
            'f' => {
                self.request.files.push(PathBuf::from(value));
                while let Some(more) =
                    args.get(next).filter(|a| !a.starts_with(['-', '+']) && !a.contains('='))
                {
                    self.request.files.push(PathBuf::from(more));
                    next += 1;
                }
            }
            'o' => self.output = value.to_string(),
            'e' => self.request.overrides.elapsed = Some(seconds()?.max(1)),
            'i' => self.request.overrides.interval = Some(seconds()?.max(1)),
            'w' => self.request.overrides.warmup = Some(seconds()?),
            'r' => self.request.overrides.from_rd = Some(value.to_string()),
            // JVMs and ports: there are none, so any number is right.
            _ => {}
        }
        Ok(next)
    }

    fn plan(&self) -> Result<Plan, steadfast_lab_params::Error> {
        let Some(quick) = self.quick else {
            return parse_with(&self.request, &crate::profiles::Carried);
        };
        let here = format!("{}.quick", self.output.trim_end_matches('+'));
        let (elapsed, interval) =
            (self.request.overrides.elapsed.unwrap_or(5), self.request.overrides.interval.unwrap_or(1));
        let times = format!("elapsed={elapsed},interval={interval}");
        let text = match quick {
            Quick::Raw => format!(
                "sd=sd1,lun=\"{here}\",size=40m\nwd=wd1,sd=sd1,xfersize=1k,rdpct=50\nrd=rd1,wd=wd1,iorate=100,{times}\n"
            ),
            Quick::Files => format!(
                "fsd=fsd1,anchor=\"{here}\",depth=1,width=1,files=8,size=128k\n\
                 fwd=fwd1,fsd=fsd1,rdpct=50,xfersize=1k,fileio=random,fileselect=random,threads=2\n\
                 rd=rd1,fwd=fwd1,fwdrate=100,{times},format=yes\n"
            ),
        };
        parse_text("the built-in test", &text)
    }

    /// Files that the built-in tests leave.
    fn remove_quick_files(&self, plan: &Plan) {
        match self.quick {
            None => {}
            Some(Quick::Raw) => plan.sds.iter().for_each(|sd| drop(std::fs::remove_file(&sd.lun))),
            Some(Quick::Files) => plan.fsds.iter().for_each(|fsd| drop(std::fs::remove_dir_all(&fsd.anchor))),
        }
    }
}

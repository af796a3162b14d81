use super::*;

const WORKLOADS: [(&str, &str); 4] = [
    ("compression.parm", include_str!("../../workloads/compression.parm")),
    ("encryption.parm", include_str!("../../workloads/encryption.parm")),
    ("cow.parm", include_str!("../../workloads/cow.parm")),
    ("journal.parm", include_str!("../../workloads/journal.parm")),
];

fn refused(text: &str) -> Error {
    parse_text("bad.parm", text).expect_err("this must be refused")
}

#[test]
fn the_compression_file_of_the_source_reports_means_what_it_says() {
    let plan = parse_text(WORKLOADS[0].0, WORKLOADS[0].1).unwrap();
    let labels: Vec<&str> = plan.runs.iter().map(|r| r.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "format_for_write_compressed",
            "write_compressed",
            "read_compressed",
            "format_for_write_uncompressed",
            "write_uncompressed",
            "read_uncompressed"
        ]
    );
    assert_eq!(plan.general.compratio, 2.5);
    assert_eq!(plan.runs[1].banner(), "RD=write_compressed; elapsed=10; fwdrate=100; For loops: None");
    assert_eq!(
        plan.anchor_lines()[0],
        "Anchor size: anchor=/zfs_compress: dirs:            6; files:            8; bytes:    64.000m (67,108,864)"
    );
    assert_eq!(
        plan.anchor_lines()[2],
        "Estimated totals for all 2 anchors: dirs: 12; files: 16; bytes: 128.000m "
    );
    let Work::Files(work) = &plan.runs[1].work else { panic!("not a file run") };
    let (fwd, fsds) = &work.fwds[0];
    assert_eq!(
        (fwd.threads, fwd.xfersize.clone(), fwd.select),
        (2, XferSize::Fixed(256 << 10), FileSelect::Random)
    );
    assert_eq!(fwd.operations, [Operation::Write]);
    assert_eq!(fsds, &[0]);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
}

#[test]
fn the_raw_files_of_the_source_reports_mean_what_they_say() {
    let cow = parse_text(WORKLOADS[2].0, WORKLOADS[2].1).unwrap();
    let Work::Raw(work) = &cow.runs[0].work else { panic!("not a raw run") };
    let (wd, _) = &work.wds[0];
    assert_eq!((wd.rdpct, wd.rhpct, wd.seek), (50.0, 10.0, Seek::Percent(50.0)));
    assert_eq!((work.sds[0].size, work.sds[0].threads), (Some(1 << 30), 8));
    assert_eq!((cow.runs[0].elapsed, cow.runs[0].interval), (Some(120), 5));
    let journal = parse_text(WORKLOADS[3].0, WORKLOADS[3].1).unwrap();
    let Work::Raw(work) = &journal.runs[0].work else { panic!("not a raw run") };
    assert_eq!((work.sds[0].threads, work.wds[0].0.rdpct, work.wds[0].0.rhpct), (4, 70.0, 50.0));
    let encryption = parse_text(WORKLOADS[1].0, WORKLOADS[1].1).unwrap();
    assert_eq!(encryption.runs.len(), 6);
    assert_eq!(encryption.fsds[0].anchor, "/zfs_encrypt/encrypted");
}

#[test]
fn refusals_carry_vdbenchs_text_and_file_line_and_word() {
    let sd = "sd=sd1,lun=f1,size=10m\n";
    let cases: [(&str, &str, u32, &str); 12] = [
        ("compratoi=2\n", "Unknown keyword: compratoi", 1, "compratio"),
        ("sd=sd1,lun=f1,siez=10m\n", "Unknown keyword: siez", 1, "size"),
        (
            "SD\nwd=wd1,sd=sd2,xfersize=4k\nrd=r,wd=wd1,iorate=max\n",
            "Could not find sd=sd2 for wd=wd1,host=localhost",
            2,
            "sd1",
        ),
        ("SD\nwd=wd1,sd=sd1\nrd=rd1,wd=wd9,iorate=max\n", "Could not find WD=wd9 for RD=rd1", 3, "wd1"),
        (
            "SD\nwd=wd1,sd=sd1\nrd=rd1,wd=wd1,iorate=max,elapsed=5,interval=2\n",
            "'elapsed=5' must be multiple of 'interval=2'.",
            3,
            "",
        ),
        (
            "SD\nrd=rd1,sd=sd1,iorate=max,elapsed=4\nwd=wd1,sd=sd1\n",
            "Could not find WD=wd1 for RD=rd1",
            3,
            "before the first rd=",
        ),
        (
            "SD\nwd=wd1,sd=sd1\nrd=rd1,wd=wd1,elapsed=4,interval=1\n",
            "iorate= parameter is missing.",
            3,
            "iorate=max",
        ),
        ("SD\nsd=sd1,lun=f2,size=1m\n", "An SD can only be defined once: sd=sd1", 2, ""),
        (
            "SD\nrd=rd1,sd=sd1,iorate=max\nrd=rd1,sd=sd1,iorate=max\n",
            "Duplicate RD names not allowed: rd1",
            3,
            "",
        ),
        (
            "fsd=fsd1,anchor=zz\nfwd=fwd1,fsd=fsd1,rdpct=50,fileio=sequential\nrd=rd1,fwd=fwd1,fwdrate=max\n",
            "'fileio=sequential' and 'rdpct=' are mutually exclusive.",
            2,
            "fileio=random",
        ),
        (
            "fsd=fsd1,anchor=zz\nfwd=fwd1,fsd=fsd1\nrd=rd1,fwd=fwd1,iorate=100\n",
            "Specifying 'iorate=' for a File System workload. Use 'fwdrate=' instead.",
            3,
            "",
        ),
        ("sd=sd1,lun=f,size=8M# x\n", "size=: '8M#' is not a number", 1, "blank before a comment"),
    ];
    for (text, exact, line, hint) in cases {
        let error = refused(&text.replace("SD\n", sd));
        assert_eq!(error.text, exact);
        assert_eq!(error.place.as_ref().map(|p| p.line), Some(line), "{error}");
        assert!(error.hint.contains(hint), "{error}");
        assert!(error.sentence().starts_with(&format!("bad.parm:{line}: ")), "{error}");
    }
}

#[test]
fn text_lost_behind_a_blank_is_warned_about_and_comments_are_not() {
    let text =
        "sd=sd1,lun=tmp/x,size=1g # comment, with comma,\nrd=rd1,sd=sd1,iorate=max,elapsed=4 ,interval=1\n";
    let plan = parse_text("hash2.parm", text).unwrap();
    assert_eq!(plan.warnings.len(), 1, "{:?}", plan.warnings);
    assert_eq!(plan.warnings[0].place.line, 2);
    assert!(plan.warnings[0].text.contains(",interval=1"));
}

#[test]
fn continuation_quotes_case_eof_and_abbreviations() {
    let text = "sd=sd1,lun=tmp/x,     \n   size=1g    * trailing comment\nwd=wd1,sd=sd1, this is ignored\nxf=8k,\nrdpct=50   # c\n\
                rd=rd1,wd=wd*,io=max,el=4,in=1\n";
    let plan = parse_text("cont.parm", text).unwrap();
    let Work::Raw(work) = &plan.runs[0].work else { panic!("not a raw run") };
    assert_eq!((work.wds[0].0.xfersize.clone(), work.wds[0].0.rdpct), (XferSize::Fixed(8192), 50.0));
    assert_eq!(plan.runs[0].banner(), "RD=rd1; I/O rate: Uncontrolled MAX; elapsed=4; For loops: None");
    let quoted = parse_text(
        "q",
        "sd=sd1,lun=\"tmp/a b,c=d\",size=1g\nrd=rd1,sd=sd1,iorate=max\neof\nthis is garbage\n",
    )
    .unwrap();
    assert_eq!(quoted.sds[0].lun, "tmp/a b,c=d");
    assert!(
        parse_text("u", "SD=sd1,LUN=tmp/x,SIZE=1G\nRD=rd1,SD=sd1,IORATE=MAX,ELAPSED=4,INTERVAL=1\n").is_ok()
    );
}

#[test]
fn loops_unroll_with_the_first_coded_outermost_and_rates_innermost() {
    let text = "sd=sd1,lun=tmp/x,size=1g\nrd=rd1,sd=sd1,iorate=max,elapsed=4,interval=1,forthreads=(1-8,d)\n\
                rd=rd2,sd=sd1,iorate=max,elapsed=4,interval=1,forx=(64k-16k,d),threads=(2-6,2)\n\
                rd=rd3,sd=sd1,iorate=(100-300,100,1000),el=1m,in=5\n\
                rd=rd4,sd=sd1,iorate=(10,20),elapsed=2h,interval=1h,rdpct=(0,100)\n\
                rd=rd5,sd=sd1,iorate=(100,2,50,2),dist=variable,elapsed=4,interval=1\n";
    let lines = parse_text("ranges.parm", text).unwrap().simulation();
    assert_eq!(lines.len(), 23);
    assert_eq!(lines[3], "Simulating RD=rd1; I/O rate: Uncontrolled MAX; elapsed=4; For loops: threads=8");
    assert_eq!(
        lines[7],
        "Simulating RD=rd2; I/O rate: Uncontrolled MAX; elapsed=4; For loops: xfersize=32k threads=2"
    );
    assert_eq!(lines[16], "Simulating RD=rd3; I/O rate: 1000; elapsed=60; For loops: iorate=1000");
    assert_eq!(lines[20], "Simulating RD=rd4; I/O rate: 20; elapsed=7200; For loops: rdpct=100 iorate=20");
    assert_eq!(lines[21], "Simulating RD=rd5; I/O rate: Variable; elapsed=4; For loops: None");
    assert_eq!(
        lines[22],
        "Total amount of Run Definitions: 22; total elapsed time 29096 seconds, or 8.0822 hours, plus a format if requested."
    );
}

#[test]
fn ranges_of_names_count_curves_and_single_storages() {
    let text = "sd=default,size=1g\nsd=s1,lun=tmp/x1\nsd=s2,lun=tmp/x2\nsd=s3,lun=tmp/x3\nwd=wd1,sd=(s1-s3)\n\
                rd=rd1,wd=wd1,sd=single,iorate=max,elapsed=4,interval=1\n";
    let plan = parse_text("sdrange.parm", text).unwrap();
    assert_eq!(
        plan.runs.iter().map(|r| r.label.as_str()).collect::<Vec<_>>(),
        ["rd1_s1", "rd1_s2", "rd1_s3"]
    );
    let text = "sd=sd%02d,lun=tmp/x*,size=1g,count=(1,3)\nrd=rd1,sd=sd*,iorate=curve,elapsed=4,interval=1,curve=(50,100)\n";
    let plan = parse_text("count.parm", text).unwrap();
    assert_eq!(
        plan.sds.iter().map(|s| (s.name.as_str(), s.lun.as_str())).collect::<Vec<_>>(),
        [("sd01", "tmp/x1"), ("sd02", "tmp/x2"), ("sd03", "tmp/x3")]
    );
    let lines = plan.simulation();
    assert_eq!(lines[1], "Simulating RD=rd1_(50%); I/O rate: 5000; elapsed=4; For loops: None");
    assert_eq!(lines[3].split(';').next(), Some("Total amount of Run Definitions: 3"));
}

#[test]
fn format_once_stands_before_the_first_of_the_loops_only() {
    let text = "fsd=fsd1,anchor=zz,depth=1,width=1,files=1,size=1m\nfwd=fwd1,fsd=fsd1,fileio=random\n\
                rd=rd1,fwd=fwd1,fwdrate=100,elapsed=4,interval=1,format=(once),foroperations=(read,write),threads=(1,2)\n";
    let lines = parse_text("fops.parm", text).unwrap().simulation();
    assert_eq!(lines[0], "Simulating RD=format_for_rd1");
    assert_eq!(lines[4], "Simulating RD=rd1; elapsed=4; fwdrate=100; For loops: operation=write threads=2");
    assert_eq!(lines.len(), 6);
}

#[test]
fn replacements_are_made_and_a_missing_or_unused_one_is_refused() {
    struct One;
    impl Files for One {
        fn read(&self, _: &Path) -> std::io::Result<Vec<u8>> {
            Ok(b"sd=sd1,lun=$lun,size=!size\nrd=rd1,sd=sd1,iorate=max,elapsed=4,interval=1\n".to_vec())
        }
    }
    let pair = |n: &str, v: &str| (n.to_string(), v.to_string());
    let mut request = Request::file("subst.parm");
    request.replacements = vec![pair("lun", "tmp/q"), pair("size", "1g")];
    let plan = parse_with(&request, &One).unwrap();
    assert_eq!((plan.sds[0].lun.as_str(), plan.sds[0].size), ("tmp/q", Some(1 << 30)));
    request.appended = Some("iorate=100".into());
    assert_eq!(parse_with(&request, &One).unwrap().runs[0].rate, Rate::Fixed(100.0));
    request.replacements.push(pair("other", "1"));
    assert_eq!(parse_with(&request, &One).unwrap_err().kind, ErrorKind::Unresolved);
    request.replacements = vec![pair("lun", "tmp/q")];
    let error = parse_with(&request, &One).unwrap_err();
    assert_eq!((error.kind, error.word.as_str()), (ErrorKind::Unresolved, "!size"));
}

#[test]
fn an_include_is_read_beside_its_file_and_keeps_its_own_line_numbers() {
    struct Two;
    impl Files for Two {
        fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
            match path.to_str() {
                Some("dir/main.parm") => Ok(b"include=sds.parm\nrd=rd1,sd=sd1,iorate=max\n".to_vec()),
                Some("dir/sds.parm") => Ok(b"* storages\nsd=sd1,lun=x,size=1m,thread=zero\n".to_vec()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            }
        }
    }
    let error = parse_with(&Request::file("dir/main.parm"), &Two).unwrap_err();
    assert_eq!(error.place, Some(Place { file: "dir/sds.parm".into(), line: 2 }));
    let missing = parse_with(&Request::file("nowhere.parm"), &Two).unwrap_err();
    assert_eq!(missing.sentence(), "Requested parameter file does not exist: nowhere.parm");
}

#[test]
fn what_would_change_the_measurement_is_refused_by_name() {
    for (text, word) in [
        ("fsd=f,anchor=a,deduphotsets=(10,2)\n", "deduphotsets"),
        ("fsd=f,anchor=a,cleanup=yes\n", "cleanup"),
        ("fsd=f,anchor=a,host=b\n", "host"),
        ("sd=sd1,lun=x\nwd=wd1,sd=sd1,user=x\n", "user"),
    ] {
        let error = refused(text);
        assert_eq!((error.kind, error.word.as_str()), (ErrorKind::NotYet, word), "{error}");
    }
}

/// The first run of a file with one storage of 64m and these words in its three places.
fn raw_with(general: &str, wd: &str, rd: &str) -> Result<Plan, Error> {
    let text = format!(
        "{general}\nsd=sd1,lun=x,size=64m\nwd=wd1,sd=sd1{wd}\nrd=rd1,wd=wd1,iorate=(100,2,50,2),dist=(d,spike),elapsed=4,interval=1{rd}\n"
    );
    parse_text("words.parm", &text)
}

#[test]
fn words_that_steer_an_execution_are_read() {
    let plan = raw_with(
        "histogram=(default,20,1m,2s)\nmonitor=/tmp/m\nstartcmd=(\"echo a b\",cons)\nendcmd=ls\nloop=5m\n\
         abort_failed_skew=3\npattern=bytes\n",
        ",seekpct=0,streams=4,stride=(4k,64k)",
        ",startcmd=(date,pwd,sum,master)",
    )
    .unwrap();
    let general = &plan.general;
    assert_eq!(general.histogram, Some(vec![20_000, 1_000_000, 2_000_000_000]));
    assert_eq!((general.monitor.as_deref(), general.pattern.as_deref()), (Some("/tmp/m"), Some("bytes")));
    assert_eq!(general.startcmd, Commands { lines: vec!["echo a b".into()], to: CommandOutput::Console });
    assert_eq!(general.endcmd, Commands { lines: vec!["ls".into()], to: CommandOutput::Log });
    assert_eq!((general.repeat, general.abort_failed_skew), (Repeat::Seconds(300), Some(3.0)));
    let run = &plan.runs[0];
    assert_eq!((run.arrival, run.spike), (Arrival::Deterministic, true));
    assert_eq!(run.rate, Rate::Variable(vec![(100.0, 2.0), (50.0, 2.0)]));
    assert_eq!((run.startcmd.lines.len(), run.startcmd.to), (2, CommandOutput::Summary));
    let Work::Raw(work) = &run.work else { panic!("not a raw run") };
    assert_eq!((work.wds[0].0.streams, work.wds[0].0.stride), (4, Some((4096, 65536))));
}

#[test]
fn words_that_steer_an_execution_refuse_nonsense() {
    let cases = [
        ("histogram=(default,20,20)", "", ErrorKind::BadValue),
        ("histogram=(20,40)", "", ErrorKind::BadValue),
        ("histogram=(default,20x)", "", ErrorKind::BadValue),
        ("loop=0", "", ErrorKind::BadValue),
        ("loop=3d", "", ErrorKind::BadValue),
        ("startcmd=cons", "", ErrorKind::BadValue),
        ("", ",stride=(64k,4k)", ErrorKind::BadValue),
        ("", ",streams=4,seekpct=100", ErrorKind::Conflict),
    ];
    for (general, wd, kind) in cases {
        assert_eq!(raw_with(general, wd, "").unwrap_err().kind, kind, "{general}{wd}");
    }
    let error = raw_with("pattern=x\ndedupratio=2\ndedupunit=4k", "", "").unwrap_err();
    assert_eq!((error.kind, error.word.as_str()), (ErrorKind::Conflict, "pattern"));
    let many: Vec<String> = (1..=64).map(|n| (n * 10).to_string()).collect();
    let error = raw_with(&format!("histogram=(default,{})", many.join(",")), "", "").unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    assert_eq!(repeat_text("24h"), Some(Repeat::Seconds(86_400)));
}

#[test]
fn format_of_the_command_line_stands_over_the_file() {
    let labels = |said: &str, over: FormatOverride| {
        let text = format!(
            "fsd=f,anchor=a\nfwd=w,fsd=f\nrd=r,fwd=w,fwdrate=max,elapsed=4,interval=1,format={said}\n"
        );
        struct One(String);
        impl Files for One {
            fn read(&self, _: &Path) -> std::io::Result<Vec<u8>> {
                Ok(self.0.clone().into_bytes())
            }
        }
        let mut request = Request::file("o.parm");
        request.overrides.format = Some(over);
        let plan = parse_with(&request, &One(text)).unwrap();
        plan.runs.iter().map(|run| run.label.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(labels("no", FormatOverride::Yes), "format_for_r r");
    assert_eq!(labels("no", FormatOverride::Only), "format_for_r");
    assert_eq!(labels("yes", FormatOverride::No), "r");
    assert_eq!(labels("no", FormatOverride::Clean), "format_for_r r");
    assert_eq!(labels("yes", FormatOverride::Clean), "format_for_r r");
    assert_eq!(labels("restart", FormatOverride::Clean), "format_for_r format_for_r r");
}

/// The table of words in lab/README.md and the words of the code are the same, with the same
/// treatment.
#[test]
fn every_word_of_the_language_stands_in_the_readme_as_it_is_treated() {
    use std::collections::BTreeMap;
    let readme = include_str!("../../README.md");
    let table = readme.split("\n## Every word\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let mut written: BTreeMap<(String, String), String> = BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [section, words, state, ..] = cells.as_slice() else { panic!("{row}") };
        for word in words.trim_matches('`').split_whitespace() {
            let key = (section.to_string(), word.to_string());
            assert!(written.insert(key, state.to_string()).is_none(), "{section} {word} stands there twice");
        }
    }
    let sections = [
        (Section::General, "general"),
        (Section::Hd, "hd"),
        (Section::Rg, "rg"),
        (Section::Sd, "sd"),
        (Section::Wd, "wd"),
        (Section::Fsd, "fsd"),
        (Section::Fwd, "fwd"),
        (Section::Rd, "rd"),
    ];
    for (section, name) in sections {
        for keyword in keywords(section) {
            let state = written.remove(&(name.to_string(), keyword.name.to_string()));
            let fits = match keyword.treatment {
                Treatment::Honour => matches!(state.as_deref(), Some("same" | "different")),
                Treatment::Ignore => state.as_deref() == Some("ignored"),
                Treatment::Refuse => state.as_deref() == Some("refused"),
            };
            assert!(
                fits,
                "{name} {}: {:?} in the code, {state:?} in the table",
                keyword.name, keyword.treatment
            );
        }
    }
    assert!(written.is_empty(), "only in the table: {written:?}");
}

#[test]
fn file_words_from_anywhere_average_sizes_and_complete_trees() {
    let with = |format: &str| {
        parse_text(
            "f",
            &format!(
                "fsd=f,anchor=a,files=10,sizes=(64k,0)\nfwd=w,fsd=f,fileio=seqnz,fileselect=sequentialnz\n\
                 rd=r,fwd=w,fwdrate=max,format={format}\n"
            ),
        )
    };
    let plan = with("(no,complete)").unwrap();
    assert_eq!(plan.fsds[0].sizes, [(65536, 0.0)]);
    assert_eq!(plan.fsds[0].total_bytes(), 10 * 65536);
    assert_eq!(plan.fwds[0].fileio, FileIo::Sequential { delete: false, anywhere: true });
    assert_eq!(plan.fwds[0].select, FileSelect::SequentialFromAnywhere);
    assert_eq!(plan.runs.len(), 1, "no format is inserted");
    let Work::Files(work) = &plan.runs[0].work else { panic!("not a file run") };
    assert!(work.complete);
    assert_eq!(with("(yes,complete)").unwrap_err().kind, ErrorKind::Conflict);
}

#[test]
fn dedup_needs_its_unit_and_writes_of_whole_units() {
    let with = |words: &str, xfersize: &str| {
        parse_text(
            "d",
            &format!(
                "{words}\nsd=sd1,lun=x,size=1m\nwd=w,sd=sd1,rdpct=0,xfersize={xfersize}\nrd=r,wd=w,iorate=max\n"
            ),
        )
    };
    let plan = with("dedupratio=2\ndedupunit=4k", "64k").unwrap();
    assert_eq!(
        plan.general.dedup,
        Some(Dedup {
            ratio: 2.0,
            unit: 4096,
            sets: DedupSets::Percent(5.0),
            flipflop: FlipFlop::Never,
            hot: HotSets::default()
        })
    );
    assert_eq!(with("dedupratio=2", "64k").unwrap_err().kind, ErrorKind::Missing);
    assert_eq!(with("dedupratio=2\ndedupunit=8k", "4k").unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(with("dedupratio=50\ndedupunit=4k", "4k").unwrap_err().kind, ErrorKind::Conflict);
}

#[test]
fn hot_sets_are_pairs_and_belong_to_storages() {
    let with = |words: &str| {
        parse_text(
            "d",
            &format!("dedupratio=2\ndedupunit=4k\n{words}\nsd=sd1,lun=x,size=1m\nrd=r,sd=sd1,iorate=max\n"),
        )
    };
    let hot = with("deduphotsets=(2,3,1,4)\ndedupflipflop=hot").unwrap().general.dedup.unwrap().hot;
    assert_eq!((hot.sets(), hot.blocks()), (3, 10));
    let sets: Vec<Option<u64>> = (0..12).map(|block| hot.set(block)).collect();
    let wanted = [0, 1, 0, 1, 0, 1, 2, 2, 2, 2].map(Some);
    assert_eq!((&sets[..10], &sets[10..]), (&wanted[..], &[None, None][..]));
    for (words, why) in [
        ("deduphotsets=(2,3,1)", "takes pairs"),
        ("deduphotsets=(0,3)", "takes numbers from 1"),
        ("deduphotsets=(1000,1001)", "More than one million"),
        ("dedupflipflop=hot", "without specifying 'deduphotsets=nnn'"),
        ("deduphotsets=(2,3)\ndedupratio=1", "above 1"),
    ] {
        let error = with(words).unwrap_err();
        assert!(error.text.contains(why), "{words}: {error}");
    }
    let files = "dedupratio=2\ndedupunit=4k\ndeduphotsets=(2,3)\nfsd=f,anchor=a\nfwd=w,fsd=f\nrd=r,fwd=w,fwdrate=max\n";
    assert_eq!(refused(files).word, "deduphotsets");
}

#[test]
fn a_sentence_reads_as_one() {
    let error = refused("sd=sd1,lun=x,size=8x\n");
    assert_eq!(error.sentence(), "bad.parm:1: size=: '8x' is not a number; units are k, m, g, t");
    let error = refused("fsd=f,anchor=a\nfwd=w,fsd=f\nrd=r,fwd=w,iorate=5\n");
    let whole =
        "bad.parm:3: 'rd=r': Specifying 'iorate=' for a File System workload. Use 'fwdrate=' instead.";
    assert_eq!(error.sentence(), whole);
    let error = refused("fsd=f,anchor=a\nfwd=w,fsd=f,rdpct=5\nrd=r,fwd=w,fwdrate=5\n");
    assert!(error.sentence().ends_with("mutually exclusive. Add fileio=random"), "{error}");
}

#[test]
fn two_trees_of_one_run_need_two_anchors() {
    let text =
        "fsd=fsd1,anchor=a\nfsd=fsd2,anchor=a,files=3\nfwd=fwd1,fsd=(fsd1,fsd2)\nrd=r,fwd=fwd1,fwdrate=max\n";
    let error = refused(text);
    assert_eq!((error.kind, error.place.map(|p| p.line)), (ErrorKind::Conflict, Some(2)));
}

#[test]
fn hosts_are_this_machine_or_an_agent_with_a_port() {
    let text = |hosts: &str| format!("{hosts}\nsd=sd1,lun=x,size=1m,host=hd1\nrd=r,sd=sd1,iorate=max\n");
    let hosts = |lines: &str| parse_text("h", &text(lines)).unwrap().hosts;
    assert_eq!(hosts("hd=default,shell=vdbench\nhd=hd1,system=localhost").len(), 1, "a default is no host");
    for (lines, system, port, here) in [
        ("hd=hd1,system=localhost", "localhost", None, true),
        ("hd=localhost\nhd=hd1,system=localhost", "localhost", None, true),
        ("hd=hd1,system=localhost:7001", "localhost", Some(7001), false),
        ("hd=hd1,system=10.0.0.7", "10.0.0.7", None, false),
        ("hd=hd1", "hd1", None, false),
        ("hd=hd1,system=[fe80::1]:80", "fe80::1", Some(80), false),
        ("hd=hd1,system=fe80::1", "fe80::1", None, false),
    ] {
        let found = hosts(lines).pop().unwrap();
        assert_eq!((found.system.as_str(), found.port, found.is_here()), (system, port, here), "{lines}");
    }
    assert_eq!(parse_text("h", &text("port=9000\nhd=hd1")).unwrap().general.port, Some(9000));
    assert_eq!(refused(&text("hd=localhost")).word, "hd1");
    assert_eq!(refused(&text("hd=hd1\nhd=hd1")).kind, ErrorKind::Duplicate);
    assert_eq!(refused(&text("hd=hd1,system=a:b")).kind, ErrorKind::BadValue);
    assert_eq!(refused(&text("hd=hd1,system=a,mount=/x")).kind, ErrorKind::NotYet);
    let clients = |lines: &str| {
        let plan = parse_text("h", &format!("{lines}\nsd=s,lun=/x,size=1m\nrd=r,sd=s,iorate=max\n")).unwrap();
        plan.hosts.into_iter().map(|host| (host.name, host.port)).collect::<Vec<_>>()
    };
    let wanted = |names: &[(&str, Option<u16>)]| -> Vec<(String, Option<u16>)> {
        names.iter().map(|(name, port)| (name.to_string(), *port)).collect()
    };
    assert_eq!(
        clients("hd=hd1,system=a:80,clients=2\nhd=hd2,system=b"),
        wanted(&[("hd1_cl0", Some(80)), ("hd1_cl1", Some(80)), ("hd2", None)])
    );
    assert_eq!(
        clients("hd=default,cl=2\nhd=hd1\nhd=hd2,clients=1"),
        wanted(&[("hd1_cl0", None), ("hd1_cl1", None), ("hd2_cl0", None)])
    );
    assert!(refused(&text("hd=hd1,clients=0")).text.contains("clients"));
    assert_eq!(refused(&text("hd=hd1,clients=600\nhd=hd2,clients=600")).kind, ErrorKind::TooLarge);
}

#[test]
fn a_host_is_said_of_storages_and_workloads_and_what_cannot_be_shared_is_refused() {
    let hosts = "hd=a,system=a\nhd=b,system=b\nhd=cc,system=c\n";
    let plan = |text: &str| parse_text("h", &format!("{hosts}{text}\n"));
    let raw = "rd=r,wd=w*,iorate=max";
    let found = plan(&format!(
        "sd=default,host=a\nsd=s1,host=(a,b),lun=/x,host=c*,lun=/y\nsd=s2,lun=/z\nwd=w1,sd=s1,host=b\nwd=w2,sd=s2\n{raw}"
    ));
    let found = found.unwrap();
    let (s1, s2) = (&found.sds[0], &found.sds[1]);
    let on = |sd: &Sd| ["a", "b", "cc"].map(|host| sd.is_on(host).then(|| sd.lun_on(host).to_string()));
    assert_eq!(on(s1), [Some("/x".into()), Some("/x".into()), Some("/y".into())]);
    assert_eq!(on(s2), [Some("/z".into()), None, None], "from the default");
    assert_eq!(found.wds[0].hosts, ["b"]);
    assert!(found.wds[1].is_on("cc"), "on all unless said");
    let why = |text: String| plan(&text).unwrap_err().word;
    assert_eq!(why(format!("sd=s,lun=/x,host=a\nwd=w,sd=s,host=b\n{raw}")), "host");
    assert_eq!(why(format!("sd=s,lun=/x,host=bb\nwd=w,sd=s\n{raw}")), "bb");
    let valid = |text: &str| parse_text("h", &format!("validate=yes\n{hosts}{text}\n"));
    assert_eq!(valid(&format!("sd=s,lun=/x\nwd=w,sd=s\n{raw}")).unwrap_err().word, "validate");
    assert!(valid(&format!("sd=s,lun=/x\nwd=w,sd=s,host=a\n{raw}")).is_ok());
    let journal = parse_text("h", &format!("journal=yes\n{hosts}sd=s,lun=/x\nwd=w,sd=s,host=a\n{raw}\n"));
    assert_eq!(journal.unwrap_err().word, "journal");
    let files = "rd=r,fwd=w*,fwdrate=max,format=yes";
    assert_eq!(why(format!("fsd=f,anchor=/x\nfwd=w,fsd=f\n{files}")), "shared");
    assert_eq!(why(format!("fsd=f,anchor=/x,shared=yes\nfwd=w,fsd=f,operation=mkdir\n{files}")), "operation");
    let dealt = plan(&format!(
        "fsd=f,anchor=/x,shared=yes\nfsd=g,anchor=/y\nfwd=w1,fsd=f\nfwd=w2,fsd=g,host=b\n{files}"
    ));
    for run in &dealt.unwrap().runs {
        let Work::Files(work) = &run.work else { panic!("not a file run") };
        assert_eq!(work.fsds[0].hosts, ["a", "b", "cc"], "{}", run.label);
        assert_eq!(work.fsds[1].hosts, ["b"], "{}", run.label);
    }
}

#[test]
fn a_line_with_a_host_in_it_is_there_once_for_each() {
    let text = "hd=default,shell=ssh\nhd=one,system=a\nhd=two,system=b\n\
                fsd=fsd_$host,anchor=/mnt/!host/tree,\n  files=#hosts\nfwd=fwd#host,fsd=fsd_$host,host=$host,threads=#hosts\n\
                rd=r,fwd=fwd*,fwdrate=max\n";
    let plan = parse_text("h", text).unwrap();
    let fsds: Vec<(&str, &str, u64)> =
        plan.fsds.iter().map(|fsd| (fsd.name.as_str(), fsd.anchor.as_str(), fsd.files)).collect();
    assert_eq!(fsds, [("fsd_one", "/mnt/one/tree", 2), ("fsd_two", "/mnt/two/tree", 2)]);
    let fwds: Vec<(&str, &[String])> =
        plan.fwds.iter().map(|fwd| (fwd.name.as_str(), fwd.hosts.as_slice())).collect();
    assert_eq!(fwds, [("fwd1", &["one".to_string()][..]), ("fwd2", &["two".to_string()][..])]);
    let plan = parse_text("h", &text.replace("hd=one,", "hd=one,clients=2,")).unwrap();
    let anchors: Vec<&str> = plan.fsds.iter().map(|fsd| fsd.anchor.as_str()).collect();
    assert_eq!(anchors, ["/mnt/one_cl0/tree", "/mnt/one_cl1/tree", "/mnt/two/tree"]);
    // Without hosts there is one, this machine; a number alone makes no copies.
    let plan = parse_text("h", "sd=sd_$host,lun=x,size=1m,threads=#hosts\nrd=r,sd=sd*,iorate=max\n").unwrap();
    assert_eq!((plan.sds.len(), plan.sds[0].name.as_str(), plan.sds[0].threads), (1, "sd_localhost", 1));
    assert_eq!(refused("sd=s,lun=$hot,size=1m\nrd=r,sd=s,iorate=max\n").word, "$hot");
}

#[test]
fn a_storage_may_repeat_otherwise_than_the_others() {
    let plan = parse_text(
        "d",
        "dedupratio=2,dedupunit=8k\nsd=default,size=1m\nsd=s1,lun=x,dedupratio=4\nsd=s2,lun=y,dedupunit=4k,dedupsets=7\n\
         sd=s3,lun=z\nwd=w1,sd=(s1,s3),xfersize=8k,rdpct=0\nwd=w2,sd=s2,xfersize=16k,rdpct=0\nrd=r,wd=w*,iorate=max\n",
    );
    let sds = plan.unwrap().sds;
    let (one, two) = (sds[0].dedup.unwrap(), sds[1].dedup.unwrap());
    assert_eq!((one.ratio, one.unit, two.ratio, two.unit), (4.0, 8192, 2.0, 4096));
    assert_eq!((two.sets, sds[2].dedup), (DedupSets::Count(7), None));
    let own = |sd: &str, xfersize: &str| {
        refused(&format!(
            "sd=s,lun=x,size=1m,{sd}\nwd=w,sd=s,xfersize={xfersize},rdpct=0\nrd=r,wd=w,iorate=max\n"
        ))
        .word
    };
    assert_eq!(own("dedupratio=2", "8k"), "dedupunit");
    assert_eq!(own("dedupratio=2,dedupunit=8k", "12k"), "dedupunit");
    let files = "fsd=f,anchor=a,dedupratio=3,dedupunit=4k\nfwd=w,fsd=f\nrd=r,fwd=w,fwdrate=max\n";
    assert_eq!(parse_text("f", files).unwrap().fsds[0].dedup.unwrap().ratio, 3.0);
    assert_eq!(refused(&format!("pattern=x\n{files}")).word, "pattern");
}

#[test]
fn raw_and_file_workloads_do_not_mix() {
    let error = refused(
        "fsd=fsd1,anchor=a\nsd=sd1,lun=x,size=1m\nwd=wd1,sd=sd1\nfwd=fwd1,fsd=fsd1\n\
         rd=r1,wd=wd1,iorate=max\nrd=r2,fwd=fwd1,fwdrate=max\n",
    );
    assert_eq!((error.kind, error.place.map(|p| p.line)), (ErrorKind::Conflict, Some(2)));
}

#[test]
fn ignored_words_are_named_in_a_warning() {
    let plan = parse_text("w", "messagescan=no\nsd=sd1,lun=x,size=1m\nrd=rd1,sd=sd1,iorate=max\n").unwrap();
    assert_eq!(plan.warnings.len(), 1);
    assert!(plan.warnings[0].text.starts_with("messagescan="));
}

#[test]
fn a_list_that_never_closes_and_a_missing_comma_are_refused() {
    assert_eq!(refused("sd=sd1,lun=x,range=(1,2\n").kind, ErrorKind::Syntax);
    assert_eq!(refused("sd=sd1,lun=x,size=8Mthreads=2\n").kind, ErrorKind::Syntax);
    assert_eq!(refused("sd=sd1,lun=\"x\n").kind, ErrorKind::Syntax);
    assert_eq!(refused("sd\n").kind, ErrorKind::Syntax);
    assert_eq!(refused("sd=sd1,lun=\n").kind, ErrorKind::Syntax);
}

#[test]
fn mutated_files_never_panic() {
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let pieces: [&[u8]; 14] = [
        b"=",
        b",",
        b"(",
        b")",
        b"\"",
        b" ",
        b"\n",
        b"-",
        b"*",
        b"%",
        b"999999999999t",
        b"(1-9,d)",
        b"$x",
        b"count=(1,9)",
    ];
    for round in 0..4_000 {
        let mut bytes = WORKLOADS[round % 4].1.as_bytes().to_vec();
        for _ in 0..=random.usize(..6) {
            let at = random.usize(..bytes.len());
            match random.usize(..4) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at.max(1)),
                2 => {
                    let piece = pieces[random.usize(..pieces.len())];
                    bytes.splice(at..at, piece.iter().copied());
                }
                _ => {
                    let end = (at + random.usize(..30)).min(bytes.len());
                    let part: Vec<u8> = bytes[at..end].to_vec();
                    let to = random.usize(..bytes.len());
                    bytes.splice(to..to, part);
                }
            }
        }
        fuzz(&bytes);
    }
}

#[test]
fn runs_of_sets_of_storages_are_named_after_them() {
    let labels = |sds: &str| {
        let text = format!(
            "sd=default,size=1m\nsd=a,lun=a\nsd=b,lun=b\nsd=c,lun=c\nwd=w\nrd=r,wd=w,sd={sds},iorate=max\n"
        );
        parse_text("t", &text).unwrap().runs.into_iter().map(|run| run.label).collect::<Vec<_>>()
    };
    assert_eq!(labels("single"), ["r_a", "r_b", "r_c"]);
    assert_eq!(labels("setsof2"), ["r_a_b", "r_c"]);
    assert_eq!(labels("range"), ["r_a", "r_a-b", "r_a-c"]);
    assert!(refused("sd=a,lun=a,size=1m\nrd=r,sd=setsof,iorate=max\n").text.contains("setsof"));
}

#[test]
fn priorities_are_whole_and_rates_come_first() {
    let sd = "sd=s,lun=s,size=1m\n";
    for (wds, word) in [
        ("wd=a,sd=s,iorate=10\nwd=b,sd=s", "ALL workloads"),
        ("wd=a,sd=s,priority=1\nwd=b,sd=s,priority=3", "without a gap"),
        ("wd=a,sd=s,priority=2,iorate=10\nwd=b,sd=s,priority=1", "higher priority"),
        ("wd=a,sd=s,priority=1,iorate=10,skew=10\nwd=b,sd=s,priority=2", "mutually exclusive"),
        ("wd=a,sd=s,threads=4", "concatenatesds"),
    ] {
        let error = refused(&format!("{sd}{wds}\nrd=r,wd=*,iorate=max\n"));
        assert!(error.text.contains(word), "{wds}: {}", error.text);
    }
}

#[test]
fn masks_timeouts_and_error_limits_are_read() {
    let fsd = |mask: &str| format!("fsd=f,anchor=a,mask={mask}\nfwd=w,fsd=f\nrd=r,fwd=w,fwdrate=max\n");
    let plan = parse_text("t", &fsd("(f%06d,d%d.%d)")).unwrap();
    assert_eq!(plan.fsds[0].mask, Some(("f%06d".into(), "d%d.%d".into())));
    for bad in ["(file)", "(f%d,d%d)", "(f%s,d%d%d)", "(../%d,d%d%d)"] {
        assert!(refused(&fsd(bad)).text.contains("mask"), "{bad}");
    }
    let general = |line: &str| {
        parse_text("t", &format!("{line}\nsd=s,lun=s,size=1m\nrd=r,sd=s,iorate=max\n")).map(|p| p.general)
    };
    assert_eq!(general("data_errors=(10,60)").unwrap().data_errors.seconds, Some(60));
    assert_eq!(general("data_errors=(remove,5)").unwrap().data_errors.remove, Some(Removal::Seconds(5)));
    assert_eq!(
        general("dataerrors=\"dump $lun\"").unwrap().data_errors.command.as_deref(),
        Some("dump $lun")
    );
    assert_eq!(general("timeout=(60,600)").unwrap().timeout.unwrap().then, TimeoutThen::AbortAfter(600));
    assert_eq!(
        general("timeout=report").unwrap().timeout.unwrap(),
        Timeout { seconds: 1, then: TimeoutThen::Report }
    );
    assert!(general("timeout=soon").is_err());
    let seek =
        parse_text("t", "sd=s,lun=s,size=1m\nwd=w,sd=s,seekpct=(poisson,5)\nrd=r,wd=w,iorate=max\n").unwrap();
    assert_eq!(seek.wds[0].seek, Seek::Poisson(5.0));
    let select =
        parse_text("t", "fsd=f,anchor=a\nfwd=w,fsd=f,fileselect=(poisson,10)\nrd=r,fwd=w,fwdrate=max\n")
            .unwrap();
    assert_eq!(select.fwds[0].select, FileSelect::Poisson(10.0));
}

#[test]
fn journals_are_those_of_validated_data() {
    let general = |line: &str| {
        parse_text("t", &format!("{line}\nsd=s,lun=s,size=1m,journal=/j\nrd=r,sd=s,iorate=max\n"))
            .map(|p| p.general)
    };
    let rules = general("journal=(recover,noflush,max,1m)").unwrap();
    let wanted = JournalRules { recover: true, noflush: true, max: Some(1 << 20), ..JournalRules::default() };
    assert_eq!((rules.journal, rules.validate.is_some()), (Some(wanted), true));
    assert_eq!(general("journal=no").unwrap().journal, None);
    assert!(general("journal=only").unwrap().journal.unwrap().recover);
    assert!(general("journal=perhaps").is_err() && general("journal=(max,3)").is_err());
}

#[test]
fn a_replay_has_a_trace_and_devices_and_no_draws() {
    let with = |sds: &str, rd: &str| {
        parse_text("r", &format!("rg=g,devices=(8:0,disk1)\n{sds}\nwd=w,sd=*\nrd=r,wd=w,elapsed=60,{rd}\n"))
    };
    let sds = "sd=s1,lun=/x,replay=(g,c)\nsd=s2,lun=/y,replay=g\nsd=s3,lun=/z";
    let plan = with(sds, "replay=(/t/trace,repeat=3,fold=1g,split=/tmp)").unwrap();
    let run = &plan.runs[0];
    let share = |devices: &[&str], sds: &[usize]| ReplayShare {
        devices: devices.iter().map(|name| name.to_string()).collect(),
        sds: sds.to_vec(),
    };
    let wanted = Replay {
        file: "/t/trace".into(),
        repeat: 3,
        fold: Some(1 << 30),
        shares: vec![share(&["8:0", "disk1"], &[0, 1]), share(&["c"], &[0]), share(&[], &[2])],
    };
    assert_eq!((run.replay.as_ref(), &run.rate), (Some(&wanted), &Rate::AsTraced));
    assert!(run.banner().contains("I/O rate: as traced (replay of /t/trace)"), "{}", run.banner());
    assert_eq!(with(sds, "replay=/t,iorate=50").unwrap().runs[0].rate, Rate::Fixed(50.0));
    assert_eq!(with(sds, "replay=/t,iorate=max,forthreads=(1,2)").unwrap().runs.len(), 2);
    let one = "sd=s1,lun=/x";
    for (general, sds, rd, why) in [
        ("", "sd=s1,lun=/x\nsd=s2,lun=/y", "replay=/t", "neither sd=s1 nor sd=s2"),
        ("", "sd=s1,lun=/x,replay=c\nsd=s2,lun=/y,replay=c", "replay=/t", "c of the trace is listed twice"),
        ("", one, "replay=/t,iorate=curve", "has a single rate"),
        ("", one, "replay=/t,forxfersize=(1k,2k)", "forxxx"),
        ("", one, "replay=(/t,stagger=5)", "stagger= is not carried out"),
        ("", one, "replay=(/t,repeat=x)", "repeat=: 'x' is not a number"),
        ("", one, "replay=(/t,x=5)", "Unknown Replay parameter: x=5"),
        ("", "sd=s1,lun=/x,range=(1,2)", "replay=/t", "range= and offset="),
        ("validate=yes\n", one, "replay=/t", "replay= and validate"),
        ("dedupratio=2\ndedupunit=4k\n", one, "replay=/t", "replay= and dedupratio"),
        ("hd=a,system=b\n", one, "replay=/t", "replay= and hd"),
    ] {
        let text = format!("{general}{sds}\nwd=w,sd=*\nrd=r,wd=w,elapsed=60,{rd}\n");
        let error = parse_text("r", &text).unwrap_err();
        assert!(error.text.contains(why), "{text}: {error}");
    }
    let two = format!("{one}\nwd=w,sd=s1\nwd=v,sd=s1\nrd=r,wd=*,elapsed=60,replay=/t\n");
    assert!(refused(&two).text.contains("replay on sd=s1"));
    let files = "fsd=f,anchor=a\nfwd=w,fsd=f\nrd=r,fwd=w,fwdrate=max,replay=/t\n";
    assert!(refused(files).text.contains("replay= is for storages"));
    assert!(refused("rg=g\nsd=s,lun=/x\n").text.contains("devices= is missing"));
    assert!(refused("rg=g,devices=a\nrg=g,devices=b\n").text.contains("duplicate ReplayGroup"));
}

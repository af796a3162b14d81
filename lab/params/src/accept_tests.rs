//! Words that vdbench 5.04.07 takes and that stand in public files, and files that it refuses.

use super::*;

/// The first run that does something; all others of the plan are beside it.
fn plan(text: &str) -> Plan {
    parse_text("taken.parm", text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn raw(plan: &Plan) -> &RawWork {
    match &plan.runs[0].work {
        Work::Raw(work) => work,
        Work::Files(_) => panic!("not a raw run"),
    }
}

fn files(plan: &Plan) -> &FileWork {
    let found = plan.runs.iter().find_map(|run| match &run.work {
        Work::Files(work) if work.format.is_none() => Some(work),
        _ => None,
    });
    found.expect("a run on files")
}

#[test]
fn what_the_original_takes_is_taken() {
    type Check = fn(&Plan) -> bool;
    let cases: [(&str, &str, Check); 12] = [
        ("hitarea=0", "<sd>,hitarea=0\n<wd>\n<raw>", |p| raw(p).sds[0].hitarea == 0),
        ("forhitarea", "<sd>\n<wd>\n<raw>,hitarea=(0,1m)", |p| p.runs.len() == 2),
        ("readpct", "<fsd>\n<fwd>,fileio=random,readpct=70\n<tree>", |p| {
            files(p).fwds[0].0.rdpct == Some(70.0)
        }),
        ("xfersizes", "<fsd>\n<fwd>,xfersizes=(4k,40,8k,60)\n<tree>", |p| {
            files(p).fwds[0].0.xfersize.largest() == 8192
        }),
        ("depth=0", "<fsd>,depth=0,files=7\n<fwd>\n<tree>", |p| {
            (p.fsds[0].directories(), p.fsds[0].file_count()) == (0, 7)
        }),
        (
            "one tree, a workload for each host",
            "hd=a,system=h1\nhd=b,system=h2\n<fsd>\nfwd=f1,fsd=t,host=a\nfwd=f2,fsd=t,host=b\nrd=r,fwd=(f1,f2),fwdrate=max,elapsed=4,interval=1",
            |p| files(p).fsds[0].shared && files(p).fsds[0].hosts.len() == 2,
        ),
        ("streams", "<sd>\n<wd>,streams=4\n<raw>", |p| raw(p).wds[0].0.seek == Seek::Percent(0.0)),
        ("forrdpct with fileio=sequential", "<fsd>\n<fwd>,fileio=sequential\n<tree>,forrdpct=(30,60)", |p| {
            p.runs.len() == 2 && files(p).fwds[0].0.rdpct == Some(30.0)
        }),
        ("a comma too many", "<sd>,\n<wd>,\n<raw>,elapsed=6,", |p| {
            raw(p).wds[0].0.sds == ["s"] && p.runs[0].elapsed == Some(6)
        }),
        ("two storages joined", "<sd>,\nsd=s2,lun=g,size=1m,\nwd=w\n<raw>", |p| raw(p).sds.len() == 2),
        ("100.01", "<sd>\n<wd>,xfersize=(4k,33.34,8k,33.34,16k,33.33)\n<raw>", |p| {
            raw(p).wds[0].0.xfersize.largest() == 16 << 10
        }),
        ("a tree whose sizes are rounded", "<fsd>,sizes=(4k,33.34,8k,66.68)\n<fwd>\n<tree>", |p| {
            p.fsds[0].sizes.len() == 2
        }),
    ];
    for (name, text, check) in cases {
        let text = text
            .replace("<sd>", "sd=s,lun=f,size=1m")
            .replace("<fsd>", "fsd=t,anchor=a")
            .replace("<wd>", "wd=w,sd=s")
            .replace("<fwd>", "fwd=w,fsd=t")
            .replace("<raw>", "rd=r,wd=w,iorate=max,elapsed=4,interval=1")
            .replace("<tree>", "rd=r,fwd=w,fwdrate=max,elapsed=4,interval=1");
        assert!(check(&plan(&text)), "{name}:\n{text}");
    }
}

#[test]
fn what_the_original_refuses_is_refused() {
    let cases = [
        ("sd=s,lun=f,size=1m\nwd=w,sd=s\n", "No RD parameters specified"),
        ("", "No RD parameters specified"),
        (
            "sd=s,lun=f,size=1m\nfsd=t,anchor=a\nwd=w,sd=s\nrd=r,wd=w,iorate=max,elapsed=4,interval=1\n",
            "'fsd' and 'sd' parameters are mutually exclusive.",
        ),
        (
            "fsd=t,anchor=a\nfwd=w,fsd=t,readpct=50\nrd=r,fwd=w,fwdrate=max,elapsed=4,interval=1\n",
            "'fileio=sequential' and 'rdpct=' are mutually exclusive.",
        ),
        (
            "sd=s,lun=f,size=1m\nwd=w,sd=s,streams=4,seekpct=100\nrd=r,wd=w,iorate=max,elapsed=4,interval=1\n",
            "streams= of wd=w needs a sequential workload",
        ),
        (
            "sd=s,lun=f,size=1m\nwd=w,sd=s,xfersize=(4k,50,8k,51)\nrd=r,wd=w,iorate=max,elapsed=4,interval=1\n",
            "the percentages of xfersize= add up to 101, not to 100",
        ),
    ];
    for (text, sentence) in cases {
        let error = parse_text("refused.parm", text).expect_err(text);
        assert_eq!(error.text, sentence, "{text}");
    }
}

#[test]
fn a_simulation_counts_no_pause_and_priorities_control_a_maximum() {
    let text = "sd=s,lun=f,size=1m\nwd=w,sd=s,priority=1\nwd=v,sd=s,priority=2\n\
                rd=r,wd=(w,v),iorate=max,elapsed=4,interval=1,warmup=2,pause=30\n";
    let lines = plan(text).simulation();
    assert_eq!(lines[0], "Simulating RD=r; I/O rate: Controlled MAX; elapsed=4 warmup=2; For loops: None");
    assert!(lines[1].contains("total elapsed time 6 seconds"), "{}", lines[1]);
}

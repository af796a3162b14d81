//! Storages that are missing or too short, and the run that fills them.

use crate::error::Error;
use crate::{file_calls, shared};
use std::path::Path;
use steadfast_lab_params::{
    Arrival, General, OpenFlags, Plan, Rate, RawWork, Run, Sd, Seek, Wd, Work, XferSize,
};

/// Every storage that a run uses, once.
pub(crate) fn used(plan: &Plan) -> Vec<Sd> {
    let mut out: Vec<Sd> = Vec::new();
    for run in &plan.runs {
        let Work::Raw(work) = &run.work else { continue };
        for sd in &work.sds {
            let parts = if sd.parts.is_empty() { std::slice::from_ref(sd) } else { &sd.parts };
            for part in parts {
                if !out.iter().any(|known| known.name == part.name) {
                    out.push(part.clone());
                }
            }
        }
    }
    out
}

/// Those of these storages that must be filled first.
pub(crate) fn short(general: &General, sds: &[Sd]) -> Result<Vec<Sd>, Error> {
    let mut short = Vec::new();
    for sd in sds {
        let found = file_calls::length(Path::new(&sd.lun)).map_err(|e| {
            Error::Start(format!("Open for lun '{}' failed\n{}", sd.lun, shared::errno_text(&e)))
        })?;
        let device = sd.lun.starts_with("/dev/");
        let enough = match (found, sd.size) {
            (None | Some(0), None) => {
                return Err(Error::NoSize { sd: sd.name.clone(), lun: sd.lun.clone() });
            }
            (Some(_), None) => true,
            (found, Some(size)) => found.unwrap_or(0) >= size,
        };
        if device && !enough {
            return Err(Error::Start(format!(
                "lun={} is smaller than size= of sd={} says.",
                sd.lun, sd.name
            )));
        }
        if !device && (!enough || (general.formatsds && sd.size.is_some())) {
            short.push(sd.clone());
        }
    }
    Ok(short)
}

/// The run `SD_format` that fills storages, each on the host where it is short.
pub(crate) fn fill_run(general: &General, short: Vec<(String, Sd)>) -> Result<Run, Error> {
    let mut sds: Vec<Sd> = Vec::new();
    for (host, sd) in short {
        let place = (vec![host], sd.lun.clone());
        match sds.iter_mut().find(|known| known.name == sd.name) {
            Some(known) => known.luns.push(place),
            None => sds.push(Sd { luns: vec![place], ..sd }),
        }
    }
    fill(general, sds)
}

/// A run that writes these storages from start to end.
pub(crate) fn fill(general: &General, mut sds: Vec<Sd>) -> Result<Run, Error> {
    const MIB: u64 = 1 << 20;
    let mut xfersize = general.formatxfersize;
    for sd in &mut sds {
        sd.threads = 2;
        sd.range = None;
        sd.offset = 0;
        sd.openflags = sd.openflags.map(|flags| OpenFlags { direct: flags.direct, ..OpenFlags::default() });
        let size = sd.size.unwrap_or(0);
        if size % MIB != 0 {
            return Err(Error::Start(format!(
                "lun={} does not exist or is too small, and size= of sd={} is not a multiple of 1m, so it is not filled.",
                sd.lun, sd.name
            )));
        }
        while size % xfersize != 0 && xfersize > 512 {
            xfersize = if MIB.is_multiple_of(xfersize) { xfersize } else { MIB };
            if size % xfersize != 0 {
                xfersize /= 2;
            }
        }
    }
    if let Some(rules) = general.validate.filter(|rules| !xfersize.is_multiple_of(rules.block)) {
        return Err(Error::Start(format!(
            "size= of a new lun allows no format in multiples of {} bytes, the key block of data validation; use a size= that does.",
            rules.block
        )));
    }
    let place = sds[0].place.clone();
    let wd = Wd {
        name: "SD_format".into(),
        sds: sds.iter().map(|sd| sd.name.clone()).collect(),
        rdpct: 0.0,
        xfersize: XferSize::Fixed(xfersize),
        seek: Seek::Eof,
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
        place,
    };
    let all = (0..sds.len()).collect();
    Ok(Run {
        label: "SD_format".into(),
        rd: "SD_format".into(),
        loops: "threads=2 iorate=max".into(),
        rate: Rate::Max,
        arrival: Arrival::Exponential,
        spike: false,
        startcmd: Default::default(),
        endcmd: Default::default(),
        elapsed: None,
        interval: 1,
        warmup: 0,
        pause: 0,
        maxdata: None,
        maxdataread: None,
        maxdatawritten: None,
        stopcurve: None,
        compratio: general.compratio,
        dedupratio: general.dedup.map_or(1.0, |dedup| dedup.ratio),
        replay: None,
        work: Work::Raw(RawWork { sds, wds: vec![(wd, all)] }),
    })
}

/// Files to be filled must exist first. Their parents are the operator's.
pub(crate) fn make_files(work: &RawWork) -> Result<(), Error> {
    for sd in &work.sds {
        let path = Path::new(&sd.lun);
        let made = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
        made.map_err(|e| {
            let errno = shared::errno_text(&e);
            Error::Start(format!("Open for lun '{}' failed\n{errno}; create its directory first.", sd.lun))
        })?;
    }
    Ok(())
}

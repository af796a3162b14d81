//! Divides a run among hosts.
//!
//! Demands on the run as a whole are divided: its rate by the shares of workloads and storages,
//! each evenly over the hosts that have both; threads of a storage (SD) and of a workload (FWD)
//! over the hosts that use them, one each at least; files of a shared tree in turn. Limits
//! (`maxdata=`) are watched by the master alone.

use steadfast_lab_params::{FileWork, Fsd, Fwd, RawWork, Run, Sd, Wd, Work, shares};

/// Part of a run for one host.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its place among the hosts.
    pub host: usize,
    pub run: Run,
    /// Share of each of its groups in the rate of the whole run.
    pub weights: Vec<f64>,
}

/// The parts of a run: one for each host that has something to do. `weights`: as
/// [`steadfast_lab_workload::Crew::run`] has them.
pub(crate) fn parts(run: &Run, weights: Option<&[f64]>, hosts: &[String]) -> Vec<Part> {
    let common = Run {
        startcmd: Default::default(),
        endcmd: Default::default(),
        pause: 0,
        maxdata: None,
        maxdataread: None,
        maxdatawritten: None,
        ..run.clone()
    };
    let one = |(host, name): (usize, &String)| {
        let (work, weights) = match &run.work {
            Work::Raw(work) => raw(work, weights, hosts, name)?,
            Work::Files(work) => files(work, weights, hosts, name)?,
        };
        Some(Part { host, run: Run { work, ..common.clone() }, weights })
    };
    hosts.iter().enumerate().filter_map(one).collect()
}

/// Threads of the `rank`th of `of` hosts.
fn dealt(threads: u32, rank: usize, of: usize) -> u32 {
    let of = of.max(1) as u32;
    (threads / of + u32::from((rank as u32) < threads % of)).max(1)
}

fn raw(work: &RawWork, weights: Option<&[f64]>, hosts: &[String], host: &str) -> Option<(Work, Vec<f64>)> {
    let both = |wd: &Wd, sd: &Sd, host: &str| wd.is_on(host) && sd.is_on(host);
    // A workload with its own rate takes no share of the run's.
    let skews: Vec<Option<f64>> =
        work.wds.iter().map(|(wd, _)| wd.iorate.map_or(wd.skew, |_| Some(0.0))).collect();
    let shares = shares(&skews);
    let used_on = |at: usize, host: &str| {
        work.wds.iter().any(|(wd, sds)| sds.contains(&at) && both(wd, &work.sds[at], host))
    };
    let mut out = RawWork { sds: Vec::new(), wds: Vec::new() };
    let mut new_places = vec![None; work.sds.len()];
    for (at, sd) in work.sds.iter().enumerate().filter(|(at, _)| used_on(*at, host)) {
        let users: Vec<&String> = hosts.iter().filter(|host| used_on(at, host)).collect();
        let rank = users.iter().position(|name| *name == host).unwrap_or(0);
        new_places[at] = Some(out.sds.len());
        out.sds.push(Sd {
            lun: sd.lun_on(host).to_string(),
            luns: Vec::new(),
            threads: dealt(sd.threads, rank, users.len()),
            ..sd.clone()
        });
    }
    let mut mine = Vec::new();
    let mut pair = 0;
    for ((wd, sds), share) in work.wds.iter().zip(shares) {
        let mut here = Vec::new();
        let mut rate = 0.0;
        for &at in sds {
            let whole = weights.and_then(|w| w.get(pair)).copied().unwrap_or(share / sds.len() as f64);
            pair += 1;
            if let Some(place) = new_places[at].filter(|_| both(wd, &work.sds[at], host)) {
                let users = hosts.iter().filter(|host| both(wd, &work.sds[at], host)).count().max(1) as f64;
                here.push(place);
                mine.push(whole / users);
                rate += wd.iorate.unwrap_or(0.0) / sds.len() as f64 / users;
            }
        }
        if !here.is_empty() {
            out.wds.push((Wd { hosts: Vec::new(), iorate: wd.iorate.map(|_| rate), ..wd.clone() }, here));
        }
    }
    (!out.wds.is_empty()).then_some((Work::Raw(out), mine))
}

fn files(work: &FileWork, weights: Option<&[f64]>, hosts: &[String], host: &str) -> Option<(Work, Vec<f64>)> {
    let mut out = FileWork { fsds: Vec::new(), fwds: Vec::new(), ..work.clone() };
    let mut new_places = vec![None; work.fsds.len()];
    for (at, fsd) in work.fsds.iter().enumerate() {
        let Some(rank) = fsd.hosts.iter().position(|name| name == host) else { continue };
        new_places[at] = Some(out.fsds.len());
        let share = (fsd.hosts.len() > 1).then_some((rank as u64, fsd.hosts.len() as u64));
        out.fsds.push(Fsd { hosts: Vec::new(), share, ..fsd.clone() });
    }
    let shares = shares(&work.fwds.iter().map(|(fwd, _)| fwd.skew).collect::<Vec<_>>());
    let mut mine = Vec::new();
    let mut lane = 0;
    for ((fwd, fsds), share) in work.fwds.iter().zip(shares) {
        let users: Vec<&String> = hosts.iter().filter(|host| fwd.is_on(host)).collect();
        let rank = users.iter().position(|name| *name == host);
        let lanes = fsds.len() * fwd.operations.len();
        for _ in 0..lanes {
            let whole = weights.and_then(|w| w.get(lane)).copied().unwrap_or(share / lanes.max(1) as f64);
            lane += 1;
            if rank.is_some() {
                mine.push(whole / users.len() as f64);
            }
        }
        if let Some(rank) = rank {
            let threads = dealt(fwd.threads, rank, users.len());
            let places = fsds.iter().filter_map(|at| new_places[*at]).collect();
            out.fwds.push((Fwd { hosts: Vec::new(), threads, ..fwd.clone() }, places));
        }
    }
    let format = work.format.is_some();
    (!out.fsds.is_empty() && (format || !out.fwds.is_empty())).then_some((Work::Files(out), mine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_lab_params::parse_text;

    fn divided(text: &str) -> (Vec<Run>, Vec<Vec<Part>>) {
        let plan =
            parse_text("t", &format!("hd=a,system=a\nhd=b,system=b\nhd=c,system=c\n{text}\n")).unwrap();
        let hosts: Vec<String> = plan.hosts.iter().map(|host| host.name.clone()).collect();
        let all = plan.runs.iter().map(|run| parts(run, None, &hosts)).collect();
        (plan.runs, all)
    }

    #[test]
    fn rates_and_threads_of_storages_are_divided_and_add_up() {
        let (_, all) = divided(
            "sd=s1,lun=/x,host=(a,b),host=c,lun=/y,threads=8\nsd=s2,lun=/z,host=a,threads=4\n\
             wd=w1,sd=(s1,s2),skew=80\nwd=w2,sd=s1,host=b\nrd=r,wd=w*,iorate=1000,elapsed=2,maxdata=1g",
        );
        let parts = &all[0];
        type Seen = (usize, Vec<(String, String, u32)>, Vec<usize>);
        let seen: Vec<Seen> = parts
            .iter()
            .map(|part| {
                let Work::Raw(work) = &part.run.work else { panic!("not raw") };
                let sds = work.sds.iter().map(|sd| (sd.name.clone(), sd.lun.clone(), sd.threads)).collect();
                (part.host, sds, work.wds.iter().map(|(_, at)| at.len()).collect())
            })
            .collect();
        let sd = |name: &str, lun: &str, threads| (name.to_string(), lun.to_string(), threads);
        assert_eq!(seen[0], (0, vec![sd("s1", "/x", 3), sd("s2", "/z", 4)], vec![2]));
        assert_eq!(seen[1], (1, vec![sd("s1", "/x", 3)], vec![1, 1]));
        assert_eq!(seen[2], (2, vec![sd("s1", "/y", 2)], vec![1]));
        let sum: f64 = parts.iter().flat_map(|part| &part.weights).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert!((parts[0].weights[1] - 0.4).abs() < 1e-9, "s2 of w1 is on one host alone");
        assert!((parts[1].weights[1] - 0.2).abs() < 1e-9, "w2 as well");
        assert!(parts.iter().all(|part| part.run.maxdata.is_none()));
    }

    #[test]
    fn a_rate_of_a_workloads_own_is_divided_too() {
        let (_, all) = divided(
            "sd=s1,lun=/x\nsd=s2,lun=/z,host=a\nwd=w1,sd=(s1,s2),iorate=600,priority=1\n\
             wd=w2,sd=s1,priority=2\nrd=r,wd=w*,iorate=max,elapsed=2",
        );
        let rates: Vec<f64> = all[0]
            .iter()
            .map(|part| match &part.run.work {
                Work::Raw(work) => work.wds[0].0.iorate.unwrap(),
                Work::Files(_) => 0.0,
            })
            .collect();
        assert_eq!(rates, [400.0, 100.0, 100.0]);
    }

    #[test]
    fn a_shared_tree_is_divided_by_files_and_others_belong_to_one_host() {
        let (runs, all) = divided(
            "fsd=f,anchor=/x,shared=yes,files=10\nfsd=g,anchor=/y\nfwd=w1,fsd=f,threads=7,host=(a,c)\n\
             fwd=w2,fsd=g,host=b,threads=2,skew=10\nrd=r,fwd=w*,fwdrate=100,format=yes,elapsed=2",
        );
        assert_eq!(runs.len(), 2);
        for parts in &all {
            type Seen<'a> = (usize, Vec<(&'a str, Option<(u64, u64)>)>);
            let seen: Vec<Seen<'_>> = parts
                .iter()
                .map(|part| match &part.run.work {
                    Work::Files(work) => {
                        (part.host, work.fsds.iter().map(|fsd| (fsd.name.as_str(), fsd.share)).collect())
                    }
                    Work::Raw(_) => (9, Vec::new()),
                })
                .collect();
            let wanted =
                [(0, vec![("f", Some((0, 2)))]), (1, vec![("g", None)]), (2, vec![("f", Some((1, 2)))])];
            assert_eq!(seen, wanted);
        }
        let threads: Vec<u32> = all[1]
            .iter()
            .map(|part| match &part.run.work {
                Work::Files(work) => work.fwds[0].0.threads,
                Work::Raw(_) => 0,
            })
            .collect();
        assert_eq!(threads, [4, 2, 3]);
        let weights: Vec<f64> = all[1].iter().map(|part| part.weights[0]).collect();
        assert!((weights[0] - 0.45).abs() < 1e-9 && (weights[1] - 0.1).abs() < 1e-9, "{weights:?}");
    }
}

//! The state of a pool in ZFS's terms: the first of its problems, for `status:` and `action:`.
//!
//! Programs look for the first sentences, which are those of OpenZFS 2.3, with its breaks of lines.
//! Our own sentences, which name the devices and files, follow behind a tab, as ZFS continues its
//! own.

use crate::message::{Words, sentence};
use crate::table::tame;
use steadfast_control::api::{Health, PoolReport, VdevClass, VdevReport};
use steadfast_control::{Code, Refusal};

/// A problem.
#[derive(Debug)]
pub(super) struct Reason {
    /// Its name in ZFS, if it has one.
    pub msgid: Option<&'static str>,
    pub status: &'static str,
    pub action: &'static str,
}

const RESILVERING: Reason = Reason {
    msgid: None,
    status: "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a degraded state.",
    action: "Wait for the resilver to complete.",
};
const SUSPENDED: Reason = Reason {
    msgid: Some("ZFS-8000-HC"),
    status: "One or more devices are faulted in response to IO failures.",
    action: "Make sure the affected devices are connected, then run 'zpool clear'.",
};
const UNOPENED: Reason = Reason {
    msgid: Some("ZFS-8000-3C"),
    status: "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.",
    action: "Attach the missing device and online it using 'zpool online'.",
};
const CORRUPT: Reason = Reason {
    msgid: Some("ZFS-8000-8A"),
    status: "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.",
    action: "Restore the file in question if possible.",
};
const FAULTED: Reason = Reason {
    msgid: None,
    status: "One or more devices are faulted in response to persistent errors.",
    action: "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
};
const MISSING: Reason = Reason {
    msgid: Some("ZFS-8000-2Q"),
    status: "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a degraded state.",
    action: "Attach the missing device and online it using 'zpool online'.",
};
const FAILING: Reason = Reason {
    msgid: Some("ZFS-8000-9P"),
    status: "One or more devices has experienced an unrecoverable error.",
    action: "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the device with 'zpool replace'.",
};
const OFFLINE: Reason = Reason {
    msgid: None,
    status: "One or more devices has been taken offline by the administrator.",
    action: "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
};
const REMOVED: Reason = Reason {
    msgid: None,
    status: "One or more devices has been removed by the administrator.",
    action: "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
};

/// The first problem of a pool, in the order in which ZFS looks for them.
pub(super) fn reason(pool: &PoolReport) -> Option<&'static Reason> {
    if pool.scan.as_ref().is_some_and(|scan| scan.function == "resilver" && scan.state == "active") {
        return Some(&RESILVERING);
    }
    match pool.state {
        // A host without room and an anchor that fences have a remedy of their own.
        Health::Suspended if pool.messages.iter().any(|message| message.code == Code::PoolSuspended) => {
            return Some(&SUSPENDED);
        }
        Health::Unavail => return Some(&UNOPENED),
        _ => {}
    }
    if pool.error_count > 0 {
        return Some(&CORRUPT);
    }
    let is_state = |wanted| move |vdev: &VdevReport| vdev.state == wanted;
    let erred = |vdev: &VdevReport| {
        [vdev.read_errors, vdev.write_errors, vdev.checksum_errors].iter().any(|count| *count > 0)
    };
    if any(&pool.vdevs, &is_state(Health::Faulted)) {
        return Some(&FAULTED);
    }
    // A store that is away is no device that somebody attaches: its message has the remedy.
    let is_away = |vdev: &VdevReport| {
        let tells = |message: &Refusal| {
            message.code == Code::StoreAway && message.fields.get("device") == Some(&vdev.name)
        };
        pool.messages.iter().any(tells)
    };
    if any(&pool.vdevs, &|vdev| vdev.state == Health::Unavail && !is_away(vdev)) {
        return Some(&MISSING);
    }
    if any(&pool.vdevs, &erred) {
        return Some(&FAILING);
    }
    if any(&pool.vdevs, &is_state(Health::Offline)) {
        return Some(&OFFLINE);
    }
    any(&pool.vdevs, &is_state(Health::Removed)).then_some(&REMOVED)
}

/// True of any device. Spares do not count, nor anchors, nor, as in ZFS, a device that is being
/// replaced.
fn any(vdevs: &[VdevReport], holds: &dyn Fn(&VdevReport) -> bool) -> bool {
    vdevs.iter().filter(|vdev| !matches!(vdev.class, VdevClass::Spare | VdevClass::Anchor)).any(|vdev| {
        match vdev.children.is_empty() {
            true => holds(vdev),
            false => !vdev.name.starts_with("replacing-") && any(&vdev.children, holds),
        }
    })
}

/// The lines `status:`, `action:` and `see:`; none if there is no problem.
pub(super) fn status_text(reason: Option<&Reason>, messages: &[Refusal], words: Words) -> String {
    let mut status: Vec<String> = reason.iter().map(|reason| reason.status.to_owned()).collect();
    let mut action: Vec<String> = reason.iter().map(|reason| reason.action.to_owned()).collect();
    let mut codes: Vec<&str> = Vec::new();
    for message in messages {
        status.push(format!("{} {}", sentence(&tame(&message.what)), tame(&message.meaning)));
        action.push(words.translate(&tame(&message.advice())));
        if !codes.contains(&message.code.as_str()) {
            codes.push(message.code.as_str());
        }
    }
    let mut text = part("status: ", &status) + &part("action: ", &action);
    if !codes.is_empty() {
        text.push_str(&format!("   see: operations/messages.md, {}\n", codes.join(", ")));
    }
    text
}

/// Sentences behind a heading, each on a line of its own, from the second on behind a tab. Only
/// those of ZFS are broken, where ZFS breaks them: a command or path of ours stays whole.
fn part(heading: &str, sentences: &[String]) -> String {
    match sentences.is_empty() {
        true => String::new(),
        false => format!("{heading}{}\n", sentences.join("\n\t")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::ScanReport;

    fn device(name: &str, state: Health) -> VdevReport {
        VdevReport::new(name.to_owned(), 1, VdevClass::Main, state)
    }

    fn pool(vdevs: Vec<VdevReport>) -> PoolReport {
        PoolReport {
            name: "tank".into(),
            guid: 1,
            state: Health::Online,
            txg: 1,
            messages: Vec::new(),
            vdevs,
            errors: Vec::new(),
            error_count: 0,
            checkpoint: None,
            log: Default::default(),
            scan: None,
            moving: None,
            sharing: Default::default(),
            stores: Vec::new(),
            budgets: Vec::new(),
            audit: None,
        }
    }

    fn msgid(pool: &PoolReport) -> Option<(&'static str, Option<&'static str>)> {
        reason(pool).map(|reason| (reason.status.split('.').next().unwrap_or_default(), reason.msgid))
    }

    #[test]
    fn the_first_problem_is_that_of_zfs() {
        use Health::{Faulted, Offline, Online, Removed, Unavail};
        let mirror = |states: [Health; 2]| {
            let children = states.map(|state| device("/d", state)).to_vec();
            VdevReport { children, ..device("mirror-0", Health::Degraded) }
        };
        assert_eq!(msgid(&pool(vec![mirror([Online, Online])])), None);
        let told = |states| msgid(&pool(vec![mirror(states)])).expect("a problem");
        assert_eq!(told([Online, Unavail]), ("One or more devices could not be opened", Some("ZFS-8000-2Q")));
        assert!(told([Unavail, Faulted]).0.ends_with("faulted in response to persistent errors"));
        assert!(told([Online, Offline]).0.ends_with("taken offline by the administrator"));
        assert!(told([Online, Removed]).0.ends_with("removed by the administrator"));
        let erred = VdevReport { checksum_errors: 1, ..device("/d", Online) };
        assert_eq!(msgid(&pool(vec![erred.clone()])).expect("a problem").1, Some("ZFS-8000-9P"));
        let mut damaged = pool(vec![erred]);
        damaged.error_count = 1;
        assert_eq!(msgid(&damaged).expect("a problem").1, Some("ZFS-8000-8A"));
        damaged.scan =
            Some(ScanReport { function: "resilver".into(), state: "active".into(), ..ScanReport::default() });
        assert_eq!(
            msgid(&damaged).expect("a problem").0,
            "One or more devices is currently being resilvered"
        );
        let away = "s3://bucket/tank";
        let message = |name: &str| Refusal::new(Code::StoreAway, "is away").with("device", name);
        let mut alone = pool(vec![device(away, Unavail)]);
        alone.messages.push(message(away));
        assert_eq!(msgid(&alone), None, "nobody attaches a store");
        alone.messages[0] = message("s3://another");
        assert_eq!(msgid(&alone).expect("a problem").1, Some("ZFS-8000-2Q"));
        let lost = PoolReport { state: Unavail, ..pool(Vec::new()) };
        assert_eq!(msgid(&lost).expect("a problem").1, Some("ZFS-8000-3C"));
        let spare = VdevReport { class: VdevClass::Spare, ..device("/s", Unavail) };
        assert_eq!(msgid(&pool(vec![spare])), None);
    }

    #[test]
    fn our_sentences_follow_behind_tabs() {
        let refusal = Refusal::new(Code::DevErrors, "errors occurred on /srv/d2.img; all data is correct");
        let text = status_text(Some(&FAILING), &[refusal.with("pool", "tank")], Words::Zfs);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "status: One or more devices has experienced an unrecoverable error.");
        assert!(lines[1].starts_with("\tErrors occurred on /srv/d2.img; all data is correct. "), "{text}");
        let headings = ["status: ", "action: ", "   see: "];
        let found: Vec<&str> = lines.iter().filter_map(|line| line.get(..8)).collect();
        let found = found.iter().filter(|head| headings.contains(head)).count();
        assert_eq!(found, 3, "{text}");
        assert!(lines.iter().all(|line| line.starts_with('\t') || headings.contains(&&line[..8])), "{text}");
        assert_eq!(lines.last(), Some(&"   see: operations/messages.md, DEV-ERRORS"));
        assert_eq!(status_text(None, &[], Words::Zfs), "");
    }
}

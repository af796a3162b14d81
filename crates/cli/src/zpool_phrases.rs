//! First lines of refusals about pools and their devices, in the phrases of OpenZFS 2.3.
//! [`crate::zfs_phrases`] asks here first.

use steadfast_control::{Code, Refusal};

/// The first line of a refusal of `doing` ("cannot offline sda"), if it is one of these.
#[must_use]
pub fn first_line(doing: &str, refusal: &Refusal) -> Option<String> {
    let said = |phrase: &str| Some(format!("{doing}: {phrase}"));
    let is_one_of = |verbs: &[&str]| {
        let verb = doing.strip_prefix("cannot ").and_then(|rest| rest.split(' ').next());
        verb.is_some_and(|verb| verbs.contains(&verb))
    };
    let of_pool = refusal.fields.get("pool").is_some_and(|pool| !pool.is_empty());
    match refusal.code {
        Code::VdevMissing if of_pool && !is_one_of(&["create", "add"]) => said("no such device in pool"),
        Code::VdevNeeded => said("no valid replicas"),
        Code::CheckpointExists => said("checkpoint exists"),
        Code::CheckpointNone => said("checkpoint does not exist"),
        Code::VdevDetach => said("only applicable to mirror and replacing vdevs"),
        Code::VdevSmall if is_one_of(&["attach", "replace"]) => said("device is too small"),
        Code::VdevMismatch | Code::VdevGroup | Code::VdevTwice if is_one_of(&["create", "add"]) => {
            Some(format!("invalid vdev specification: {}", refusal.what))
        }
        Code::PoolBusy if is_one_of(&["export"]) => said("pool is busy"),
        Code::PoolActive if is_one_of(&["import"]) && !refusal.what.contains("this host") => {
            said("pool was previously in use from another system.")
        }
        Code::ScanActive if is_one_of(&["scrub"]) => match refusal.what.contains("resilver") {
            true => said("currently resilvering"),
            false => said("currently scrubbing; use 'zpool scrub -s' to cancel scrub"),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_depend_on_the_operation() {
        let line = |doing: &str, refusal: &Refusal| first_line(doing, refusal).unwrap_or_default();
        let away = Refusal::no_device("tank", "/dev/sdz");
        assert_eq!(line("cannot offline sdz", &away), "cannot offline sdz: no such device in pool");
        assert_eq!(first_line("cannot create 'tank'", &Refusal::new(Code::VdevMissing, "")), None);
        let needed = Refusal::new(Code::VdevNeeded, "");
        assert_eq!(line("cannot offline sda", &needed), "cannot offline sda: no valid replicas");
        let busy = |what: &str| Refusal::new(Code::ScanActive, what);
        let scrub = line("cannot scrub tank", &busy("a scrub of 'tank' is in progress"));
        assert_eq!(scrub, "cannot scrub tank: currently scrubbing; use 'zpool scrub -s' to cancel scrub");
        let resilver = line("cannot scrub tank", &busy("a resilver of 'tank' is in progress"));
        assert_eq!(resilver, "cannot scrub tank: currently resilvering");
        assert_eq!(first_line("cannot attach b to a", &busy("a resilver")), None);
        let uneven = Refusal::new(Code::VdevMismatch, "mirror contains devices of different sizes");
        let uneven = line("cannot create 'tank'", &uneven);
        assert_eq!(uneven, "invalid vdev specification: mirror contains devices of different sizes");
        let active = |what: &str| Refusal::new(Code::PoolActive, what);
        let other = line("cannot import 'tank'", &active("pool 'tank' was last used by host 'b'"));
        assert_eq!(other, "cannot import 'tank': pool was previously in use from another system.");
        assert_eq!(first_line("cannot import 'tank'", &active("was last used by this host, but")), None);
    }
}

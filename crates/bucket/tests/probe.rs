//! The probe finds the stores that lose races, by name.

use steadfast_bucket::probe::{self, Outcome, Report};
use steadfast_bucket::{Class, Client, Credentials, Tuning};
use steadfast_env::Env;
use steadfast_hostile::{Conditions, Fault, KEYS, Kind, Rule, Store};

use crate::keys;

fn open(address: &str, credentials: &Credentials) -> Client {
    // Races need threads, and so the real world; nothing here waits.
    Client::open(address.parse().unwrap(), credentials, Env::real(), Tuning::impatient()).unwrap()
}

fn probed(store: &Store, quick: bool) -> Report {
    let client = open(&store.location("tank"), &keys(KEYS[0].0, KEYS[0].1));
    let report = probe::run(&client, quick).unwrap();
    assert_eq!(store.objects(), Vec::<String>::new(), "nothing is left behind");
    report
}

fn is_bad(report: &Report, name: &str) -> bool {
    report.check(name).unwrap().outcome == Outcome::Bad
}

#[test]
fn a_store_that_keeps_its_promises_is_good_for_everything() {
    let report = probed(&Store::start(), false);
    assert!(report.data && report.roots && report.register, "{report:#?}");
    assert_eq!(report.reasons, Vec::<String>::new());
    let bad: Vec<_> = report.checks.iter().filter(|check| check.outcome == Outcome::Bad).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(report.check("clock").unwrap().outcome, Outcome::Good, "{report:#?}");
    assert_eq!(report.check("versioning").unwrap().found, "off");
    assert!(report.check("rate").is_some() && report.check("upload in parts").is_some());
}

#[test]
fn a_store_that_ignores_conditions_is_refused_for_roots_and_registers() {
    let store = Store::start();
    store.set_conditions(Conditions::Ignored);
    let report = probed(&store, true);
    assert!(report.data && !report.roots && !report.register, "{report:#?}");
    assert!(is_bad(&report, "race of creates") && is_bad(&report, "race of updates"));
    assert_eq!(
        report.reasons,
        ["Not for roots without an anchor: race of creates.", "Not for a register: race of updates."]
    );
}

#[test]
fn a_store_that_is_right_alone_and_loses_races_is_refused() {
    let store = Store::start();
    store.set_conditions(Conditions::Late);
    let client = open(&store.location("tank"), &keys(KEYS[0].0, KEYS[0].1));
    // One after another it is right.
    use steadfast_bucket::Store as _;
    client.create("one", b"first").unwrap();
    assert_eq!(client.create("one", b"other").unwrap_err().class, Class::Exists);
    client.delete(&["one".to_owned()]).unwrap();
    let report = probed(&store, true);
    assert!(report.data && !report.roots && !report.register, "{report:#?}");
    assert!(is_bad(&report, "race of creates") && is_bad(&report, "race of updates"));
}

#[test]
fn a_store_that_drops_lists_late_or_forgets_deletes_is_seen() {
    let store = Store::start();
    let empty = store.mark();
    store.list_as_of(Some(&empty));
    let report = probed(&store, true);
    assert!(is_bad(&report, "list after write") && report.data && !report.roots, "{report:#?}");
    store.list_as_of(None);
    // The fourth version is acknowledged and dropped.
    store.add(Rule { after: 3, ..Rule::next(Kind::Put, 1, Fault::Drop) });
    let report = probed(&store, true);
    assert!(is_bad(&report, "read after write") && !report.data && !report.register, "{report:#?}");
    store.add(Rule::next(Kind::Get, 1_000, Fault::ShiftQuietly(1)));
    let client = open(&store.location("tank"), &keys(KEYS[0].0, KEYS[0].1));
    let report = probe::run(&client, true).unwrap();
    assert!(is_bad(&report, "ranges") && !report.data, "{report:#?}");
}

#[test]
fn a_folder_is_good_for_roots_and_no_register() {
    let folder = tempfile::tempdir().unwrap();
    let client = open(&format!("file://{}", folder.path().display()), &Credentials::None);
    let report = probe::run(&client, true).unwrap();
    assert!(report.data && report.roots && !report.register, "{report:#?}");
    assert_eq!(report.check("race of updates").unwrap().found, "the store cannot do this");
}

#[test]
fn a_store_that_cannot_be_probed_says_why() {
    let store = Store::start();
    let client = open(&store.location("tank"), &keys(KEYS[0].0, "guessed"));
    assert_eq!(probe::run(&client, true).unwrap_err().class, Class::WrongKey);
}

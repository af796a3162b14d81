//! Counters, prices and budgets of pools on stores of objects.

use super::*;

/// Friday, 27 November 2026, 12:00 UTC.
const NOON: u64 = 1_795_780_800;
const DAY: u64 = 86_400;

pub(super) fn on_a_folder(name: &str) -> (Arc<Shown>, House) {
    let real = Env::real();
    let clock = Arc::new(Shown { real: Arc::clone(&real.clock), wall_seconds: AtomicU64::new(NOON) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let house = House::within(Env { clock: shown, ..real }, name);
    let objects = house.folder.join("objects");
    std::fs::create_dir(&objects).unwrap();
    let mut request = house.create_request("tank", "none.img");
    request.vdevs[0].devices = vec![format!("file://{}", objects.display()).into()];
    house.create_pool(request).unwrap();
    (clock, house)
}

pub(super) fn status(house: &House) -> PoolReport {
    house.host().call(&caller(), PoolStatus { names: vec!["tank".into()] }).unwrap().remove(0)
}

fn property(house: &House, name: &str) -> String {
    let info = house.host().call(&caller(), PoolList { names: vec!["tank".into()] }).unwrap().remove(0);
    info.properties[name].value.clone()
}

pub(super) fn set(house: &House, property: &str, value: &str) -> Result<Outcome, Refusal> {
    let properties = Properties::from([(property.to_owned(), value.to_owned())]);
    let Request::PoolSet(request) =
        check(Request::PoolSet(PoolSet { name: "tank".into(), properties, vdev: None }))?
    else {
        unreachable!()
    };
    house.host().call(&caller(), request)
}

/// A store has no sectors, so units are small there; 0 is the default, too.
#[test]
fn units_are_small_where_all_devices_are_stores() {
    let (_clock, house) = on_a_folder("units");
    assert_eq!(property(&house, "ashift"), "10");
    for (name, wished, units) in [("given", "11", "11"), ("default", "0", "12")] {
        let mut request = house.create_request(name, &format!("{name}.img"));
        if name == "given" {
            let objects = house.folder.join("others");
            std::fs::create_dir(&objects).unwrap();
            request.vdevs[0].devices = vec![format!("file://{}", objects.display()).into()];
        }
        request.properties = Properties::from([("ashift".to_owned(), wished.to_owned())]);
        house.create_pool(request).unwrap();
        let info = house.host().call(&caller(), PoolList { names: vec![name.into()] }).unwrap().remove(0);
        assert_eq!(info.properties["ashift"].value, units, "{name}");
    }
}

fn scrub_state(house: &House) -> String {
    status(house).scan.expect("a scrub was begun").state
}

/// Commits some times: each commit gives the scrub a turn.
fn commit_some(house: &House) {
    for _ in 0..4 {
        house.set("tank", "test:note", &house.get("tank", "used")).unwrap();
        house.host().call(&caller(), PoolSync { names: vec!["tank".into()] }).unwrap();
    }
}

fn await_scrub(house: &House) {
    for _ in 0..3_000 {
        if scrub_state(house) == "finished" {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the scrub does not go on");
}

fn budget_events(house: &House) -> Vec<String> {
    let words =
        classes(house).into_iter().filter_map(|class| class.split_once("budget_").map(|(_, w)| w.to_owned()));
    words.collect()
}

#[test]
fn a_budget_holds_background_work_until_the_day_turns() {
    let (clock, house) = on_a_folder("budget");
    for (name, value) in [("requestbudget", "-1"), ("requestbudget", "many"), ("egressbudget", "1X")] {
        assert_eq!(set(&house, name, value).unwrap_err().code, Code::PropValue, "{name}={value}");
    }
    assert_eq!(
        (property(&house, "requestbudget"), property(&house, "egressbudget")),
        ("0".into(), "0".into())
    );
    assert!(status(&house).budgets.is_empty());
    let used = status(&house).stores[0].today.total();
    assert!(used > 0);
    // All of it is used: what follows is beyond the budget.
    set(&house, "requestbudget", &used.to_string()).unwrap();
    let budget = status(&house).budgets.remove(0);
    assert_eq!((budget.property.as_str(), budget.level), ("requestbudget", BudgetLevel::Exceeded));
    let message = status(&house).messages.remove(0);
    assert_eq!((message.code, &*message.fields["property"]), (Code::StoreBudget, "requestbudget"));
    assert_eq!(budget_events(&house), ["exceeded"]);
    let start = PoolScrub { name: "tank".into(), command: ScrubCommand::Start };
    house.host().call(&caller(), start.clone()).unwrap();
    // Programs write and read.
    house.create_fs("tank/a", &[], None).unwrap();
    commit_some(&house);
    assert_eq!(scrub_state(&house), "active", "it waits");
    assert_eq!(status(&house).scan.unwrap().scanned, 0, "and has read nothing");
    assert_eq!(budget_events(&house), ["exceeded"], "a change is told once");

    // The day turns, and everything goes on by itself.
    clock.wall_seconds.store(NOON + DAY, Ordering::SeqCst);
    house.host().look_at_costs();
    await_scrub(&house);
    assert_eq!(budget_events(&house), ["exceeded", "freed"]);
    let report = status(&house).stores.remove(0);
    assert_eq!((report.day.as_str(), report.month.as_str()), ("2026-11-28", "2026-11"));
    assert!(report.this_month.total() >= report.today.total() + used);

    // At 80 % it waits again, and a greater budget lets it go. The rest is more than a commit asks.
    while status(&house).stores[0].today.total() < 200 {
        commit_some(&house);
    }
    let used = status(&house).stores[0].today.total();
    set(&house, "requestbudget", &(used * 5 / 4).to_string()).unwrap();
    assert_eq!(budget_events(&house).last().unwrap(), "reached");
    house.host().call(&caller(), start.clone()).unwrap();
    commit_some(&house);
    assert_eq!(scrub_state(&house), "active");
    set(&house, "requestbudget", "1000000").unwrap();
    await_scrub(&house);
    assert_eq!(budget_events(&house).last().unwrap(), "freed");

    // Egress is of a month.
    let read = status(&house).stores[0].this_month.bytes_in;
    assert!(read > 0, "a scrub reads");
    set(&house, "egressbudget", &read.to_string()).unwrap();
    house.host().call(&caller(), start).unwrap();
    commit_some(&house);
    clock.wall_seconds.store(NOON + 2 * DAY, Ordering::SeqCst);
    house.host().look_at_costs();
    commit_some(&house);
    assert_eq!(scrub_state(&house), "active", "the next day is of the same month");
    clock.wall_seconds.store(NOON + 4 * DAY, Ordering::SeqCst);
    house.host().look_at_costs();
    await_scrub(&house);
    assert_eq!(status(&house).stores[0].month, "2026-12");
    for name in ["requestbudget", "egressbudget"] {
        set(&house, name, "none").unwrap();
    }
    let report = status(&house);
    assert!(report.budgets.is_empty() && report.messages.is_empty(), "{:?}", report.messages);
}

#[test]
fn counters_are_told_everywhere_and_outlive_the_daemon() {
    let (clock, mut house) = on_a_folder("counters");
    let report = status(&house).stores.remove(0);
    assert!(report.name.starts_with("file:///"), "{}", report.name);
    assert!(report.this_month.requests["create"] > 0 && report.this_month.bytes_out > 0);
    assert_eq!(report.today, report.this_month);
    assert_eq!(
        (report.price, report.unpriced.as_deref()),
        (None, Some("a folder of this machine has no price"))
    );
    assert!(property(&house, "requests").parse::<u64>().unwrap() >= report.this_month.total());
    assert_eq!(property(&house, "price"), "-");
    let io = house.host().call(&caller(), PoolIostat { names: vec!["tank".into()] }).unwrap().remove(0);
    assert!(io.stores[0].counts.total() >= report.this_month.total());

    house.restart();
    let after = status(&house).stores.remove(0);
    assert!(after.this_month.total() > report.this_month.total(), "an import makes requests, too");
    assert!(after.this_month.requests["create"] >= report.this_month.requests["create"]);
    clock.wall_seconds.store(NOON + 31 * DAY, Ordering::SeqCst);
    // A commit by the clock may have made some requests in it.
    let turned = status(&house).stores.remove(0);
    assert_eq!(turned.month, "2026-12");
    assert!(turned.this_month.total() < after.this_month.total(), "another month begins at nothing");
}

#[test]
fn a_row_of_the_operator_gives_a_price_and_a_wrong_one_takes_it() {
    let (_, house) = on_a_folder("price");
    let file = house.folder.join("run/prices.json");
    let row = r#"{"version":1,"prices":[{"name":"Shelf","scheme":"file","endpoints":[""],"currency":"EUR",
        "writes_per_million":1000000,"reads_per_million":0,"lists_per_million":0,"deletes_per_million":0,
        "egress_per_gb":0,"stored_per_gb_month":0,"gb_bytes":1073741824}]}"#;
    std::fs::write(&file, row).unwrap();
    let report = status(&house).stores.remove(0);
    let price = report.price.expect("a price");
    // One for each write.
    let writes: u64 =
        ["create", "put", "replace"].iter().filter_map(|word| report.this_month.requests.get(*word)).sum();
    assert_eq!((price.table.as_str(), price.total()), ("Shelf", writes * 1_000_000_000));
    assert!(property(&house, "price").ends_with(".00 EUR"), "{}", property(&house, "price"));
    // Storage is free, and a copy is not: little is cleaned, as the pool hears with the next look.
    assert_eq!(report.garbage_thousandths, 333);
    house.host().look_at_costs();
    assert_eq!(status(&house).stores[0].garbage_thousandths, 1_000);
    std::fs::write(&file, row.replace("1000000,", "-1,")).unwrap();
    let report = status(&house).stores.remove(0);
    assert_eq!(report.price, None);
    assert!(report.unpriced.unwrap().contains("'Shelf' writes_per_million is -1"));
    house.host().look_at_costs();
    assert_eq!(status(&house).stores[0].garbage_thousandths, 333, "no price is known");
}

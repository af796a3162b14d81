//! Stores of objects in `status` and `iostat`: requests, bytes, price, freshness.
//!
//! They stand in a section of their own: always in our own words, and with `--stores` in those of
//! ZFS, whose tables programs read.

use super::iostat::{Groups, headings, rule, widths};
use crate::json::Numbers;
use crate::message::Words;
use crate::options::{Flag, Parsed};
use crate::session::Session;
use crate::table::tame;
use serde_json::{Map, Value, json};
use steadfast_bucket::Operation;
use steadfast_bucket::prices::{amount, exact};
use steadfast_control::api::{
    BudgetLevel, BudgetReport, Health, PoolIo, PoolReport, PriceReport, StoreCounts, StoreIo, StoreReport,
    VdevClass,
};
use steadfast_property::{nice_bytes, nice_number};

/// `--stores`.
pub(super) const STORES: Flag = Flag {
    letter: '\0',
    long: "stores",
    value: "",
    doc: "requests, bytes and price of stores of objects too; `steadfast pool` always tells them",
};

/// True if the command tells of stores.
pub(super) fn are_told(session: &Session<'_, '_>, parsed: &Parsed) -> bool {
    session.words == Words::Own || parsed.has_long(STORES.long)
}

/// Columns that a line of text may take.
const LINE: usize = 80;
/// Columns before the text of an entry: a tab, an indent and the longest label.
const MARGIN: usize = 8 + 2 + 15;

/// The word for the protection of a pool from a store that returns an old state.
fn freshness(pool: &PoolReport) -> &'static str {
    match pool.vdevs.iter().find(|vdev| vdev.class == VdevClass::Anchor) {
        Some(anchor) if anchor.state == Health::Online => "anchored",
        Some(_) => "fenced",
        None => "not protected",
    }
}

/// One entry, whose text is broken between words.
fn entry(out: &mut String, label: &str, text: &str) {
    let mut line = format!("\t  {label:<15}");
    let mut width = MARGIN;
    let mut is_first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_first && width + 1 + length > LINE {
            out.push_str(line.trim_end());
            out.push('\n');
            line = format!("\t  {:<15}", "");
            width = MARGIN;
            is_first = true;
        }
        if !is_first {
            line.push(' ');
            width += 1;
        }
        line.push_str(word);
        width += length;
        is_first = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// The section of `status`; nothing for a pool without stores.
pub(super) fn section(pool: &PoolReport) -> String {
    let mut out = String::new();
    if pool.stores.is_empty() {
        return out;
    }
    out.push_str("stores:\n\n");
    for store in &pool.stores {
        out.push_str(&format!("\t{}\n", tame(&store.name)));
        let fresh = match freshness(pool) {
            "anchored" => "anchored: an old state is refused",
            "fenced" => "fenced: another daemon has taken over",
            _ => "not protected: without an anchor, the store can return an old state",
        };
        entry(&mut out, "freshness", fresh);
        let kinds: Vec<String> =
            store.this_month.requests.iter().map(|(word, count)| format!("{} {count}", tame(word))).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let (today, month) = (store.today.total(), store.this_month.total());
        entry(&mut out, "requests", &format!("{month} this month{kinds}, {today} today"));
        let StoreCounts { retries, hedges, slowdowns, bytes_in, bytes_out, .. } = &store.this_month;
        if retries + hedges + slowdowns > 0 {
            let text = format!("{retries} retries, {hedges} hedged reads, {slowdowns} answers to slow down");
            entry(&mut out, "repeats", &text);
        }
        let (read, written) = (nice_bytes(*bytes_in), nice_bytes(*bytes_out));
        let stored = nice_bytes(store.stored_bytes);
        entry(&mut out, "bytes", &format!("{read} read, {written} written this month; {stored} stored"));
        let percent = store.garbage_thousandths / 10;
        entry(&mut out, "cleaned", &format!("where garbage is more than {percent}% of what lives"));
        entry(&mut out, "price", &price_line(store));
    }
    for budget in &pool.budgets {
        entry(&mut out, &budget.property, &budget_line(budget));
    }
    out.push('\n');
    out
}

fn price_line(store: &StoreReport) -> String {
    let Some(price) = &store.price else {
        return store.unpriced.as_deref().map_or_else(|| "unknown".to_owned(), tame);
    };
    let shown = |nano| amount(nano, &price.currency);
    format!(
        "about {} this month so far (requests {}, egress {}, storage {}); storage of a whole month {}; by the row '{}'",
        shown(price.total()),
        shown(price.requests),
        shown(price.egress),
        shown(price.stored),
        shown(price.stored_month),
        tame(&price.table)
    )
}

fn budget_line(budget: &BudgetReport) -> String {
    let percent = budget.percent();
    let amounts = match budget.property.as_str() {
        "requestbudget" => format!("{} of {} requests today", budget.used, budget.limit),
        _ => format!("{} of {} read this month", nice_bytes(budget.used), nice_bytes(budget.limit)),
    };
    let end = if budget.level == BudgetLevel::Free { "" } else { "; background work waits" };
    format!("{percent}% used, {amounts}{end}")
}

fn counts_json(counts: &StoreCounts, numbers: Numbers) -> Value {
    let words = Operation::REQUESTS.map(Operation::word);
    let of = |word: &str| counts.requests.get(word).copied().unwrap_or(0);
    let requests: Map<String, Value> =
        words.iter().map(|word| ((*word).to_owned(), numbers.raw(of(word)))).collect();
    json!({
        "requests": requests,
        "requests_total": numbers.raw(counts.total()),
        "failed": numbers.raw(counts.failed.values().sum()),
        "bytes_in": numbers.raw(counts.bytes_in),
        "bytes_out": numbers.raw(counts.bytes_out),
        "retries": numbers.raw(counts.retries),
        "hedges": numbers.raw(counts.hedges),
        "slowdowns": numbers.raw(counts.slowdowns),
    })
}

fn price_json(price: &PriceReport) -> Value {
    json!({
        "table": price.table,
        "currency": price.currency,
        "so_far": exact(price.total()),
        "requests": exact(price.requests),
        "egress": exact(price.egress),
        "stored": exact(price.stored),
        "stored_month": exact(price.stored_month),
    })
}

/// Adds stores, freshness and budgets to the entry of a pool that has stores.
pub(super) fn status_json(pool: &PoolReport, numbers: Numbers, entry: &mut Value) {
    if pool.stores.is_empty() {
        return;
    }
    let store = |store: &StoreReport| {
        let told = json!({
            "guid": numbers.raw(store.guid),
            "day": store.day,
            "month": store.month,
            "today": counts_json(&store.today, numbers),
            "this_month": counts_json(&store.this_month, numbers),
            "stored_bytes": numbers.raw(store.stored_bytes),
            "garbage_thousandths": numbers.raw(store.garbage_thousandths.into()),
            "price": store.price.as_ref().map(price_json),
            "unpriced": store.unpriced,
        });
        (store.name.clone(), told)
    };
    entry["freshness"] = json!(freshness(pool));
    entry["stores"] = pool.stores.iter().map(store).collect::<Map<_, _>>().into();
    let budget = |budget: &BudgetReport| {
        let told = json!({
            "used": numbers.raw(budget.used),
            "limit": numbers.raw(budget.limit),
            "percent": numbers.raw(budget.percent()),
            "level": budget.level,
        });
        (budget.property.clone(), told)
    };
    entry["budgets"] = pool.budgets.iter().map(budget).collect::<Map<_, _>>().into();
}

/// Requests and bytes of a store between two moments.
pub(super) struct StoreFlow {
    pool: String,
    name: String,
    counts: StoreCounts,
    cost: Option<u64>,
    currency: String,
}

/// Requests and bytes of stores since `before`, or since the daemon opened them.
pub(super) fn flows(pools: &[PoolIo], before: &[PoolIo]) -> Vec<StoreFlow> {
    let flow = |pool: &PoolIo, store: &StoreIo| {
        let old = before.iter().find(|old| old.guid == pool.guid);
        let old = old.and_then(|old| old.stores.iter().find(|old| old.guid == store.guid));
        let counts = match old {
            Some(old) => store.counts.counts().since(&old.counts.counts()).into(),
            None => store.counts.clone(),
        };
        let spent = old.and_then(|old| old.cost).unwrap_or(0);
        StoreFlow {
            pool: pool.name.clone(),
            name: store.name.clone(),
            counts,
            cost: store.cost.map(|cost| cost.saturating_sub(spent)),
            currency: store.currency.clone(),
        }
    };
    pools.iter().flat_map(|pool| pool.stores.iter().map(move |store| flow(pool, store))).collect()
}

const GROUPS: [(&str, &[&str]); 4] = [
    ("requests", &["put", "get", "list", "del"]),
    ("bytes", &["read", "write"]),
    ("repeats", &["retry", "hedge"]),
    ("price", &["about"]),
];

fn cells(flow: &StoreFlow, exact_numbers: bool) -> Vec<String> {
    use Operation::{Create, Delete, Get, Head, List, Probe, Put, Replace};
    let number = |number: u64| if exact_numbers { number.to_string() } else { nice_number(number) };
    let bytes = |bytes: u64| if exact_numbers { bytes.to_string() } else { nice_bytes(bytes) };
    let counts = &flow.counts;
    let price = match flow.cost {
        None => "-".to_owned(),
        Some(cost) if exact_numbers => exact(cost),
        Some(cost) => amount(cost, &flow.currency),
    };
    vec![
        number(counts.of(&[Create, Put, Replace, Probe])),
        number(counts.of(&[Get, Head])),
        number(counts.of(&[List])),
        number(counts.of(&[Delete])),
        bytes(counts.bytes_in),
        bytes(counts.bytes_out),
        number(counts.retries),
        number(counts.hedges),
        price,
    ]
}

/// Bucket and prefix, unless that is not enough to tell two stores apart.
fn short(name: &str, flows: &[StoreFlow]) -> String {
    let shorten = |name: &str| {
        let path = name.split_once("://").map_or(name, |(_, path)| path);
        path.split('?').next().unwrap_or(path).to_owned()
    };
    let own = shorten(name);
    match flows.iter().filter(|flow| shorten(&flow.name) == own).count() {
        0 | 1 => own,
        _ => name.to_owned(),
    }
}

/// The table of `iostat`: counts, not rates, since each is paid for.
pub(super) fn table(session: &mut Session<'_, '_>, flows: &[StoreFlow], parsed: &Parsed) {
    if flows.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> = flows.iter().map(|flow| cells(flow, parsed.has('p'))).collect();
    if parsed.has('H') {
        for (flow, row) in flows.iter().zip(rows) {
            session.line(format!("{}\t{}\t{}", tame(&flow.pool), tame(&flow.name), row.join("\t")));
        }
        return;
    }
    let groups: &Groups = &GROUPS;
    let widths = widths(groups, &rows);
    let label = |flow: &StoreFlow| match parsed.has('P') {
        true => tame(&flow.name),
        false => tame(&short(&flow.name, flows)),
    };
    let name_width = flows.iter().map(|flow| label(flow).chars().count()).max().unwrap_or(0).max(10);
    session.line("");
    headings(session, "store", name_width, groups, &widths, &[]);
    for (flow, row) in flows.iter().zip(&rows) {
        let mut line = format!("{:name_width$}", label(flow));
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        session.line(line);
    }
    rule(session, name_width, &widths);
}

/// The stores of a pool in `iostat -j`.
pub(super) fn iostat_json(pool: &str, flows: &[StoreFlow], numbers: Numbers) -> Option<Value> {
    let own = flows.iter().filter(|flow| flow.pool == pool);
    let stores: Map<String, Value> = own
        .map(|flow| {
            let mut told = counts_json(&flow.counts, numbers);
            told["price"] = flow.cost.map_or(Value::Null, |cost| json!(exact(cost)));
            told["currency"] = if flow.cost.is_some() { json!(flow.currency) } else { Value::Null };
            (flow.name.clone(), told)
        })
        .collect();
    (!stores.is_empty()).then(|| stores.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn counts(gets: u64, bytes_in: u64) -> StoreCounts {
        let requests = BTreeMap::from([("get".to_owned(), gets), ("create".to_owned(), 3)]);
        StoreCounts { requests, bytes_in, ..StoreCounts::default() }
    }

    fn pool(gets: u64, cost: u64) -> PoolIo {
        let store = StoreIo {
            name: "s3://bucket/tank?endpoint=http://127.0.0.1:7070".into(),
            guid: 5,
            counts: counts(gets, gets * 1_000),
            cost: Some(cost),
            currency: "USD".into(),
        };
        PoolIo {
            name: "tank".into(),
            guid: 9,
            age_ns: 1,
            allocated: 0,
            free: 0,
            groups: Vec::new(),
            devices: Vec::new(),
            stores: vec![store],
            requests: Vec::new(),
            caches: Vec::new(),
        }
    }

    #[test]
    fn an_interval_tells_what_it_cost() {
        let first = flows(&[pool(10, 500)], &[]);
        assert_eq!(cells(&first[0], true), ["3", "10", "0", "0", "10000", "0", "0", "0", "0.000000500"]);
        let next = flows(&[pool(25, 2_000)], &[pool(10, 500)]);
        assert_eq!(cells(&next[0], true), ["0", "15", "0", "0", "15000", "0", "0", "0", "0.000001500"]);
        assert_eq!(cells(&next[0], false)[8], "$0.000002");
        // The daemon was started again: its counters began anew.
        let anew = flows(&[pool(2, 100)], &[pool(10, 500)]);
        assert_eq!(cells(&anew[0], true)[1], "0");
        let told = iostat_json("tank", &next, Numbers { exact: true, as_number: true }).unwrap();
        let told = &told["s3://bucket/tank?endpoint=http://127.0.0.1:7070"];
        assert_eq!((&told["requests"]["get"], &told["price"]), (&json!(15), &json!("0.000001500")));
        assert_eq!(iostat_json("other", &next, Numbers { exact: true, as_number: true }), None);
    }

    #[test]
    fn stores_are_named_by_bucket_and_prefix_while_that_tells_them_apart() {
        let mut both = flows(&[pool(1, 1)], &[]);
        assert_eq!(short(&both[0].name, &both), "bucket/tank");
        both.push(StoreFlow {
            name: "s3://bucket/tank?endpoint=http://127.0.0.2:7070".into(),
            ..flows(&[pool(1, 1)], &[]).remove(0)
        });
        assert_eq!(short(&both[0].name, &both), "s3://bucket/tank?endpoint=http://127.0.0.1:7070");
    }

    #[test]
    fn entries_keep_to_eighty_columns_and_lose_no_word() {
        let mut out = String::new();
        let text = "about $1.23 this month so far (requests $0.10, egress $1.00, storage $0.13); by the row 'AWS S3'";
        entry(&mut out, "price", text);
        entry(&mut out, "bytes", &"x".repeat(100));
        assert!(out.lines().take(2).all(|line| line.chars().count() + 7 <= LINE), "{out}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut expected = words(text);
        expected.insert(0, "price".into());
        expected.extend(["bytes".into(), "x".repeat(100)]);
        assert_eq!(words(&out), expected);
    }
}

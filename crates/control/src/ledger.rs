//! Requests and bytes of stores by day and month, in a file that outlives the daemon.
//!
//! Days and months are those of UTC, as providers bill. The file is written to a new one, which is
//! renamed over the old one: a crash leaves the old or the new file, and loses what was counted
//! since. A clock that jumps puts counters into another day, and none away.
//!
//! ## Invariants
//! [ledger.1] Each request is counted once: a look takes the increase since the look before.
//!     test: `counters_survive_a_restart_and_are_counted_once`
//! [ledger.2] No bytes in the file keep the daemon from starting, and none are lost: a file that
//!     cannot be read is set aside.
//!     test: `a_file_that_cannot_be_read_is_set_aside`

use crate::api::StoreCounts;
use crate::cachefile::write_beside;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use steadfast_bucket::Counts;

const VERSION: u32 = 1;
/// Seconds between two writes of the file, and so the most that a crash loses.
pub(crate) const WRITE_EVERY_S: u64 = 60;
/// Days and months that are kept of each store.
const DAYS_KEPT: usize = 35;
const MONTHS_KEPT: usize = 13;
const DAY_S: u64 = 86_400;

/// Counters of a day or month.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub(crate) struct Period {
    /// Requests and bytes.
    pub counts: StoreCounts,
    /// Bytes stored × time, in KiB and seconds.
    #[serde(default)]
    pub kib_seconds: u64,
}

/// Counters of one store.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
struct Account {
    /// By `2026-11-27`.
    days: BTreeMap<String, Period>,
    /// By `2026-11`.
    months: BTreeMap<String, Period>,
    /// Bytes that lay there at the last look, and when that was.
    #[serde(default)]
    stored_bytes: u64,
    #[serde(default)]
    stored_at: u64,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    /// By address.
    stores: BTreeMap<String, Account>,
}

#[derive(Default)]
struct State {
    accounts: BTreeMap<String, Account>,
    /// Counters that were taken already, by address.
    taken: BTreeMap<String, Counts>,
    is_dirty: bool,
    written_at: u64,
    /// The last problem of writing that was told.
    trouble: String,
}

/// A store's counters now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Usage {
    /// `2026-11-27`.
    pub day: String,
    pub today: Period,
    /// `2026-11`.
    pub month: String,
    pub this_month: Period,
    /// Seconds of that month.
    pub month_seconds: u64,
    pub stored_bytes: u64,
}

/// The counters of one daemon's stores.
pub(crate) struct Ledger {
    path: PathBuf,
    state: Mutex<State>,
}

/// The day of a time in seconds since 1970.
fn date_of(seconds: u64) -> Date {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    Offset::UTC.to_datetime(time.unwrap_or(Timestamp::MAX)).date()
}

fn day_label(date: Date) -> String {
    date.to_string()
}

fn month_label(date: Date) -> String {
    format!("{:04}-{:02}", date.year(), date.month())
}

fn month_seconds(date: Date) -> u64 {
    u64::from(date.days_in_month().unsigned_abs()) * DAY_S
}

impl Account {
    fn add(&mut self, date: Date, increase: &Counts) {
        let periods = [
            self.days.entry(day_label(date)).or_default(),
            self.months.entry(month_label(date)).or_default(),
        ];
        for period in periods {
            period.counts = period.counts.counts().plus(increase).into();
        }
        keep_newest(&mut self.days, DAYS_KEPT);
        keep_newest(&mut self.months, MONTHS_KEPT);
    }

    /// Adds the time in which the bytes of the last look lay there.
    fn lie(&mut self, now: u64) {
        let mut from = self.stored_at.max(now.saturating_sub(MONTHS_KEPT as u64 * 31 * DAY_S));
        while self.stored_bytes > 0 && from < now {
            let until = now.min((from / DAY_S + 1).saturating_mul(DAY_S));
            let product = self.stored_bytes.div_ceil(1024).saturating_mul(until - from);
            let month = self.months.entry(month_label(date_of(from))).or_default();
            month.kib_seconds = month.kib_seconds.saturating_add(product);
            from = until;
        }
        // Time that a clock goes back is not counted twice.
        self.stored_at = self.stored_at.max(now);
    }
}

fn keep_newest(periods: &mut BTreeMap<String, Period>, most: usize) {
    while periods.len() > most {
        periods.pop_first();
    }
}

impl Ledger {
    /// The counters in a file. `taken`: counters of stores that were open before, which others
    /// took.
    pub fn open(path: &Path, taken: Vec<(String, Counts)>) -> Ledger {
        let accounts = load(path).unwrap_or_else(|why| {
            let aside = path.with_extension("json.bad");
            eprintln!(
                "steadfast: the counters of stores in {} cannot be read: {why}; counting begins anew, and the file is kept as {}",
                path.display(),
                aside.display()
            );
            let _ = fs::rename(path, aside);
            BTreeMap::new()
        });
        let state = State { accounts, taken: taken.into_iter().collect(), ..State::default() };
        Ledger { path: path.to_owned(), state: Mutex::new(state) }
    }

    /// Takes what the counters increased by since the last call ([ledger.1]).
    pub fn take(&self, now: u64, counters: Vec<(String, Counts)>) {
        let mut state = self.state.lock();
        for (address, counts) in counters {
            let before = state.taken.insert(address.clone(), counts).unwrap_or_default();
            let increase = counts.since(&before);
            if increase != Counts::default() {
                state.accounts.entry(address).or_default().add(date_of(now), &increase);
                state.is_dirty = true;
            }
        }
    }

    /// Notes how many bytes lie in a store.
    pub fn note_stored(&self, now: u64, address: &str, bytes: u64) {
        let mut state = self.state.lock();
        let account = state.accounts.entry(address.to_owned()).or_default();
        account.lie(now);
        // The time that the same bytes lie there follows from the file.
        if account.stored_bytes != bytes {
            account.stored_bytes = bytes;
            state.is_dirty = true;
        }
    }

    /// The counters of a store.
    pub fn usage(&self, now: u64, address: &str) -> Usage {
        let date = date_of(now);
        let (day, month) = (day_label(date), month_label(date));
        let state = self.state.lock();
        let account = state.accounts.get(address).cloned().unwrap_or_default();
        Usage {
            today: account.days.get(&day).cloned().unwrap_or_default(),
            this_month: account.months.get(&month).cloned().unwrap_or_default(),
            month_seconds: month_seconds(date),
            stored_bytes: account.stored_bytes,
            day,
            month,
        }
    }

    /// Writes the file if it is time to, or `at_once`, and something changed. A problem is told
    /// once.
    pub fn write(&self, now: u64, at_once: bool) {
        let mut state = self.state.lock();
        let is_due = at_once || now.abs_diff(state.written_at) >= WRITE_EVERY_S;
        if !state.is_dirty || !is_due {
            return;
        }
        // A store of which nothing was seen for as long as months are kept.
        let oldest = month_label(date_of(now.saturating_sub(MONTHS_KEPT as u64 * 31 * DAY_S)));
        state.accounts.retain(|_, account| account.months.keys().any(|month| *month >= oldest));
        let contents = Contents { version: VERSION, stores: state.accounts.clone() };
        (state.is_dirty, state.written_at) = (false, now);
        let text = serde_json::to_string(&contents).expect("words and numbers become JSON");
        let trouble =
            write_beside(&self.path, &text).err().map(|error| error.to_string()).unwrap_or_default();
        if !trouble.is_empty() {
            state.is_dirty = true;
            if state.trouble != trouble {
                eprintln!(
                    "steadfast: the counters of stores {} cannot be written: {trouble}",
                    self.path.display()
                );
            }
        }
        state.trouble = trouble;
    }
}

fn load(path: &Path) -> Result<BTreeMap<String, Account>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.to_string()),
    };
    let contents: Contents = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if contents.version != VERSION {
        return Err(format!("it is of version {}", contents.version));
    }
    Ok(contents.stores)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 27 November 2026, 12:00 UTC.
    const NOW: u64 = 1_795_780_800;
    const ADDRESS: &str = "s3://bucket/tank";

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("steadfast-ledger-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("costs.json")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn counts(gets: u64, bytes_in: u64) -> Counts {
        StoreCounts { requests: BTreeMap::from([("get".into(), gets)]), bytes_in, ..StoreCounts::default() }
            .counts()
    }

    fn take(ledger: &Ledger, now: u64, counts: Counts) {
        ledger.take(now, vec![(ADDRESS.to_owned(), counts)]);
    }

    fn gets(ledger: &Ledger, now: u64) -> (u64, u64) {
        let usage = ledger.usage(now, ADDRESS);
        (usage.today.counts.total(), usage.this_month.counts.total())
    }

    #[test]
    fn counters_survive_a_restart_and_are_counted_once() {
        let folder = Folder::new("restart");
        let ledger = Ledger::open(&folder.file(), Vec::new());
        take(&ledger, NOW, counts(10, 1_000));
        take(&ledger, NOW, counts(10, 1_000));
        take(&ledger, NOW + 1, counts(13, 1_500));
        assert_eq!(gets(&ledger, NOW + 1), (13, 13));
        ledger.write(NOW + 1, true);
        take(&ledger, NOW + 2, counts(14, 1_500));
        ledger.write(NOW + 30, false);
        // Killed here. The next process counts from zero, with 5 before anybody looked.
        let ledger = Ledger::open(&folder.file(), Vec::new());
        assert_eq!(gets(&ledger, NOW + 31), (13, 13), "within a minute one is lost");
        take(&ledger, NOW + 32, counts(5, 0));
        assert_eq!(gets(&ledger, NOW + 32), (18, 18));
        assert_eq!(ledger.usage(NOW + 32, ADDRESS).this_month.counts.bytes_in, 1_500);
        ledger.write(NOW + 92, false);
        // A second ledger in a process, whose counters others took.
        let ledger = Ledger::open(&folder.file(), vec![(ADDRESS.to_owned(), counts(5, 0))]);
        take(&ledger, NOW + 93, counts(6, 0));
        assert_eq!(gets(&ledger, NOW + 93), (19, 19));
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn days_and_months_turn_and_old_ones_go() {
        let folder = Folder::new("turn");
        let ledger = Ledger::open(&folder.file(), Vec::new());
        take(&ledger, NOW, counts(1, 0));
        let midnight = NOW + 43_200;
        take(&ledger, midnight - 1, counts(2, 0));
        take(&ledger, midnight, counts(4, 0));
        assert_eq!((gets(&ledger, midnight - 1), gets(&ledger, midnight)), ((2, 4), (2, 4)));
        let december = midnight + 3 * DAY_S;
        assert_eq!(ledger.usage(december, ADDRESS).month, "2026-12");
        assert_eq!(gets(&ledger, december), (0, 0));
        take(&ledger, december, counts(5, 0));
        // The clock jumps back: nothing is lost, and nothing counted twice.
        take(&ledger, NOW, counts(6, 0));
        assert_eq!((gets(&ledger, december), gets(&ledger, NOW)), ((1, 1), (3, 5)));
        for day in 0..400 {
            take(&ledger, december + day * DAY_S, counts(7 + day, 0));
        }
        let account = ledger.state.lock().accounts[ADDRESS].clone();
        assert_eq!((account.days.len(), account.months.len()), (DAYS_KEPT, MONTHS_KEPT));
        assert_eq!(month_seconds(date_of(NOW)), 30 * DAY_S);
        ledger.write(december + 1000 * DAY_S, true);
        assert!(load(&folder.file()).unwrap().is_empty(), "a store of which nothing is known is forgotten");
    }

    #[test]
    fn bytes_count_for_the_time_that_they_lie_there() {
        let folder = Folder::new("stored");
        let ledger = Ledger::open(&folder.file(), Vec::new());
        let kib_seconds = |now: u64| ledger.usage(now, ADDRESS).this_month.kib_seconds;
        ledger.note_stored(NOW, ADDRESS, 1 << 20);
        assert_eq!(kib_seconds(NOW), 0);
        ledger.note_stored(NOW + 10, ADDRESS, 2 << 20);
        assert_eq!(kib_seconds(NOW), 10 * 1024);
        ledger.note_stored(NOW + 15, ADDRESS, 0);
        assert_eq!(kib_seconds(NOW), 20 * 1024);
        // The clock goes back and forth.
        ledger.note_stored(NOW, ADDRESS, 1 << 20);
        ledger.note_stored(NOW + 15, ADDRESS, 1 << 20);
        assert_eq!(kib_seconds(NOW), 20 * 1024);
        // No daemon runs until December.
        let december = NOW + 43_200 + 3 * DAY_S;
        ledger.note_stored(december + DAY_S, ADDRESS, 0);
        assert_eq!(kib_seconds(NOW), 20 * 1024 + (december - NOW - 15) * 1024);
        assert_eq!(kib_seconds(december), DAY_S * 1024);
        ledger.note_stored(u64::MAX, ADDRESS, u64::MAX);
        ledger.note_stored(u64::MAX, ADDRESS, u64::MAX);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_set_aside() {
        let folder = Folder::new("bad");
        for text in ["{]", r#"{"version":7,"stores":{}}"#, r#"{"version":1,"stores":{"a":{"days":1}}}"#] {
            fs::write(folder.file(), text).unwrap();
            let ledger = Ledger::open(&folder.file(), Vec::new());
            take(&ledger, NOW, counts(1, 0));
            ledger.write(NOW, true);
            assert_eq!(fs::read_to_string(folder.0.join("costs.json.bad")).unwrap(), text);
            assert_eq!(gets(&Ledger::open(&folder.file(), Vec::new()), NOW), (1, 1));
        }
    }
}

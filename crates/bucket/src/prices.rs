//! Prices of providers, and the estimate of a bill.
//!
//! Prices are data: three rows are built in, and an operator puts rows of a file in front of them.
//! A store that no row fits has no price. The estimate is an upper bound for one bucket: the first
//! tier of each price, no free allowance, and all bytes read as if they went to the internet.
//!
//! Amounts are whole billionths of the currency, so that sums are exact.

use serde::{Deserialize, Serialize};

use crate::{Counts, Location, Operation, Scheme};

/// Version of the file's format.
const VERSION: u32 = 1;

/// Garbage that is always left, and the most that is ever left, in thousandths of what lives.
/// Below, eight bytes are copied for each that is given back, for little money and much time;
/// above, a bill is twice that of what lives.
const GARBAGE: (u32, u32) = (125, 1_000);
/// Bytes of the object of a full segment.
const OBJECT_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// Billionths in one.
const NANO: f64 = 1e9;

/// Greatest price in a file: more is a mistake.
const PRICE_MAX: f64 = 1e6;

/// Region of Amazon where the address and the keys name none.
pub const REGION: &str = "us-east-1";

/// One row: a provider's prices for the stores that it fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Provider, storage class and place, as status shows it.
    pub name: String,
    /// Word of the scheme: `s3`, `gs`, `az`, `file`.
    pub scheme: String,
    /// Hosts that it is for, with the port if there is one; `*.example.com` fits every host below;
    /// an empty word is the provider's own endpoint, without `endpoint=`.
    pub endpoints: Vec<String>,
    /// Only for this region.
    #[serde(default)]
    pub region: Option<String>,
    /// Currency, three letters.
    pub currency: String,
    /// A million of create, put, replace, and of what only a probe asks.
    pub writes_per_million: f64,
    /// A million of get and head.
    pub reads_per_million: f64,
    /// A million pages of lists.
    pub lists_per_million: f64,
    /// A million of deletes.
    pub deletes_per_million: f64,
    /// A gigabyte that is read.
    pub egress_per_gb: f64,
    /// A gigabyte that is stored for a month.
    pub stored_per_gb_month: f64,
    /// Bytes of a gigabyte: 1073741824 or 1000000000.
    pub gb_bytes: u64,
    /// Page of the provider.
    #[serde(default)]
    pub source: String,
    /// Day on which it said so.
    #[serde(default)]
    pub as_of: String,
}

/// An estimate, in billionths of the currency.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Estimate {
    /// Of requests.
    pub requests: u64,
    /// Of bytes read.
    pub egress: u64,
    /// Of bytes stored.
    pub stored: u64,
}

impl Estimate {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.saturating_add(self.egress).saturating_add(self.stored)
    }
}

fn nano(price: f64) -> u128 {
    // Checked when the table was read: not negative, and not large.
    (price * NANO).round() as u128
}

fn part(amount: u128, of: u128) -> u64 {
    u64::try_from(amount / of.max(1)).unwrap_or(u64::MAX)
}

impl Price {
    /// Price of requests and of bytes read.
    #[must_use]
    pub fn of_traffic(&self, counts: &Counts) -> Estimate {
        let sum = |operations: &[Operation]| -> u128 {
            operations.iter().map(|operation| u128::from(counts.of(*operation))).sum()
        };
        let writes = sum(&[Operation::Create, Operation::Put, Operation::Replace, Operation::Probe]);
        let requests = writes * nano(self.writes_per_million)
            + sum(&[Operation::Get, Operation::Head]) * nano(self.reads_per_million)
            + sum(&[Operation::List]) * nano(self.lists_per_million)
            + sum(&[Operation::Delete]) * nano(self.deletes_per_million);
        let egress = u128::from(counts.bytes_in) * nano(self.egress_per_gb);
        Estimate {
            requests: part(requests, 1_000_000),
            egress: part(egress, self.gb_bytes.into()),
            stored: 0,
        }
    }

    /// Price of bytes that are stored for some seconds of a month, given as their product in KiB
    /// and seconds, and the seconds of that month.
    #[must_use]
    pub fn of_stored(&self, kib_seconds: u64, month_seconds: u64) -> u64 {
        let amount = u128::from(kib_seconds) * nano(self.stored_per_gb_month) * 1024;
        part(amount, u128::from(self.gb_bytes) * u128::from(month_seconds))
    }

    /// The part of what lives, in thousandths, up to which garbage is cheaper to keep than to clean
    /// away. Where garbage is a part `g` of what lives, a byte of it is given back by copying `1/g`
    /// bytes that live: they are read, and put into another object. That is worth its price if the
    /// storage of one byte pays for it within a year: if `g` is the price of a copy over that of a
    /// year of storage, or more. docs/decisions/0199-cleaning-by-price.md
    #[must_use]
    pub fn garbage_thousandths(&self) -> u32 {
        let requests = (self.writes_per_million + self.reads_per_million) / 1e6;
        let copy = self.egress_per_gb + requests * self.gb_bytes as f64 / OBJECT_BYTES;
        let year = 12.0 * self.stored_per_gb_month;
        let (least, most) = GARBAGE;
        match copy <= year * f64::from(most) / 1e3 {
            // A store whose storage is free is cleaned for its room alone.
            false => most,
            true if year == 0.0 => least,
            true => ((1e3 * copy / year) as u32).max(least),
        }
    }

    fn fits(&self, location: &Location, region: &str) -> bool {
        let host = location.endpoint().map_or("", host_of);
        let fits_host = |pattern: &String| match pattern.strip_prefix('*') {
            Some(tail) => tail.starts_with('.') && host.ends_with(tail) && host.len() > tail.len(),
            None => pattern == host,
        };
        self.scheme == location.scheme().word()
            && self.endpoints.iter().any(fits_host)
            && self.region.as_ref().is_none_or(|own| own == region)
    }

    /// The mistake in a row, if there is one.
    fn mistake(&self) -> Option<String> {
        let prices = [
            ("writes_per_million", self.writes_per_million),
            ("reads_per_million", self.reads_per_million),
            ("lists_per_million", self.lists_per_million),
            ("deletes_per_million", self.deletes_per_million),
            ("egress_per_gb", self.egress_per_gb),
            ("stored_per_gb_month", self.stored_per_gb_month),
        ];
        if let Some((name, price)) = prices.iter().find(|(_, price)| !(0.0..=PRICE_MAX).contains(price)) {
            return Some(format!("{name} is {price}, and must be between 0 and {PRICE_MAX}"));
        }
        let schemes = [Scheme::S3, Scheme::Gs, Scheme::Az, Scheme::File].map(Scheme::word);
        if !schemes.contains(&self.scheme.as_str()) {
            return Some(format!("scheme is '{}', and must be one of {}", self.scheme, schemes.join(", ")));
        }
        if !matches!(self.gb_bytes, 1_000_000_000 | 1_073_741_824) {
            return Some(format!("gb_bytes is {}, and must be 1000000000 or 1073741824", self.gb_bytes));
        }
        let is_currency =
            self.currency.len() == 3 && self.currency.bytes().all(|byte| byte.is_ascii_uppercase());
        if !is_currency {
            return Some(format!("currency is '{}', and must be three capital letters", self.currency));
        }
        self.endpoints.is_empty().then(|| "endpoints is empty".to_owned())
    }
}

/// Host and port of an endpoint.
fn host_of(endpoint: &str) -> &str {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// An amount of billionths of a currency, with as many digits as tell something.
#[must_use]
pub fn amount(nano: u64, currency: &str) -> String {
    let value = nano as f64 / NANO;
    let digits = match value {
        // Nothing, or less than a millionth.
        ..0.000_000_5 | 1.0.. => 2,
        0.01..1.0 => 4,
        _ => 6,
    };
    match currency {
        "USD" => format!("${value:.digits$}"),
        other => format!("{value:.digits$} {other}"),
    }
}

/// An amount of billionths with all its digits, for programs.
#[must_use]
pub fn exact(nano: u64) -> String {
    format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000)
}

/// A file of prices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    prices: Vec<Price>,
}

/// All rows, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    rows: Vec<Price>,
    /// Rows at the front that an operator wrote.
    own: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table { rows: built_in(), own: 0 }
    }
}

impl Table {
    /// The built-in rows behind those of a file.
    ///
    /// # Errors
    /// The mistake, as a sentence without its end.
    pub fn with_file(text: &str) -> Result<Table, String> {
        let contents: Contents = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if contents.version != VERSION {
            return Err(format!("it is of version {}, and {VERSION} is understood", contents.version));
        }
        for row in &contents.prices {
            if let Some(mistake) = row.mistake() {
                return Err(format!("in the row '{}' {mistake}", row.name));
            }
        }
        let own = contents.prices.len();
        Ok(Table { rows: contents.prices.into_iter().chain(built_in()).collect(), own })
    }

    /// The first row that fits a store; `region` counts where the address names none.
    #[must_use]
    pub fn find(&self, location: &Location, region: Option<&str>) -> Option<&Price> {
        let region = location.region().or(region).unwrap_or(REGION);
        self.rows.iter().find(|row| row.fits(location, region))
    }

    /// All rows, each with whether an operator wrote it.
    pub fn rows(&self) -> impl Iterator<Item = (&Price, bool)> {
        self.rows.iter().enumerate().map(|(at, row)| (row, at < self.own))
    }
}

/// List prices of three providers. Where they are from: docs/decisions/0159-cost-of-stores.md.
fn built_in() -> Vec<Price> {
    let row = |name: &str, scheme: Scheme, endpoints: &[&str], source: &str, as_of: &str| Price {
        name: name.to_owned(),
        scheme: scheme.word().to_owned(),
        endpoints: endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect(),
        region: None,
        currency: "USD".to_owned(),
        writes_per_million: 5.0,
        reads_per_million: 0.4,
        lists_per_million: 5.0,
        deletes_per_million: 0.0,
        egress_per_gb: 0.0,
        stored_per_gb_month: 0.0,
        gb_bytes: 1 << 30,
        source: source.to_owned(),
        as_of: as_of.to_owned(),
    };
    let amazon = ["", "s3.amazonaws.com", "s3.us-east-1.amazonaws.com"];
    vec![
        Price {
            region: Some(REGION.to_owned()),
            egress_per_gb: 0.09,
            stored_per_gb_month: 0.023,
            ..row(
                "AWS S3 Standard, us-east-1",
                Scheme::S3,
                &amazon,
                "aws.amazon.com/s3/pricing",
                "2025-10-28",
            )
        },
        Price {
            egress_per_gb: 0.12,
            stored_per_gb_month: 0.020,
            ..row(
                "Google Cloud Standard, us-central1",
                Scheme::Gs,
                &[""],
                "cloud.google.com/storage/pricing",
                "2026-11-27",
            )
        },
        Price {
            writes_per_million: 4.5,
            reads_per_million: 0.36,
            lists_per_million: 4.5,
            stored_per_gb_month: 0.015,
            gb_bytes: 1_000_000_000,
            ..row(
                "Cloudflare R2 Standard",
                Scheme::S3,
                &["*.r2.cloudflarestorage.com"],
                "developers.cloudflare.com/r2/pricing",
                "2026-11-27",
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Location {
        address.parse().unwrap()
    }

    fn counts(of: &[(Operation, u64)], bytes_in: u64) -> Counts {
        let mut counts = Counts { bytes_in, ..Counts::default() };
        for (operation, count) in of {
            let index = Operation::REQUESTS.iter().position(|known| known == operation).unwrap();
            counts.requests[index] = *count;
        }
        counts
    }

    #[test]
    fn the_example_of_a_provider_costs_what_its_page_says() {
        // cloud.google.com/storage/pricing-examples: 50 GB stored, 10,000 adds and lists, 50,000
        // gets, 1 GB to the internet: 1.00 + 0.05 + 0.02 + 0.12 dollars.
        let table = Table::default();
        let price = table.find(&at("gs://bucket/tank"), None).unwrap();
        let month = 30 * 86_400;
        let made = counts(
            &[
                (Operation::Create, 9_000),
                (Operation::List, 1_000),
                (Operation::Get, 50_000),
                (Operation::Delete, 9),
            ],
            1 << 30,
        );
        let estimate =
            Estimate { stored: price.of_stored((50 << 20) * month, month), ..price.of_traffic(&made) };
        assert_eq!(estimate.requests, 70_000_000);
        assert_eq!(estimate.egress, 120_000_000);
        assert_eq!(estimate.stored, 1_000_000_000);
        assert_eq!(amount(estimate.total(), &price.currency), "$1.19");
        assert_eq!(price.of_stored((50 << 20) * month / 2, month), 500_000_000, "half of a month");
    }

    #[test]
    fn garbage_is_kept_while_a_copy_is_dearer_than_a_year_of_it() {
        let table = Table::default();
        let of =
            |name: &str| table.rows().map(|(row, _)| row).find(|row| row.name.starts_with(name)).unwrap();
        // (0.09 + 5.4e-6 * 128) / (12 * 0.023); (0.12 + 5.4e-6 * 128) / (12 * 0.020); and 0.0032.
        let shares = ["AWS", "Google", "Cloudflare"].map(|name| of(name).garbage_thousandths());
        assert_eq!(shares, [328, 502, 125]);
        let row = |egress_per_gb: f64, stored_per_gb_month: f64| Price {
            egress_per_gb,
            stored_per_gb_month,
            writes_per_million: 0.0,
            reads_per_million: 0.0,
            ..of("AWS").clone()
        };
        assert_eq!(row(0.09, 0.001).garbage_thousandths(), 1_000, "dear to read, cheap to keep");
        assert_eq!(row(0.09, 0.0).garbage_thousandths(), 1_000);
        assert_eq!(row(0.0, 0.0).garbage_thousandths(), 125, "all is free");
        assert_eq!(row(0.0, 1e6).garbage_thousandths(), 125);
        assert_eq!(row(1e6, 1e6).garbage_thousandths(), 125);
    }

    #[test]
    fn a_store_that_no_row_fits_has_no_price() {
        let table = Table::default();
        let name = |address: &str, region| table.find(&at(address), region).map(|price| price.name.as_str());
        assert_eq!(name("s3://bucket/tank", None), Some("AWS S3 Standard, us-east-1"));
        assert_eq!(
            name("s3://bucket/tank?region=eu-central-1", None),
            None,
            "another region has other prices"
        );
        assert_eq!(name("s3://bucket/tank", Some("eu-central-1")), None);
        assert_eq!(name("s3://bucket/tank?endpoint=http://127.0.0.1:7070", None), None);
        assert_eq!(name("file:///objects", None), None);
        let r2 = |host: &str| format!("s3://bucket?endpoint=https://{host}");
        assert_eq!(name(&r2("abc.r2.cloudflarestorage.com"), None), Some("Cloudflare R2 Standard"));
        assert_eq!(name(&r2("r2.cloudflarestorage.com"), None), None);
        assert_eq!(name(&r2("evil-r2.cloudflarestorage.com.example.com"), None), None);
    }

    #[test]
    fn rows_of_a_file_come_first_and_mistakes_are_named() {
        let row = r#"{"name":"Ours","scheme":"s3","endpoints":["127.0.0.1:7070"],"currency":"EUR",
            "writes_per_million":1.5,"reads_per_million":0.5,"lists_per_million":0,"deletes_per_million":0,
            "egress_per_gb":0,"stored_per_gb_month":0.01,"gb_bytes":1000000000}"#;
        let file = |row: &str| format!(r#"{{"version":1,"prices":[{row}]}}"#);
        let table = Table::with_file(&file(row)).unwrap();
        let price = table.find(&at("s3://bucket/tank?endpoint=http://127.0.0.1:7070"), None).unwrap();
        assert_eq!((price.name.as_str(), table.rows().filter(|(_, own)| *own).count()), ("Ours", 1));
        let million = counts(&[(Operation::Put, 1_000_000)], 0);
        assert_eq!(amount(price.of_traffic(&million).total(), &price.currency), "1.50 EUR");
        let own = row.replace("127.0.0.1:7070", "");
        let table = Table::with_file(&file(&own)).unwrap();
        assert_eq!(table.find(&at("s3://bucket"), None).unwrap().name, "Ours", "before the row of Amazon");
        let mistake = |row: &str| Table::with_file(&file(row)).unwrap_err();
        assert!(mistake(&row.replace("1.5", "-1.5")).contains("'Ours' writes_per_million is -1.5"));
        assert!(mistake(&row.replace("1000000000", "1024")).contains("gb_bytes"));
        assert!(mistake(&row.replace("\"s3\"", "\"ftp\"")).contains("scheme is 'ftp'"));
        assert!(mistake(&row.replace("EUR", "euro")).contains("currency"));
        assert!(mistake(&row.replace("egress_per_gb", "egres")).contains("egres"));
        assert!(Table::with_file(r#"{"version":2,"prices":[]}"#).unwrap_err().contains("version 2"));
        assert!(Table::with_file("prices").is_err());
    }

    #[test]
    fn amounts_have_digits_that_tell_something_and_never_overflow() {
        let shown = |nano| amount(nano, "USD");
        assert_eq!(
            [0, 400, 4_000, 12_340_000, 1_190_000_000, u64::MAX].map(shown),
            ["$0.00", "$0.00", "$0.000004", "$0.0123", "$1.19", "$18446744073.71"]
        );
        let price = &Table::default().rows[0];
        let most = Counts { requests: [u64::MAX; 8], bytes_in: u64::MAX, ..Counts::default() };
        assert!(price.of_traffic(&most).total() > 1 << 60);
        assert_eq!(price.of_stored(u64::MAX, 0), u64::MAX);
    }
}

//! How long the calls took that our daemon made to its devices: what a long wait of a program is
//! held against. Where no call took as long, it is not the disk that stood still; where one did, it
//! may be.
//!
//! The daemon counts calls by the power of two of the nanoseconds they took (`zpool iostat -w`), so
//! the longest of a while is known to a factor of two: it lies in the highest bucket that grew.

use serde::Deserialize;

use super::arm::Arm;
use crate::error::Error;
use crate::host::shell::Shell;

/// Calls to all devices of a pool since its import, by the power of two of the nanoseconds they
/// took.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Calls(Vec<u64>);

#[derive(Deserialize)]
struct Document {
    pools: std::collections::BTreeMap<String, Pool>,
}

#[derive(Deserialize)]
struct Pool {
    read: Kind,
    write: Kind,
    flush: Kind,
}

#[derive(Deserialize)]
struct Kind {
    histogram: Vec<u64>,
}

impl Calls {
    /// All calls of an arm of ours so far.
    pub(crate) fn of(arm: &Arm, shell: &mut Shell) -> Result<Calls, Error> {
        let line = arm.ours(&format!("pool iostat -w -j --json-int {}", arm.pool()));
        let said = shell.ask(&line)?;
        Calls::read(&said).ok_or_else(|| Error::Answer {
            line,
            answer: said.trim().to_owned(),
            expected: "histograms of a pool's calls",
        })
    }

    fn read(text: &str) -> Option<Calls> {
        let document: Document = serde_json::from_str(text).ok()?;
        let mut sums = Vec::new();
        for pool in document.pools.values() {
            for kind in [&pool.read, &pool.write, &pool.flush] {
                sums.resize(sums.len().max(kind.histogram.len()), 0);
                sums.iter_mut().zip(&kind.histogram).for_each(|(sum, calls)| *sum += calls);
            }
        }
        (!document.pools.is_empty()).then_some(Calls(sums))
    }

    /// Milliseconds that the longest call since `before` took at most, and more than half of it;
    /// zero if there was none.
    pub(crate) fn longest_ms_since(&self, before: &Calls) -> f64 {
        let then = |at: usize| before.0.get(at).copied().unwrap_or(0);
        let last = self.0.iter().enumerate().rev().find(|(at, calls)| **calls > then(*at));
        last.map_or(0.0, |(at, _)| 2f64.powi(at as i32 + 1) / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(read: &[u64], write: &[u64], flush: &[u64]) -> Calls {
        let kind = |histogram: &[u64]| serde_json::json!({ "operations": 1, "histogram": histogram });
        let pool = serde_json::json!({ "name": "tank", "read": kind(read), "write": kind(write), "flush": kind(flush) });
        Calls::read(&serde_json::json!({ "pools": { "tank": pool } }).to_string())
            .expect("it is such a document")
    }

    #[test]
    fn the_longest_call_of_a_while_is_in_the_highest_bucket_that_grew() {
        let before = said(&[1, 0, 0, 0], &[0, 5, 0, 0], &[0, 0, 0, 9]);
        assert_eq!(before.longest_ms_since(&before), 0.0);
        let after = said(&[1, 0, 0, 0], &[0, 5, 1, 0], &[0, 0, 0, 9]);
        assert_eq!(after.longest_ms_since(&before), 8e-6, "from 4 to 7 ns");
        let flushed = said(&[1, 0, 0, 0], &[0, 5, 1, 0], &[0, 0, 0, 10]);
        assert_eq!(flushed.longest_ms_since(&before), 16e-6);
        assert_eq!(flushed.longest_ms_since(&Calls::default()), 16e-6);
    }

    #[test]
    fn what_is_no_such_document_is_nothing() {
        assert_eq!(Calls::read("no pools available"), None);
        assert_eq!(Calls::read(r#"{"pools":{}}"#), None);
        assert_eq!(Calls::read(r#"{"pools":{"tank":{"read":{}}}}"#), None);
    }
}

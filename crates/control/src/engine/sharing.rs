//! Blocks that are shared, and what is known by content.

use steadfast_pool::SharingInfo;

use super::{Engine, refuse};
use crate::api::{Caller, Outcome, PoolDdtPrune, PoolPrefetch, Pruned, SharingClassReport, SharingReport};
use crate::refusal::{Code, Refusal};

impl Engine {
    pub(super) fn prefetch(&self, request: &PoolPrefetch) -> Result<Outcome, Refusal> {
        let found = self.select(&request.names)?;
        for (name, held) in &found {
            held.pool.fill_index().map_err(|error| refuse::pool(error).with("pool", name))?;
        }
        let touched = found.into_iter().map(|(name, _)| name).collect();
        Ok(Outcome { touched, warnings: Vec::new() })
    }

    pub(super) fn prune(&self, caller: &Caller, request: &PoolDdtPrune) -> Result<Pruned, Refusal> {
        let PoolDdtPrune { name, days, percent } = request;
        if days.is_some() == percent.is_some() || percent.is_some_and(|percent| percent > 100) {
            let what = "either days or a part of a hundred says what is to be forgotten";
            return Err(Refusal::new(Code::PropValue, what).with("pool", name));
        }
        let held = self.held_pool(name)?;
        let blocks = held.pool.prune_known(*days, *percent);
        let blocks = blocks.map_err(|error| refuse::pool(error).with("pool", name))?;
        self.log(&held, caller);
        Ok(Pruned { blocks })
    }
}

/// What status says of blocks that are known by content.
pub(super) fn report(info: &SharingInfo) -> SharingReport {
    let class = |class: &steadfast_pool::SharingClass| SharingClassReport {
        references: 1 << class.log2,
        allocated: [class.blocks, class.lsize, class.psize, class.dsize],
        referenced: [class.ref_blocks, class.ref_lsize, class.ref_psize, class.ref_dsize],
    };
    SharingReport {
        entries: info.entries(),
        table_bytes: info.table_bytes(),
        index_bytes: info.index_bytes(),
        index_filled: info.index_filled,
        classes: info.sums.classes.iter().map(class).collect(),
    }
}

/// A ratio with two digits behind the point, cut off as ZFS does.
fn ratio(all: u64, once: u64) -> String {
    let hundredths = (u128::from(all) * 100).checked_div(u128::from(once)).unwrap_or(100).max(100);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// What properties of the pool say of sharing.
pub(super) fn values(info: &SharingInfo) -> [(&'static str, String); 6] {
    let sums = &info.sums;
    let (once, all) =
        sums.classes.iter().fold((0, 0), |(once, all), class| (once + class.dsize, all + class.ref_dsize));
    [
        ("dedupratio", ratio(all, once)),
        ("dedup_table_size", info.table_bytes().to_string()),
        ("dedupcached", info.index_bytes().to_string()),
        ("bcloneused", sums.shared_bytes.to_string()),
        ("bclonesaved", sums.saved_bytes.to_string()),
        ("bcloneratio", ratio(sums.shared_bytes.saturating_add(sums.saved_bytes), sums.shared_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[test]
    fn ratios_are_cut_off_and_never_below_one() {
        assert_eq!(ratio(0, 0), "1.00");
        assert_eq!(ratio(3, 2), "1.50");
        assert_eq!(ratio(2, 3), "1.00");
        assert_eq!(ratio(1999, 1000), "1.99");
        assert_eq!(ratio(u64::MAX, 1), "18446744073709551615.00");
    }
}

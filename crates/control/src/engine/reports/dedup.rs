//! The dedup table (DDT), and blocks that several pointers share.

use crate::api::{SharingClassReport, SharingReport};
use steadfast_pool::SharingInfo;

/// The dedup table in status.
pub(in crate::engine) fn report(info: &SharingInfo) -> SharingReport {
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

/// Pool properties of dedup and block cloning.
pub(in crate::engine) fn values(info: &SharingInfo) -> [(&'static str, String); 6] {
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

//! histogram.html: 27 buckets, counts, per cent, bars.

use crate::page::Page;
use crate::table::read_write;
use steadfast_lab_params::thousands;
use steadfast_lab_workload::Groups;
use steadfast_lab_workload::histogram::{Histogram, VDBENCH_EDGES_NS};

/// Writes what one run found.
pub(crate) fn write(page: &mut Page, groups: &Groups, files: bool, edges: Option<&[u64]>) {
    if edges.is_some_and(<[u64]>::is_empty) {
        return;
    }
    let edges = edges.unwrap_or(&VDBENCH_EDGES_NS);
    if files {
        let all = groups.requested();
        if all.count > 0 {
            one(page, "Total of all requested operations since warmup: ", &all, edges);
        }
    } else {
        let (read, write, all) = read_write(groups);
        if all.count == 0 {
            page.line("No statistics generated for this run.");
            page.line("");
            return;
        }
        one(page, "Reads and writes:", &all, edges);
        for (title, times) in [("Reads:", &read), ("Writes:", &write)] {
            if times.count > 0 && times.count < all.count {
                one(page, title, times, edges);
            }
        }
    }
    page.line("");
}

fn one(page: &mut Page, title: &str, times: &Histogram, edges: &[u64]) {
    page.line(title);
    page.line("  min(ms) <     max(ms)         count       %%    cum%%  '+': Individual%; '+-': Cumulative%");
    page.line("");
    let buckets = times.buckets(edges);
    let total = buckets.iter().sum::<u64>().max(1) as f64;
    let mut below = 0.0;
    let mut low = 0.0;
    for (at, count) in buckets.iter().enumerate() {
        let high = edges.get(at).map(|ns| *ns as f64 / 1e6);
        let share = *count as f64 * 100.0 / total;
        below += share;
        let edge = high.map_or("max".to_string(), |ms| format!("{ms:.3}"));
        let bars = (share / 2.0) as usize;
        let cumulative = ((below / 2.0) as usize).saturating_sub(bars);
        page.line(&format!(
            " {low:>8.3} < {edge:>11} {:>13} {share:>8.4} {below:>8.4}  {}{}",
            thousands(*count),
            "+".repeat(bars),
            "-".repeat(cumulative)
        ));
        low = high.unwrap_or(low);
    }
    page.line("");
}

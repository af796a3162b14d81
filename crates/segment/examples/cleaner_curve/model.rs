//! The theory of a cleaner under uniform random overwriting.
//!
//! Let `rho` be the living share of the room that data may lie in, and `u` the living share of a
//! victim. Victims taken in the order they were written, and in the limit of many blocks a segment
//! also greedily chosen ones, satisfy
//!
//! ```text
//! rho = (1 − u) / −ln u          and a cleaner copies u / (1 − u) bytes for each byte accepted,
//! ```
//! so the amplification is 1 / (1 − u). Menon and Stockmeyer derived it for log-structured arrays
//! (1995); Xiang and Kurkoski (2011, arXiv:1110.4245) and Desnoyers (SYSTOR 2012) for flash, both
//! with Lambert's W and checked by simulation. LFS (Rosenblum and Ousterhout 1991) gives the bound
//! without cleaning by choice: u = rho, that is 1 / (1 − rho).

/// Living share of a victim, for the living share `rho` of all room.
#[must_use]
pub fn victim_share(rho: f64) -> f64 {
    if rho >= 1.0 {
        return 1.0;
    }
    // (1 − u) / −ln u grows with u: halve the interval.
    let (mut low, mut high) = (1e-12_f64, 1.0 - 1e-12);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if (1.0 - middle) / -middle.ln() < rho {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Bytes written for each byte accepted.
#[must_use]
pub fn amplification(rho: f64) -> f64 {
    1.0 / (1.0 - victim_share(rho))
}

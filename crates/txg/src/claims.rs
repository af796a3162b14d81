//! Space for what caches above the pool have accepted and not brought yet.
//!
//! A cache brings what it accepted later, when nobody waits for the answer. So the caches of one
//! pool may not accept more together than there is room for. Each claims the space that its content
//! may take, before it accepts it.
//!
//! ## Invariants
//! [claims.1] Between a look at what others claim and the claim that is made of it nobody else's
//!      changes.
//!      test: `what_others_claim_is_known_when_a_claim_is_made`

use parking_lot::Mutex;
use std::sync::Arc;

/// The claims of one pool.
#[derive(Debug, Default)]
pub struct Claims(Arc<Mutex<u64>>);

/// That of one cache, in bytes of space. Given back on drop.
#[derive(Debug)]
pub struct Claim {
    sum: Arc<Mutex<u64>>,
    own: u64,
}

impl Claims {
    /// One without any space yet.
    #[must_use]
    pub fn join(&self) -> Claim {
        Claim { sum: Arc::clone(&self.0), own: 0 }
    }
}

impl Claim {
    /// Makes it another one, of as many bytes as `choose` says when it is told how many others
    /// claim.
    pub fn choose(&mut self, choose: impl FnOnce(u64) -> u64) {
        let mut sum = self.sum.lock();
        let others = *sum - self.own;
        self.own = choose(others).min(u64::MAX - others);
        *sum = others + self.own;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.choose(|_| 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_claim_is_known_when_a_claim_is_made() {
        let claims = Claims::default();
        let (mut first, mut second) = (claims.join(), claims.join());
        let set = |claim: &mut Claim, bytes| {
            let mut known = None;
            claim.choose(|others| {
                known = Some(others);
                bytes
            });
            known.expect("asked")
        };
        assert_eq!((set(&mut first, 5), set(&mut second, 7)), (0, 5));
        assert_eq!((set(&mut first, u64::MAX), set(&mut second, 1)), (7, u64::MAX - 7));
        drop(first);
        assert_eq!(set(&mut second, 3), 0);
    }
}

//! The register that holds the only acceptable root. The last step of every commit.
//!
//! Today there is one implementation, [`NoAnchor`]: the uberblocks themselves decide. A real register (a local file,
//! etcd, PostgreSQL, another provider's bucket) comes with its own room and takes this trait's place in the commit.

use steadfast_format::{PoolGuid, Txg};

/// What is offered to the register: enough to refuse every other root.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proposal {
    /// The pool.
    pub pool: PoolGuid,
    /// Txg that is durable on the main devices and wants to become the acceptable one.
    pub txg: Txg,
    /// Tag of its uberblock.
    pub tag: [u8; 32],
    /// Tag of the uberblock it replaces; all zero for the first.
    pub parent: [u8; 32],
}

/// Why a register did not accept a root.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnchorError {
    /// Another writer moved the register on: this one must stop writing.
    #[error("another daemon has taken over this pool (its anchor is at txg {txg})")]
    Fenced {
        /// Txg the register holds.
        txg: Txg,
    },
    /// The register does not answer.
    #[error("the anchor does not answer: {reason}")]
    Unreachable {
        /// What the register's client said.
        reason: String,
    },
}

/// A linearizable register. `advance` is called after every block and every uberblock of the txg is durable, and the
/// commit counts only when it returned `Ok`.
pub trait Anchor: Send + Sync {
    /// Moves the register from `proposal.parent` to `proposal.tag`, or says why not.
    fn advance(&self, proposal: &Proposal) -> Result<(), AnchorError>;
    /// True if `tag` may be opened as the pool's root.
    fn accepts(&self, pool: PoolGuid, txg: Txg, tag: &[u8; 32]) -> Result<bool, AnchorError>;
}

/// No register: every proposal is accepted, and so is every root (which is why an older image of a whole pool is not
/// recognised; docs/SECURITY.md).
#[derive(Debug, Default)]
pub struct NoAnchor;

impl Anchor for NoAnchor {
    fn advance(&self, _proposal: &Proposal) -> Result<(), AnchorError> {
        Ok(())
    }

    fn accepts(&self, _pool: PoolGuid, _txg: Txg, _tag: &[u8; 32]) -> Result<bool, AnchorError> {
        Ok(true)
    }
}

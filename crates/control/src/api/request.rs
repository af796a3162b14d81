//! The request as it travels: one variant a verb.

use super::allow::{Allowed, FsAllow, FsAllowed};
use super::audits::{
    AuditOutcome, AuditRecords, PoolAudit, PoolAuditRecords, PoolRecover, PoolRecovery, RecoveryState,
};
use super::daemon::{DaemonInfo, DaemonMemory, DaemonPing, DaemonReport, DaemonStop, MemoryReport};
use super::dedup::{PoolDdtPrune, PoolPrefetch, Pruned};
use super::devices::{
    LabelClear, PoolAdd, PoolAttach, PoolClear, PoolDetach, PoolInitialize, PoolOffline, PoolOnline,
    PoolRemove, PoolReplace, PoolSplit, PoolTrim,
};
use super::events::{PoolEvent, PoolEvents, PoolEventsClear, PoolHistory, PoolIo, PoolIostat, PoolPast};
use super::filesystems::{
    FsChangeKey, FsCreate, FsDeleteQueue, FsDestroy, FsInfo, FsInherit, FsList, FsListAll, FsLoadKey,
    FsMount, FsRename, FsSet, FsShare, FsShares, FsUnloadKey, FsUnmount, FsUserspace, OwnerEntry, SharedFs,
};
use super::pools::{
    PoolCandidate, PoolCheckpoint, PoolCreate, PoolDestroy, PoolExport, PoolImport, PoolImportScan, PoolInfo,
    PoolList, PoolReguid, PoolReport, PoolSet, PoolStatus, PoolSync, PoolUpgrade,
};
use super::scans::{Activities, PoolActivities, PoolRebalance, PoolResilver, PoolScrub};
use super::snapshots::{
    FsBookmark, FsBookmarkDestroy, FsClone, FsDiff, FsDiffEntry, FsHold, FsHolds, FsPromote, FsRollback,
    FsSnapshot, FsSnapshotDestroy, FsSnapshotRename, HeldBy, Reclaimed,
};
use super::streams::{FsReceive, FsReceiveAbort, FsSend, Receipt, Sent};
use super::values::Outcome;
use crate::inject::{Injections, PoolInject};
use serde::{Deserialize, Serialize};

/// Version of this API. Both ends must speak the same; it grows with every change that an older end
/// would misread.
pub const API_VERSION: u32 = 2;

/// A request type and its answer.
pub trait Call: Serialize {
    /// The answer.
    type Answer: Serialize + for<'de> Deserialize<'de>;
    /// The request as it travels.
    fn into_request(self) -> Request;
}

/// Calls a macro with all verbs, each with its answer. The daemon's own requests are not among
/// them: the server answers those.
macro_rules! for_each_verb {
    ($then:ident) => {
        $then! {
            PoolCreate -> Outcome;
            PoolDestroy -> Outcome;
            PoolImportScan -> Vec<PoolCandidate>;
            PoolImport -> Outcome;
            PoolExport -> Outcome;
            PoolList -> Vec<PoolInfo>;
            PoolStatus -> Vec<PoolReport>;
            PoolSet -> Outcome;
            PoolHistory -> Vec<PoolPast>;
            PoolSync -> Outcome;
            PoolAdd -> Outcome;
            PoolRemove -> Outcome;
            PoolOnline -> Outcome;
            PoolOffline -> Outcome;
            PoolClear -> Outcome;
            PoolTrim -> Outcome;
            PoolInitialize -> Outcome;
            PoolScrub -> Outcome;
            PoolReplace -> Outcome;
            PoolInject -> Injections;
            PoolAttach -> Outcome;
            PoolDetach -> Outcome;
            PoolRebalance -> Outcome;
            PoolResilver -> Outcome;
            PoolReguid -> Outcome;
            PoolCheckpoint -> Outcome;
            PoolAudit -> AuditOutcome;
            PoolAuditRecords -> AuditRecords;
            PoolRecover -> RecoveryState;
            PoolRecovery -> RecoveryState;
            PoolSplit -> Outcome;
            PoolPrefetch -> Outcome;
            PoolDdtPrune -> Pruned;
            PoolActivities -> Activities;
            LabelClear -> Outcome;
            PoolUpgrade -> Outcome;
            PoolIostat -> Vec<PoolIo>;
            PoolEvents -> Vec<PoolEvent>;
            PoolEventsClear -> Outcome;
            FsRename -> Outcome;
            FsChangeKey -> Outcome;
            FsCreate -> Outcome;
            FsDestroy -> Outcome;
            FsList -> Vec<FsInfo>;
            FsUserspace -> Vec<OwnerEntry>;
            FsDeleteQueue -> u64;
            FsAllow -> Outcome;
            FsAllowed -> Vec<Allowed>;
            FsSet -> Outcome;
            FsSnapshot -> Outcome;
            FsSnapshotDestroy -> Reclaimed;
            FsListAll -> Vec<FsInfo>;
            FsRollback -> Outcome;
            FsHold -> Outcome;
            FsHolds -> Vec<HeldBy>;
            FsSnapshotRename -> Outcome;
            FsClone -> Outcome;
            FsPromote -> Outcome;
            FsSend -> Sent;
            FsReceive -> Receipt;
            FsReceiveAbort -> Outcome;
            FsBookmark -> Outcome;
            FsDiff -> Vec<FsDiffEntry>;
            FsBookmarkDestroy -> Outcome;
            FsInherit -> Outcome;
            FsMount -> Outcome;
            FsUnmount -> Outcome;
            FsShare -> Outcome;
            FsShares -> Vec<SharedFs>;
            FsLoadKey -> Outcome;
            FsUnloadKey -> Outcome;
            DaemonMemory -> MemoryReport;
        }
    };
}
pub(crate) use for_each_verb;

macro_rules! requests {
    ($($verb:ident -> $answer:ty;)*) => {
        /// A request as it travels.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "verb", content = "args", rename_all = "snake_case")]
        #[allow(missing_docs)] // Each variant is documented at the type it holds.
        pub enum Request {
            $($verb($verb),)*
            DaemonPing(DaemonPing),
            DaemonInfo(DaemonInfo),
            DaemonStop(DaemonStop),
        }

        $(impl Call for $verb {
            type Answer = $answer;
            fn into_request(self) -> Request { Request::$verb(self) }
        })*
    };
}

for_each_verb!(requests);

impl Request {
    /// True if the command hands over a descriptor with the request.
    pub(crate) fn wants_descriptor(&self) -> bool {
        match self {
            Request::FsSend(request) => !request.dry_run,
            Request::FsReceive(_) => true,
            _ => false,
        }
    }
}

impl Call for DaemonPing {
    type Answer = Outcome;
    fn into_request(self) -> Request {
        Request::DaemonPing(self)
    }
}

impl Call for DaemonInfo {
    type Answer = DaemonReport;
    fn into_request(self) -> Request {
        Request::DaemonInfo(self)
    }
}

impl Call for DaemonStop {
    type Answer = Outcome;
    fn into_request(self) -> Request {
        Request::DaemonStop(self)
    }
}

/// An answer as JSON. Answers are plain data with string keys, so this cannot fail.
pub(crate) fn to_json<T: Serialize>(answer: &T) -> serde_json::Value {
    serde_json::to_value(answer).expect("answers are plain data with string keys")
}

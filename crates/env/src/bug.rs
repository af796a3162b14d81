//! Bugs that are planted on purpose, so that the simulator shows that it would find them.

/// A bug. Each is a branch in the room where it could really be made; docs/RELIABILITY.md tells
/// what finds it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Bug {
    /// The uberblock is written without a flush of what it names.
    NoFlushBeforeRoot,
    /// Uberblocks are not flushed: a commit returns before its root is durable.
    NoFlushAfterRoot,
    /// The uberblock is written before what it names.
    RootBeforeData,
    /// A slot that a txg emptied is handed out before that txg is committed.
    SlotReusedEarly,
    /// A rename makes the new name in one txg and removes the old one in the next.
    RenameInTwoSteps,
    /// An `fsync` returns without having done anything.
    FsyncIgnored,
    /// A block is not held against its hash.
    HashIgnored,
    /// A block that one column has wrong is not put together from the others.
    OthersUnread,
    /// A truncation leaves what was behind the new end.
    TailKept,
    /// The block of a former tail is never given back.
    TailLeaked,
    /// A device that could not flush is taken for one that did.
    FlushErrorSwallowed,
    /// Of a record's overlays the newest is not written.
    OverlayStale,
    /// An uberblock is taken whatever its tag says.
    TornRootAccepted,
    /// A group of the log is written and not flushed.
    LogNotFlushed,
    /// A group of the log that could not be written is taken for one that was.
    LogErrorSwallowed,
    /// A group of the log that one device of a mirror could not take is promised because another
    /// one has it.
    LogSideSwallowed,
    /// A group of the log is taken whatever its hash says.
    LogTornAccepted,
    /// Groups that the root holds already are replayed all the same.
    LogReplayedTwice,
    /// A replay empties the log before what it replayed is committed.
    ReplayErasesLog,
    /// The log holds inodes and content, and not the names that lead to them.
    NamesNotLogged,
    /// The register of an anchor moves before the blocks of its root are durable.
    AnchorEarly,
    /// A group of the log is promised that the register of the anchor does not vouch for.
    LogNotVouched,
    /// The cleaner moves blocks, and where they went is not written.
    RelocationLost,
    /// A block gets another pointer, and nobody counts it.
    ReferenceNotCounted,
    /// A sealed block is written, and no manifest lists it.
    BlockUnlisted,
}

impl Bug {
    /// Planted bugs are compiled: in builds with debug assertions, as the tests and the simulator
    /// are built, and never in a release build. A cargo feature instead would build every crate
    /// twice.
    pub const COMPILED: bool = cfg!(debug_assertions);

    /// All of them.
    pub const ALL: [Bug; 25] = [
        Bug::NoFlushBeforeRoot,
        Bug::NoFlushAfterRoot,
        Bug::RootBeforeData,
        Bug::SlotReusedEarly,
        Bug::RenameInTwoSteps,
        Bug::FsyncIgnored,
        Bug::HashIgnored,
        Bug::OthersUnread,
        Bug::TailKept,
        Bug::TailLeaked,
        Bug::FlushErrorSwallowed,
        Bug::OverlayStale,
        Bug::TornRootAccepted,
        Bug::LogNotFlushed,
        Bug::LogErrorSwallowed,
        Bug::LogSideSwallowed,
        Bug::LogTornAccepted,
        Bug::LogReplayedTwice,
        Bug::ReplayErasesLog,
        Bug::NamesNotLogged,
        Bug::AnchorEarly,
        Bug::LogNotVouched,
        Bug::RelocationLost,
        Bug::ReferenceNotCounted,
        Bug::BlockUnlisted,
    ];
}

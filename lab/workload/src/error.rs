//! Why a run could not begin.

/// Reason why a run could not begin. Later failures are in
/// [`RunResult::failure`](crate::RunResult::failure).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A lun or an anchor is not usable; the sentence says what to do.
    #[error("{0}")]
    Start(String),
    /// A lun must be filled first, and its size is not known.
    #[error(
        "lun={lun} does not exist or is too small, and sd={sd} has no size=; add size= (a multiple of 1m)."
    )]
    NoSize {
        /// Name of the storage.
        sd: String,
        /// Its file.
        lun: String,
    },
}

impl Error {
    pub(crate) fn start(error: impl std::fmt::Display) -> Error {
        Error::Start(error.to_string())
    }
}

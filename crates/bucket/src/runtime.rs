//! The one async runtime of a process: two threads, which nobody above this room sees. A caller
//! blocks on a channel until its request has ended.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;

use tokio::runtime::{Builder, Runtime};

/// Threads: requests wait far more than they compute.
const WORKERS: usize = 2;

fn runtime() -> Result<&'static Runtime, &'static str> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let start = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKERS).max_blocking_threads(32).thread_name("bucket").enable_all();
        builder.build().map_err(|error| format!("the threads for requests do not start: {error}"))
    };
    RUNTIME.get_or_init(start).as_ref().map_err(String::as_str)
}

/// Runs a request to its end. `Err` with a sentence if the runtime cannot start or the request
/// panicked.
pub(crate) fn block_on<T: Send + 'static>(
    request: impl Future<Output = T> + Send + 'static,
) -> Result<T, &'static str> {
    let (done, wait) = sync_channel(1);
    runtime()?.spawn(async move {
        // The caller waits for this, so the channel has a reader.
        let _ = done.send(request.await);
    });
    wait.recv().map_err(|_| "the request ended by a bug")
}

//! Clients at once, each a thread: of this process, or of one of several that were started for it
//! (`workers`).

use std::io;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Stack of a client's thread, which holds its buffers elsewhere.
const STACK: usize = 256 << 10;

/// Lets these clients get ready, then, after `gate`, work. Returns the sum of their counts and the
/// seconds from the moment at which they may work until the last has ended.
///
/// # Errors
/// That of a client or of `gate`, after all have ended.
pub(super) fn at_once<Ready>(
    clients: Range<u32>,
    prepare: impl Fn(u32) -> io::Result<Ready> + Sync,
    gate: impl FnOnce() -> io::Result<()>,
    work: impl Fn(u32, &mut Ready) -> io::Result<u64> + Sync,
) -> io::Result<(u64, f64)> {
    let [are_ready, start] = [(); 2].map(|()| Barrier::new(clients.len() + 1));
    let is_shut = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in clients {
            let (are_ready, start, is_shut) = (&are_ready, &start, &is_shut);
            let (prepare, work) = (&prepare, &work);
            let builder = std::thread::Builder::new().name("client".into()).stack_size(STACK);
            let thread = builder.spawn_scoped(scope, move || {
                let ready = prepare(number);
                are_ready.wait();
                start.wait();
                if is_shut.load(Ordering::SeqCst) { Ok(0) } else { work(number, &mut ready?) }
            });
            // Those that there are would wait for this one for ever.
            threads.push(thread.expect("the system starts a thread for each client"));
        }
        are_ready.wait();
        let opened = gate();
        is_shut.store(opened.is_err(), Ordering::SeqCst);
        start.wait();
        let began = Instant::now();
        let (mut sum, mut failure) = (0, None);
        for thread in threads {
            match thread.join().expect("no client panics") {
                Ok(count) => sum += count,
                Err(error) => failure = Some(error),
            }
        }
        match failure.or(opened.err()) {
            Some(error) => Err(error),
            None => Ok((sum, began.elapsed().as_secs_f64().max(1e-9))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn counts_are_added_and_an_error_of_one_is_told() {
        let open = || Ok(());
        let (sum, _) =
            at_once(4..7, |number| Ok(u64::from(number)), open, |_, ready| Ok(*ready + 1)).unwrap();
        assert_eq!(sum, 5 + 6 + 7);
        let late = |number: u32| match number {
            1 => Err(io::Error::other("no")),
            _ => Ok(()),
        };
        assert_eq!(at_once(0..3, late, open, |_, ()| Ok(1)).unwrap_err().to_string(), "no");
        let shut = || Err(io::Error::other("shut"));
        assert_eq!(at_once(0..3, |_| Ok(()), shut, |_, ()| Ok(1)).unwrap_err().to_string(), "shut");
    }

    #[test]
    fn nobody_works_before_the_gate_opens() {
        let (ready, open) = (AtomicU32::new(0), AtomicU32::new(0));
        let prepare = |_| {
            ready.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let gate = || {
            open.store(ready.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(())
        };
        let (sum, _) = at_once(0..5, prepare, gate, |_, ()| Ok(open.load(Ordering::SeqCst).into())).unwrap();
        assert_eq!(sum, 25, "each was ready before, and each worked after");
    }
}

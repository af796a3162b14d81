//! Clients at once, each a thread of this process.

use std::io;
use std::sync::Barrier;
use std::time::Instant;

/// Stack of a client's thread, which holds its buffers elsewhere.
const STACK: usize = 256 << 10;

/// Lets so many clients get ready, then work. Returns the sum of their counts and the seconds from
/// the moment at which all were ready until the last had ended.
///
/// # Errors
/// That of a client, after all have ended.
pub(super) fn at_once<Ready>(
    count: u32,
    prepare: impl Fn(u32) -> io::Result<Ready> + Sync,
    work: impl Fn(u32, &mut Ready) -> io::Result<u64> + Sync,
) -> io::Result<(u64, f64)> {
    let start = Barrier::new(count as usize + 1);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..count {
            let (start, prepare, work) = (&start, &prepare, &work);
            let builder = std::thread::Builder::new().name("client".into()).stack_size(STACK);
            let thread = builder.spawn_scoped(scope, move || {
                let ready = prepare(number);
                start.wait();
                work(number, &mut ready?)
            });
            // Those that there are would wait for this one for ever.
            threads.push(thread.expect("the system starts a thread for each client"));
        }
        start.wait();
        let began = Instant::now();
        let (mut sum, mut failure) = (0, None);
        for thread in threads {
            match thread.join().expect("no client panics") {
                Ok(count) => sum += count,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok((sum, began.elapsed().as_secs_f64().max(1e-9))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_and_an_error_of_one_is_told() {
        let (sum, _) = at_once(3, |number| Ok(u64::from(number)), |_, ready| Ok(*ready + 1)).unwrap();
        assert_eq!(sum, 6);
        let late = |number: u32| match number {
            1 => Err(io::Error::other("no")),
            _ => Ok(()),
        };
        assert_eq!(at_once(3, late, |_, ()| Ok(1)).unwrap_err().to_string(), "no");
    }
}

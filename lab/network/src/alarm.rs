//! Waits of a way: by the runtime's clock, whose ticks are milliseconds, or by a timer of the
//! kernel where the way is shorter than that.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Ways of at least so long wait by the runtime's clock, which is up to a millisecond late and
/// wakes once for all bytes of a millisecond.
const LONG: Duration = Duration::from_millis(2);
/// The last part of a wait is spent looking at the clock: a processor that sleeps takes about so
/// long to wake.
const LOOKED_AT: Duration = Duration::from_micros(40);

/// Waits of one direction of a connection.
pub(crate) struct Alarm {
    /// Waits are as long as they should be, to some microseconds.
    exact: bool,
    /// A way without a delay waits for its rate alone, and may be late.
    patient: bool,
    timer: Option<AsyncFd<OwnedFd>>,
}

impl Alarm {
    /// For a way so long.
    pub fn of(delay: Duration) -> Alarm {
        Alarm { exact: delay < LONG, patient: delay.is_zero(), timer: None }
    }

    /// Returns no earlier than at `due`.
    pub async fn wait_until(&mut self, due: Instant) {
        let looked_at = if self.patient { Duration::ZERO } else { LOOKED_AT };
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if !self.exact {
                tokio::time::sleep_until(due.into()).await;
            } else if left > LONG {
                tokio::time::sleep_until((due - LONG).into()).await;
            } else if left <= looked_at {
                std::hint::spin_loop();
            } else if self.sleep(left - looked_at).await.is_err() {
                // Without a timer it is late, but never early.
                tokio::time::sleep_until(due.into()).await;
            }
        }
    }

    /// Sleeps by a timer of the kernel.
    async fn sleep(&mut self, time: Duration) -> io::Result<()> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => {
                let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
                let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
                none.insert(watched(timer)?)
            }
        };
        let value = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = timer.readable().await?;
            let rang = ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut [0; 8])?));
            match rang {
                Ok(rang) => return rang.map(drop),
                Err(_not_yet) => {}
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; what was unsound is a type that lends a handle it lacks"
)]
fn watched(timer: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    Ok(AsyncFd::try_with_interest(timer, Interest::READABLE)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[tokio::test]
    async fn what_is_due_is_not_held_back() {
        for delay in [Duration::ZERO, Duration::from_micros(100), Duration::from_secs(1)] {
            let mut alarm = Alarm::of(delay);
            let first_look =
                pin!(alarm.wait_until(Instant::now())).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(first_look, Poll::Ready(()), "{delay:?}");
        }
    }

    #[tokio::test]
    async fn waits_are_never_short_and_short_ways_have_a_timer() {
        for delay in [Duration::ZERO, Duration::from_micros(100), Duration::from_millis(3)] {
            let mut alarm = Alarm::of(delay);
            for wait in [50, 300, 3_000] {
                let due = Instant::now() + Duration::from_micros(wait);
                alarm.wait_until(due).await;
                assert!(Instant::now() >= due, "{delay:?}, {wait} us");
            }
            assert_eq!(alarm.timer.is_some(), delay < LONG, "{delay:?}");
        }
    }
}

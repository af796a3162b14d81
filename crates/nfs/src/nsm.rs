//! The status protocol (NSM, `statd`): a machine that restarts tells those with whom it shared
//! locks. We take such words of clients, and send our own; we watch nobody for others.

use crate::xdr::{Reader, Result, Writer};

/// Number of the program.
pub const PROGRAM: u32 = 100_024;
/// Its version.
pub const VERSION: u32 = 1;
/// Number of NOTIFY.
pub const NOTIFY: u32 = 6;
/// Longest name that is read.
const NAME_MAX: usize = 1_024;

/// A call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call<'a> {
    /// Does nothing.
    Null,
    /// Asks for our state: STAT, UNMON, `UNMON_ALL`.
    State,
    /// Asks us to watch a machine, which we refuse: STAT and MON tell so.
    Watch,
    /// A machine has restarted.
    Notify {
        /// Its name.
        name: &'a [u8],
        /// Its number of restarts.
        state: u32,
    },
}

impl<'a> Call<'a> {
    /// Reads the arguments of a procedure; `None` if there is none with this number here.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn decode(procedure: u32, r: &mut Reader<'a>) -> Result<Option<Call<'a>>> {
        Ok(Some(match procedure {
            0 => Call::Null,
            1 | 2 => {
                r.opaque(NAME_MAX)?;
                Call::Watch
            }
            3 | 4 => Call::State,
            NOTIFY => Call::Notify { name: r.opaque(NAME_MAX)?, state: r.u32()? },
            _ => return Ok(None),
        }))
    }
}

/// Puts the results of a call: our state is the number of our start, which is odd.
pub fn answer(call: &Call<'_>, state: u32, out: &mut Writer) {
    match call {
        Call::Null | Call::Notify { .. } => {}
        Call::State => _ = out.u32(state),
        Call::Watch => _ = out.u32(1).u32(state),
    }
}

/// True if two names are of one machine: the same, or one with its domain and one without.
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let Some((head, tail)) = long.split_at_checked(short.len()) else { return false };
    head.eq_ignore_ascii_case(short) && !short.is_empty() && (tail.is_empty() || tail[0] == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_and_a_watch_refused() {
        let decode = |procedure, bytes| Call::decode(procedure, &mut Reader::new(bytes));
        let notice = decode(6, b"\0\0\0\x01a\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(notice, Ok(Some(Call::Notify { name: b"a", state: 5 })));
        assert_eq!((decode(2, b"\0\0\0\x01a\0\0\0"), decode(7, b"")), (Ok(Some(Call::Watch)), Ok(None)));
        let mut out = Writer::default();
        answer(&Call::Watch, 7, &mut out);
        assert_eq!(out.out, b"\0\0\0\x01\0\0\0\x07");
    }

    #[test]
    fn a_machine_has_its_name_with_and_without_a_domain() {
        assert!(is_same(b"desk", b"Desk.example.com") && is_same(b"desk", b"desk"));
        assert!(!is_same(b"desk", b"desk2") && !is_same(b"", b".a") && !is_same(b"a.b", b"a.c"));
    }
}

//! The lock protocol, version 4 (NLM; X/Open XNFS, RFC 1813 appendix II): byte ranges of files, as
//! `fcntl` of a client asks for them.

use crate::nfs3::HANDLE_MAX;
use crate::xdr::{Garbage, Reader, Result, Writer};

/// Number of the program.
pub const PROGRAM: u32 = 100_021;
/// Its version, for clients of NFS version 3.
pub const VERSION: u32 = 4;
/// Number of GRANTED, which the server calls at a client.
pub const GRANTED: u32 = 5;
/// Longest cookie, owner or machine's name that is read.
const OPAQUE_MAX: usize = 1_024;

/// Result of a procedure (`nlm4_stats`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Granted = 0,
    /// Somebody else has a lock in the way.
    Denied = 1,
    /// No room for locks.
    NoLocks = 2,
    /// The client waits: GRANTED will come, or it asks again.
    Blocked = 3,
    /// Only locks from before a restart are taken at the moment; or none of those any more.
    Grace = 4,
    /// The file is there no more.
    Stale = 7,
    /// The range ends behind the greatest offset.
    TooBig = 8,
    /// The client may not.
    Failed = 9,
}

/// The subject of a lock, in the words of the client (`nlm4_lock`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lock<'a> {
    /// The client's machine.
    pub caller: &'a [u8],
    /// Handle of the file.
    pub file: &'a [u8],
    /// The owner at the client: more of it.
    pub owner: &'a [u8],
    /// The owner at the client: its number.
    pub svid: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; 0 for all that follow.
    pub length: u64,
}

impl<'a> Lock<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Lock<'a>> {
        Ok(Lock {
            caller: reader.opaque(OPAQUE_MAX)?,
            file: reader.opaque(HANDLE_MAX)?,
            owner: reader.opaque(OPAQUE_MAX)?,
            svid: reader.u32()?,
            offset: reader.u64()?,
            length: reader.u64()?,
        })
    }

    /// The first and the last byte; `None` if there is no such range.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        match self.length {
            0 | u64::MAX => Some((self.offset, u64::MAX)),
            length => Some((self.offset, self.offset.checked_add(length - 1)?)),
        }
    }

    /// Puts it as it was read.
    pub fn write(&self, out: &mut Writer) {
        out.opaque(self.caller).opaque(self.file).opaque(self.owner).u32(self.svid);
        out.u64(self.offset).u64(self.length);
    }
}

/// A call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call<'a> {
    /// Does nothing.
    Null,
    /// Asks who has a lock in the way.
    Test {
        /// Comes back with the answer.
        cookie: &'a [u8],
        /// For writing.
        exclusive: bool,
        /// The range.
        lock: Lock<'a>,
    },
    /// Asks for a lock.
    Lock {
        /// Comes back with the answer.
        cookie: &'a [u8],
        /// Waits for it.
        block: bool,
        /// For writing.
        exclusive: bool,
        /// The range.
        lock: Lock<'a>,
        /// Had it before our restart.
        reclaim: bool,
    },
    /// Waits no longer.
    Cancel {
        /// Comes back with the answer.
        cookie: &'a [u8],
        /// For writing.
        exclusive: bool,
        /// The range.
        lock: Lock<'a>,
    },
    /// Gives a range back.
    Unlock {
        /// Comes back with the answer.
        cookie: &'a [u8],
        /// The range.
        lock: Lock<'a>,
    },
    /// Opens a file as DOS does.
    Share {
        /// Comes back with the answer.
        cookie: &'a [u8],
        /// The way.
        share: Share<'a>,
        /// Had it open before our restart.
        reclaim: bool,
    },
    /// Closes it again.
    Unshare {
        /// Comes back with the answer.
        cookie: &'a [u8],
        /// The one to close.
        share: Share<'a>,
    },
    /// Gives everything back that a machine has.
    FreeAll {
        /// Its name.
        caller: &'a [u8],
    },
}

/// How a file is opened, and what others may not (`nlm4_share`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Share<'a> {
    /// The client's machine.
    pub caller: &'a [u8],
    /// Handle of the file.
    pub file: &'a [u8],
    /// The owner at the client.
    pub owner: &'a [u8],
    /// Forbidden to others: 1 read, 2 write.
    pub denied: u32,
    /// Done by the owner: 1 read, 2 write.
    pub access: u32,
}

impl<'a> Share<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Share<'a>> {
        let share = Share {
            caller: reader.opaque(OPAQUE_MAX)?,
            file: reader.opaque(HANDLE_MAX)?,
            owner: reader.opaque(OPAQUE_MAX)?,
            denied: reader.u32()?,
            access: reader.u32()?,
        };
        if share.denied > 3 || share.access > 3 { Err(Garbage) } else { Ok(share) }
    }
}

impl<'a> Call<'a> {
    /// Reads the arguments of a procedure; `None` if there is none with this number here. Those
    /// whose result is a call of its own (6 to 15) are not offered: no client of today needs them.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn decode(procedure: u32, r: &mut Reader<'a>) -> Result<Option<Call<'a>>> {
        if procedure == 0 {
            return Ok(Some(Call::Null));
        }
        if procedure == 23 {
            return Ok(Some(Call::FreeAll { caller: r.opaque(OPAQUE_MAX)? }));
        }
        if !matches!(procedure, 1..=4 | 20..=22) {
            return Ok(None);
        }
        let cookie = r.opaque(OPAQUE_MAX)?;
        Ok(Some(match procedure {
            1 => Call::Test { cookie, exclusive: r.bool()?, lock: Lock::decode(r)? },
            2 | 22 => {
                let (block, exclusive, lock) = (r.bool()?, r.bool()?, Lock::decode(r)?);
                // NM_LOCK is for clients that nobody tells of a restart.
                Call::Lock { cookie, block, exclusive, lock, reclaim: r.bool()? }
            }
            3 => {
                r.bool()?;
                Call::Cancel { cookie, exclusive: r.bool()?, lock: Lock::decode(r)? }
            }
            4 => Call::Unlock { cookie, lock: Lock::decode(r)? },
            20 => Call::Share { cookie, share: Share::decode(r)?, reclaim: r.bool()? },
            _ => Call::Unshare { cookie, share: Share::decode(r)? },
        }))
    }
}

/// A lock in the way, as TEST tells it (`nlm4_holder`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// It is for writing.
    pub exclusive: bool,
    /// Number of its owner.
    pub svid: u32,
    /// The owner: more of it.
    pub owner: Vec<u8>,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
}

impl Holder {
    /// Puts it behind the status.
    pub fn write(&self, out: &mut Writer) {
        let length = if self.last == u64::MAX { 0 } else { self.last - self.start + 1 };
        out.bool(self.exclusive).u32(self.svid).opaque(&self.owner).u64(self.start).u64(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &[u8] = b"\0\0\0\x01c\0\0\0\0\0\0\x02fh\0\0\0\0\0\x03own\0\0\0\0\x07\
        \0\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\x05";

    fn lock() -> Lock<'static> {
        Lock { caller: b"c", file: b"fh", owner: b"own", svid: 7, offset: 10, length: 5 }
    }

    #[test]
    fn calls_have_the_bytes_of_the_specification() {
        let decode = |procedure, parts: &[&[u8]]| {
            let bytes = parts.concat().leak();
            let mut reader = Reader::new(bytes);
            let call = Call::decode(procedure, &mut reader);
            assert_eq!((call.is_ok(), reader.rest()), (true, &b""[..]));
            call.expect("just seen")
        };
        let (cookie, yes, no) = (&b"\0\0\0\x04cook"[..], &b"\0\0\0\x01"[..], &b"\0\0\0\0"[..]);
        let expected = Call::Test { cookie: b"cook", exclusive: true, lock: lock() };
        assert_eq!(decode(1, &[cookie, yes, LOCK]), Some(expected));
        let expected =
            Call::Lock { cookie: b"cook", block: true, exclusive: false, lock: lock(), reclaim: true };
        // Its state follows, which nobody needs.
        assert_eq!(decode(2, &[cookie, yes, no, LOCK, yes]), Some(expected));
        let expected = Call::Cancel { cookie: b"cook", exclusive: true, lock: lock() };
        assert_eq!(decode(3, &[cookie, no, yes, LOCK]), Some(expected));
        assert_eq!(decode(4, &[cookie, LOCK]), Some(Call::Unlock { cookie: b"cook", lock: lock() }));
        let share = b"\0\0\0\x01c\0\0\0\0\0\0\x02fh\0\0\0\0\0\x03own\0\0\0\0\x02\0\0\0\x03";
        let expected = Share { caller: b"c", file: b"fh", owner: b"own", denied: 2, access: 3 };
        assert_eq!(decode(21, &[cookie, share]), Some(Call::Unshare { cookie: b"cook", share: expected }));
        assert_eq!(decode(23, &[b"\0\0\0\x01c\0\0\0"]), Some(Call::FreeAll { caller: b"c" }));
        assert_eq!(decode(7, &[]), None, "LOCK_MSG");
        let mut out = Writer::default();
        lock().write(&mut out);
        assert_eq!(out.out, LOCK);
    }

    #[test]
    fn a_range_ends_at_the_greatest_offset() {
        let range = |offset, length| Lock { offset, length, ..lock() }.range();
        assert_eq!(range(10, 5), Some((10, 14)));
        assert_eq!((range(10, 0), range(10, u64::MAX)), (Some((10, u64::MAX)), Some((10, u64::MAX))));
        assert_eq!((range(u64::MAX, 1), range(u64::MAX, 2)), (Some((u64::MAX, u64::MAX)), None));
    }
}

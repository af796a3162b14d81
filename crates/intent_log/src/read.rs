//! Reading the log back: at import, and for inspection. Writes nothing.

use std::collections::BTreeMap;

use steadfast_crypto::BlockKeys;
use steadfast_format::{DecodeError, LogHeader, LogRecord, LogStart, PoolGuid};

use crate::log::{Medium, MediumError};

/// Which groups are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Of this pool.
    pub pool: PoolGuid,
    /// From here on.
    pub head: LogStart,
}

/// A group as it was found: whole by its hash, its body still sealed.
#[derive(Clone, Debug)]
pub struct Group {
    /// Header.
    pub header: LogHeader,
    /// Its hash.
    pub hash: [u8; 32],
    /// Body as stored.
    pub body: Vec<u8>,
    /// Rank of the segment, and byte in it.
    pub place: (usize, u32),
}

/// What is wrong with a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The medium cannot be read.
    #[error("segment {segment} of the intent log cannot be read: {source}")]
    Unreadable {
        /// Rank of the segment.
        segment: usize,
        /// What it said.
        source: MediumError,
    },
    /// Groups are missing before others that are there: they had been durable (L1).
    #[error("group {missing} of the intent log is damaged, and group {found} behind it is not")]
    Gap {
        /// First one missing.
        missing: u64,
        /// First one behind it.
        found: u64,
    },
    /// A group follows another than the one before it.
    #[error("group {sequence} of the intent log does not follow the one before it")]
    Chain {
        /// Which one.
        sequence: u64,
    },
    /// A group is gone that an earlier import found.
    #[error("group {sequence} of the intent log, which an earlier import found whole, is damaged")]
    Lost {
        /// Which one.
        sequence: u64,
    },
    /// A group cannot be opened with its dataset's key.
    #[error("group {sequence} of the intent log fails authentication")]
    Sealed {
        /// Which one.
        sequence: u64,
    },
    /// An authentic group holds what cannot be understood.
    #[error("group {sequence} of the intent log cannot be understood: {source}")]
    Records {
        /// Which one.
        sequence: u64,
        /// What the decoder said.
        source: DecodeError,
    },
}

/// What a group's seal binds in.
pub(crate) fn seal_bound(header: &LogHeader, sealed: bool) -> Vec<u8> {
    let mut bound = b"steadfast log v1".to_vec();
    // The stamp itself comes of the sealing; only whether there is one is bound.
    let mut plain = header.clone();
    plain.stamp = steadfast_format::Stamp::default();
    let mut bytes = plain.encode(|_| [0; 32]);
    bytes[12] = u8::from(sealed);
    bound.extend_from_slice(&bytes[..LogHeader::BOUND_SIZE]);
    bound
}

/// All groups from the head on, in order. What is torn or of another epoch does not exist; the end is where nothing follows.
pub fn read_groups(medium: &dyn Medium, wanted: &Wanted) -> Result<Vec<Group>, Damage> {
    let mut found: BTreeMap<u64, Group> = BTreeMap::new();
    let mut bytes = vec![0; medium.segment_bytes() as usize];
    for segment in 0..medium.segments() {
        medium.read(segment, 0, &mut bytes).map_err(|source| Damage::Unreadable { segment, source })?;
        let mut at = 0;
        while at + LogHeader::SIZE <= bytes.len() {
            match group_at(&bytes[at..], wanted) {
                Some((header, hash, body)) => {
                    let stored = LogHeader::stored_bytes(body.len());
                    let place = (segment, u32::try_from(at).expect("within a segment"));
                    if header.sequence >= wanted.head.next {
                        found.insert(header.sequence, Group { header, hash, body: body.to_vec(), place });
                    }
                    at += stored;
                }
                None => at += LogHeader::ALIGNMENT,
            }
        }
    }
    let mut groups: Vec<Group> = Vec::with_capacity(found.len());
    for (expected, (sequence, group)) in (wanted.head.next..).zip(found) {
        if sequence != expected {
            return Err(Damage::Gap { missing: expected, found: sequence });
        }
        if groups.last().is_some_and(|before| before.hash != group.header.parent) {
            return Err(Damage::Chain { sequence });
        }
        groups.push(group);
    }
    Ok(groups)
}

fn group_at<'b>(bytes: &'b [u8], wanted: &Wanted) -> Option<(LogHeader, [u8; 32], &'b [u8])> {
    let (header, hash) = LogHeader::decode(bytes).ok()?;
    if header.pool != wanted.pool || header.epoch != wanted.head.epoch {
        return None;
    }
    let body = bytes.get(LogHeader::SIZE..LogHeader::SIZE + header.length as usize)?;
    (steadfast_crypto::hash_parts(&[&bytes[..128], body]) == hash).then_some((header, hash, body))
}

/// Opens a group's body; the bytes of its records.
pub fn open_group(group: &Group, keys: Option<&BlockKeys>) -> Result<Vec<u8>, Damage> {
    let sequence = group.header.sequence;
    let mut body = group.body.clone();
    match (group.header.stamp.counter != 0, keys) {
        (false, None) => {}
        (true, Some(keys)) => {
            let bound = seal_bound(&group.header, true);
            keys.open(&group.header.stamp, &bound, &mut body).map_err(|_| Damage::Sealed { sequence })?;
        }
        _ => return Err(Damage::Sealed { sequence }),
    }
    // Looked at here, so that a group is replayed whole or not at all.
    LogRecord::decode_all(&body, group.header.records)
        .map_err(|source| Damage::Records { sequence, source })?;
    Ok(body)
}

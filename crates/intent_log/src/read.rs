//! Reading the log back, at import and for inspection (ZFS: `zil_parse`, `zil_claim`). Writes
//! nothing. The records that are found are replayed by `dataset::replay`.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_crypto::BlockKeys;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::{DecodeError, LogHead, LogHeader, LogRecord, LogStart, PoolGuid, Txg};

use crate::log::{Medium, MediumError};

/// Which groups are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Of this pool.
    pub pool: PoolGuid,
    /// From here on.
    pub head: LogStart,
    /// Groups count whatever their hash says. Only a planted bug sets this.
    pub unhashed: bool,
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

impl Group {
    /// Its bytes as they lie on the medium, with zeros up to the next one.
    #[must_use]
    pub fn stored(&self) -> Vec<u8> {
        let length = LogHeader::stored_bytes(self.body.len());
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&self.header.encode(|_| self.hash));
        bytes.extend_from_slice(&self.body);
        bytes.resize(length, 0);
        bytes
    }
}

/// A copy that lacks a group which another copy has whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lack {
    /// Number of the group.
    pub sequence: u64,
    /// Rank of the segment, and byte in it.
    pub place: (usize, u32),
    /// The copy.
    pub copy: usize,
    /// It had been durable: the copy lost it. Else the power may have gone before it came there.
    pub was_durable: bool,
}

/// Fault of a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The medium cannot be read.
    #[error("segment {segment} of the intent log cannot be read: {source}")]
    Unreadable {
        /// Rank of the segment.
        segment: usize,
        /// The medium's error.
        source: MediumError,
    },
    /// Groups are missing before others that are there: they had been durable [intent_log.1].
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
    /// The log does not reach as far as the pool's anchor says.
    #[error(
        "the anchor vouches for the intent log up to group {promised}, and that group is not there: the log was put back to an \
         earlier copy, or is damaged"
    )]
    Short {
        /// Last group that was promised.
        promised: u64,
    },
    /// A group promises what is committed already: it was put there by somebody.
    #[error("group {sequence} of the intent log is of txg {txg}, which is committed")]
    Committed {
        /// Which one.
        sequence: u64,
        /// Its txg.
        txg: Txg,
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
        /// The decoder's error.
        source: DecodeError,
    },
}

/// The bytes that a group's seal binds.
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

/// All that can be told of a log.
#[derive(Debug, Default)]
pub struct Survey {
    /// Whole groups from the head on, in order and without a gap.
    pub groups: Vec<Group>,
    /// Whole groups behind what is damaged: promised once, and of no use without those before them.
    pub stranded: Vec<Group>,
    /// Groups of which nothing is left, among those that had been durable.
    pub missing: u64,
    /// Its faults.
    pub damage: Vec<Damage>,
    /// Groups that one copy lacks and another has.
    pub lacks: Vec<Lack>,
}

impl Survey {
    /// Holds what was found against how far the anchor says that the log, whose head is `next`, was
    /// promised [intent_log.7].
    pub fn hold_to(&mut self, next: u64, promised: LogHead) {
        if promised.seq < next {
            // A root holds all that was promised.
            *self = Survey::default();
            return;
        }
        let is_it = |group: &Group| group.header.sequence == promised.seq && group.hash == promised.head;
        if let Some(at) = self.groups.iter().position(is_it) {
            self.groups.truncate(at + 1);
            self.lacks.retain(|lack| lack.sequence <= promised.seq);
            (self.stranded, self.missing, self.damage) = Default::default();
            return;
        }
        // Of what is there up to then the hash says nothing, but each follows the one before.
        self.groups.retain(|group| group.header.sequence < promised.seq);
        self.stranded.retain(|group| group.header.sequence < promised.seq);
        self.missing = promised.seq + 1 - next - (self.groups.len() + self.stranded.len()) as u64;
        self.damage.push(Damage::Short { promised: promised.seq });
    }
}

/// Something that begins like a group.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Rank of the segment, and byte in it.
    pub place: (usize, u32),
    /// Its header.
    pub header: LogHeader,
    /// Which copy of the segment it is in.
    pub copy: usize,
    /// Its hash is right.
    pub is_whole: bool,
}

/// All groups from the head on, in order. Torn groups, and groups of another epoch, do not exist.
/// The end is where nothing follows that says of what is missing that it had been durable
/// [intent_log.1].
pub fn read_groups(medium: &dyn Medium, wanted: &Wanted) -> Result<Vec<Group>, Damage> {
    let Survey { groups, damage, .. } = survey(medium, wanted);
    damage.into_iter().next().map_or(Ok(groups), Err)
}

/// The same for a log that may be damaged.
#[must_use]
pub fn survey(medium: &dyn Medium, wanted: &Wanted) -> Survey {
    let mut found: BTreeMap<u64, Group> = BTreeMap::new();
    // Copies in which each is whole.
    let mut held: BTreeMap<(u64, (usize, u32)), BTreeSet<usize>> = BTreeMap::new();
    let of_ours = |header: &LogHeader| header.pool == wanted.pool && header.epoch == wanted.head.epoch;
    let mut take = |place, copy, header: LogHeader, hash, body: Option<&[u8]>| {
        if let Some(body) = body.filter(|_| header.sequence >= wanted.head.next) {
            held.entry((header.sequence, place)).or_default().insert(copy);
            found.insert(header.sequence, Group { header, hash, body: body.to_vec(), place });
        }
    };
    let mut survey =
        Survey { damage: visit(medium, &of_ours, wanted.unhashed, &mut take), ..Survey::default() };
    let durable_to = |group: &Group| group.header.sequence.saturating_sub(group.header.behind.into());
    let known = found.values().map(durable_to).max().unwrap_or(0);
    for (&sequence, group) in &found {
        let copies = held.get(&(sequence, group.place));
        let lacking = (0..medium.copies(group.place.0))
            .filter(|copy| !copies.is_some_and(|copies| copies.contains(copy)));
        let was_durable = sequence < known;
        survey.lacks.extend(lacking.map(|copy| Lack { sequence, place: group.place, copy, was_durable }));
    }
    let mut missing = wanted.head.next;
    while found.contains_key(&missing) && missing < u64::MAX {
        missing += 1;
    }
    // Groups are written side by side: what nobody was promised may be there, and what it builds on
    // missing.
    let unfinished = found.split_off(&missing);
    let durable = unfinished.values().map(durable_to).max().unwrap_or(0);
    for (sequence, group) in found {
        let follows = survey.groups.last().is_none_or(|before| before.hash == group.header.parent);
        if survey.stranded.is_empty() && follows {
            survey.groups.push(group);
            continue;
        }
        if survey.stranded.is_empty() {
            survey.damage.push(Damage::Chain { sequence });
        }
        survey.stranded.push(group);
    }
    if durable > missing {
        let first =
            unfinished.values().find(|group| durable_to(group) > missing).expect("one is the greatest");
        survey.damage.push(Damage::Gap { missing, found: first.header.sequence });
        let there = unfinished.range(..durable).count() as u64;
        survey.missing = durable - missing - there;
        survey.stranded.extend(unfinished.into_values());
    }
    survey
}

/// Everything that begins like a group, by place, whosever it is; what could not be read.
pub fn list_groups(medium: &dyn Medium, each: &mut dyn FnMut(Listed)) -> Vec<Damage> {
    visit(medium, &|_| true, false, &mut |place, copy, header, _, body| {
        each(Listed { place, header, copy, is_whole: body.is_some() });
    })
}

/// Where a group begins and in which copy, its header and hash, and its body if it is whole.
type Take<'t> = &'t mut dyn FnMut((usize, u32), usize, LogHeader, [u8; 32], Option<&[u8]>);

/// Looks at all places where groups of interest begin.
fn visit(
    medium: &dyn Medium,
    is_wanted: &dyn Fn(&LogHeader) -> bool,
    unhashed: bool,
    take: Take<'_>,
) -> Vec<Damage> {
    let mut unreadable = Vec::new();
    let copies = (0..medium.segments())
        .flat_map(|segment| (0..medium.copies(segment)).map(move |copy| (segment, copy)));
    let mut readable = BTreeSet::new();
    // One room for all: most segments are as long as the one before.
    let mut bytes = Vec::new();
    for (segment, copy) in copies {
        bytes.resize(medium.bytes_of(segment) as usize, 0);
        match medium.read(segment, copy, 0, &mut bytes) {
            Ok(()) => drop(readable.insert(segment)),
            Err(source) => {
                unreadable.push((segment, source));
                continue;
            }
        }
        let mut at = 0;
        while at + LogHeader::SIZE <= bytes.len() {
            let mut step = LogHeader::ALIGNMENT;
            if let Ok((header, hash)) = LogHeader::decode(&bytes[at..])
                && is_wanted(&header)
            {
                let body = bytes[at + LogHeader::SIZE..].get(..header.length as usize);
                let whole = body.filter(|body| {
                    unhashed || steadfast_crypto::hash_parts(&[&bytes[at..at + 128], body]) == hash
                });
                if let Some(body) = whole {
                    step = LogHeader::stored_bytes(body.len());
                }
                take((segment, u32::try_from(at).expect("within a segment")), copy, header, hash, whole);
            }
            at += step;
        }
    }
    // One copy that can be read is enough.
    unreadable.retain(|(segment, _)| !readable.contains(segment));
    let mut said = BTreeSet::new();
    let unreadable = unreadable.into_iter().filter(|(segment, _)| said.insert(*segment));
    unreadable.map(|(segment, source)| Damage::Unreadable { segment, source }).collect()
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
    let damage = |source| Damage::Records { sequence, source };
    for record in LogRecord::decode_all(&body, group.header.records).map_err(damage)? {
        if let LogRecord::Set { key, .. } | LogRecord::Removed { key } = record {
            NamesKey::decode(key).map_err(damage)?;
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use steadfast_format::{DatasetId, Stamp, Txg};

    use super::*;

    /// Groups at places of their own.
    struct Disk(Vec<u8>);

    impl Medium for Disk {
        fn segments(&self) -> usize {
            1
        }

        fn segment_bytes(&self) -> u32 {
            u32::try_from(self.0.len()).expect("small")
        }

        fn write(&self, _: usize, _: u32, _: &[u8]) -> Result<(), MediumError> {
            unreachable!("reading writes nothing")
        }

        fn flush(&self, _: usize) -> Result<(), MediumError> {
            unreachable!("reading writes nothing")
        }

        fn read(&self, _: usize, _: usize, offset: u32, out: &mut [u8]) -> Result<(), MediumError> {
            out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
            Ok(())
        }
    }

    /// Groups 1 to n, each with how many before it were not durable.
    fn disk(behind: &[u16]) -> Disk {
        let mut disk = Disk(vec![0; 4096 * behind.len()]);
        let mut parent = [0; 32];
        for (at, &behind) in behind.iter().enumerate() {
            let mut body = Vec::new();
            LogRecord::Counters { files: 1, next_inode: 2 }.encode(&mut body);
            let header = LogHeader {
                pool: PoolGuid(1),
                epoch: [2; 16],
                behind,
                sequence: at as u64 + 1,
                txg: Txg(4),
                dataset: DatasetId(5),
                length: u32::try_from(body.len()).expect("short"),
                records: 1,
                stamp: Stamp::default(),
                parent,
            };
            let head = header.encode(|bound| {
                parent = steadfast_crypto::hash_parts(&[bound, &body]);
                parent
            });
            disk.0[at * 4096..][..head.len()].copy_from_slice(&head);
            disk.0[at * 4096 + head.len()..][..body.len()].copy_from_slice(&body);
        }
        disk
    }

    /// The same twice.
    struct Pair([Disk; 2]);

    impl Medium for Pair {
        fn segments(&self) -> usize {
            1
        }

        fn segment_bytes(&self) -> u32 {
            self.0[0].segment_bytes()
        }

        fn copies(&self, _: usize) -> usize {
            2
        }

        fn write(&self, _: usize, _: u32, _: &[u8]) -> Result<(), MediumError> {
            unreachable!("reading writes nothing")
        }

        fn flush(&self, _: usize) -> Result<(), MediumError> {
            unreachable!("reading writes nothing")
        }

        fn read(&self, segment: usize, copy: usize, offset: u32, out: &mut [u8]) -> Result<(), MediumError> {
            match self.0[copy].0.is_empty() {
                true => Err("it is gone".into()),
                false => self.0[copy].read(segment, 0, offset, out),
            }
        }
    }

    fn wanted(next: u64) -> Wanted {
        Wanted { pool: PoolGuid(1), head: LogStart { epoch: [2; 16], next }, unhashed: false }
    }

    fn read(disk: &Disk, next: u64) -> Result<Vec<u64>, Damage> {
        Ok(read_groups(disk, &wanted(next))?.iter().map(|group| group.header.sequence).collect())
    }

    #[test]
    fn a_gap_is_told_from_an_end() {
        let behind = [0, 0, 1, 0, 1, 2];
        assert_eq!(read(&disk(&behind), 1).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(read(&disk(&behind), 4).unwrap(), [4, 5, 6]);
        let without = |gone: usize| {
            let mut disk = disk(&behind);
            disk.0[gone * 4096 - 4096 + 170] ^= 1;
            disk
        };
        // 4 was drafted when all before it were durable; 5 and 6 when 4 and 5 were under way.
        for gone in 1..=3 {
            let found = read(&without(gone), 1).unwrap_err();
            assert!(
                matches!(found, Damage::Gap { missing, found } if missing == gone as u64 && found > missing),
                "{found}"
            );
            assert_eq!(read(&without(gone), 4).unwrap(), [4, 5, 6], "what a root holds is not missed");
        }
        assert_eq!(read(&without(4), 1).unwrap(), [1, 2, 3], "nobody was promised 5 and 6 without 4");
        assert_eq!(read(&without(5), 1).unwrap(), [1, 2, 3, 4]);
        assert_eq!(read(&without(6), 1).unwrap(), [1, 2, 3, 4, 5]);
        let mut other = disk(&behind);
        other.0[4096..8192].copy_from_slice(&disk(&[0, 1]).0[4096..]);
        assert!(matches!(read(&other, 1), Err(Damage::Chain { sequence: 3 })));
    }

    #[test]
    fn what_one_copy_lacks_another_gives() {
        let behind = [0, 0, 1, 0, 1, 2];
        let whole = disk(&behind).0;
        let numbers = |survey: &Survey| -> Vec<u64> {
            survey.groups.iter().map(|group| group.header.sequence).collect()
        };
        let mut pair = Pair([disk(&behind), disk(&behind)]);
        let found = survey(&pair, &wanted(1));
        assert_eq!((numbers(&found), found.lacks.len(), found.damage.len()), (vec![1, 2, 3, 4, 5, 6], 0, 0));
        // The second is gone from the first copy, the last from the second: that one nobody knew to
        // be durable.
        pair.0[0].0[4096 + 170] ^= 1;
        pair.0[1].0[5 * 4096 + 170] ^= 1;
        let found = survey(&pair, &wanted(1));
        assert_eq!((numbers(&found), found.damage.len()), (vec![1, 2, 3, 4, 5, 6], 0));
        let lack = |sequence: u64, copy, was_durable| {
            let place = (0, u32::try_from((sequence - 1) * 4096).expect("small"));
            Lack { sequence, place, copy, was_durable }
        };
        assert_eq!(found.lacks, [lack(2, 0, true), lack(6, 1, false)]);
        for lack in &found.lacks {
            let group = &found.groups[usize::try_from(lack.sequence - 1).expect("small")];
            let (at, bytes) = (lack.place.1 as usize, group.stored());
            pair.0[lack.copy].0[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        assert!(pair.0.iter().all(|disk| disk.0 == whole), "what is mended is as it was");
        // Groups that a root holds are missed on no copy; groups lost on both are damage.
        pair.0[0].0[170] ^= 1;
        assert_eq!(survey(&pair, &wanted(2)).lacks, []);
        pair.0[1].0[170] ^= 1;
        assert!(matches!(survey(&pair, &wanted(1)).damage[..], [Damage::Gap { missing: 1, .. }]));
        // One that cannot be read at all lacks everything.
        let pair = Pair([disk(&behind), Disk(Vec::new())]);
        let found = survey(&pair, &wanted(4));
        assert_eq!((numbers(&found), found.damage.len()), (vec![4, 5, 6], 0));
        assert_eq!(found.lacks, [lack(4, 1, false), lack(5, 1, false), lack(6, 1, false)]);
    }
}

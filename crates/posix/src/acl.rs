//! POSIX access control lists (POSIX 1003.1e draft 17, as Linux has them).
//!
//! ## Theory
//! A list gives permissions to the owner, to the owning group, to others, and to users and groups
//! by name; a *mask* bounds what everybody but the owner and the others gets. The kernel decides
//! who may do what; it asks for the list by the extended attribute `system.posix_acl_access`. The
//! file system keeps list and mode in step, and gives a directory's *default* list
//! (`system.posix_acl_default`) to each inode that is made in it:
//!
//! - The owner's and the others' entries are the mode's bits of owner and others; the mode's group
//!   bits are the mask, or without one the owning group's entry. So `chmod g=` takes from every
//!   named user, and `ls -l` shows the mask.
//! - A list of nothing but owner, group and others says what the mode says already: it is not
//!   stored.
//! - A new file's access list is the directory's default list, each entry that the mode speaks of
//!   cut by the mode of `open` or `mkdir`; the umask is not looked at then. A new directory takes
//!   the default list over for its own children.
//!
//! ## Invariants
//! [acl.1] A stored access list's owner, others and mask (or group) entries are the mode's bits.
//!      test: `chmod_moves_the_mask`
//! [acl.2] An inode's flags say which lists are stored; a list and its flag change in one
//!      operation.
//!
//! ## Bytes
//! Stored as the kernel hands them over, which is documented and has not changed since 2002: a
//! version (2, four bytes), then per entry tag, permissions (two bytes each) and id (four),
//! little-endian.

use crate::{Errno, Result};

/// Which list of an inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AclKind {
    /// Access of users and groups to it.
    Access,
    /// Access to new files inside: directories only.
    Default,
}

impl AclKind {
    /// Both.
    pub const ALL: [AclKind; 2] = [AclKind::Access, AclKind::Default];

    /// Name of the extended attribute.
    #[must_use]
    pub fn name(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }

    /// The list that an extended attribute holds, if it holds one.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<AclKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
/// Id of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

/// Whom an entry is about; in the order in which a list has them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Others = 0x20,
}

impl Tag {
    fn of(bits: u16) -> Option<Tag> {
        [Tag::Owner, Tag::User, Tag::OwningGroup, Tag::Group, Tag::Mask, Tag::Others]
            .into_iter()
            .find(|tag| *tag as u16 == bits)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Entry {
    tag: Tag,
    /// Three bits: read 4, write 2, execute 1.
    bits: u16,
    id: u32,
}

/// A list that makes sense: one owner, owning group and others, a mask where somebody is named, in
/// order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Reads a list; `None` for one without entries, which means that there is none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Acl>> {
        let (version, entries) = bytes.split_at_checked(HEADER).ok_or(Errno::EINVAL)?;
        if version != VERSION.to_le_bytes() || entries.len() % ENTRY != 0 {
            return Err(Errno::EINVAL);
        }
        let half = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let entry = |bytes: &[u8]| {
            let tag = Tag::of(half(bytes, 0)).ok_or(Errno::EINVAL)?;
            let bits = Some(half(bytes, 2)).filter(|bits| *bits <= 7).ok_or(Errno::EINVAL)?;
            let named = matches!(tag, Tag::User | Tag::Group);
            let id = u32::from(half(bytes, 4)) | u32::from(half(bytes, 6)) << 16;
            if named && id == NOBODY {
                return Err(Errno::EINVAL);
            }
            Ok(Entry { tag, bits, id: if named { id } else { NOBODY } })
        };
        let entries = entries.chunks_exact(ENTRY).map(entry).collect::<Result<Vec<Entry>>>()?;
        if entries.is_empty() {
            return Ok(None);
        }
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let named = count(Tag::User) + count(Tag::Group) > 0;
        let whole = entries.is_sorted_by_key(|entry| entry.tag)
            && [Tag::Owner, Tag::OwningGroup, Tag::Others].into_iter().all(|tag| count(tag) == 1)
            && (usize::from(named)..=1).contains(&count(Tag::Mask));
        if whole { Ok(Some(Acl(entries))) } else { Err(Errno::EINVAL) }
    }

    /// The list's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            out.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            out.extend_from_slice(&entry.bits.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// The entry whose bits are the mode's group bits.
    fn group_class(&self) -> Tag {
        if self.0.iter().any(|entry| entry.tag == Tag::Mask) { Tag::Mask } else { Tag::OwningGroup }
    }

    fn bits(&self, tag: Tag) -> u32 {
        self.0.iter().find(|entry| entry.tag == tag).map_or(0, |entry| u32::from(entry.bits))
    }

    /// True if the mode alone says the same.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// `mode` with the permissions that this list stands for.
    pub(crate) fn mode(&self, mode: u32) -> u32 {
        let class = self.bits(self.group_class());
        mode & !0o777 | self.bits(Tag::Owner) << 6 | class << 3 | self.bits(Tag::Others)
    }

    /// The list after a `chmod` [acl.1].
    pub(crate) fn with_mode(mut self, mode: u32) -> Acl {
        let class = self.group_class();
        for entry in &mut self.0 {
            let shift = match entry.tag {
                Tag::Owner => 6,
                Tag::Others => 0,
                tag if tag == class => 3,
                _ => continue,
            };
            entry.bits = u16::try_from(mode >> shift & 7).expect("three bits");
        }
        self
    }

    /// True if the list gives all of `wanted` to somebody who is not the owner: `is_user` says for
    /// a named user whether it is that one, `is_of` the same for a named group or the owning one.
    /// Of the groups one must give all of it (Linux, `posix_acl_permission`).
    pub(crate) fn permits(
        &self,
        is_user: impl Fn(u32) -> bool,
        is_of: impl Fn(Option<u32>) -> bool,
        wanted: u32,
    ) -> bool {
        let gives = |entry: &Entry| wanted & !u32::from(entry.bits) == 0;
        let mask = self.0.iter().find(|entry| entry.tag == Tag::Mask);
        let is_masked = || mask.is_none_or(gives);
        let mut in_group = false;
        for entry in &self.0 {
            match entry.tag {
                Tag::User if is_user(entry.id) => return gives(entry) && is_masked(),
                Tag::OwningGroup | Tag::Group => {
                    let named = (entry.tag == Tag::Group).then_some(entry.id);
                    if is_of(named) {
                        in_group = true;
                        if gives(entry) {
                            return is_masked();
                        }
                    }
                }
                Tag::Others => return !in_group && gives(entry),
                Tag::Owner | Tag::User | Tag::Mask => {}
            }
        }
        false
    }

    /// Access list and mode of something new, where this is the default list and `mode` what was
    /// asked for.
    pub(crate) fn inherited(self, mode: u32) -> (Acl, u32) {
        let mode = mode & !0o777 | mode & self.mode(0);
        (self.with_mode(mode), mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(Tag, u16, u32)]) -> Acl {
        let entries: Vec<Entry> = entries.iter().map(|&(tag, bits, id)| Entry { tag, bits, id }).collect();
        let bytes = Acl(entries.clone()).encode();
        assert_eq!(Acl::decode(&bytes), Ok(Some(Acl(entries))));
        Acl::decode(&bytes).expect("valid").expect("not empty")
    }

    fn sample() -> Acl {
        acl(&[
            (Tag::Owner, 7, NOBODY),
            (Tag::User, 6, 1000),
            (Tag::OwningGroup, 5, NOBODY),
            (Tag::Group, 7, 50),
            (Tag::Mask, 6, NOBODY),
            (Tag::Others, 1, NOBODY),
        ])
    }

    #[test]
    fn chmod_moves_the_mask() {
        let list = sample();
        assert_eq!(list.mode(0o104_000), 0o104_761);
        let list = list.with_mode(0o640);
        assert_eq!(list.mode(0), 0o640);
        assert_eq!(list.bits(Tag::OwningGroup), 5, "only the mask speaks for the group's class");
        let list = acl(&[(Tag::Owner, 7, NOBODY), (Tag::OwningGroup, 7, NOBODY), (Tag::Others, 7, NOBODY)]);
        assert!(list.is_minimal());
        assert_eq!(list.with_mode(0o012).mode(0), 0o012);
    }

    #[test]
    fn what_is_new_gets_no_more_than_it_asked_for() {
        let (list, mode) = sample().inherited(0o100_646);
        assert_eq!(mode, 0o100_640, "7 & 6, mask 6 & 4, 1 & 6");
        assert_eq!(list.mode(0), 0o640);
        assert_eq!(list.bits(Tag::User), 6, "a named user's entry stays, the mask cuts it");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bytes = sample().encode();
        assert_eq!(Acl::decode(&bytes[..4]), Ok(None));
        for length in (0..bytes.len()).filter(|length| *length != 4) {
            assert_eq!(Acl::decode(&bytes[..length]), Err(Errno::EINVAL), "cut to {length}");
        }
        // Version, an unknown tag, too many bits, a user who is nobody, an entry out of its place,
        // no mask.
        let nobody = [(16, 0xff), (17, 0xff), (18, 0xff), (19, 0xff)];
        for changes in [&[(0, 1)][..], &[(4, 3)], &[(6, 8)], &nobody, &[(4, 0x20)], &[(36, 8)]] {
            let mut bad = bytes.clone();
            for &(at, value) in changes {
                bad[at] = value;
            }
            assert_eq!(Acl::decode(&bad), Err(Errno::EINVAL), "{changes:?}");
        }
    }

    /// Any bytes: what is accepted encodes to what it came from, but for ids of entries that name
    /// nobody.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let (mut seed, mut read) = (7_u64, 0);
        for round in 0..200_000_u32 {
            let mut bytes = sample().encode();
            for _ in 0..=round % 3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(seed >> 33).expect("fits") % bytes.len();
                bytes[at] = (seed >> 20) as u8;
            }
            if let Ok(Some(list)) = Acl::decode(&bytes) {
                read += 1;
                assert_eq!(Acl::decode(&list.encode()), Ok(Some(list.clone())));
                assert_eq!(list.clone().with_mode(0o753).mode(0), 0o753);
                let (new, mode) = list.inherited(0o666);
                assert_eq!((new.mode(0), mode & !0o666), (mode, 0));
            }
        }
        assert!(read > 1000, "{read} of them were lists");
    }
}

//! Bytes of a device as pages that are shared between thousands of states, each with a fingerprint.
//!
//! A crash state differs from the image before it in a few pages. So pages are immutable and
//! counted, and an image is a table of two levels: a copy of it counts each leaf once more, and a
//! write copies the leaf that it changes. The fingerprint of an image is the exclusive or of one
//! word for each page that is not blank, so that it is kept up to date page by page, and equal
//! images have equal ones.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A page and the hash of its bytes.
pub struct Page {
    id: u128,
    bytes: [u8; PAGE],
}

static BLANK: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new(Page::of([0; PAGE])));

static GARBAGE: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new(Page::of([0xa5; PAGE])));

impl Page {
    fn of(bytes: [u8; PAGE]) -> Page {
        let hash = steadfast_crypto::hash(&bytes);
        let id = u128::from_le_bytes(hash[..16].try_into().expect("sixteen bytes"));
        Page { id, bytes }
    }
}

/// A page as images share it.
pub type PageRef = Arc<Page>;

/// Pages of a leaf.
const LEAF: usize = 64;

/// Neighbours; `None` is blank.
type Leaf = [Option<PageRef>; LEAF];

/// All bytes of a device.
#[derive(Clone)]
pub struct Image {
    size_bytes: u64,
    leaves: Vec<Option<Arc<Leaf>>>,
    print: u128,
    /// Nobody asks for its fingerprint.
    plain: bool,
}

/// Of a page in an image without fingerprints; no hash is that, as far as anybody knows.
const UNKNOWN: u128 = 0;

/// The word that a page adds to a fingerprint.
fn word(number: u32, id: u128) -> u128 {
    let odd = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128;
    (id ^ (u128::from(number) << 64 | u128::from(number))).wrapping_mul(odd).rotate_left(61).wrapping_mul(odd)
}

impl Image {
    /// A device that was never written.
    #[must_use]
    pub fn blank(size_bytes: u64) -> Image {
        let leaves = size_bytes.div_ceil((LEAF * PAGE) as u64);
        let leaves = vec![None; usize::try_from(leaves).expect("devices are small")];
        Image { size_bytes, leaves, print: 0, plain: false }
    }

    /// The same without fingerprints from now on: pages are hashed for them, and a write costs less
    /// without.
    #[must_use]
    pub fn plain(mut self) -> Image {
        self.plain = true;
        self
    }

    /// Bytes of the device.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Equal for equal images.
    #[must_use]
    pub fn print(&self) -> u128 {
        self.print
    }

    fn page(&self, number: u32) -> &PageRef {
        let number = number as usize;
        let leaf = self.leaves.get(number / LEAF).and_then(Option::as_ref);
        leaf.and_then(|leaf| leaf[number % LEAF].as_ref()).unwrap_or(&BLANK)
    }

    /// Tells the content of a page.
    #[must_use]
    pub fn id(&self, number: u32) -> u128 {
        self.page(number).id
    }

    /// Puts a page in its place.
    pub fn set(&mut self, number: u32, page: &PageRef) {
        for id in [self.page(number).id, page.id] {
            if id != BLANK.id {
                self.print ^= word(number, id);
            }
        }
        let number = number as usize;
        let leaf = self.leaves[number / LEAF].get_or_insert_with(|| Arc::new([const { None }; LEAF]));
        Arc::make_mut(leaf)[number % LEAF] = (page.id != BLANK.id).then(|| Arc::clone(page));
    }

    /// Reads.
    pub fn read(&self, at: u64, out: &mut [u8]) {
        for (number, inside, outside) in pieces(at, out.len()) {
            out[outside].copy_from_slice(&self.page(number).bytes[inside]);
        }
    }

    /// Writes.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        for (number, inside, outside) in pieces(at, bytes.len()) {
            if self.plain {
                self.page_mut(number)[inside].copy_from_slice(&bytes[outside]);
                continue;
            }
            let mut page = self.page(number).bytes;
            page[inside].copy_from_slice(&bytes[outside]);
            self.set(number, &Arc::new(Page::of(page)));
        }
    }

    /// Bytes of a page of a plain image, which no other image has.
    fn page_mut(&mut self, number: u32) -> &mut [u8; PAGE] {
        let number = number as usize;
        let leaf = self.leaves[number / LEAF].get_or_insert_with(|| Arc::new([const { None }; LEAF]));
        let page = &mut Arc::make_mut(leaf)[number % LEAF];
        let page = page.get_or_insert_with(|| Arc::new(Page { id: UNKNOWN, bytes: [0; PAGE] }));
        if Arc::get_mut(page).is_none() {
            *page = Arc::new(Page { id: UNKNOWN, bytes: page.bytes });
        }
        &mut Arc::get_mut(page).expect("it was made just now").bytes
    }

    /// Makes whole pages of a range blank.
    pub fn discard(&mut self, at: u64, length: u64) {
        let first = u32::try_from(at / PAGE as u64).expect("devices are small");
        let end = u32::try_from((at + length) / PAGE as u64).expect("devices are small");
        for number in first..end {
            if self.id(number) != BLANK.id {
                self.set(number, &BLANK);
            }
        }
    }

    /// Makes whole pages of a range something that was never written.
    pub fn garble(&mut self, at: u64, length: u64) {
        let first = u32::try_from(at / PAGE as u64).expect("devices are small");
        let end = u32::try_from((at + length) / PAGE as u64).expect("devices are small");
        for number in first..end {
            self.set(number, &GARBAGE);
        }
    }

    /// Writes what was prepared for it.
    pub fn apply(&mut self, write: &Prepared) {
        for piece in &write.pieces {
            match piece {
                Piece::Whole(number, page) => self.set(*number, page),
                Piece::Part(number, inside, bytes) => {
                    self.write(u64::from(*number) * PAGE as u64 + inside.start as u64, bytes);
                }
            }
        }
    }
}

/// A write cut into pages whose hashes are known.
pub struct Prepared {
    pieces: Vec<Piece>,
}

enum Piece {
    Whole(u32, PageRef),
    Part(u32, Range<usize>, Vec<u8>),
}

impl Prepared {
    /// Of a write.
    #[must_use]
    pub fn new(at: u64, bytes: &[u8]) -> Prepared {
        let piece =
            |(number, inside, outside): (u32, Range<usize>, Range<usize>)| match <[u8; PAGE]>::try_from(
                &bytes[outside.clone()],
            ) {
                Ok(page) => Piece::Whole(number, Arc::new(Page::of(page))),
                Err(_) => Piece::Part(number, inside, bytes[outside].to_vec()),
            };
        Prepared { pieces: pieces(at, bytes.len()).map(piece).collect() }
    }
}

/// A range as (page, range within it, range of the caller's bytes).
pub fn pieces(at: u64, length: usize) -> impl Iterator<Item = (u32, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = at + done as u64;
        let start = usize::try_from(position % PAGE as u64).expect("below a page");
        let count = (PAGE - start).min(length - done);
        let outside = done..done + count;
        done += count;
        let number = u32::try_from(position / PAGE as u64).expect("devices are small");
        Some((number, start..start + count, outside))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_images_have_equal_fingerprints_however_they_came_about() {
        let mut one = Image::blank(64 << 20);
        one.write(100, &[1; 10_000]);
        one.write(5000, &[2; 10]);
        let mut other = Image::blank(64 << 20);
        other.write(5000, &[2; 10]);
        other.write(100, &[1; 4900]);
        assert_ne!(one.print(), other.print());
        other.write(5010, &[1; 5090]);
        assert_eq!(one.print(), other.print());
        let copy = one.clone();
        one.write(5000, &[3; 10]);
        assert_ne!(copy.print(), one.print(), "a copy stays as it was");
        let mut read = [0; 12];
        copy.read(4999, &mut read);
        assert_eq!(read, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    }

    #[test]
    fn a_plain_image_has_the_same_bytes_and_changes_no_other() {
        let mut one = Image::blank(64 << 20);
        one.write(5000, &[2; 10_000]);
        let print = one.print();
        let mut plain = one.clone().plain();
        plain.write(7000, &[3; 9_000]);
        let copy = plain.clone();
        plain.write(7000, &[4; 2]);
        plain.discard(12_288, 4096);
        let read = |image: &Image, at| {
            let mut read = [0; 2];
            image.read(at, &mut read);
            read
        };
        assert_eq!(one.print(), print);
        assert_eq!([read(&one, 7000), read(&copy, 7000), read(&plain, 7000)], [[2, 2], [3, 3], [4, 4]]);
        assert_eq!([read(&one, 12_290), read(&copy, 12_290), read(&plain, 12_290)], [[2, 2], [3, 3], [0, 0]]);
    }

    #[test]
    fn what_was_discarded_is_blank() {
        let mut image = Image::blank(64 << 20);
        image.write(4096, &[1; 8192]);
        image.discard(0, 1 << 20);
        assert_eq!(image.print(), 0);
        assert_eq!(image.print(), Image::blank(64 << 20).print());
        let mut read = [1; 10];
        image.read(4096, &mut read);
        assert_eq!(read, [0; 10]);
    }

    #[test]
    fn a_prepared_write_is_the_write() {
        let bytes: Vec<u8> = (0..20_000).map(|at| u8::try_from(at % 251).expect("small")).collect();
        let (mut one, mut other) = (Image::blank(64 << 20), Image::blank(64 << 20));
        one.write(4000, &bytes);
        other.apply(&Prepared::new(4000, &bytes));
        assert_eq!(one.print(), other.print());
    }
}

//! Entries of a node in memory: slots in key order over a heap of bytes.
//!
//! Cloning is two copies of memory, searching is binary search over the slots, and inserting moves
//! slots of eight bytes, never entries. Bytes of removed entries stay in the heap until they are
//! more than a quarter of it.

use std::cmp::Ordering;

#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: u32,
    key_len: u16,
    value_len: u16,
}

impl Slot {
    fn len(self) -> usize {
        usize::from(self.key_len) + usize::from(self.value_len)
    }
}

/// Sorted entries. Keys are strictly ascending; the caller keeps them so.
#[derive(Debug, Default)]
pub(crate) struct Page {
    slots: Vec<Slot>,
    heap: Vec<u8>,
    /// Bytes of keys and values that slots refer to.
    live: usize,
    /// A hint for splits; forgotten when the node leaves memory.
    pub(crate) run: Run,
}

/// The latest inserts, as far as each came right behind the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Index behind the last of them.
    end: usize,
    count: usize,
}

impl Clone for Page {
    fn clone(&self) -> Self {
        let mut slots = Vec::with_capacity(self.slots.len() + 8);
        slots.extend_from_slice(&self.slots);
        let mut heap = Vec::with_capacity(self.heap.len() + self.heap.len() / 8);
        heap.extend_from_slice(&self.heap);
        Page { slots, heap, live: self.live, run: self.run }
    }
}

impl Page {
    /// Takes the bytes of a decoded leaf as heap: entries are given by offset and lengths.
    pub(crate) fn over(heap: Vec<u8>, entries: impl Iterator<Item = (usize, usize, usize)>) -> Self {
        let slots: Vec<Slot> =
            entries.map(|(offset, key_len, value_len)| slot(offset, key_len, value_len)).collect();
        let live = slots.iter().map(|slot| slot.len()).sum();
        Page { slots, heap, live, run: Run::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of all keys and values.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.heap.capacity() + self.slots.capacity() * size_of::<Slot>()
    }

    pub(crate) fn key(&self, index: usize) -> &[u8] {
        let slot = self.slots[index];
        &self.heap[slot.offset as usize..][..slot.key_len.into()]
    }

    pub(crate) fn value(&self, index: usize) -> &[u8] {
        let slot = self.slots[index];
        &self.heap[slot.offset as usize + usize::from(slot.key_len)..][..slot.value_len.into()]
    }

    /// Bytes of the key and value of an entry.
    pub(crate) fn entry_bytes(&self, index: usize) -> usize {
        self.slots[index].len()
    }

    /// Index of the key, or where it would be.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.slots.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    pub(crate) fn insert(&mut self, index: usize, key: &[u8], value: &[u8]) {
        debug_assert!(index == 0 || self.key(index - 1) < key);
        debug_assert!(index == self.len() || key < self.key(index) || self.key(index).is_empty());
        let count = if self.run.end == index { self.run.count + 1 } else { 1 };
        self.run = Run { end: index + 1, count };
        let slot = self.store(key, value);
        self.slots.insert(index, slot);
    }

    /// Where an ascending run of at least `count` inserts ended last.
    pub(crate) fn run_end(&self, count: usize) -> Option<usize> {
        (self.run.count >= count && self.run.end <= self.len()).then_some(self.run.end)
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.insert(self.len(), key, value);
    }

    pub(crate) fn replace_value(&mut self, index: usize, value: &[u8]) {
        let slot = self.slots[index];
        if usize::from(slot.value_len) == value.len() {
            let at = slot.offset as usize + usize::from(slot.key_len);
            self.heap[at..at + value.len()].copy_from_slice(value);
            return;
        }
        let key = self.key(index).to_vec();
        self.live -= slot.len();
        self.slots[index] = self.store(&key, value);
        self.compact_if_loose();
    }

    /// Empties the key of the first entry of an inner node.
    pub(crate) fn clear_first_key(&mut self) {
        let slot = &mut self.slots[0];
        self.live -= usize::from(slot.key_len);
        slot.offset += u32::from(slot.key_len);
        slot.key_len = 0;
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let slot = self.slots.remove(index);
        self.live -= slot.len();
        self.compact_if_loose();
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.live -= self.slots[len..].iter().map(|slot| slot.len()).sum::<usize>();
        self.slots.truncate(len);
        self.compact_if_loose();
    }

    /// A copy of the entries of a range of indices.
    pub(crate) fn copy(&self, range: std::ops::Range<usize>) -> Page {
        let bytes = self.slots[range.clone()].iter().map(|slot| slot.len()).sum();
        let mut page = Page {
            slots: Vec::with_capacity(range.len()),
            heap: Vec::with_capacity(bytes),
            ..Page::default()
        };
        range.for_each(|index| page.push(self.key(index), self.value(index)));
        page.run = Run::default();
        page
    }

    fn store(&mut self, key: &[u8], value: &[u8]) -> Slot {
        let slot = slot(self.heap.len(), key.len(), value.len());
        self.heap.extend_from_slice(key);
        self.heap.extend_from_slice(value);
        self.live += slot.len();
        slot
    }

    fn compact_if_loose(&mut self) {
        if self.heap.len() > self.live + self.live / 4 + 1024 {
            *self = Page { run: self.run, ..self.copy(0..self.len()) };
        }
    }
}

fn slot(offset: usize, key_len: usize, value_len: usize) -> Slot {
    Slot {
        offset: u32::try_from(offset).expect("a page is far smaller than 4 GiB"),
        key_len: u16::try_from(key_len).expect("keys are checked"),
        value_len: u16::try_from(value_len).expect("values are checked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str]) -> Page {
        let mut page = Page::default();
        keys.iter().for_each(|key| page.push(key.as_bytes(), key.to_uppercase().as_bytes()));
        page
    }

    #[test]
    fn search_finds_keys_and_places() {
        let page = page(&["b", "d", "f"]);
        assert_eq!(page.search(b"d"), Ok(1));
        assert_eq!([b"a", b"c", b"e", b"g"].map(|key| page.search(key)), [Err(0), Err(1), Err(2), Err(3)]);
    }

    #[test]
    fn live_bytes_count_what_slots_refer_to() {
        let mut page = page(&["bb", "dd"]);
        page.insert(1, b"cc", b"12345");
        page.replace_value(0, b"longer");
        page.remove(2);
        assert_eq!(page.live_bytes(), (0..page.len()).map(|index| page.entry_bytes(index)).sum::<usize>());
        assert_eq!((page.key(0), page.value(0)), (&b"bb"[..], &b"longer"[..]));
        page.clear_first_key();
        assert_eq!((page.key(0), page.value(0), page.live_bytes()), (&b""[..], &b"longer"[..], 13));
    }

    #[test]
    fn a_page_rewritten_many_times_stays_small() {
        let mut page = page(&["a", "b"]);
        for round in 0..10_000_usize {
            page.replace_value(0, &vec![1; round % 300]);
        }
        assert!(page.memory_bytes() < 8_192, "{}", page.memory_bytes());
    }
}

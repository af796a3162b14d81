//! The tree: its state, its locks, and reading and changing it.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use steadfast_format::BlockPointer;
use steadfast_format::node::{HEADER_SIZE, KEY_BYTES_MAX, NODE_BYTES_MAX, SLOT_SIZE, VALUE_BYTES_MAX};

use crate::cache::{CacheView, NodeCache};
use crate::cursor::{Cursor, Entry, Range};
use crate::node::{Child, Node, Predecessor};
use crate::sync::{Frozen, Ledger};
use crate::write::{Bounds, Change, HeldNodes, Missing, Survey, Writer};
use crate::{Error, NodeStore, Result};

/// Least size a tree's nodes may be limited to: an inner node must hold two entries with the
/// greatest keys.
const NODE_BYTES_MAX_MIN: usize = 1_280;
const _: () =
    assert!(NODE_BYTES_MAX_MIN >= HEADER_SIZE + 2 * (SLOT_SIZE + KEY_BYTES_MAX + BlockPointer::ENCODED_SIZE));

/// How a tree writes. A tree may be opened with other options than it was made with: nodes change
/// size as they are rewritten.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// Greatest encoded node, in bytes, from 1,280 to 65,536. Below 8,192 the greatest value
    /// shrinks with it, since an entry may take half a node.
    pub node_bytes_max: usize,
}

impl Options {
    /// Trees of datasets: 16 KiB.
    pub const DATASET: Options = Options { node_bytes_max: 16_384 };
    /// The pool's meta tree: 8 KiB, since each commit rewrites a few random leaves of it.
    pub const META: Options = Options { node_bytes_max: 8_192 };
}

impl Default for Options {
    fn default() -> Self {
        Options::DATASET
    }
}

/// A copy-on-write B+tree over a [`NodeStore`]. Any number of threads may read and change it at
/// once. See the crate's text.
pub struct Tree {
    store: Arc<dyn NodeStore>,
    pub(crate) cache: CacheView,
    pub(crate) options: Options,
    /// Tells this tree's snapshots from another's.
    pub(crate) token: Arc<()>,
    state: RwLock<State>,
    /// Number of syncs that have ended; changed under `state`.
    version: AtomicU64,
    pub(crate) ledger: Mutex<Ledger>,
}

/// State that operations change.
pub(crate) struct State {
    pub(crate) root: Option<Child>,
    pub(crate) epoch: u64,
    /// Anything changed in this epoch, or left over by a failed sync?
    pub(crate) changed: bool,
    /// Versions dropped in this epoch.
    pub(crate) dropped: Vec<Predecessor>,
    /// Encoded bytes of this epoch's nodes.
    pub(crate) dirty_bytes: usize,
    /// Nodes that snapshots not yet synced have dropped, oldest first.
    pub(crate) frozen: Vec<Frozen>,
}

/// Why a reader did not get a node.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// A sync ended since the reader took the root: begin again.
    Stale,
    Failed(Error),
}

impl Tree {
    /// A new, empty tree.
    #[must_use]
    pub fn create(store: Arc<dyn NodeStore>, cache: Arc<NodeCache>, options: Options) -> Self {
        Self::open(store, cache, None, options)
    }

    /// The tree whose root is stored at `root`; `None` is the empty tree. Reads nothing.
    #[must_use]
    pub fn open(
        store: Arc<dyn NodeStore>,
        cache: Arc<NodeCache>,
        root: Option<BlockPointer>,
        options: Options,
    ) -> Self {
        assert!((NODE_BYTES_MAX_MIN..=NODE_BYTES_MAX).contains(&options.node_bytes_max), "{options:?}");
        let cache = CacheView::new(cache, store.domain());
        Tree {
            store,
            cache,
            options,
            token: Arc::new(()),
            state: RwLock::new(State {
                root: root.map(Child::Stored),
                epoch: 1,
                changed: false,
                dropped: Vec::new(),
                dirty_bytes: 0,
                frozen: Vec::new(),
            }),
            version: AtomicU64::new(0),
            ledger: Mutex::new(Ledger::new(root)),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Hands the value of a key, or `None`, to a function; no copy is made and no lock is held
    /// meanwhile.
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let leaf = self.leaf(key)?;
        Ok(f(leaf
            .as_ref()
            .and_then(|leaf| leaf.page.search(key).ok().map(|index| (leaf, index)))
            .map(|(leaf, index)| leaf.page.value(index))))
    }

    /// True if the key has a value.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.get_with(key, |value| value.is_some())
    }

    /// The greatest key not above `key`, and its value.
    pub fn floor(&self, key: &[u8]) -> Result<Option<Entry>> {
        let Some(leaf) = self.leaf(key)? else { return Ok(None) };
        let index = match leaf.page.search(key) {
            Ok(index) => index,
            Err(0) => {
                drop(leaf);
                return self.range(..=key).next_back().transpose();
            }
            Err(index) => index - 1,
        };
        Ok(Some((leaf.page.key(index).to_vec(), leaf.page.value(index).to_vec())))
    }

    /// Keys and values in order, from either end.
    ///
    /// The iterator sees the tree as it is now, whatever is changed meanwhile, until a sync ends
    /// and a block it still needs may be gone: from there on it sees a newer version, and goes on
    /// behind the last key it gave. A key that is there all the time is given exactly once. An
    /// error ends the iteration.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range<'_> {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Range::new(self, own(bounds.start_bound()), own(bounds.end_bound()))
    }

    /// Shows keys from `from` up to but not including `to`, in order, to a function until it says
    /// no; no copies are made and no lock is held meanwhile. It sees concurrent changes as
    /// [`Tree::range`] does.
    pub fn scan(&self, from: &[u8], to: &[u8], mut f: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        // Most scans are short and end in the leaf they begin in, which is found without a cursor.
        let Some(leaf) = self.leaf(from)? else { return Ok(()) };
        let first = leaf.page.search(from).unwrap_or_else(|index| index);
        for index in first..leaf.page.len() {
            let key = leaf.page.key(index);
            if key >= to || !f(key, leaf.page.value(index)) {
                return Ok(());
            }
        }
        let lower = match leaf.page.len().checked_sub(1) {
            Some(last) if last >= first => Bound::Excluded(leaf.page.key(last)),
            _ => Bound::Included(from),
        };
        self.range::<&[u8]>((lower, Bound::Excluded(to))).visit(f)
    }

    /// Sets the value of a key; returns the value before.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.batch(&[Change::Insert(key, value)])?.pop().flatten())
    }

    /// Removes a key; returns the value it had.
    pub fn remove(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.batch(&[Change::Remove(key)])?.pop().flatten())
    }

    /// Makes many changes at once, in strictly ascending order of their keys; returns for each the
    /// value before. Others see all of them or none. The cost is one walk per leaf concerned, not
    /// per change.
    pub fn batch(&self, changes: &[Change<'_>]) -> Result<Vec<Option<Vec<u8>>>> {
        changes.iter().try_for_each(|change| self.check(change))?;
        if let Some(index) = changes.windows(2).position(|pair| pair[0].key() >= pair[1].key()) {
            return Err(Error::BatchOrder { index: index + 1 });
        }
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut held = HeldNodes::default();
        let (mut state, absent) = self.survey(changes, &mut held)?;
        if absent.is_empty() {
            return Ok(self.apply(&mut state, changes, &mut held));
        }
        // Removals that find nothing must not dirty the paths they would have taken.
        let mut before = vec![None; changes.len()];
        let mut absent = absent.into_iter().peekable();
        let (places, found): (Vec<usize>, Vec<Change<'_>>) = changes
            .iter()
            .copied()
            .enumerate()
            .filter(|(index, _)| absent.next_if_eq(index).is_none())
            .unzip();
        if !found.is_empty() {
            for (place, value) in places.into_iter().zip(self.apply(&mut state, &found, &mut held)) {
                before[place] = value;
            }
        }
        Ok(before)
    }

    /// Replaces the value of a key by what a function makes of it (`None`: no such key, or remove
    /// it), in one step; returns the value before. The function runs under the tree's lock and must
    /// not call the tree.
    pub fn modify(
        &self,
        key: &[u8],
        f: impl FnOnce(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.check(&Change::Remove(key))?;
        let mut held = HeldNodes::default();
        let (mut state, absent) = self.survey(&[Change::Remove(key)], &mut held)?;
        let before = if absent.is_empty() { value_in_memory(state.root.as_ref(), key, &held) } else { None };
        let after = f(before);
        if before == after.as_deref() {
            return Ok(after);
        }
        let change = match &after {
            Some(value) => Change::Insert(key, value),
            None => Change::Remove(key),
        };
        self.check(&change)?;
        Ok(self.apply(&mut state, &[change], &mut held).pop().flatten())
    }

    /// Removes up to `limit` keys of a range, lowest first, then hands each removed key with its
    /// value to a function, and returns how many there were: fewer than `limit` means that none are
    /// left, except what others inserted meanwhile. On an error nothing was removed. Memory and
    /// time are bounded by `limit`.
    pub fn remove_range<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        limit: usize,
        mut f: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let keys = self.range(bounds).take(limit).map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>>>()?;
        let changes: Vec<_> = keys.iter().map(|key| Change::Remove(key)).collect();
        let before = self.batch(&changes)?;
        for (key, value) in keys.iter().zip(&before) {
            if let Some(value) = value {
                f(key, value);
            }
        }
        Ok(keys.len())
    }

    /// Encoded bytes of all nodes changed since the last snapshot: what the next sync writes,
    /// before compression.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.state().dirty_bytes as u64
    }

    /// True if anything changed since the last snapshot, or a sync has failed since the last that
    /// did not.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.state().changed
    }

    /// True if the tree has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state().root.is_none()
    }

    fn check(&self, change: &Change<'_>) -> Result<()> {
        let key_len = change.key().len();
        if !(1..=KEY_BYTES_MAX).contains(&key_len) {
            return Err(Error::KeySize { len: key_len, max: KEY_BYTES_MAX });
        }
        if let Change::Insert(_, value) = change {
            let room = (self.options.node_bytes_max - HEADER_SIZE) / 2 - SLOT_SIZE - key_len;
            let max = room.min(VALUE_BYTES_MAX);
            if value.len() > max {
                return Err(Error::ValueSize { len: value.len(), max });
            }
        }
        Ok(())
    }

    /// Takes the lock with every node on the paths of `changes` in memory: in the tree or held.
    /// Returns also which of the changes are removals of nothing.
    fn survey(
        &self,
        changes: &[Change<'_>],
        held: &mut HeldNodes,
    ) -> Result<(RwLockWriteGuard<'_, State>, Vec<usize>)> {
        loop {
            let state = self.state_mut();
            let mut survey = Survey::new(held, &self.cache, self.options.node_bytes_max);
            match &state.root {
                Some(root) => {
                    survey.walk(root, changes, Bounds::default());
                }
                None => survey
                    .absent
                    .extend((0..changes.len()).filter(|&index| matches!(changes[index], Change::Remove(_)))),
            }
            let Survey { missing, absent, .. } = survey;
            if missing.is_empty() {
                return Ok((state, absent));
            }
            let version = self.version();
            drop(state);
            self.fault_in(&missing, held, version)?;
        }
    }

    fn fault_in(&self, missing: &[Missing], held: &mut HeldNodes, version: u64) -> Result<()> {
        for Missing { pointer, lower, upper, optional } in missing {
            let bounds = Bounds { lower: lower.as_deref(), upper: upper.as_deref() };
            match self.load(pointer, bounds, Some(version)) {
                Ok(node) => held.insert(pointer, node),
                Err(LoadError::Stale) => return Ok(()),
                Err(LoadError::Failed(_)) if *optional => held.refuse(pointer),
                Err(LoadError::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn apply(&self, state: &mut State, changes: &[Change<'_>], held: &mut HeldNodes) -> Vec<Option<Vec<u8>>> {
        let State { root, epoch, changed, dropped, dirty_bytes, .. } = state;
        *changed = true;
        let mut writer = Writer {
            epoch: *epoch,
            node_bytes_max: self.options.node_bytes_max,
            held,
            cache: &self.cache,
            dropped,
            dirty_bytes,
            before: Vec::with_capacity(changes.len()),
        };
        writer.change(root, changes);
        writer.before
    }

    /// The leaf that holds a key if any does; `None` for an empty tree.
    fn leaf(&self, key: &[u8]) -> Result<Option<Arc<Node>>> {
        if let Some(found) = self.leaf_in_memory(key) {
            return Ok(found);
        }
        loop {
            let mut cursor = Cursor::new(self);
            match cursor.descend_to_key(self, key) {
                Ok(leaf) => return Ok(leaf),
                Err(LoadError::Stale) => {}
                Err(LoadError::Failed(error)) => return Err(error),
            }
        }
    }

    /// The same without reading; `None` if a node is missing. Walks dirty nodes under the lock
    /// without counting references to them, so that writers need not copy what readers only pass
    /// through.
    fn leaf_in_memory(&self, key: &[u8]) -> Option<Option<Arc<Node>>> {
        let mut stored = {
            let state = self.state();
            let Some(mut child) = state.root.as_ref() else { return Some(None) };
            loop {
                match child {
                    Child::Dirty(dirty) if dirty.node.is_leaf() => {
                        return Some(Some(Arc::clone(&dirty.node)));
                    }
                    Child::Dirty(dirty) => child = &dirty.node.children[dirty.node.child_index(key)],
                    Child::Stored(pointer) => break *pointer,
                }
            }
        };
        loop {
            let node = self.cache.glance(&stored)?;
            if node.is_leaf() {
                return Some(Some(node));
            }
            match &node.children[node.child_index(key)] {
                Child::Stored(pointer) => stored = *pointer,
                Child::Dirty(_) => unreachable!("a stored node has stored children"),
            }
        }
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("a panic while the tree was being changed")
    }

    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect("a panic while the tree was being changed")
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A sync has ended. Called under the state's lock.
    pub(crate) fn advance_version(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn store(&self) -> &dyn NodeStore {
        &*self.store
    }

    /// A stored node, from the cache or the store, checked against what its parent says. With a
    /// version given, a block that may have been freed since is not asked for, and not complained
    /// about.
    pub(crate) fn load(
        &self,
        pointer: &BlockPointer,
        bounds: Bounds<'_>,
        version: Option<u64>,
    ) -> Result<Arc<Node>, LoadError> {
        if let Some(node) = self.cache.get(pointer) {
            // Checked when it was read, but perhaps for another parent.
            return check_place(&node, pointer, bounds).map_err(LoadError::Failed).map(|()| node);
        }
        let stale = || version.is_some_and(|version| version != self.version());
        if stale() {
            return Err(LoadError::Stale);
        }
        match self.read(pointer, bounds) {
            Ok(node) => {
                let node = Arc::new(node);
                if self.store.keeps() {
                    self.cache.insert(*pointer, Arc::clone(&node));
                }
                Ok(node)
            }
            Err(_) if stale() => Err(LoadError::Stale),
            Err(error) => Err(LoadError::Failed(error)),
        }
    }

    fn read(&self, pointer: &BlockPointer, bounds: Bounds<'_>) -> Result<Node> {
        let (address, level) = (pointer.copies[0], pointer.level);
        let bytes = self.store.read(pointer).map_err(|source| Error::Read { address, level, source })?;
        let node = Node::decode(bytes).map_err(|source| Error::Decode { address, level, source })?;
        check_place(&node, pointer, bounds)?;
        Ok(node)
    }
}

/// Is this the node that the parent's pointer and separators speak of?
fn check_place(node: &Node, pointer: &BlockPointer, bounds: Bounds<'_>) -> Result<()> {
    let (address, level) = (pointer.copies[0], pointer.level);
    if node.level != level {
        return Err(Error::WrongLevel { address, expected: level, found: node.level });
    }
    match node.key_outside(bounds.lower, bounds.upper) {
        None => Ok(()),
        Some(key) => Err(Error::Misplaced {
            address,
            level,
            key: key.to_vec(),
            lower: bounds.lower.map(<[u8]>::to_vec),
            upper: bounds.upper.map(<[u8]>::to_vec),
        }),
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Tree")
            .field("options", &self.options)
            .field("level", &state.root.as_ref().map(Child::level))
            .field("epoch", &state.epoch)
            .field("dirty_bytes", &state.dirty_bytes)
            .finish_non_exhaustive()
    }
}

/// The value of a key on a path that is in the tree or held.
fn value_in_memory<'s>(root: Option<&'s Child>, key: &[u8], held: &'s HeldNodes) -> Option<&'s [u8]> {
    let mut child = root?;
    loop {
        let node: &Node = match child {
            Child::Dirty(dirty) => &dirty.node,
            Child::Stored(pointer) => held.get(pointer).expect("surveyed"),
        };
        if node.is_leaf() {
            return node.page.search(key).ok().map(|index| node.page.value(index));
        }
        child = &node.children[node.child_index(key)];
    }
}

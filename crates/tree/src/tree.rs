//! The tree: its state, its locks, and reading and changing it.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use steadfast_env::brief::BriefGuard;
use steadfast_format::BlockPointer;
use steadfast_format::node::{HEADER_SIZE, KEY_BYTES_MAX, NODE_BYTES_MAX, SLOT_SIZE, VALUE_BYTES_MAX};

use crate::ahead::{Ahead, WINDOW_MAX};
use crate::cache::{CacheView, NodeCache};
use crate::cursor::{Cursor, Entry, Range};
use crate::node::{Child, Node, Predecessor};
use crate::nodes::{Nodes, Wanted, check_place};
use crate::sync::{Frozen, Ledger};
use crate::unread::{self, Attempts, KeyRange};
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
    pub(crate) nodes: Nodes,
    pub(crate) options: Options,
    /// Tells this tree's snapshots from another's.
    pub(crate) token: Arc<()>,
    state: RwLock<State>,
    /// Number of syncs that have ended; changed under `state`.
    version: AtomicU64,
    pub(crate) ledger: Mutex<Ledger>,
    ahead: Ahead,
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
    /// It is not in memory, and the caller reads nothing.
    Unread(Box<Wanted>),
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
            nodes: Nodes { store, cache },
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
            ahead: Ahead::default(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Hands the value of a key, or `None`, to a function; no copy is made and no lock is held
    /// meanwhile.
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let leaf = self.leaf(key, key)?;
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
        let Some(leaf) = self.leaf(key, key)? else { return Ok(None) };
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
        let Some(leaf) = self.leaf(from, to)? else { return Ok(()) };
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

    /// Brings leaves into the cache that will be wanted soon: those of each range of keys, in
    /// order, `leaves_max` of one at most, all side by side. Ranges whose first leaf is in memory
    /// are left alone. True if anything was read. Errors are told to the reader that asks again.
    pub fn bring(&self, ranges: &[(Vec<u8>, Vec<u8>)], leaves_max: usize) -> bool {
        if unread::is_strict() || !self.nodes.store.keeps() {
            return false;
        }
        let mut attempts = Attempts::new();
        let look = || {
            ranges.iter().for_each(|(from, to)| _ = self.leaf(from, to));
            Err::<(), ()>(())
        };
        if attempts.attempt(look).is_some() {
            return false;
        }
        attempts.read_most(leaves_max);
        true
    }

    /// Tells the store that leaves will be wanted soon: those behind the one that holds `from`, up
    /// to `to` and `leaves_max` at most, as far as they are not in memory. Nobody waits for them.
    /// Says nothing if the leaf of `from` is in memory, or a node above one is not.
    pub fn bring_behind(&self, from: &[u8], to: &[u8], leaves_max: usize) {
        if unread::is_strict() || !self.nodes.store.keeps() || self.leaf_in_memory(from).is_some() {
            return;
        }
        let (mut missing, mut count) = (Vec::new(), 0);
        self.visit_leaves(from, to, |leaf| {
            count += 1;
            missing.extend(leaf.err());
            count < leaves_max
        });
        if let [_, behind @ ..] = &missing[..]
            && !behind.is_empty()
        {
            let pointers: Vec<BlockPointer> = behind.iter().map(|wanted| wanted.pointer).collect();
            self.nodes.store.bring(&pointers);
        }
    }

    /// Reads the leaves of a range that are not in memory, side by side, and the nodes above them,
    /// if the leaf that holds `from` is part of what the next sync writes, and there are
    /// `leaves_max` of them at most. Then [`Tree::gather`] finds all of them.
    pub fn read_to_gather(&self, from: &[u8], to: &[u8], leaves_max: usize) {
        if unread::is_strict() || !self.nodes.store.keeps() {
            return;
        }
        // A round ends at a node above leaves that is not in memory. There are not more of these
        // than leaves.
        for _ in 0..leaves_max {
            let (mut missing, mut count, mut is_first_dirty) = (Vec::new(), 0, false);
            let above = self.visit_leaves(from, to, |leaf| {
                count += 1;
                is_first_dirty |= count == 1 && leaf.as_ref().is_ok_and(|cursor| cursor.is_at_dirty());
                missing.extend(leaf.err());
                is_first_dirty && count <= leaves_max
            });
            let is_last = above.is_none();
            missing.extend(above);
            if !is_first_dirty || count > leaves_max || missing.is_empty() {
                return;
            }
            // An error is told to the reader that asks for it.
            _ = self.nodes.read_many(&missing);
            if is_last {
                return;
            }
        }
    }

    /// The next sync writes all leaves of a range that are in memory, changed or not, if it writes
    /// the one that holds `from` anyway and there are `leaves_max` of them at most: so they lie
    /// together. Reads nothing. While nobody changes the tree.
    pub fn gather(&self, from: &[u8], to: &[u8], leaves_max: usize) {
        let (mut held, mut same) = (HeldNodes::default(), Vec::new());
        let (mut count, mut is_first_dirty) = (0, false);
        self.visit_leaves(from, to, |leaf| {
            count += 1;
            if let Ok(cursor) = leaf {
                is_first_dirty |= count == 1 && cursor.is_at_dirty();
                if !cursor.is_at_dirty() {
                    same.extend(cursor.first_entry());
                    cursor.each_stored(|pointer, node| held.insert(pointer, Arc::clone(node)));
                }
            }
            is_first_dirty && count <= leaves_max
        });
        if !is_first_dirty || count > leaves_max || same.is_empty() {
            return;
        }
        // An entry that stays as it is makes its leaf a changed one.
        let changes: Vec<Change<'_>> = same.iter().map(|(key, value)| Change::Insert(key, value)).collect();
        // It cannot fail, as all nodes are held; if it did, the leaves would stay where they are.
        if let Ok((mut state, _)) = self.survey(&changes, &mut held) {
            self.apply(&mut state, &changes, &mut held);
        }
    }

    /// Shows the leaves of a range in order, each as a cursor that is there or as what is to be
    /// read, until the function says no or a node above a leaf is not in memory. Gives that node.
    /// Reads nothing.
    fn visit_leaves(
        &self,
        from: &[u8],
        to: &[u8],
        mut f: impl FnMut(Result<&Cursor, Wanted>) -> bool,
    ) -> Option<Wanted> {
        let mut above = None;
        let look = || {
            let (mut key, mut cursor) = (from.to_vec(), Cursor::new(self));
            loop {
                let (behind, goes_on) = match cursor.descend_to_key(self, &key) {
                    Ok(Some(_)) => (cursor.behind(), f(Ok(&cursor))),
                    Err(LoadError::Unread(wanted)) if wanted.pointer.level == 0 => {
                        (wanted.upper.clone(), f(Err(*wanted)))
                    }
                    Err(LoadError::Unread(wanted)) => {
                        above = Some(*wanted);
                        return Err::<(), ()>(());
                    }
                    Ok(None) | Err(_) => return Err(()),
                };
                match behind {
                    Some(behind) if goes_on && behind.as_slice() < to => key = behind,
                    _ => return Err(()),
                }
            }
        };
        _ = Attempts::new().attempt(look);
        above
    }

    /// In an operation that reads nothing: fails if making these changes would miss a node, so that
    /// an operation of several batches can look at all before it makes the first. In strictly
    /// ascending order of their keys.
    pub fn look(&self, changes: &[Change<'_>]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.survey(changes, &mut HeldNodes::default()).map(|_| ())
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
    ) -> Result<(BriefGuard<RwLockWriteGuard<'_, State>>, Vec<usize>)> {
        loop {
            let state = self.state_mut();
            let mut survey = Survey::new(held, &self.nodes, self.options.node_bytes_max);
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
            if unread::is_strict() {
                return Err(self.put_off(missing, held));
            }
            self.fault_in(&missing, held, version)?;
        }
    }

    /// Notes what an operation that reads nothing is missing, and keeps what it has.
    fn put_off(&self, missing: Vec<Missing>, held: &HeldNodes) -> Error {
        held.each(|pointer, node| unread::hold(&self.nodes, pointer, Ok(Arc::clone(node))));
        for Missing { wanted, keys, .. } in missing {
            if let Some(Err(error)) = unread::held(&self.nodes, &wanted.pointer) {
                return error;
            }
            let ranges = keys.into_iter().map(|key| KeyRange::new(key.clone(), Some(key))).collect();
            unread::miss(&self.nodes, wanted, ranges);
        }
        Error::Unread
    }

    /// Reads missing nodes side by side.
    fn fault_in(&self, missing: &[Missing], held: &mut HeldNodes, version: u64) -> Result<()> {
        if version != self.version() {
            return Ok(());
        }
        let wanted: Vec<Wanted> = missing.iter().map(|missing| missing.wanted.clone()).collect();
        let read = self.nodes.read_many(&wanted);
        for (Missing { wanted, optional, .. }, read) in missing.iter().zip(read) {
            match read {
                Ok(node) => held.insert(&wanted.pointer, node),
                Err(_) if version != self.version() => return Ok(()),
                Err(_) if *optional => held.refuse(&wanted.pointer),
                Err(error) => return Err(error),
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
            cache: &self.nodes.cache,
            dropped,
            dirty_bytes,
            before: Vec::with_capacity(changes.len()),
        };
        writer.change(root, changes);
        writer.before
    }

    /// The leaf that holds a key if any does; `None` for an empty tree. The caller goes on to `to`.
    fn leaf(&self, key: &[u8], to: &[u8]) -> Result<Option<Arc<Node>>> {
        if let Some(found) = self.leaf_in_memory(key) {
            return Ok(found);
        }
        loop {
            let mut cursor = Cursor::new(self);
            match cursor.descend_to_key(self, key) {
                Ok(leaf) => return Ok(leaf),
                Err(LoadError::Stale) => {}
                Err(LoadError::Unread(wanted)) => {
                    return Err(self.miss(*wanted, KeyRange::new(key.to_vec(), Some(to.to_vec()))));
                }
                Err(LoadError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Notes a node that an operation that reads nothing is missing.
    pub(crate) fn miss(&self, wanted: Wanted, range: KeyRange) -> Error {
        unread::miss(&self.nodes, wanted, vec![range]);
        Error::Unread
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
            let node = self.nodes.cache.glance(&stored)?;
            if node.is_leaf() {
                return Some(Some(node));
            }
            match &node.children[node.child_index(key)] {
                Child::Stored(pointer) => stored = *pointer,
                Child::Dirty(_) => unreachable!("a stored node has stored children"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn state(&self) -> BriefGuard<RwLockReadGuard<'_, State>> {
        BriefGuard::of(&self.state, || self.state.read().expect("a panic while the tree was being changed"))
    }

    #[track_caller]
    pub(crate) fn state_mut(&self) -> BriefGuard<RwLockWriteGuard<'_, State>> {
        BriefGuard::of(&self.state, || self.state.write().expect("a panic while the tree was being changed"))
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A sync has ended. Called under the state's lock.
    pub(crate) fn advance_version(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn store(&self) -> &dyn NodeStore {
        &*self.nodes.store
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
        if let Some(node) = self.load_at_hand(pointer, bounds, version)? {
            return Ok(node);
        }
        self.judge(self.nodes.read(pointer, bounds), version)
    }

    /// The same for a leaf, the child `index` of its parent, whose bounds are `within`. Brings
    /// those behind it too, where somebody goes through the tree.
    pub(crate) fn load_leaf(
        &self,
        parent: &Node,
        index: usize,
        within: Bounds<'_>,
        version: u64,
    ) -> Result<Arc<Node>, LoadError> {
        let pointer = |index: usize| match &parent.children[index] {
            Child::Stored(pointer) => Some(pointer),
            Child::Dirty(_) => None,
        };
        let first = pointer(index).expect("a leaf that is loaded is stored");
        let bounds = within.of_child(parent, index);
        if let Some(node) = self.load_at_hand(first, bounds, Some(version))? {
            return Ok(node);
        }
        let window = self.ahead.window(bounds.lower).min(self.window_max());
        let end = (index + window).min(parent.children.len());
        let mut wanted: Vec<Wanted> = (index + 1..end)
            .filter_map(|index| Some(Wanted::new(pointer(index)?, within.of_child(parent, index))))
            .filter(|wanted| self.nodes.cache.peek(&wanted.pointer).is_none())
            .collect();
        // Two leaves behind each other are wanted by chance, too. Where each request is dear, the
        // third is asked for, and this reader does not wait for it.
        let pointers: Vec<BlockPointer> = wanted.iter().map(|wanted| wanted.pointer).collect();
        let is_brought = window == 2 && !wanted.is_empty() && self.nodes.store.bring(&pointers);
        if is_brought {
            wanted.clear();
        }
        if let Some(behind) = within.of_child(parent, if is_brought { index } else { end - 1 }).upper {
            self.ahead.note(behind, window);
        }
        wanted.insert(0, Wanted::new(first, bounds));
        // An error of another one is told to the reader that asks for it.
        self.judge(self.nodes.read_many(&wanted).swap_remove(0), Some(version))
    }

    /// Leaves that may be read ahead: a share of the cache.
    fn window_max(&self) -> usize {
        let share = self.nodes.cache.bytes_max() / 8 / self.options.node_bytes_max;
        if self.nodes.store.keeps() { share.clamp(1, WINDOW_MAX) } else { 1 }
    }

    /// A stored node without reading it; `None` if it has to be read.
    fn load_at_hand(
        &self,
        pointer: &BlockPointer,
        bounds: Bounds<'_>,
        version: Option<u64>,
    ) -> Result<Option<Arc<Node>>, LoadError> {
        // Checked when it was read, but perhaps for another parent.
        let checked = |node: Arc<Node>| {
            check_place(&node, pointer, bounds).map_err(LoadError::Failed).map(|()| Some(node))
        };
        if let Some(node) = self.nodes.cache.glance(pointer) {
            return checked(node);
        }
        if version.is_some_and(|version| version != self.version()) {
            return Err(LoadError::Stale);
        }
        match unread::held(&self.nodes, pointer) {
            Some(Ok(node)) => checked(node),
            Some(Err(error)) => Err(LoadError::Failed(error)),
            None if unread::is_strict() => Err(LoadError::Unread(Box::new(Wanted::new(pointer, bounds)))),
            None => Ok(None),
        }
    }

    fn judge(&self, read: Result<Arc<Node>>, version: Option<u64>) -> Result<Arc<Node>, LoadError> {
        match read {
            Err(_) if version.is_some_and(|version| version != self.version()) => Err(LoadError::Stale),
            read => read.map_err(LoadError::Failed),
        }
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

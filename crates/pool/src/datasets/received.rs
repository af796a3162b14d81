//! Properties that came with a stream, beside those that are set. `docs/decisions/0100-received-properties.md`.
//!
//! ## Definitions
//! What is *set here* counts first, then what was *received*, then what the parent has, or the default. A property may be inherited anew
//! though a value was received: then neither of the first two counts until it is set, or goes back to what was received.
//!
//! ## Invariants
//! (P1) `Entry::props` holds what counts here by itself, set or received; only what is set is stored as a property.   `take_items`
//! (P2) A name in `counting` has its received value in `Entry::props`, and is not marked as inherited.              `check`

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::node::VALUE_BYTES_MAX;
use steadfast_format::stream::StreamBegin;
use steadfast_format::{DatasetId, MetaKey, ReceivedProperty};
use steadfast_property::{
    Change, Local, Scope, USER_VALUE_BYTES_MAX, is_user_property, lookup, parse_assignment,
};

use crate::core::error::{Error, Result};
use crate::core::inner::Inner;
use crate::datasets::dataset::NewKey;
use crate::datasets::quotas::Expected;
use crate::datasets::table::{Entry, Table};
use crate::streams::receive::ReceiveSpec;

/// Feature of pools that keep what was received apart from what is set.
pub(crate) const FEATURE: &str = "received_properties";
/// What users set is an item of the meta tree, and so is what they receive.
const _: () = assert!(USER_VALUE_BYTES_MAX + ReceivedProperty::LAYOUT.size() <= VALUE_BYTES_MAX);
/// Say how a dataset is encrypted, which is its receiver's to say.
pub(crate) const KEY_PROPERTIES: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

/// What a dataset received of properties.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ReceivedProps {
    rows: BTreeMap<String, ReceivedProperty>,
    /// Names whose received values count.
    counting: BTreeSet<String>,
    /// Names to write or remove at the next commit.
    dirty: BTreeSet<String>,
}

impl ReceivedProps {
    /// As stored; `props` are those that are set.
    pub fn load(&mut self, props: &mut Local, name: String, row: ReceivedProperty) {
        self.rows.insert(name.clone(), row);
        self.settle(props, &name);
    }

    /// Values that were received, whether they count or not.
    pub fn values(&self) -> Local {
        let value = |(name, row): (&String, &ReceivedProperty)| Some((name.clone(), row.value.clone()?));
        self.rows.iter().filter_map(value).collect()
    }

    /// The received value counts.
    pub fn counts(&self, name: &str) -> bool {
        self.counting.contains(name)
    }

    /// Names whose received values count.
    pub fn counting(&self) -> &BTreeSet<String> {
        &self.counting
    }

    /// Names that are stored, or are to be removed.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.rows.keys().chain(&self.dirty)
    }

    /// Items of the meta tree that a commit writes or removes.
    pub fn take_items(&mut self, id: DatasetId) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let item = |name: String| {
            let row = self.rows.get(&name).map(ReceivedProperty::encode);
            (MetaKey::ReceivedProperty(id, name).encode(), row)
        };
        std::mem::take(&mut self.dirty).into_iter().map(item).collect()
    }

    /// Sets a property here.
    pub fn set(&mut self, props: &mut Local, name: &str, value: &str) {
        self.counting.remove(name);
        self.mark(name, false);
        props.insert(name.to_owned(), value.to_owned());
    }

    /// What the parent has counts, whatever is received.
    pub fn inherit(&mut self, props: &mut Local, name: &str) {
        self.counting.remove(name);
        if !self.rows.is_empty() {
            self.mark(name, true);
        }
        props.remove(name);
    }

    /// What was received counts, or what the parent has.
    pub fn revert(&mut self, props: &mut Local, name: &str) {
        props.remove(name);
        self.counting.remove(name);
        self.mark(name, false);
        self.settle(props, name);
    }

    /// A stream says what a property is; `None`: it says nothing of it any more.
    pub fn receive(&mut self, props: &mut Local, name: &str, value: Option<&str>) {
        if self.counting.remove(name) {
            props.remove(name);
        }
        let row = self.rows.entry(name.to_owned()).or_default();
        row.value = value.map(str::to_owned);
        self.changed(name);
        self.settle(props, name);
    }

    fn mark(&mut self, name: &str, inherited: bool) {
        if inherited || self.rows.contains_key(name) {
            self.rows.entry(name.to_owned()).or_default().inherited = inherited;
            self.changed(name);
        }
    }

    fn changed(&mut self, name: &str) {
        self.rows.retain(|_, row| row.value.is_some() || row.inherited);
        self.dirty.insert(name.to_owned());
    }

    fn settle(&mut self, props: &mut Local, name: &str) {
        let Some(row) = self.rows.get(name).filter(|row| !row.inherited) else { return };
        if let Some(value) = row.value.as_ref().filter(|_| !props.contains_key(name)) {
            props.insert(name.to_owned(), value.clone());
            self.counting.insert(name.to_owned());
        }
    }
}

/// True if a stream can say it. What it cannot was set before that was refused, or forged: who sends the rest is not stopped by it.
pub(crate) fn goes_along(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

impl Entry {
    /// Takes what a receive brings.
    pub fn take_brought(&mut self, brought: &Brought) {
        let before: Vec<String> = self.props.keys().cloned().collect();
        brought.apply(&mut self.props, &mut self.received);
        self.props_dirty.extend(before.into_iter().chain(self.props.keys().cloned()));
    }
}

/// What a receive does to the properties of a dataset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought {
    /// Set (`-o`), or fixed when the dataset is made.
    pub set: Local,
    /// All that the stream brings; `None` if it brings none.
    received: Option<Local>,
    /// Inherited though received (`-x`); true: though set here, too.
    inherited: BTreeMap<String, bool>,
    /// What the stream has and is no property here, or has no such value.
    pub left_out: Vec<String>,
    /// It becomes an encryption root.
    pub key: Option<NewKey>,
}

impl Brought {
    pub fn apply(&self, props: &mut Local, received: &mut ReceivedProps) {
        if let Some(brought) = &self.received {
            let gone: Vec<String> =
                received.values().into_keys().filter(|n| !brought.contains_key(n)).collect();
            for name in gone {
                received.receive(props, &name, None);
            }
            for (name, value) in brought {
                received.receive(props, name, Some(value));
            }
            for (name, though_set) in &self.inherited {
                if *though_set || !props.contains_key(name) || received.counts(name) {
                    received.inherit(props, name);
                }
            }
        }
        for (name, value) in &self.set {
            received.set(props, name, value);
        }
    }
}

impl Inner {
    /// What of a stream's properties a dataset gets. `top`: it is the first of its stream, which `-o` is for; `new`: it is made now.
    pub(crate) fn brought(&self, spec: &ReceiveSpec, begin: &StreamBegin, top: bool, new: bool) -> Brought {
        let mut brought = Brought::default();
        let (mut received, mut inherited) = (Local::new(), BTreeMap::new());
        for (name, value) in &begin.properties {
            if KEY_PROPERTIES.contains(&name.as_str()) {
                if begin.raw && new {
                    brought.set.insert(name.clone(), value.clone());
                }
                continue;
            }
            let exact = parse_assignment(Scope::Dataset, &format!("{name}={value}"));
            if exact.ok().is_none_or(|(known, exact)| known != *name || exact != *value) {
                brought.left_out.push(name.clone());
                continue;
            }
            let property = lookup(Scope::Dataset, name).filter(|_| !is_user_property(name));
            if property.is_some_and(|property| property.change != Change::Anytime) {
                if new {
                    brought.set.insert(name.clone(), value.clone());
                }
                continue;
            }
            let (excluded, overridden) = (spec.exclude.contains(name), !top && spec.props.contains_key(name));
            if excluded || overridden {
                if property.is_some_and(|property| !property.inherit) {
                    continue;
                }
                inherited.insert(name.clone(), overridden);
            }
            received.insert(name.clone(), value.clone());
        }
        if begin.with_properties && self.has_feature(FEATURE) {
            (brought.received, brought.inherited) = (Some(received), inherited);
        } else if new {
            // Nothing tells them apart from what is set.
            received.retain(|name, _| !inherited.contains_key(name));
            brought.set.extend(received);
        }
        if top {
            brought.set.extend(spec.props.clone());
            brought.key = spec.key.clone().filter(|_| new);
        }
        brought
    }

    /// Refuses what a dataset cannot be told by what it receives. Gives what changes for it.
    pub(crate) fn check_brought(&self, id: DatasetId, brought: &Brought) -> Result<bool> {
        let (before, after) = {
            let table = self.table.read();
            let Some(entry) = table.get(id) else { return Ok(false) };
            let (mut props, mut received) = (entry.props.clone(), entry.received.clone());
            brought.apply(&mut props, &mut received);
            (entry.props.clone(), props)
        };
        let names: BTreeSet<&str> = before.keys().chain(after.keys()).map(String::as_str).collect();
        let edits: Vec<(&str, Option<&str>)> = names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name))
            .map(|name| (name, after.get(name).map(String::as_str)))
            .collect();
        self.check_edits(id, &edits)?;
        Ok(!edits.is_empty())
    }

    /// What arrives for a dataset is held to the limits that are set for that, or will be.
    pub(crate) fn expect_props(&self, hidden: DatasetId, brought: &Brought) {
        {
            let mut table = self.table.write();
            let receiving = |table: &Table| Some(table.get(hidden)?.receiving.as_ref()?.row.target);
            let Some(entry) = receiving(&table).and_then(|target| table.get(target)) else { return };
            let (mut props, mut received) = (entry.props.clone(), entry.received.clone());
            brought.apply(&mut props, &mut received);
            let entry = table.get_mut(hidden).and_then(|entry| entry.receiving.as_mut());
            if let Some(receiving) = entry.filter(|receiving| receiving.is_increment()) {
                receiving.expected = Some(Expected::of(&props, &received));
            }
        }
        self.update_quotas(None);
    }

    /// `zfs inherit -S`: a property goes back to what was received, or to what the parent has. Durable when it returns.
    pub(crate) fn revert_property(&self, name: &str, property: &str) -> Result<()> {
        self.check_writable()?;
        let id = self.table.read().find(name)?;
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let value = {
            let table = self.table.read();
            table.get(id).ok_or_else(missing)?.received.values().remove(property)
        };
        self.check_edits(id, &[(property, value.as_deref())])?;
        {
            let mut table = self.table.write();
            let Entry { props, received, props_dirty, .. } = table.get_mut(id).ok_or_else(missing)?;
            received.revert(props, property);
            props_dirty.insert(property.to_owned());
        }
        self.note_done(&format!("inherit -S {name} ({id}) {property}"));
        self.apply_settings(id);
        self.update_quotas(None);
        self.commit_changes()
    }

    /// Properties that go with a stream. Of a backup those that came with it, if any did.
    pub(crate) fn props_to_send(&self, id: DatasetId, backup: bool) -> Local {
        let table = self.table.read();
        let Some(entry) = table.get(id) else { return Local::new() };
        let received = entry.received.values();
        let mut sent = if backup && !received.is_empty() { received } else { entry.props.clone() };
        sent.retain(|name, value| goes_along(name, value));
        sent
    }

    /// Values that a dataset received, whether they count or not.
    pub(crate) fn received_props(&self, name: &str) -> Result<Local> {
        let table = self.table.read();
        let id = table.find(name)?;
        Ok(table.get(id).map(|entry| entry.received.values()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_counts_before_what_was_received_and_inheriting_before_both() {
        let (mut props, mut received) = (Local::new(), ReceivedProps::default());
        let value = |props: &Local| props.get("compression").cloned();
        received.inherit(&mut props, "compression");
        assert!(received.rows.is_empty(), "nothing was received, so nothing is to be kept from counting");
        received.receive(&mut props, "compression", Some("lz4"));
        assert_eq!((value(&props).as_deref(), received.counts("compression")), (Some("lz4"), true));
        received.set(&mut props, "compression", "zstd");
        received.receive(&mut props, "compression", Some("zle"));
        assert_eq!((value(&props).as_deref(), received.counts("compression")), (Some("zstd"), false));
        received.inherit(&mut props, "compression");
        received.receive(&mut props, "compression", Some("off"));
        assert_eq!((value(&props), received.counts("compression")), (None, false));
        assert_eq!(received.values()["compression"], "off");
        received.revert(&mut props, "compression");
        assert_eq!((value(&props).as_deref(), received.counts("compression")), (Some("off"), true));
        received.receive(&mut props, "compression", None);
        assert_eq!((value(&props), received.rows.len(), received.counting.len()), (None, 0, 0));
        assert_eq!(received.take_items(DatasetId(7)).len(), 1, "it is removed where it was stored");
        // What is inherited anew stays so though nothing is received of it for a while.
        received.receive(&mut props, "atime", Some("off"));
        received.inherit(&mut props, "compression");
        received.receive(&mut props, "compression", Some("lz4"));
        received.receive(&mut props, "compression", None);
        received.receive(&mut props, "compression", Some("lz4"));
        assert_eq!(value(&props), None);
    }

    #[test]
    fn what_is_stored_is_what_counts_after_an_import() {
        let (mut props, mut received) = (Local::new(), ReceivedProps::default());
        for (name, value) in [("atime", "off"), ("compression", "lz4"), ("exec", "off")] {
            received.receive(&mut props, name, Some(value));
        }
        received.set(&mut props, "compression", "zstd");
        received.inherit(&mut props, "exec");
        let stored: Vec<_> = received.take_items(DatasetId(7));
        let mut again = Local::from([("compression".to_owned(), "zstd".to_owned())]);
        let mut loaded = ReceivedProps::default();
        for (key, row) in stored {
            let Some(MetaKey::ReceivedProperty(_, name)) = MetaKey::decode(&key) else {
                panic!("another key")
            };
            loaded.load(&mut again, name, ReceivedProperty::decode(&row.expect("stored")).expect("read"));
        }
        assert_eq!((loaded, again), (received, props));
    }
}

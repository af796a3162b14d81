//! Properties that came with a stream, beside those that are set.
//! `docs/decisions/0100-received-properties.md`.
//!
//! ## Definitions
//! A value *set here* counts first, then one that was *received*, then the parent's, then the
//! default. A property may be inherited anew though a value was received: then neither of the first
//! two counts until it is set, or goes back to what was received.
//!
//! ## Invariants
//! [received.1] `Entry::props` holds the properties that count here by themselves, set or received;
//!      only the set ones are stored as properties.
//!      `take_items`
//! [received.2] A name in `counting` has its received value in `Entry::props`, and is not marked as
//!      inherited.
//!      `check`

use crate::datasets::received_props::ReceivedProps;
use crate::datasets::state::Datasets;
use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::node::VALUE_BYTES_MAX;
use steadfast_format::{DatasetId, ReceivedProperty};
use steadfast_property::{
    ALLOW_PREFIX, Change, Local, Scope, USER_VALUE_BYTES_MAX, applies, is_user_property, lookup,
};

use crate::core::error::{Error, Result};
use crate::datasets::dataset::NewKey;
use crate::datasets::quotas::Expected;
use crate::datasets::table::{Entry, Table};

/// Feature of pools that keep what was received apart from what is set.
pub(crate) const FEATURE: &str = "received_properties";
/// A user property is one item of the meta tree, set or received.
const _: () = assert!(USER_VALUE_BYTES_MAX + ReceivedProperty::LAYOUT.size() <= VALUE_BYTES_MAX);
/// Say how a dataset is encrypted, which is its receiver's to say.
pub(crate) const KEY_PROPERTIES: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

/// True if a stream can say it. Permissions stay here: they are of this machine's users. Other
/// values were set before they were refused, or forged: they do not stop the sender of the rest.
pub(crate) fn goes_along(name: &str, value: &str) -> bool {
    let is_permission = name.starts_with(ALLOW_PREFIX);
    !is_permission && !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

impl Entry {
    /// Takes what a receive brings.
    pub fn take_brought(&mut self, brought: &Brought) {
        let before: Vec<String> = self.props.keys().cloned().collect();
        brought.apply(&mut self.props, &mut self.received);
        self.props_dirty.extend(before.into_iter().chain(self.props.keys().cloned()));
    }

    /// Properties that stay when a whole snapshot replaces this dataset: those set here that can be
    /// changed, and those received. `volume`: the kind of the new one.
    pub fn props_to_keep(&self, volume: bool) -> (Local, ReceivedProps) {
        let stays = |name: &str| {
            let is_anytime = is_user_property(name)
                || lookup(Scope::Dataset, name).is_some_and(|p| p.change == Change::Anytime);
            // The size comes with the content.
            is_anytime && applies(name, volume) && name != "volsize" && !KEY_PROPERTIES.contains(&name)
        };
        let mut props = self.props.clone();
        props.retain(|name, _| stays(name) && !self.received.counts(name));
        let mut received = ReceivedProps::default();
        for (name, row) in self.received.rows.iter().filter(|(name, _)| stays(name)) {
            received.load(&mut props, name.clone(), row.clone());
            received.changed(name);
        }
        (props, received)
    }
}

/// Changes that a receive makes to the properties of a dataset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brought {
    /// Set (`-o`), or fixed when the dataset is made.
    pub set: Local,
    /// All that the stream brings; `None` if it brings none.
    pub received: Option<Local>,
    /// Inherited though received (`-x`); true: though set here, too.
    pub inherited: BTreeMap<String, bool>,
    /// Properties of the stream that do not exist here, or with a value that does not.
    pub left_out: Vec<String>,
    /// It becomes an encryption root.
    pub key: Option<NewKey>,
    /// Its sender keeps it in the clear on purpose (`encryption=off` is set there).
    pub clear: bool,
}

impl Brought {
    /// The receive may change a property.
    pub fn changes_properties(&self) -> bool {
        !self.set.is_empty() || self.received.is_some() || !self.inherited.is_empty() || self.key.is_some()
    }

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

impl Datasets {
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

    /// Holds a receive to the limits that its target has or will have.
    pub(crate) fn expect_props(&self, hidden: DatasetId, brought: &Brought) {
        {
            let mut table = self.table.write();
            let goal = |table: &Table| {
                let entry = table.get(hidden)?;
                entry.receiving.as_ref()?.goal(entry.row.parent)
            };
            let Some(entry) = goal(&table).and_then(|goal| table.get(goal)) else { return };
            let (mut props, mut received) = (entry.props.clone(), entry.received.clone());
            brought.apply(&mut props, &mut received);
            if let Some(receiving) = table.get_mut(hidden).and_then(|entry| entry.receiving.as_mut()) {
                receiving.expected = Some(Expected::of(&props, &received));
            }
        }
        self.update_quotas(None);
    }

    /// A property goes back to what was received, or to what the parent has. Durable when it
    /// returns.
    pub fn revert_property(&self, name: &str, property: &str) -> Result<()> {
        self.core.check_writable()?;
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
        self.core.note_done(&format!("inherit -S {name} ({id}) {property}"));
        self.apply_settings(id);
        self.update_quotas(None);
        self.core.commit_changes()
    }

    /// Properties that go with a stream. A backup sends the received ones, if there are any.
    pub(crate) fn props_to_send(&self, id: DatasetId, backup: bool) -> Local {
        let table = self.table.read();
        let Some(entry) = table.get(id) else { return Local::new() };
        let received = entry.received.values();
        let mut sent = if backup && !received.is_empty() { received } else { entry.props.clone() };
        sent.retain(|name, value| goes_along(name, value));
        // One in the clear directly below what is encrypted is so on purpose, also a clone, which
        // has no value of its own. The receiver cannot tell it from an opened one.
        let is_encrypted = |entry: &Entry| entry.is_encrypted() || entry.row.raw;
        if !is_encrypted(entry) && table.get(entry.row.parent).is_some_and(is_encrypted) {
            sent.insert("encryption".into(), "off".into());
        }
        sent
    }

    /// Values that a dataset received with streams, whether they count or not.
    pub fn received_props(&self, name: &str) -> Result<Local> {
        let table = self.table.read();
        let id = table.find(name)?;
        Ok(table.get(id).map(|entry| entry.received.values()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_format::MetaKey;

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
        // A property inherited anew stays so, though the next stream does not bring it.
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

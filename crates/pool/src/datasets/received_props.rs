//! Properties that a dataset or a snapshot received, beside those that are set.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use steadfast_format::DatasetId;
use steadfast_format::MetaKey;
use steadfast_format::ReceivedProperty;
use steadfast_property::Local;

/// Properties that a dataset received.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ReceivedProps {
    pub rows: BTreeMap<String, ReceivedProperty>,
    /// Names whose received values count.
    pub counting: BTreeSet<String>,
    /// Names to write or remove at the next commit.
    pub dirty: BTreeSet<String>,
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

    /// Inherits a property: the parent's value counts, even if one was received.
    pub fn inherit(&mut self, props: &mut Local, name: &str) {
        self.counting.remove(name);
        if !self.rows.is_empty() {
            self.mark(name, true);
        }
        props.remove(name);
    }

    /// Reverts a property to its received value, or else to the parent's.
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

    pub fn mark(&mut self, name: &str, inherited: bool) {
        if inherited || self.rows.contains_key(name) {
            self.rows.entry(name.to_owned()).or_default().inherited = inherited;
            self.changed(name);
        }
    }

    pub fn changed(&mut self, name: &str) {
        self.rows.retain(|_, row| row.value.is_some() || row.inherited);
        self.dirty.insert(name.to_owned());
    }

    pub fn settle(&mut self, props: &mut Local, name: &str) {
        let Some(row) = self.rows.get(name).filter(|row| !row.inherited) else { return };
        if let Some(value) = row.value.as_ref().filter(|_| !props.contains_key(name)) {
            props.insert(name.to_owned(), value.clone());
            self.counting.insert(name.to_owned());
        }
    }
}

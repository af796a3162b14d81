//! Notes: properties of users and tags, which go along with a snapshot beside its content.
//! `docs/decisions/0119-notes-in-streams.md`.
//!
//! ## Invariants
//! [notes.1] A snapshot gets the notes of its stream in the commit that takes it, or they are
//!      nowhere.
//!      `take_asked`; test: `tests/notes.rs`
//! [notes.2] `Snapshot::props` holds the properties that count, set or received; only the set ones
//!      are stored as properties, as for datasets [received.1].
//!      `table_items`

use crate::datasets::notes::Notes;
use crate::streams::state::Streams;

use steadfast_format::stream::{StreamBegin, StreamNotes};
use steadfast_format::{DatasetId, Txg};
use steadfast_property::{Local, Scope, is_tag, is_user_property, parse_assignment};

use crate::core::error::{Error, Result};
use crate::datasets::received::goes_along;
use crate::streams::receive::ReceiveSpec;
use crate::streams::send::SendSpec;

/// Feature of pools that keep what was received of snapshots apart from what is set.
pub(crate) const FEATURE: &str = "received_notes";

impl Streams {
    /// Properties and tags of a snapshot that go into the stream. Fails if they are more than a
    /// stream carries.
    pub(crate) fn notes_to_send(&self, spec: &SendSpec, id: DatasetId, txg: Txg) -> Result<StreamNotes> {
        let mut notes = StreamNotes::default();
        let of_dataset = match spec.properties {
            true => self.datasets.props_to_send(id, spec.backup),
            false => Local::new(),
        };
        let table = self.datasets.table.read();
        let found = table.get(id).and_then(|entry| Some((entry, entry.snapshots.get(&txg)?)));
        if let Some((entry, snapshot)) = found {
            let received = snapshot.received.values();
            // A backup gives back what it was given, and what its operator noted stays with it.
            let was_received = !received.is_empty() || !entry.received.values().is_empty();
            if spec.properties {
                let gives_back = spec.backup && was_received;
                notes.properties = if gives_back { received } else { snapshot.props.clone() };
            }
            if spec.holds {
                notes.tags = snapshot.holds.keys().cloned().collect();
            }
        }
        // Only a forged tag fails this test, and a receiver would refuse the whole stream for it.
        notes.properties.retain(|name, value| is_user_property(name) && goes_along(name, value));
        notes.tags.retain(|tag| is_tag(tag));
        let bytes = of_dataset.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        match notes.fits() && bytes <= StreamBegin::PROPS_MAX as usize {
            true => Ok(notes),
            false => Err(Error::NotesTooLong { name: spec.snapshot.clone() }),
        }
    }

    /// Properties and tags of the stream that a snapshot gets, and names of properties that do not
    /// exist here.
    pub(crate) fn notes_taken(&self, spec: &ReceiveSpec, came: StreamNotes) -> (Notes, Vec<String>) {
        let (mut notes, mut left_out) = (Notes::default(), Vec::new());
        let keeps_apart =
            self.core.has_feature(FEATURE) && self.core.has_feature(crate::datasets::received::FEATURE);
        for (name, value) in came.properties {
            let exact = parse_assignment(Scope::Dataset, &format!("{name}={value}"));
            let is_exact = exact.is_ok_and(|(known, exact)| known == name && exact == value);
            if !is_exact || !is_user_property(&name) {
                left_out.push(name);
                continue;
            }
            // A property set or left out for the file system is so for its snapshots, as for its
            // children.
            let is_hidden = spec.exclude.contains(&name) || spec.props.contains_key(&name);
            if keeps_apart {
                notes.received.receive(&mut notes.props, &name, Some(&value));
                if is_hidden {
                    notes.received.inherit(&mut notes.props, &name);
                }
            } else if !is_hidden {
                // Nothing tells it apart from what is set.
                notes.props.insert(name, value);
            }
        }
        if !spec.no_holds {
            notes.tags = came.tags;
        }
        (notes, left_out)
    }
}

/// A tag that nobody can have set, if there is one.
pub(crate) fn foreign_tag(notes: &StreamNotes) -> Option<&String> {
    notes.tags.iter().find(|tag| !is_tag(tag))
}

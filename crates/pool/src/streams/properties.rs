//! Properties that come with a stream.

use crate::datasets::received::Brought;
use crate::datasets::received::KEY_PROPERTIES;
use crate::streams::receive::ReceiveSpec;
use crate::streams::state::Streams;
use std::collections::BTreeMap;
use steadfast_format::stream::StreamBegin;
use steadfast_property::Change;
use steadfast_property::Local;
use steadfast_property::Scope;
use steadfast_property::is_user_property;
use steadfast_property::lookup;
use steadfast_property::parse_assignment;

impl Streams {
    /// Properties that a dataset gets from a stream. `top`: it is the first of its stream, which
    /// `-o` is for; `new`: it is made now.
    pub(crate) fn brought(&self, spec: &ReceiveSpec, begin: &StreamBegin, top: bool, new: bool) -> Brought {
        let mut brought = Brought::default();
        let (mut received, mut inherited) = (Local::new(), BTreeMap::new());
        for (name, value) in &begin.properties {
            if KEY_PROPERTIES.contains(&name.as_str()) {
                if begin.raw && new {
                    brought.set.insert(name.clone(), value.clone());
                }
                brought.clear |= !begin.raw && name == "encryption" && value == "off";
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
        if begin.with_properties && self.core.has_feature(crate::datasets::received::FEATURE) {
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
}

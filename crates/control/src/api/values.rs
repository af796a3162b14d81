//! Values, properties, and the outcome that most verbs answer with.

use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use steadfast_property::Resolved;

/// Exact values by property name.
pub type Properties = BTreeMap<String, String>;

/// Origin of a value; `zfs get` prints it as SOURCE.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Measured or fixed.
    None,
    /// The default.
    Default,
    /// Set here.
    Local,
    /// Received with a stream.
    Received,
    /// For this import or mount only.
    Temporary,
    /// Set on the named ancestor.
    Inherited(String),
}

/// A property's exact value and origin.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Exact form; `-` where there is none.
    pub value: String,
    /// Origin.
    pub source: Source,
}

impl Value {
    /// A measured value.
    #[must_use]
    pub fn measured(value: impl ToString) -> Value {
        Value { value: value.to_string(), source: Source::None }
    }
}

impl From<Resolved> for Value {
    fn from(resolved: Resolved) -> Value {
        let source = match resolved.source {
            steadfast_property::Source::None => Source::None,
            steadfast_property::Source::Default => Source::Default,
            steadfast_property::Source::Local => Source::Local,
            steadfast_property::Source::Received => Source::Received,
            steadfast_property::Source::Temporary => Source::Temporary,
            steadfast_property::Source::Inherited(from) => Source::Inherited(from),
        };
        Value { value: resolved.value, source }
    }
}

/// Answer of a verb that changes something.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Pools or file systems it touched, in order.
    pub touched: Vec<String>,
    /// Parts that failed although the verb succeeded: created, but not mounted.
    pub warnings: Vec<Refusal>,
}

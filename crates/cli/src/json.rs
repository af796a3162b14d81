//! Answers for programs, in the shape of OpenZFS 2.3 and later: a version header, then pools or
//! file systems by name.

use crate::date;
use crate::options::{Flag, Parsed};
use serde_json::{Map, Value, json};
use steadfast_control::api::{Source, Value as PropertyValue};
use steadfast_property::{nice_bytes, nice_number};

/// `--json-flat-vdevs`.
pub const FLAT_VDEVS: Flag = Flag {
    letter: '\0',
    long: "json-flat-vdevs",
    value: "",
    doc: "with -j: groups and devices side by side, each with its parent",
};
/// `--json-pool-key-guid`.
pub const KEY_GUID: Flag =
    Flag { letter: '\0', long: "json-pool-key-guid", value: "", doc: "with -j: pools by GUID" };

/// How numbers are written: as OpenZFS does with `-p` (exact) and `--json-int`.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Without units.
    pub exact: bool,
    /// Without quotes, which is exact too.
    pub as_number: bool,
}

impl Numbers {
    /// As the options say.
    #[must_use]
    pub fn of(parsed: &Parsed) -> Numbers {
        Numbers { exact: parsed.has('p'), as_number: parsed.has_long("json-int") }
    }

    fn in_words(self, value: u64, words: fn(u64) -> String) -> Value {
        if self.as_number || self.exact { self.raw(value) } else { json!(words(value)) }
    }

    /// A number without unit.
    #[must_use]
    pub fn raw(self, value: u64) -> Value {
        number(value, self.as_number)
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(self, value: u64) -> Value {
        self.in_words(value, nice_bytes)
    }

    /// A count.
    #[must_use]
    pub fn count(self, value: u64) -> Value {
        self.in_words(value, nice_number)
    }

    /// A time in seconds since 1970; `-` for 0.
    #[must_use]
    pub fn time(self, value: u64) -> Value {
        self.in_words(value, |value| if value == 0 { "-".to_owned() } else { date::stamp(value) })
    }
}

/// A pool's key among the pools of a document.
#[must_use]
pub fn pool_key(name: &str, guid: u64, parsed: &Parsed) -> String {
    if parsed.has_long(KEY_GUID.long) { guid.to_string() } else { name.to_owned() }
}

/// The head of a pool's entry.
#[must_use]
pub fn pool(name: &str, state: &str, (guid, txg): (u64, u64), numbers: Numbers) -> Value {
    json!({
        "name": name,
        "state": state,
        "pool_guid": numbers.raw(guid),
        "txg": numbers.raw(txg),
        "spa_version": numbers.raw(5000),
        "zpl_version": numbers.raw(5),
    })
}

/// A new document: `{"output_version": {"command": ..., "vers_major": 0, "vers_minor": 1}}`.
#[must_use]
pub fn document(command: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("output_version".into(), json!({ "command": command, "vers_major": 0, "vers_minor": 1 }));
    map
}

/// A number as OpenZFS writes it: in quotes, unless `--json-int`.
#[must_use]
pub fn number(value: u64, as_number: bool) -> Value {
    if as_number { json!(value) } else { json!(value.to_string()) }
}

/// One property with its source.
#[must_use]
pub fn property(shown: &str, value: &PropertyValue, as_number: bool) -> Value {
    let shown = match shown.parse::<u64>() {
        Ok(number) if as_number => json!(number),
        _ => json!(shown),
    };
    let (kind, data) = match &value.source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Received => ("RECEIVED", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
    };
    json!({ "value": shown, "source": { "type": kind, "data": data } })
}

/// The document as text, one line.
#[must_use]
pub fn text(document: Map<String, Value>) -> String {
    Value::Object(document).to_string()
}

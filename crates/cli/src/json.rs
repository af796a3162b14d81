//! Answers for programs, in the shape of OpenZFS 2.3 and later: a version header, then pools or
//! file systems by name.

use serde_json::{Map, Value, json};
use steadfast_control::api::{Source, Value as PropertyValue};

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

//! Output: one record a line, for people as `word field=value ...`, for programs as a JSON object.

use std::fmt;

use serde_json::{Map, Value};

/// One line of output: what it is about, and named values in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Kind of the thing described.
    pub what: &'static str,
    /// Names and values.
    pub fields: Vec<(&'static str, Value)>,
}

/// Receives records as they are made, so that memory does not grow with what is printed.
pub type Sink<'a> = dyn FnMut(Record) + 'a;

impl Record {
    /// A record without fields.
    #[must_use]
    pub fn new(what: &'static str) -> Record {
        Record { what, fields: Vec::new() }
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Record {
        self.fields.push((name, value.into()));
        self
    }

    /// With one more field, if there is a value.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Record {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The record as a JSON object whose field `record` says what it is.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut map = Map::new();
        map.insert("record".to_owned(), self.what.into());
        for (name, value) in &self.fields {
            map.insert((*name).to_owned(), value.clone());
        }
        Value::Object(map).to_string()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        for (name, value) in &self.fields {
            match value {
                Value::String(text) => write!(f, " {name}={}", tame(text))?,
                other => write!(f, " {name}={other}")?,
            }
        }
        Ok(())
    }
}

/// Text from a device as one word: in quotes and with escapes unless it is harmless, so that no
/// name written by a stranger moves the cursor or forges a field.
fn tame(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./:+@%".contains(c);
    if !text.is_empty() && text.chars().all(harmless) { text.to_owned() } else { format!("{text:?}") }
}

/// Bytes in hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).expect("a nibble is below 16");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Bytes that are mostly text (names): UTF-8 where they are, escapes where they are not.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_forges_no_field_and_moves_no_cursor() {
        let record = Record::new("label").with("name", "a\x1b[2J\" host=x\n").with("copy", 3);
        assert_eq!(record.to_string(), "label name=\"a\\u{1b}[2J\\\" host=x\\n\" copy=3");
        let value: Value = serde_json::from_str(&record.to_json()).unwrap();
        assert_eq!(value["name"], "a\x1b[2J\" host=x\n");
        assert_eq!(value["record"], "label");
    }

    #[test]
    fn bytes_are_shown_as_digits() {
        assert_eq!(hex(&[0x00, 0x9f, 0xff]), "009fff");
        assert_eq!(text(b"caf\xe9"), "caf\\xe9");
    }
}

//! Reading and printing properties of pools and datasets.

use crate::date;
use crate::options::Parsed;
use crate::session::{Failure, Session};
use crate::table::{Column, tame};
use std::collections::BTreeMap;
use std::path::Path;
use steadfast_control::api::{Properties, Source, Value};
use steadfast_property::{
    Kind, Scope, is_user_property, lookup, nice_bytes, nice_number, note, parse_assignment, parse_size,
    why_not_here, zfs_feature_state,
};

/// Reads words of the form `name=value`. Prints a note on those that are accepted for the sake of
/// programs written for ZFS.
///
/// # Errors
/// The first wrong word.
pub(crate) fn assignments<'a>(
    session: &mut Session<'_, '_>,
    scope: Scope,
    texts: impl Iterator<Item = &'a str>,
) -> Result<Properties, Failure> {
    let mut properties = Properties::new();
    for text in texts {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Failure::Usage(format!("missing '=' for property=value argument: '{text}'")));
        };
        // A value that is refused has no effect to be told.
        let of_zfs =
            scope == Scope::Pool && name.strip_prefix("feature@").and_then(zfs_feature_state).is_some();
        if (of_zfs || parse_assignment(scope, text).is_ok())
            && let Some(note) = note(scope, name, value)
        {
            session.tell(&format!("note: {}\n", tame(&note)));
        }
        check_as_zfs(scope, name, value)?;
        // The function of a feature of ZFS is in every pool or in none.
        if of_zfs {
            continue;
        }
        if properties.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::Usage(format!("property '{name}' specified multiple times")));
        }
    }
    Ok(properties)
}

/// Folders of ZFS with sets of features for `compatibility`.
const FEATURE_SETS: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];

/// Refuses what ZFS refuses although it has no effect here, or has one value only: a typing error
/// is told, and a program is not in doubt.
fn check_as_zfs(scope: Scope, name: &str, value: &str) -> Result<(), Failure> {
    let wrong = |sentence: String| Err(Failure::Usage(sentence));
    match (scope, name) {
        (Scope::Pool, "compatibility") => {
            let is_known = |set: &str| {
                matches!(set, "off" | "legacy")
                    || !set.contains('/')
                        && FEATURE_SETS.iter().any(|folder| Path::new(folder).join(set).is_file())
            };
            match value.split(',').find(|set| !is_known(set)) {
                Some(set) => {
                    wrong(format!("invalid value for 'compatibility': no set of features '{}'", tame(set)))
                }
                None => Ok(()),
            }
        }
        (Scope::Pool, name)
            if name.strip_prefix("feature@").is_some_and(|feature| zfs_feature_state(feature).is_some())
                && !matches!(value, "enabled" | "disabled") =>
        {
            wrong(format!(
                "invalid value '{}' for '{}': must be enabled or disabled",
                tame(value),
                tame(name)
            ))
        }
        (Scope::Dataset, "quota" | "refquota")
            if value.starts_with('0') && parse_size(value).is_some_and(|bytes| bytes == 0) =>
        {
            wrong(format!("use 'none' to disable {name}"))
        }
        _ => Ok(()),
    }
}

/// The value of a property as printed.
#[must_use]
pub(crate) fn shown(scope: Scope, name: &str, value: &str, exact: bool) -> String {
    let value = tame(value);
    match lookup(scope, name) {
        None if is_since(name) && !exact => value
            .parse()
            .map_or(value, |bytes: u64| if bytes == 0 { "0B".to_owned() } else { nice_bytes(bytes) }),
        // Values of users and groups are formatted where it is known whether they count bytes.
        Some(property) if !exact && !property.name.ends_with("...") => match (property.kind, value.parse()) {
            (Kind::Date, Ok(seconds)) => date::creation(seconds),
            // As in ZFS, bytes of a pool carry no unit below 1K, and those of a file system a B.
            (Kind::Bytes, Ok(bytes)) if scope == Scope::Pool => nice_number(bytes),
            _ => property.shown(&value),
        },
        _ => value,
    }
}

/// The properties of comma-separated lists, by their full names; `name` counts as one.
///
/// # Errors
/// The first unknown property.
pub(crate) fn columns_of(scope: Scope, lists: &[&str]) -> Result<Vec<String>, Failure> {
    let mut columns = Vec::new();
    for name in lists.iter().flat_map(|list| list.split(',')) {
        if name == "name" || is_user_property(name) || scope == Scope::Dataset && is_since(name) {
            columns.push(name.to_owned());
        } else if let Some(property) = lookup(scope, name) {
            let one_of_many = property.name.ends_with("...");
            columns.push(if one_of_many { name } else { property.name }.to_owned());
        } else if why_not_here(scope, name).is_some() {
            // Shown as `-`.
            columns.push(name.to_owned());
        } else {
            let error = steadfast_property::parse_assignment(scope, &format!("{name}=")).map(|_| ());
            let sentence = error.map_or_else(|e| e.to_string(), |()| format!("invalid property '{name}'"));
            return Err(Failure::Usage(sentence));
        }
    }
    Ok(columns)
}

/// True for `written@SNAPSHOT`.
pub(crate) fn is_since(name: &str) -> bool {
    name.strip_prefix("written@").is_some_and(|snapshot| !snapshot.is_empty())
}

/// The heading and the alignment of a column.
pub(crate) fn column(scope: Scope, name: &str) -> Column {
    match lookup(scope, name) {
        Some(property) if !property.name.ends_with("...") => {
            Column { heading: property.heading.to_owned(), right: property.is_numeric() }
        }
        _ => Column { heading: name.to_uppercase(), right: is_since(name) },
    }
}

/// The four columns of `get`.
pub(crate) const GET_FIELDS: [&str; 4] = ["name", "property", "value", "source"];

/// Reads the fields in `-o`.
///
/// # Errors
/// The first unknown field.
pub(crate) fn get_fields(parsed: &Parsed, received: bool) -> Result<Vec<&str>, Failure> {
    let Some(list) = parsed.value('o') else { return Ok(GET_FIELDS.to_vec()) };
    let mut fields = Vec::new();
    for field in list.split(',') {
        match field {
            // Pools have no received values.
            "all" if received => fields.extend(["name", "property", "value", "received", "source"]),
            "all" => fields.extend(GET_FIELDS),
            "received" => fields.push(field),
            field if GET_FIELDS.contains(&field) => fields.push(field),
            field => {
                return Err(Failure::Usage(format!(
                    "invalid column name '{field}': must be name, property, value, received or source"
                )));
            }
        }
    }
    Ok(fields)
}

/// A source as `get` prints it.
pub(crate) fn source_text(source: &Source) -> String {
    match source {
        Source::None => "-".into(),
        Source::Default => "default".into(),
        Source::Local => "local".into(),
        Source::Received => "received".into(),
        Source::Temporary => "temporary".into(),
        Source::Inherited(from) => format!("inherited from {}", tame(from)),
    }
}

/// One row of `get`, with the given fields.
pub(crate) fn get_row(
    fields: &[&str],
    (name, property): (&str, &str),
    shown: String,
    received: Option<String>,
    source: &Source,
) -> Vec<String> {
    let field = |field: &&str| match *field {
        "name" => tame(name),
        "property" => tame(property),
        "value" => shown.clone(),
        "received" => received.clone().unwrap_or_else(|| "-".to_owned()),
        _ => source_text(source),
    };
    fields.iter().map(field).collect()
}

/// The headings of `get`.
pub(crate) fn get_columns(fields: &[&str]) -> Vec<Column> {
    fields.iter().map(|field| Column { heading: field.to_uppercase(), right: false }).collect()
}

/// Names of all properties in `have`: those of the table first, then user properties.
pub(crate) fn all_properties(
    table: &[steadfast_property::Property],
    have: &BTreeMap<String, Value>,
) -> Vec<String> {
    let native = table.iter().map(|p| p.name.to_owned()).filter(|name| have.contains_key(name));
    let own = have.keys().filter(|name| !table.iter().any(|p| p.name == *name)).cloned();
    native.chain(own).collect()
}

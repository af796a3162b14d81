//! From `name=value` as typed to a property and its exact value, or to a sentence.

use crate::elsewhere::{acts_as, substitute, why_not_here, why_not_this};
use crate::owner::OwnerProperty;
use crate::policy::{AUTO_SNAPSHOT, Policy, RESERVED_PREFIX};
use crate::pools::POOL;
use crate::share::ShareOptions;
use crate::size::parse_size;
use crate::table::{Change, DATASET, Kind, Property, Scope};
use std::borrow::Cow;

/// Longest value of a user property, in bytes (ZFS: 8,192). It must fit one item of a tree, with
/// the mark of a received value.
pub const USER_VALUE_BYTES_MAX: usize = 3_064;

/// Refusal of a property or value. Prints as a sentence with the allowed values.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// No `=` in what should be `name=value`.
    #[error("'{text}' is not of the form property=value")]
    NotAssignment {
        /// As typed.
        text: String,
    },
    /// Unknown property.
    #[error("invalid property '{name}'{hint}")]
    Unknown {
        /// As typed.
        name: String,
        /// Nearest known name, or where the list is.
        hint: String,
    },
    /// The property is a measurement.
    #[error("'{name}' is readonly")]
    ReadOnly {
        /// Property.
        name: &'static str,
    },
    /// The value is not one of the allowed.
    #[error("'{value}' is not a value of '{name}': must be {values}")]
    Value {
        /// Property.
        name: &'static str,
        /// As typed.
        value: String,
        /// Allowed values.
        values: &'static str,
    },
    /// A value of ZFS that is not offered.
    #[error("'{name}={value}' is not offered: {why}")]
    ValueElsewhere {
        /// Property.
        name: &'static str,
        /// As typed.
        value: String,
        /// The reason, and an alternative.
        why: &'static str,
    },
    /// A property of ZFS that is not offered.
    #[error("there is no property '{name}' here: {why}")]
    Elsewhere {
        /// Property.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// A user or group that has no number.
    #[error("'{name}': after the '@' must stand a user or group of this machine, or a number")]
    Owner {
        /// As typed.
        name: String,
    },
    /// A user property's name or value breaks the rules.
    #[error("user property '{name}' is not allowed: {rule}")]
    User {
        /// As typed.
        name: String,
        /// The rule.
        rule: &'static str,
    },
    /// A policy that cannot be parsed.
    #[error("'{name}' cannot be set: {why}")]
    Policy {
        /// Property.
        name: &'static str,
        /// Allowed values.
        why: String,
    },
}

/// Finds a property by name or by heading in small letters, as ZFS does (`avail`, `compress`).
#[must_use]
pub fn lookup(scope: Scope, name: &str) -> Option<&'static Property> {
    let table = match scope {
        Scope::Pool => POOL,
        Scope::Dataset => DATASET,
    };
    // One row stands for all features of the format; which there are is the format's business.
    let name = if scope == Scope::Pool && name.starts_with("feature@") { "feature@..." } else { name };
    // And of those of users and groups one row each.
    let prefix = name.split_inclusive('@').next().unwrap_or_default();
    let of_owners = scope == Scope::Dataset && OwnerProperty::split(name).is_some();
    let name = if of_owners { &format!("{prefix}...") } else { name };
    table.iter().find(|p| p.name == name).or_else(|| table.iter().find(|p| is_small(name, p.heading)))
}

/// True if the name is the heading in small letters.
fn is_small(name: &str, heading: &str) -> bool {
    name.eq_ignore_ascii_case(heading) && !name.contains(|c: char| c.is_ascii_uppercase())
}

/// Is this a user's own property (has a ':')?
#[must_use]
pub fn is_user_property(name: &str) -> bool {
    name.contains(':')
}

/// Checks name and value of a user's own property.
///
/// # Errors
/// The rule that is broken.
pub fn check_user_property(name: &str, value: &str) -> Result<(), PropertyError> {
    let refuse = |rule| Err(PropertyError::User { name: name.to_owned(), rule });
    if name.len() > 255 {
        return refuse("the name has more than 255 bytes");
    }
    let allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, ':' | '+' | '.' | '_' | '-');
    if !name.chars().all(allowed) {
        return refuse("the name takes lowercase letters, digits, ':', '+', '.', '_' and '-'");
    }
    if name.starts_with('-') {
        return refuse("the name begins with '-'");
    }
    if value.len() > USER_VALUE_BYTES_MAX {
        return refuse("the value has more than 3064 bytes");
    }
    if value.contains('\0') {
        return refuse("the value holds a zero byte");
    }
    if name == AUTO_SNAPSHOT {
        Policy::parse(value).map_err(|why| PropertyError::Policy { name: AUTO_SNAPSHOT, why })?;
    } else if name.starts_with(RESERVED_PREFIX) {
        return refuse(
            "names that begin with 'steadfast:' are reserved; the only such property is 'steadfast:auto-snapshot'",
        );
    }
    Ok(())
}

/// Reads `name=value`. Returns the name by which the property is stored and the exact value.
/// The caller checks [`Property::change`]; measured properties are refused here.
///
/// # Errors
/// [`PropertyError`], which prints as a sentence.
pub fn parse_assignment(scope: Scope, text: &str) -> Result<(String, String), PropertyError> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(PropertyError::NotAssignment { text: text.to_owned() });
    };
    if is_user_property(name) {
        check_user_property(name, value)?;
        return Ok((name.to_owned(), value.to_owned()));
    }
    let Some(property) = lookup(scope, name) else {
        if let Some(why) = why_not_here(scope, name) {
            return Err(PropertyError::Elsewhere { name: name.to_owned(), why });
        }
        return Err(PropertyError::Unknown { name: name.to_owned(), hint: hint(scope, name) });
    };
    let exact = property.parse(value)?;
    if OwnerProperty::split(name).is_some() && OwnerProperty::parse(name).is_none() {
        return Err(PropertyError::Owner { name: name.to_owned() });
    }
    let stored = if property.name.ends_with("...") { name } else { property.name };
    Ok((stored.to_owned(), exact))
}

impl Property {
    /// Reads a value as typed into its exact form.
    ///
    /// # Errors
    /// [`PropertyError`], which prints as a sentence.
    pub fn parse(&self, text: &str) -> Result<String, PropertyError> {
        // A feature has more states than can be set.
        let values = if self.name == "feature@..." { "enabled; there is no way back" } else { self.values };
        let wrong = || match why_not_this(self.name, text) {
            Some(why) => PropertyError::ValueElsewhere { name: self.name, value: text.to_owned(), why },
            None => PropertyError::Value { name: self.name, value: text.to_owned(), values },
        };
        if self.change == Change::Never {
            return Err(PropertyError::ReadOnly { name: self.name });
        }
        if let Cow::Owned(effect) = acts_as(self.name, text) {
            return self.parse(&effect).map(|_| text.to_owned());
        }
        let stored = substitute(self.name, text).map(|(stored, _)| stored);
        let text = stored.as_deref().unwrap_or(text);
        match self.kind {
            Kind::Bytes => parse_size(text).map(|n| n.to_string()).ok_or_else(wrong),
            Kind::Limit | Kind::CountLimit if text == "none" => Ok("0".to_owned()),
            // The size of a volume, which is not known here.
            Kind::Limit if self.name == "refreservation" && text == "auto" => Ok("auto".to_owned()),
            Kind::Limit | Kind::CountLimit => parse_size(text).map(|n| n.to_string()).ok_or_else(wrong),
            Kind::BytesUpTo { max } => {
                let fits = |n: &u64| *n == 0 || n.is_power_of_two() && (512..=max).contains(n);
                parse_size(text).filter(fits).map(|n| n.to_string()).ok_or_else(wrong)
            }
            Kind::PowerOfTwo { min, max } => match parse_size(text) {
                Some(n) if n.is_power_of_two() && (min..=max).contains(&n) => Ok(n.to_string()),
                _ => Err(wrong()),
            },
            Kind::Number { min, max } => match text.parse::<u64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(n.to_string()),
                _ => Err(wrong()),
            },
            Kind::Words(allowed) if allowed.contains(&text) => {
                let exact = match (self.name, text) {
                    // A choice made at creation: what `on` meant then must stay readable.
                    ("encryption", "on") => "aes-256-gcm",
                    _ => text,
                };
                Ok(exact.to_owned())
            }
            Kind::Words(_) => Err(wrong()),
            Kind::Text { bytes_max } => {
                if text.len() <= bytes_max && !text.chars().any(char::is_control) {
                    Ok(text.to_owned())
                } else {
                    Err(wrong())
                }
            }
            Kind::Mountpoint if matches!(text, "none" | "legacy") => Ok(text.to_owned()),
            Kind::PathOrNone | Kind::ListFile | Kind::AddressOrNone if text == "none" => Ok(text.to_owned()),
            Kind::AddressOrNone => host_and_port(text).ok_or_else(wrong),
            Kind::ListFile if text.is_empty() => Ok(text.to_owned()),
            Kind::Mountpoint | Kind::PathOrNone | Kind::ListFile => absolute_path(text).ok_or_else(wrong),
            Kind::Share => match ShareOptions::parse(text) {
                Ok(_) => Ok(text.to_owned()),
                Err(why) => Err(PropertyError::Policy { name: self.name, why }),
            },
            Kind::KeyLocation if text == "prompt" => Ok(text.to_owned()),
            Kind::KeyLocation => match text.strip_prefix("file://").and_then(absolute_path) {
                Some(path) => Ok(format!("file://{path}")),
                None => Err(wrong()),
            },
            Kind::Identifier | Kind::Percent | Kind::Ratio | Kind::Date => Err(wrong()),
        }
    }
}

/// `HOST:PORT`; a host of colons stands in brackets.
fn host_and_port(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.len() <= 253 && host.chars().all(is_plain),
    };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0) && port.bytes().all(|b| b.is_ascii_digit());
    (is_host && is_port).then(|| text.to_owned())
}

/// An absolute path without `.`, `..`, doubled or trailing slashes; `None` if it is not absolute or
/// holds a control character (mount tables are text).
fn absolute_path(text: &str) -> Option<String> {
    if !text.starts_with('/') || text.chars().any(char::is_control) || text.len() > 1023 {
        return None;
    }
    let mut path = String::new();
    for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return None;
        }
        path.push('/');
        path.push_str(part);
    }
    Some(if path.is_empty() { "/".to_owned() } else { path })
}

fn hint(scope: Scope, name: &str) -> String {
    let table = match scope {
        Scope::Pool => POOL,
        Scope::Dataset => DATASET,
    };
    match nearest(name, table.iter().map(|p| p.name)) {
        Some(found) => format!(": did you mean '{found}'?"),
        None => {
            let other = match scope {
                Scope::Pool => lookup(Scope::Dataset, name).map(|_| "a file system"),
                Scope::Dataset => lookup(Scope::Pool, name).map(|_| "a pool"),
            };
            let all = match scope {
                Scope::Pool => "`zpool get all` lists those of a pool",
                Scope::Dataset => "`zfs get all` lists those of a file system",
            };
            other.map_or_else(|| format!(": {all}"), |owner| format!(": it is a property of {owner}; {all}"))
        }
    }
}

/// The known word that was probably meant: at most two edits away, and fewer than it has letters.
pub fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let (edits, found) = known.into_iter().map(|name| (distance(name, word), name)).min()?;
    (edits <= 2 && edits < found.len().min(word.len())).then_some(found)
}

/// Edits (insert, delete, replace) between two words.
fn distance(a: &str, b: &str) -> usize {
    // User input may be long; beyond this nothing is "near" and the table would only cost time.
    if b.len() > 64 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(text: &str) -> Result<(String, String), PropertyError> {
        parse_assignment(Scope::Dataset, text)
    }

    fn exact(text: &str) -> String {
        dataset(text).unwrap_or_else(|e| panic!("{text}: {e}")).1
    }

    #[test]
    fn assignments_of_the_source_reports_parse() {
        for text in ["compression=lz4", "compression=off", "keyformat=passphrase", "compress=on"] {
            dataset(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
        assert_eq!(dataset("encryption=on").unwrap(), ("encryption".into(), "aes-256-gcm".into()));
        assert_eq!(dataset("acltype=posixacl").unwrap(), ("acltype".into(), "posix".into()));
        assert_eq!(dataset("acltype=noacl").unwrap(), ("acltype".into(), "off".into()));
        assert_eq!(dataset("recsize=1M").unwrap(), ("recordsize".into(), "1048576".into()));
    }

    #[test]
    fn every_level_of_compression_parses() {
        for level in 1..=19 {
            assert_eq!(exact(&format!("compression=zstd-{level}")), format!("zstd-{level}"));
        }
        assert!(matches!(dataset("compression=zstd-20"), Err(PropertyError::Value { .. })));
        assert!(matches!(dataset("compression=zstd-0"), Err(PropertyError::Value { .. })));
    }

    #[test]
    fn values_that_are_not_offered_are_refused_with_the_reason() {
        let elsewhere = [
            ("acltype=nfsv4", "POSIX"),
            ("casesensitivity=insensitive", "Samba"),
            ("normalization=formC", "convmv"),
            ("keylocation=https://x", "file://"),
            ("volmode=dev", "nbd-client"),
            ("snapdev=visible", "NBD"),
            ("snapdir=disabled", "hidden"),
        ];
        for (text, word) in elsewhere {
            let error = dataset(text).unwrap_err();
            assert!(matches!(error, PropertyError::ValueElsewhere { .. }), "{text}: {error}");
            let said = error.to_string();
            assert!(said.contains(text) && said.contains(word), "{said}");
        }
        assert_eq!(exact("sharenfs=rw=@10.0.0.0/8,ro"), "rw=@10.0.0.0/8,ro");
        let kerberos = dataset("sharenfs=sec=krb5").unwrap_err();
        assert_eq!(kerberos.to_string(), "'sharenfs' cannot be set: there is no Kerberos here; use sec=sys");
        for text in ["multihost=on", "bootfs=tank/root"] {
            let error = parse_assignment(Scope::Pool, text);
            assert!(matches!(error, Err(PropertyError::ValueElsewhere { .. })), "{text}: {error:?}");
        }
        assert!(matches!(parse_assignment(Scope::Pool, "ashift=17"), Err(PropertyError::Value { .. })));
        assert_eq!((exact("copies=2"), exact("copies=3")), ("2".into(), "3".into()));
        for text in
            ["compression=gzipped", "copies=4", "copies=0", "copies=02", "normalization=form", "xattr=folder"]
        {
            assert!(matches!(dataset(text), Err(PropertyError::Value { .. })), "{text}");
        }
        assert_eq!(
            (exact("xattr=off"), exact("utf8only=on"), exact("primarycache=none")),
            ("off".into(), "on".into(), "none".into())
        );
    }

    #[test]
    fn bad_values_say_what_is_allowed() {
        let error = dataset("compression=lz5").unwrap_err().to_string();
        assert!(error.contains("lz5") && error.contains("zstd-[1-19]"), "{error}");
        let bad = [
            "recordsize=100K",
            "recordsize=256",
            "recordsize=32M",
            "recordsize=",
            "atime=yes",
            "mountpoint=relative",
            "mountpoint=/a/../b",
            "keylocation=/no/scheme",
            "keylocation=file://relative",
            "mountpoint=/a\nb",
            "checksum=crc32",
            "quota=-1",
            "quota=ten",
            "refquota=",
            "reservation=99999E",
        ];
        for text in bad {
            assert!(matches!(dataset(text), Err(PropertyError::Value { .. })), "{text}");
        }
        assert!(matches!(dataset("used=1G"), Err(PropertyError::ReadOnly { .. })));
        assert_eq!((exact("checksum=on"), exact("checksum=blake3")), ("on".into(), "blake3".into()));
        assert_eq!(
            (exact("checksum=sha256"), exact("dedup=edonr,verify")),
            ("sha256".into(), "verify".into())
        );
        assert!(matches!(dataset("compression"), Err(PropertyError::NotAssignment { .. })));
    }

    #[test]
    fn an_unknown_property_suggests_the_nearest() {
        let error = dataset("compresion=on").unwrap_err().to_string();
        assert!(error.contains("did you mean 'compression'"), "{error}");
        let error = dataset("ashift=12").unwrap_err().to_string();
        assert!(error.contains("property of a pool"), "{error}");
        // As in ZFS, names have small letters.
        assert!(lookup(Scope::Dataset, "avail").is_some() && lookup(Scope::Dataset, "AVAIL").is_none());
        assert!(matches!(dataset("QuOta=none"), Err(PropertyError::Unknown { .. })));
        let error = parse_assignment(Scope::Pool, "recordsize=1M").unwrap_err().to_string();
        assert!(error.contains("property of a file system"), "{error}");
        let long = "x".repeat(100_000);
        assert!(dataset(&format!("{long}=1")).is_err());
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(exact("mountpoint=//srv/./x/"), "/srv/x");
        assert_eq!(exact("mountpoint=/"), "/");
        assert_eq!(dataset("userquota@1000=1M").unwrap(), ("userquota@1000".into(), "1048576".into()));
        assert!(matches!(dataset("userquota@joe=1M"), Err(PropertyError::Owner { .. })));
        assert!(matches!(dataset("userused@1000=1M"), Err(PropertyError::ReadOnly { .. })));
        assert_eq!(
            (exact("quota=none"), exact("refquota=0"), exact("quota=1.5K")),
            ("0".into(), "0".into(), "1536".into())
        );
        assert_eq!(exact("keylocation=file:///etc//key"), "file:///etc/key");
    }

    #[test]
    fn a_feature_can_only_be_enabled() {
        let set = |text| parse_assignment(Scope::Pool, text);
        assert_eq!(set("feature@zstd=enabled").unwrap(), ("feature@zstd".into(), "enabled".into()));
        for text in ["feature@zstd=disabled", "feature@zstd=active"] {
            assert!(matches!(set(text), Err(PropertyError::Value { .. })), "{text}");
        }
        assert!(dataset("feature@zstd=enabled").is_err());
    }

    #[test]
    fn exact_values_parse_to_themselves() {
        for table in [(Scope::Pool, POOL), (Scope::Dataset, DATASET)] {
            for property in table.1 {
                let Some(default) = property.default else { continue };
                if property.change == Change::Never || default == "-" || property.name == "keylocation" {
                    continue;
                }
                assert_eq!(property.parse(default).as_deref(), Ok(default), "{}", property.name);
            }
        }
        for text in ["recordsize=128K", "encryption=on", "mountpoint=/a//b", "comment:x=y z"] {
            let (name, once) = dataset(text).unwrap();
            assert_eq!(dataset(&format!("{name}={once}")).unwrap().1, once);
        }
    }

    #[test]
    fn user_properties_are_kept_within_rules() {
        assert_eq!(exact("org.example:owner=Ann, Bob"), "Ann, Bob");
        for text in ["Org:owner=x", "a b:c=x", "-a:b=x"] {
            assert!(matches!(dataset(text), Err(PropertyError::User { .. })), "{text}");
        }
        let long = "x".repeat(USER_VALUE_BYTES_MAX);
        assert_eq!(exact(&format!("a:b={long}")), long);
        for text in [format!("a:b={long}x"), "a:b=1\0".into()] {
            assert!(matches!(dataset(&text), Err(PropertyError::User { .. })), "{text:?}");
        }
        assert!(dataset(&format!("a:b={long}x")).unwrap_err().to_string().contains("3064"));
        assert_eq!(exact("steadfast:auto-snapshot=hourly=24,daily=7"), "hourly=24,daily=7");
        assert!(matches!(dataset("steadfast:auto-snapshot=hourly"), Err(PropertyError::Policy { .. })));
        assert!(matches!(dataset("steadfast:auto-snapshots=hourly=1"), Err(PropertyError::User { .. })));
    }
}

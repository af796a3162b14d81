//! The address of a store: `s3://bucket/prefix?endpoint=http://host:port&region=eu-central-1`,
//! `gs://bucket/prefix`, `az://container/prefix?account=NAME`, `file:///folder`.
//!
//! An address is stored in labels and shown in status, history and process lists, so it never holds
//! a secret: anything that looks like one is refused here, before it can reach any of these. It
//! may say where credentials lie: `credentials=/path/of/a/file` or `profile=NAME`.
//!
//! `capacity=10T` is no part of the address: it says what a new pool is to take the store for, and
//! is kept in the store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use url::{Host, Url};

/// Protocol of a store.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Scheme {
    /// Amazon S3 and everything that speaks it.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
    /// A folder of objects.
    File,
}

impl Scheme {
    /// Words before `://`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Scheme::S3 => "s3",
            Scheme::Gs => "gs",
            Scheme::Az => "az",
            Scheme::File => "file",
        }
    }

    /// Options behind `?` that mean something here.
    fn options(self) -> &'static [&'static str] {
        match self {
            Scheme::S3 => &["endpoint", "region", "credentials", "profile", "style", "capacity"],
            Scheme::Gs => &["endpoint", "credentials", "capacity"],
            Scheme::Az => &["endpoint", "account", "credentials", "capacity"],
            Scheme::File => &["capacity"],
        }
    }
}

/// How requests name the bucket.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Style {
    /// In the path: `http://host/bucket/object`. Every server that is not Amazon's knows it.
    #[default]
    Path,
    /// In the name of the host: `https://bucket.host/object`.
    Virtual,
}

/// Address of a store, without secrets. Two equal addresses print the same.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Location {
    scheme: Scheme,
    /// Bucket or container; empty for a folder.
    bucket: String,
    /// Parts of the path in front of every object's name, without slashes at its ends.
    prefix: String,
    /// The folder, if it is one.
    folder: PathBuf,
    endpoint: Option<String>,
    region: Option<String>,
    account: Option<String>,
    credentials: Option<PathBuf>,
    profile: Option<String>,
    style: Option<Style>,
    capacity: Option<u64>,
}

/// Refusal of an address. The address itself is not repeated: it may hold a secret.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// Not an address.
    #[error("This is not the address of a store: {reason}. Write for example s3://bucket/prefix.")]
    Malformed {
        /// The parser's words.
        reason: String,
    },
    /// Another protocol.
    #[error("Stores are s3://, gs://, az:// and file://; '{found}://' is none of them.")]
    Scheme {
        /// The word that was there.
        found: String,
    },
    /// A name or password in front of the host.
    #[error(
        "The address holds a name or password before '@'. An address is stored and shown, so it may hold no secret. \
         Put the keys into the environment, into ~/.aws/credentials, or into a file of mode 0600 and add \
         ?credentials=/path/of/the/file."
    )]
    UserInfo,
    /// An option that carries a secret.
    #[error(
        "The option '{option}' would put a secret into the address, which is stored and shown. \
         Put the keys into the environment, into ~/.aws/credentials, or into a file of mode 0600 and add \
         ?credentials=/path/of/the/file."
    )]
    Secret {
        /// The option's name.
        option: String,
    },
    /// An option nobody knows.
    #[error("'{option}' is not an option of {scheme}:// addresses; they have: {known}.")]
    Option {
        /// The option's name.
        option: String,
        /// Word of the scheme.
        scheme: &'static str,
        /// Options that exist.
        known: String,
    },
    /// An option twice, or with a value that it cannot have.
    #[error("The option '{option}' {problem}.")]
    Value {
        /// The option's name.
        option: &'static str,
        /// The problem, as the end of a sentence.
        problem: &'static str,
    },
    /// No bucket, or a name that no provider accepts.
    #[error("A bucket's name has 3 to 63 lower-case letters, digits, dots and dashes; this one {problem}.")]
    Bucket {
        /// The problem, as the end of a sentence.
        problem: &'static str,
    },
    /// A prefix that could name objects outside itself.
    #[error(
        "The part behind the bucket {problem}. Use letters, digits, '-', '_', '.' and '/' between parts."
    )]
    Prefix {
        /// The problem, as the end of a sentence.
        problem: &'static str,
    },
    /// A folder that is not absolute, or on another host.
    #[error("A folder's address is file:///absolute/folder, with three slashes and no '..'.")]
    Folder,
}

/// Words in an option's name that make it a secret.
const SECRETS: &[&str] = &["key", "secret", "token", "password", "passwd", "sig", "sas", "auth", "signature"];

/// Longest prefix: objects' names behind it must still fit into 1,024 bytes.
const PREFIX_MAX: usize = 512;

impl Location {
    /// True if `word` is meant as the address of a store rather than as a path.
    #[must_use]
    pub fn is_meant(word: &str) -> bool {
        word.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
        })
    }

    /// The address of a folder of objects.
    ///
    /// # Errors
    /// A path that is relative or has `..` in it.
    pub fn folder_at(path: &Path) -> Result<Location, LocationError> {
        let parts = path.components();
        let upwards = parts.clone().any(|part| part == std::path::Component::ParentDir);
        if !path.is_absolute() || upwards || path.to_str().is_none() {
            return Err(LocationError::Folder);
        }
        Ok(Location { folder: parts.collect(), ..Location::empty(Scheme::File) })
    }

    fn empty(scheme: Scheme) -> Location {
        Location {
            scheme,
            bucket: String::new(),
            prefix: String::new(),
            folder: PathBuf::new(),
            endpoint: None,
            region: None,
            account: None,
            credentials: None,
            profile: None,
            style: None,
            capacity: None,
        }
    }

    /// The address without a wish of capacity, and the wish: bytes.
    #[must_use]
    pub fn split_capacity(mut self) -> (Location, Option<u64>) {
        let capacity = self.capacity.take();
        (self, capacity)
    }

    /// Protocol.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Bucket or container; empty for a folder.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// In front of every object's name, without slashes at its ends; may be empty.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The folder of a `file://` address.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        (self.scheme == Scheme::File).then_some(self.folder.as_path())
    }

    /// Server, if it is not the provider's own.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Region, if the address says one.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Azure's storage account, if the address says one.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// File of mode 0600 that holds the keys, if the address says one.
    #[must_use]
    pub fn credentials(&self) -> Option<&Path> {
        self.credentials.as_deref()
    }

    /// Profile of `~/.aws`, if the address says one.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// How requests name the bucket: as said, else in the host's name at Amazon and in the path
    /// elsewhere.
    #[must_use]
    pub fn style(&self) -> Style {
        self.style.unwrap_or(if self.endpoint.is_some() { Style::Path } else { Style::Virtual })
    }

    /// True if the bytes leave this machine's own disks.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.scheme != Scheme::File
    }

    fn read_option(&mut self, name: &str, value: &str) -> Result<(), LocationError> {
        let scheme = self.scheme;
        let Some(&option) = scheme.options().iter().find(|known| **known == name) else {
            let lower = name.to_ascii_lowercase();
            if SECRETS.iter().any(|secret| lower.contains(secret)) {
                return Err(LocationError::Secret { option: name.to_owned() });
            }
            let known = match scheme.options() {
                [] => "none".to_owned(),
                options => options.join(", "),
            };
            return Err(LocationError::Option { option: name.to_owned(), scheme: scheme.word(), known });
        };
        let wrong = |problem| Err(LocationError::Value { option, problem });
        let is_word = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let slot = match option {
            "endpoint" => {
                self.endpoint = Some(endpoint(value)?);
                return Ok(());
            }
            "credentials" => {
                let path = Path::new(value);
                if !path.is_absolute() {
                    return wrong("needs the absolute path of a file");
                }
                self.credentials = Some(path.to_owned());
                return Ok(());
            }
            "style" => {
                self.style = Some(match value {
                    "path" => Style::Path,
                    "virtual" => Style::Virtual,
                    _ => return wrong("is path or virtual"),
                });
                return Ok(());
            }
            "capacity" => {
                let Some(bytes) = capacity(value) else {
                    return wrong("needs a size from 64M to 8E, like 500G or 10T");
                };
                self.capacity = Some(bytes);
                return Ok(());
            }
            "region" => &mut self.region,
            "account" => &mut self.account,
            _ => &mut self.profile,
        };
        if !is_word(value) {
            return wrong("needs a word of letters, digits, '-', '_' and '.'");
        }
        *slot = Some(value.to_owned());
        Ok(())
    }
}

/// Units of a capacity, the largest first.
const UNITS: [(char, u32); 5] = [('E', 60), ('P', 50), ('T', 40), ('G', 30), ('M', 20)];
/// Bounds of a capacity. The least is that of every device.
const CAPACITY: std::ops::RangeInclusive<u64> = 64 << 20..=8 << 60;

/// Reads a capacity: a whole number with a unit.
fn capacity(value: &str) -> Option<u64> {
    let unit = value.chars().next_back()?.to_ascii_uppercase();
    let (_, shift) = UNITS.into_iter().find(|(letter, _)| *letter == unit)?;
    let number: u64 = value[..value.len() - 1].parse().ok()?;
    let bytes = number.checked_mul(1 << shift)?;
    CAPACITY.contains(&bytes).then_some(bytes)
}

/// Writes it the shortest way.
fn capacity_text(bytes: u64) -> String {
    let fits = |(_, shift): &(char, u32)| bytes.is_multiple_of(1 << shift);
    let (letter, shift) = UNITS.into_iter().find(fits).unwrap_or(('M', 20));
    format!("{}{letter}", bytes >> shift)
}

/// Checks a server's address and writes it the shortest way.
fn endpoint(value: &str) -> Result<String, LocationError> {
    let wrong = |problem| LocationError::Value { option: "endpoint", problem };
    let url = Url::parse(value).map_err(|_| wrong("needs http://host:port or https://host:port"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(LocationError::UserInfo);
    }
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("needs http://host:port or https://host:port"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("may have nothing behind its host and path"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn check_bucket(name: &str) -> Result<(), LocationError> {
    let wrong = |problem| Err(LocationError::Bucket { problem });
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    match name.len() {
        0 => wrong("is missing"),
        1..3 => wrong("is shorter"),
        64.. => wrong("is longer"),
        _ if !name.bytes().all(good) => wrong("has others"),
        _ if name.starts_with(['.', '-']) || name.ends_with(['.', '-']) || name.contains("..") => {
            wrong("has a dot or dash at an end, or two dots side by side")
        }
        _ => Ok(()),
    }
}

fn check_prefix(path: &str) -> Result<String, LocationError> {
    let wrong = |problem| Err(LocationError::Prefix { problem });
    let prefix = path.trim_matches('/');
    if prefix.len() > PREFIX_MAX {
        return wrong("is longer than 512 bytes");
    }
    if prefix.is_empty() {
        return Ok(String::new());
    }
    for part in prefix.split('/') {
        if matches!(part, "" | "." | "..") {
            return wrong("has an empty part, '.' or '..'");
        }
        if !part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return wrong("has other characters");
        }
    }
    Ok(prefix.to_owned())
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Location, LocationError> {
        let malformed = |reason: &str| LocationError::Malformed { reason: reason.to_owned() };
        let (word, rest) = text.split_once("://").ok_or_else(|| malformed("'://' is missing"))?;
        let scheme = match word.to_ascii_lowercase().as_str() {
            "s3" => Scheme::S3,
            "gs" => Scheme::Gs,
            "az" => Scheme::Az,
            "file" => Scheme::File,
            _ => {
                // A word with other characters may be anything, a secret too.
                let plain = word.len() < 12 && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let found = if plain { word } else { "..." };
                return Err(LocationError::Scheme { found: found.to_owned() });
            }
        };
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(malformed("it holds a space or a control character"));
        }
        if rest.contains('#') {
            return Err(malformed("'#' has no meaning here"));
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(LocationError::UserInfo);
        }
        let mut location = Location::empty(scheme);
        if scheme == Scheme::File {
            // The parser of URLs decodes %20, and would quietly drop `..`.
            let upwards = path.split('/').any(|part| part == ".." || part.eq_ignore_ascii_case("%2e%2e"));
            let url = Url::parse(&format!("file://{path}")).map_err(|_| LocationError::Folder)?;
            let local = matches!(url.host(), None | Some(Host::Domain("")));
            if upwards || !local || !path.starts_with('/') {
                return Err(LocationError::Folder);
            }
            let folder = url.to_file_path().map_err(|()| LocationError::Folder)?;
            location = Location::folder_at(&folder)?;
        } else {
            let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
            check_bucket(bucket)?;
            location.bucket = bucket.to_owned();
            location.prefix = check_prefix(prefix)?;
        }
        let mut seen = Vec::new();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            if seen.contains(&name) {
                let option = scheme.options().iter().find(|known| **known == name).copied();
                return Err(LocationError::Value { option: option.unwrap_or("?"), problem: "stands twice" });
            }
            location.read_option(&name, &value)?;
            seen.push(name);
        }
        Ok(location)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.folder().map(Url::from_file_path) {
            Some(Ok(url)) => f.write_str(url.as_str())?,
            Some(Err(())) => return Err(fmt::Error),
            None => write!(f, "{}://{}", self.scheme.word(), self.bucket)?,
        }
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        let credentials = self.credentials.as_deref().and_then(Path::to_str);
        let style = self.style.map(|style| if style == Style::Path { "path" } else { "virtual" });
        let capacity = self.capacity.map(capacity_text);
        let options = [
            ("endpoint", self.endpoint.as_deref()),
            ("region", self.region.as_deref()),
            ("account", self.account.as_deref()),
            ("credentials", credentials),
            ("profile", self.profile.as_deref()),
            ("style", style),
            ("capacity", capacity.as_deref()),
        ];
        let mut before = '?';
        for (name, value) in options {
            if let Some(value) = value {
                // Characters that may stand in a query stay readable.
                write!(f, "{before}{name}=")?;
                for c in value.chars() {
                    match c {
                        '%' | '&' | '+' | '#' | '?' | '=' => write!(f, "%{:02X}", u32::from(c))?,
                        c => write!(f, "{c}")?,
                    }
                }
                before = '&';
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> LocationError {
        text.parse::<Location>().expect_err(text)
    }

    #[test]
    fn an_address_is_read_and_printed_the_same() {
        for text in [
            "s3://bucket",
            "s3://bucket/tank/a.b",
            "s3://bucket/tank?endpoint=http://127.0.0.1:7070",
            "s3://bucket?endpoint=https://[::1]:7070&region=eu-central-1&credentials=/etc/keys&style=virtual",
            "s3://bucket?profile=backup",
            "gs://bucket/tank",
            "az://container/tank?account=mine",
            "file:///srv/objects",
            "file:///srv/with%20space",
            "file:///srv/objects?capacity=64M",
            "s3://bucket/tank?region=x&capacity=10T",
        ] {
            let location: Location = text.parse().expect(text);
            assert_eq!(location.to_string(), text);
            assert_eq!(location.to_string().parse::<Location>().unwrap(), location);
        }
        let location: Location =
            "S3://bucket//tank/?endpoint=http%3A%2F%2Flocalhost%3A80%2F&region=x".parse().unwrap();
        assert_eq!(location.to_string(), "s3://bucket/tank?endpoint=http://localhost&region=x");
        assert_eq!((location.bucket(), location.prefix()), ("bucket", "tank"));
        assert_eq!(location.style(), Style::Path);
        assert_eq!("s3://bucket".parse::<Location>().unwrap().style(), Style::Virtual);
        let wished: Location = "s3://bucket?capacity=2048g&region=x".parse().unwrap();
        assert_eq!(wished.to_string(), "s3://bucket?region=x&capacity=2T");
        let (bare, capacity) = wished.split_capacity();
        assert_eq!((bare.to_string().as_str(), capacity), ("s3://bucket?region=x", Some(2 << 40)));
        let folder: Location = "file:///srv/with%20space".parse().unwrap();
        assert_eq!(folder.folder(), Some(Path::new("/srv/with space")));
        assert!(!folder.is_remote());
    }

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for text in [
            "s3://AKIAME:hunter2@bucket/tank",
            "s3://hunter2@bucket",
            "s3://bucket?endpoint=http://me:hunter2@host",
            "s3://bucket?secret_access_key=hunter2",
            "s3://bucket?AWS_SESSION_TOKEN=hunter2",
            "az://container?sig=hunter2",
            "az://container?sas=hunter2",
            "s3://bucket?region=eu&password=hunter2",
        ] {
            let error = refused(text);
            assert!(
                matches!(error, LocationError::UserInfo | LocationError::Secret { .. }),
                "{text}: {error:?}"
            );
            assert!(!error.to_string().contains("hunter2"), "{error}");
            assert!(error.to_string().contains("credentials=/path"), "{error}");
        }
    }

    #[test]
    fn bad_addresses_are_refused_by_what_is_wrong() {
        assert!(matches!(refused("bucket"), LocationError::Malformed { .. }));
        assert!(matches!(refused("http://bucket"), LocationError::Scheme { .. }));
        assert!(matches!(refused("s3://"), LocationError::Bucket { problem: "is missing" }));
        assert!(matches!(refused("s3://UPPER"), LocationError::Bucket { .. }));
        assert!(matches!(refused(&format!("s3://{}", "a".repeat(64))), LocationError::Bucket { .. }));
        assert!(matches!(refused("s3://bucket/../other"), LocationError::Prefix { .. }));
        assert!(matches!(refused("s3://bucket/a//b"), LocationError::Prefix { .. }));
        assert!(matches!(refused("s3://bucket/a%2fb"), LocationError::Prefix { .. }));
        assert!(matches!(refused(&format!("s3://bucket/{}", "a".repeat(600))), LocationError::Prefix { .. }));
        assert!(matches!(refused("s3://bucket?endpoint=ftp://host"), LocationError::Value { .. }));
        assert!(matches!(refused("s3://bucket?region="), LocationError::Value { .. }));
        assert!(matches!(refused("s3://bucket?credentials=keys"), LocationError::Value { .. }));
        assert!(matches!(refused("s3://bucket?region=a&region=b"), LocationError::Value { .. }));
        for capacity in ["", "10", "T", "63M", "9E", "1.5T", "-1T", "99999999999E", "10\u{e4}"] {
            let text = format!("s3://bucket?capacity={capacity}");
            assert!(matches!(refused(&text), LocationError::Value { option: "capacity", .. }), "{text}");
        }
        assert!(matches!(refused("s3://bucket?colour=red"), LocationError::Option { .. }));
        assert!(matches!(refused("s3://bucket#part"), LocationError::Malformed { .. }));
        assert!(matches!(refused("s3://bucket/a b"), LocationError::Malformed { .. }));
        for text in ["file://host/folder", "file://folder", "file:///a/../b", "file:///a/%2e%2e/b"] {
            assert_eq!(refused(text), LocationError::Folder, "{text}");
        }
        assert!(
            Location::is_meant("s3://x") && !Location::is_meant("/a/b://c") && !Location::is_meant("sda")
        );
    }
}

//! Keys of a store, found the way the providers' own tools find them.
//!
//! For S3, the first of these that says something:
//! 1. `credentials=FILE` of the address: a file of mode 0600 in the format of `~/.aws/credentials`;
//! 2. `profile=NAME` of the address, in `~/.aws/credentials` and `~/.aws/config`;
//! 3. `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`;
//! 4. the profile `AWS_PROFILE`, else `default`, in the same two files;
//! 5. the role of this machine or container, asked for when the first request is made.
//!
//! For GS and AZ, `credentials=FILE` names the key's file, and everything else is found by the
//! provider's variables. Keys are in memory only, are overwritten when they are dropped, and print
//! as `<redacted>`.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::{Location, Scheme};

/// A file of keys is small; something larger is another file.
const FILE_MAX: u64 = 64 << 10;

/// A value that never prints.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a value.
    #[must_use]
    pub fn new(value: &str) -> Secret {
        Secret(Zeroizing::new(value.to_owned()))
    }

    /// The value, for the one who signs.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Keys of a store, or where they come from.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Credentials {
    /// A pair of keys.
    Keys {
        /// Name of the key.
        access: Secret,
        /// The key.
        secret: Secret,
        /// Token of a session.
        token: Option<Secret>,
        /// Region that the same profile names.
        region: Option<String>,
        /// Where they were found, for messages.
        source: String,
    },
    /// The content of a key's file (GS: a service account).
    Document {
        /// Its text.
        text: Secret,
        /// Where it was found, for messages.
        source: String,
    },
    /// The machine's role, or the provider's own variables.
    Surroundings {
        /// Region of the profile, if one was found without keys.
        region: Option<String>,
    },
    /// None are needed.
    None,
}

impl Credentials {
    /// Where they come from, for messages.
    #[must_use]
    pub fn source(&self) -> &str {
        match self {
            Credentials::Keys { source, .. } | Credentials::Document { source, .. } => source,
            Credentials::Surroundings { .. } => "the role of this machine",
            Credentials::None => "nowhere: none are needed",
        }
    }

    /// Region beside the keys.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        match self {
            Credentials::Keys { region, .. } | Credentials::Surroundings { region } => region.as_deref(),
            _ => None,
        }
    }
}

/// Refusal, without any part of a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file that was named cannot be read.
    #[error("The file of keys {path} cannot be read: {reason}.")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's words.
        reason: String,
    },
    /// Others may read it.
    #[error(
        "The file of keys {path} has mode {mode:04o}: others than its owner may use it. Type: chmod 600 {path}"
    )]
    Open {
        /// The file.
        path: String,
        /// Its mode.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("The file of keys {path} belongs to user {owner}, not to you or root.")]
    Owner {
        /// The file.
        path: String,
        /// Its owner.
        owner: u32,
    },
    /// It is no such file.
    #[error("The file of keys {path}, line {line}: {problem}.")]
    Malformed {
        /// The file.
        path: String,
        /// The line, from 1; 0 for the whole file.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
    /// There is no such profile.
    #[error("There is no profile '{profile}' in {searched}.")]
    NoProfile {
        /// Its name.
        profile: String,
        /// Files that were searched.
        searched: String,
    },
    /// Half of a pair.
    #[error("{found} is set, {missing} is not: a key has both.")]
    Half {
        /// The half that is there.
        found: &'static str,
        /// The half that is not.
        missing: &'static str,
    },
}

/// Surroundings of a process: variables, home, user. A value, so that tests need not change
/// the process.
pub struct Surroundings<'a> {
    /// Value of a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Home of the user.
    pub home: Option<PathBuf>,
    /// User who runs the process.
    pub user: u32,
}

/// Finds the credentials for a store.
///
/// # Errors
/// A file that was named and is not there, is open to others or malformed; half a pair of keys.
/// Finding nothing is no error: the machine's role is asked for then.
pub fn find(location: &Location, around: &Surroundings<'_>) -> Result<Credentials, CredentialsError> {
    match location.scheme() {
        Scheme::File => Ok(Credentials::None),
        Scheme::S3 => find_s3(location, around),
        Scheme::Gs | Scheme::Az => match location.credentials() {
            Some(path) => {
                let text = read_private(path, around.user)?;
                let text = Secret(text);
                Ok(Credentials::Document { text, source: path.display().to_string() })
            }
            None => Ok(Credentials::Surroundings { region: None }),
        },
    }
}

fn find_s3(location: &Location, around: &Surroundings<'_>) -> Result<Credentials, CredentialsError> {
    let variable = |name: &str| (around.variable)(name).filter(|value| !value.is_empty());
    if let Some(path) = location.credentials() {
        let text = read_private(path, around.user)?;
        let source = path.display().to_string();
        let profile = location.profile().unwrap_or("default");
        let found = section(&source, &text, profile, false)?;
        return match found.and_then(|found| found.keys(source.clone())) {
            Some(keys) => Ok(keys),
            None => Err(CredentialsError::NoProfile { profile: profile.to_owned(), searched: source }),
        };
    }
    if location.profile().is_none() {
        let pair = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
        match pair {
            (Some(access), Some(secret)) => {
                return Ok(Credentials::Keys {
                    access: Secret::new(&access),
                    secret: Secret(Zeroizing::new(secret)),
                    token: variable("AWS_SESSION_TOKEN").as_deref().map(Secret::new),
                    region: variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")),
                    source: "the environment".to_owned(),
                });
            }
            (Some(_), None) => {
                let (found, missing) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
                return Err(CredentialsError::Half { found, missing });
            }
            (None, Some(_)) => {
                let (found, missing) = ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID");
                return Err(CredentialsError::Half { found, missing });
            }
            (None, None) => {}
        }
    }
    find_profile(location, around, &variable)
}

fn find_profile(
    location: &Location,
    around: &Surroundings<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Credentials, CredentialsError> {
    let named = location.profile().map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
    let profile = named.as_deref().unwrap_or("default");
    let at = |name: &str, file: &str| {
        variable(name)
            .map(PathBuf::from)
            .or_else(|| around.home.as_ref().map(|home| home.join(".aws").join(file)))
    };
    let files =
        [(at("AWS_SHARED_CREDENTIALS_FILE", "credentials"), false), (at("AWS_CONFIG_FILE", "config"), true)];
    let (mut all, mut searched, mut source) = (Section::default(), Vec::new(), None);
    let mut is_there = false;
    for (path, is_config) in files {
        let Some(path) = path else { continue };
        let name = path.display().to_string();
        searched.push(name.clone());
        if !path.exists() {
            continue;
        }
        // Its own tools read `config` whatever its mode; a file that holds a key is private.
        let text = if is_config { read(&path)?.0 } else { read_private(&path, around.user)? };
        if let Some(found) = section(&name, &text, profile, is_config)? {
            is_there = true;
            if source.is_none() && found.secret.is_some() {
                source = Some(name);
            }
            all.add(found);
        }
    }
    if named.is_some() && !is_there {
        return Err(CredentialsError::NoProfile {
            profile: profile.to_owned(),
            searched: searched.join(", "),
        });
    }
    let region = all.region.clone();
    Ok(source.and_then(|source| all.keys(source)).unwrap_or(Credentials::Surroundings {
        region: region.or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION")),
    }))
}

/// Entries of one profile that matter here.
#[derive(Default)]
struct Section {
    access: Option<Secret>,
    secret: Option<Secret>,
    token: Option<Secret>,
    region: Option<String>,
}

impl Section {
    fn add(&mut self, other: Section) {
        // Keys of one file belong together: a token of another would spoil them.
        if self.secret.is_none() {
            (self.access, self.secret, self.token) = (other.access, other.secret, other.token);
        }
        self.region = self.region.take().or(other.region);
    }

    fn keys(self, source: String) -> Option<Credentials> {
        let (access, secret) = (self.access?, self.secret?);
        Some(Credentials::Keys { access, secret, token: self.token, region: self.region, source })
    }
}

/// Reads one profile of an INI file. `None` if it has no such profile.
fn section(
    path: &str,
    text: &str,
    profile: &str,
    is_config: bool,
) -> Result<Option<Section>, CredentialsError> {
    let malformed = |line, problem| CredentialsError::Malformed { path: path.to_owned(), line, problem };
    let (mut found, mut inside) = (None::<Section>, false);
    for (number, line) in text.lines().enumerate() {
        let line_number = number + 1;
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(head) = line.strip_prefix('[') {
            let name = head.split_once(']').ok_or_else(|| malformed(line_number, "']' is missing"))?.0.trim();
            let name = match name.strip_prefix("profile") {
                Some(rest) if is_config && rest.starts_with([' ', '\t']) => rest.trim(),
                _ => name,
            };
            inside = name == profile;
            if inside {
                found.get_or_insert_default();
            }
            continue;
        }
        let Some(found) = found.as_mut().filter(|_| inside) else { continue };
        let Some((key, value)) = line.split_once('=') else {
            return Err(malformed(line_number, "neither '[profile]' nor 'name = value'"));
        };
        // Entries of a nested table (`s3 =`) are none of the profile's.
        if is_nested {
            continue;
        }
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "aws_access_key_id" => found.access = Some(Secret::new(value)),
            "aws_secret_access_key" => found.secret = Some(Secret::new(value)),
            "aws_session_token" => found.token = Some(Secret::new(value)),
            "region" => found.region = Some(value.to_owned()),
            _ => {}
        }
    }
    if let Some(Section { access, secret, .. }) = &found
        && access.is_some() != secret.is_some()
    {
        return Err(malformed(0, "a key has aws_access_key_id and aws_secret_access_key; one is missing"));
    }
    Ok(found)
}

/// Reads a file that nobody but its owner may use.
fn read_private(path: &Path, user: u32) -> Result<Zeroizing<String>, CredentialsError> {
    let (text, mode, owner) = read(path)?;
    let path = path.display().to_string();
    if mode & 0o077 != 0 {
        return Err(CredentialsError::Open { path, mode });
    }
    if owner != user && owner != 0 {
        return Err(CredentialsError::Owner { path, owner });
    }
    Ok(text)
}

/// Content, mode and owner of a small file. All three are of the same open file.
fn read(path: &Path) -> Result<(Zeroizing<String>, u32, u32), CredentialsError> {
    let name = path.display().to_string();
    let unreadable = |reason: &dyn fmt::Display| CredentialsError::Unreadable {
        path: name.clone(),
        reason: reason.to_string(),
    };
    // A pipe or a terminal would keep the caller waiting.
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => return Err(unreadable(&"it is not a regular file")),
        Ok(_) => {}
        Err(error) => return Err(unreadable(&error)),
    }
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    if text.len() as u64 > FILE_MAX {
        return Err(unreadable(&"it is larger than 64 KiB"));
    }
    Ok((text, metadata.mode() & 0o7777, metadata.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct World {
        home: tempfile::TempDir,
        variables: Vec<(&'static str, String)>,
    }

    impl World {
        fn new() -> World {
            let home = tempfile::tempdir().unwrap();
            std::fs::create_dir(home.path().join(".aws")).unwrap();
            World { home, variables: Vec::new() }
        }

        fn file(&self, name: &str, mode: u32, text: &str) -> PathBuf {
            let path = self.home.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn find(&self, address: &str) -> Result<Credentials, CredentialsError> {
            let variable = |name: &str| {
                self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
            };
            let user = self.home.path().metadata().unwrap().uid();
            let home = Some(self.home.path().to_owned());
            find(&address.parse().unwrap(), &Surroundings { variable: &variable, home, user })
        }
    }

    fn secret_of(credentials: &Credentials) -> (&str, &str, Option<&str>) {
        match credentials {
            Credentials::Keys { access, secret, token, .. } => {
                (access.reveal(), secret.reveal(), token.as_ref().map(Secret::reveal))
            }
            other => panic!("{other:?}"),
        }
    }

    const BOTH: &str = "[default]\naws_access_key_id = A\naws_secret_access_key=S\n\n# the other\n\
                        [other]\naws_access_key_id=OA\naws_secret_access_key=OS\naws_session_token=OT\n";

    #[test]
    fn the_chain_goes_from_the_address_to_the_environment_to_the_files_to_the_role() {
        let mut world = World::new();
        let none = world.find("s3://bucket").unwrap();
        assert_eq!(none, Credentials::Surroundings { region: None });

        world.file(
            ".aws/config",
            0o644,
            "[default]\nregion = eu-a\n[profile other]\nregion=eu-b\ns3 =\n  region = no\n",
        );
        assert_eq!(world.find("s3://bucket").unwrap().region(), Some("eu-a"));
        world.file(".aws/credentials", 0o600, BOTH);
        let found = world.find("s3://bucket").unwrap();
        assert_eq!((secret_of(&found), found.region()), (("A", "S", None), Some("eu-a")));
        let found = world.find("s3://bucket?profile=other").unwrap();
        assert_eq!((secret_of(&found), found.region()), (("OA", "OS", Some("OT")), Some("eu-b")));
        world.variables.push(("AWS_PROFILE", "other".to_owned()));
        assert_eq!(secret_of(&world.find("s3://bucket").unwrap()), ("OA", "OS", Some("OT")));

        world.variables.push(("AWS_ACCESS_KEY_ID", "EA".to_owned()));
        assert!(matches!(world.find("s3://bucket"), Err(CredentialsError::Half { .. })));
        world.variables.push(("AWS_SECRET_ACCESS_KEY", "ES".to_owned()));
        let found = world.find("s3://bucket").unwrap();
        assert_eq!((secret_of(&found), found.source()), (("EA", "ES", None), "the environment"));
        // The address goes before the environment.
        assert_eq!(secret_of(&world.find("s3://bucket?profile=other").unwrap()).0, "OA");
        let path = world.file("keys", 0o600, "[default]\naws_access_key_id=FA\naws_secret_access_key=FS\n");
        let found = world.find(&format!("s3://bucket?credentials={}", path.display())).unwrap();
        assert_eq!(secret_of(&found), ("FA", "FS", None));
        assert_eq!(world.find("file:///folder").unwrap(), Credentials::None);
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_none_is_refused() {
        let world = World::new();
        let ask = |path: &Path| world.find(&format!("s3://bucket?credentials={}", path.display()));
        let path = world.file("keys", 0o640, BOTH);
        let error = ask(&path).unwrap_err();
        assert!(matches!(error, CredentialsError::Open { mode: 0o640, .. }), "{error}");
        assert!(error.to_string().contains("chmod 600"));
        world.file(".aws/credentials", 0o644, BOTH);
        assert!(matches!(world.find("s3://bucket"), Err(CredentialsError::Open { .. })));
        world.file(".aws/credentials", 0o600, "");
        assert!(matches!(ask(world.home.path()), Err(CredentialsError::Unreadable { .. })));
        assert!(matches!(ask(&world.home.path().join("none")), Err(CredentialsError::Unreadable { .. })));
        for (name, text) in [
            ("half", "[default]\naws_secret_access_key=hunter2\n"),
            ("bare", "[default]\nhunter2\n"),
            ("head", "[hunter2\n"),
        ] {
            let error = ask(&world.file(name, 0o600, text)).unwrap_err();
            assert!(matches!(error, CredentialsError::Malformed { .. }), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let large = world.file("large", 0o600, &"#".repeat(70_000));
        assert!(matches!(ask(&large), Err(CredentialsError::Unreadable { .. })));
        let missing = world.find("s3://bucket?profile=nowhere").unwrap_err();
        assert!(matches!(missing, CredentialsError::NoProfile { .. }), "{missing}");
    }

    #[test]
    fn keys_never_print() {
        let world = World::new();
        world.file(
            ".aws/credentials",
            0o600,
            "[default]\naws_access_key_id=AKIAX\naws_secret_access_key=hunter2\n",
        );
        let found = world.find("s3://bucket").unwrap();
        let shown = format!("{found:?} {found:#?} {}", found.source());
        assert!(!shown.contains("hunter2") && !shown.contains("AKIAX"), "{shown}");
        assert!(shown.contains("<redacted>"), "{shown}");
    }
}

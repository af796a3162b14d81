//! The store: the lab's own in memory, or one that somebody runs.

use std::fmt::{self, Display};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[cfg(feature = "own-store")]
use steadfast_hostile::{BUCKET, KEYS, Store};

use crate::error::Error;

/// A store that was given on the command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Given {
    bucket: String,
    prefix: String,
    /// Host and port.
    authority: String,
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Given, String> {
        let rest = text.strip_prefix("s3://").ok_or("give s3://BUCKET/PREFIX?endpoint=http://HOST:PORT")?;
        let (place, query) =
            rest.split_once('?').ok_or("give the store's address behind it: ?endpoint=http://HOST:PORT")?;
        let endpoint = query
            .strip_prefix("endpoint=")
            .ok_or("give the store's address behind it: ?endpoint=http://HOST:PORT")?;
        let authority = endpoint
            .strip_prefix("http://")
            .ok_or("the lab counts requests as they pass, so the endpoint must begin with http://")?;
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, "lab"));
        let prefix = prefix.trim_end_matches('/');
        let authority = authority.trim_end_matches('/');
        if bucket.is_empty() || prefix.is_empty() || authority.is_empty() {
            return Err("give s3://BUCKET/PREFIX?endpoint=http://HOST:PORT".to_owned());
        }
        let authority =
            if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Given { bucket: bucket.to_owned(), prefix: prefix.to_owned(), authority })
    }
}

impl Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}?endpoint=http://{}", self.bucket, self.prefix, self.authority)
    }
}

/// A store in use.
pub(crate) struct Remote {
    /// Its socket.
    pub socket: SocketAddr,
    /// The bucket.
    pub bucket: String,
    /// Prefix of everything the experiment stores.
    pub prefix: String,
    /// Name and secret of the key. The secret goes into files of mode 0600 and nowhere else.
    pub key: (String, String),
    /// Name in the report.
    pub label: String,
    /// The lab's own, which ends with this.
    #[cfg(feature = "own-store")]
    _own: Option<Store>,
}

impl Remote {
    /// The store that was asked for.
    pub fn open(given: Option<&Given>) -> Result<Remote, Error> {
        let Some(given) = given else { return Remote::own() };
        let of_environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let key = of_environment("AWS_ACCESS_KEY_ID").zip(of_environment("AWS_SECRET_ACCESS_KEY"));
        let key = key.ok_or_else(|| Error::Missing {
            what: format!("{given} needs a key, and the environment has none."),
            action: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with sudo: `sudo -E`).".to_owned(),
        })?;
        let socket = given.authority.to_socket_addrs().ok().and_then(|mut found| found.next());
        let socket = socket.ok_or_else(|| Error::Missing {
            what: format!("{} is not the address of a host and a port.", given.authority),
            action: "give --store s3://BUCKET/PREFIX?endpoint=http://HOST:PORT.".to_owned(),
        })?;
        Ok(Remote {
            socket,
            bucket: given.bucket.clone(),
            // Another run may use the same prefix.
            prefix: format!("{}/{}", given.prefix, std::process::id()),
            key,
            label: given.to_string(),
            #[cfg(feature = "own-store")]
            _own: None,
        })
    }

    /// The lab's own store, in memory.
    #[cfg(feature = "own-store")]
    fn own() -> Result<Remote, Error> {
        let store = Store::start();
        store.set_page(1_000);
        let socket = store.endpoint();
        let socket = socket.trim_start_matches("http://").parse().expect("it listens on a socket");
        let key = (KEYS[0].0.to_owned(), KEYS[0].1.to_owned());
        Ok(Remote {
            socket,
            bucket: BUCKET.to_owned(),
            prefix: "lab".to_owned(),
            key,
            label: "S3 server of the lab, in memory".to_owned(),
            _own: Some(store),
        })
    }

    /// A packaged program has none.
    #[cfg(not(feature = "own-store"))]
    fn own() -> Result<Remote, Error> {
        Err(Error::Missing {
            what: "this program was built without the S3 server of the lab.".to_owned(),
            action:
                "give --store s3://BUCKET/PREFIX?endpoint=http://HOST:PORT, or build the program from its \
                     sources with `cargo build --release -p steadfast`."
                    .to_owned(),
        })
    }

    /// Writes the key as `~/.aws/credentials` has it.
    pub fn write_credentials(&self, folder: &Path) -> Result<PathBuf, Error> {
        let text =
            format!("[default]\naws_access_key_id={}\naws_secret_access_key={}\n", self.key.0, self.key.1);
        write_secret(&folder.join("credentials"), &text)
    }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<PathBuf, Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(Error::io("write", path))?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written_again() {
        let given: Given = "s3://bucket/a/b?endpoint=http://127.0.0.1:7070".parse().unwrap();
        assert_eq!((given.bucket.as_str(), given.prefix.as_str()), ("bucket", "a/b"));
        assert_eq!(given.to_string().parse::<Given>().unwrap(), given);
        let short: Given = "s3://bucket?endpoint=http://host/".parse().unwrap();
        assert_eq!(short.to_string(), "s3://bucket/lab?endpoint=http://host:80");
        assert!("s3:///x?endpoint=http://host".parse::<Given>().is_err());
    }
}

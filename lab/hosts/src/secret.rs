//! The secret that master and agents share, and what each proves with it.

use crate::Error;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Where the secret is looked for when no file is named.
pub const ENVIRONMENT: &str = "STEADFAST_BENCH_SECRET";
/// The other end of a connection can try guesses at leisure: shorter secrets are refused.
const LEAST_BYTES: usize = 16;
const MOST_BYTES: u64 = 4096;
/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 32;

/// Known to the master and to its agents, and to nobody else.
pub struct Secret {
    hkdf: &'static dyn Hkdf,
    keys: Box<dyn HkdfExpander>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The side that proves. Otherwise a proof could be sent back to its sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Master,
    Agent,
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// When there are too few to resist guessing.
    pub fn new(bytes: &[u8]) -> Result<Secret, Error> {
        if bytes.len() < LEAST_BYTES {
            return Err(Error::Secret(format!(
                "the secret has {} bytes, fewer than {LEAST_BYTES}: it could be guessed; make one with 'steadfast bench secret FILE'.",
                bytes.len()
            )));
        }
        // HKDF and HMAC with SHA-256, of the library that does TLS.
        let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
        let hkdf = suite.ok_or(rustls::Error::General("SHA-256 is missing".into()))?.hkdf_provider;
        Ok(Secret { hkdf, keys: hkdf.extract_from_secret(Some(b"steadfast bench"), bytes) })
    }

    /// The secret in a file that its owner alone may read. Blanks and line ends around it do not
    /// count.
    ///
    /// # Errors
    /// When the file cannot be read, is open to others, or is too short.
    pub fn read(path: &Path) -> Result<Secret, Error> {
        let shown = path.display();
        let refused = |why: String| Error::Secret(format!("the secret in '{shown}' cannot be used: {why}."));
        let file = std::fs::File::open(path).map_err(|e| refused(e.to_string()))?;
        let meta = file.metadata().map_err(|e| refused(e.to_string()))?;
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(refused(format!("other users can read the file; run 'chmod 600 {shown}'")));
        }
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).map_err(|e| refused(e.to_string()))?;
        Secret::new(text.trim_ascii())
    }

    /// The secret of a named file, else of the environment.
    ///
    /// # Errors
    /// When there is none, or it cannot be used.
    pub fn find(file: Option<&Path>) -> Result<Secret, Error> {
        if let Some(path) = file {
            return Secret::read(path);
        }
        match std::env::var(ENVIRONMENT) {
            Ok(text) => Secret::new(text.trim().as_bytes()),
            Err(_) => Err(Error::Secret(format!(
                "master and agents need a secret that both know: make one with 'steadfast bench secret FILE', copy it, \
                 and name it with --secret FILE (or put it into {ENVIRONMENT})."
            ))),
        }
    }

    /// Writes a new random secret into a file that must not be there yet.
    ///
    /// # Errors
    /// When the file is there or cannot be written.
    pub fn make(path: &Path) -> Result<(), Error> {
        let refused = |why: String| Error::Secret(format!("'{}' cannot be created: {why}.", path.display()));
        let mut bytes = [0u8; 32];
        random(&mut bytes).map_err(|e| refused(e.to_string()))?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| refused(e.to_string()))?;
        writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(|e| refused(e.to_string()))
    }

    /// Proof that a side knows the secret, on the connection with these exported keys.
    pub(crate) fn proof(&self, role: Role, exported: &[u8]) -> [u8; PROOF_BYTES] {
        self.sign(&self.key(role), exported)
    }

    /// Whether a proof is right. The comparison is of images of both under a secret key, so that
    /// its time tells nothing.
    pub(crate) fn proves(&self, role: Role, exported: &[u8], proof: &[u8]) -> bool {
        let key = self.key(role);
        let wanted = self.sign(&key, exported);
        proof.len() == PROOF_BYTES && self.sign(&key, &wanted) == self.sign(&key, proof)
    }

    fn key(&self, role: Role) -> OkmBlock {
        let name: &[u8] = match role {
            Role::Master => b"master",
            Role::Agent => b"agent",
        };
        self.keys.expand_block(&[name])
    }

    fn sign(&self, key: &OkmBlock, bytes: &[u8]) -> [u8; PROOF_BYTES] {
        let mut out = [0u8; PROOF_BYTES];
        let tag = self.hkdf.hmac_sign(key, bytes);
        out.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        out
    }
}

/// Random bytes from where TLS has its own.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), rustls::Error> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.secure_random.fill(bytes).map_err(|_| rustls::Error::FailedToGetRandomBytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_read_and_refused_when_it_protects_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        Secret::make(&path).unwrap();
        assert!(Secret::make(&path).unwrap_err().to_string().contains("exists"), "never written over");
        let (one, other) = (Secret::read(&path).unwrap(), Secret::new(b"0123456789abcdef").unwrap());
        let proof = one.proof(Role::Master, b"keys");
        assert!(Secret::read(&path).unwrap().proves(Role::Master, b"keys", &proof));
        assert!(!one.proves(Role::Agent, b"keys", &proof), "a proof cannot be sent back");
        assert!(!one.proves(Role::Master, b"other keys", &proof), "nor used on another connection");
        assert!(!other.proves(Role::Master, b"keys", &proof));
        assert!(!format!("{one:?}").contains(std::fs::read_to_string(&path).unwrap().trim()));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short\n").unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("5 bytes"));
        assert!(Secret::read(&dir.path().join("none")).is_err());
    }
}

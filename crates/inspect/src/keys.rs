//! Keys from one secret of the operator's: what it opens of a pool is known by trying.

use std::sync::Arc;

use steadfast_crypto::{BlockKeys, Key, KeyFormat, UserKey, WrappedKey};
use steadfast_env::Env;
use steadfast_format::{DatasetId, KdfParams, PoolGuid};

/// Most different stretchings of a passphrase that are tried: each may cost seconds, and a hostile
/// pool may name a different salt in every row.
const STRETCHED_MAX: usize = 16;

/// A user key, or why there is none, and how it was made.
type Made = ((KeyFormat, Option<KdfParams>), Result<Arc<UserKey>, String>);

/// The operator's secret, and the user keys made of it so far.
pub(crate) struct Secret {
    secret: Option<Vec<u8>>,
    made: Vec<Made>,
    env: Env,
}

impl Secret {
    pub fn new(secret: Option<Vec<u8>>, env: Env) -> Secret {
        Secret { secret, made: Vec::new(), env }
    }

    pub fn is_given(&self) -> bool {
        self.secret.is_some()
    }

    /// The user key of that format and stretching.
    fn user_key(&mut self, format: KeyFormat, kdf: Option<KdfParams>) -> Result<Arc<UserKey>, String> {
        if let Some((_, made)) = self.made.iter().find(|(how, _)| *how == (format, kdf)) {
            return made.clone();
        }
        let secret = self.secret.as_deref().ok_or("no key was given")?;
        if self.made.len() >= STRETCHED_MAX {
            return Err(format!("{STRETCHED_MAX} ways to stretch the passphrase were tried; no more are"));
        }
        let made = UserKey::new(format, secret, kdf).map(Arc::new).map_err(|error| error.to_string());
        self.made.push(((format, kdf), made.clone()));
        made
    }

    /// Unwraps a master key that is bound to `aad`.
    pub fn unwrap(&mut self, wrapped: &WrappedKey, aad: &[u8]) -> Result<Key, String> {
        let user = self.user_key(wrapped.key_format, wrapped.kdf)?;
        steadfast_crypto::unwrap(&user, wrapped, aad).map_err(|error| error.to_string())
    }

    /// Keys for blocks sealed under a master key.
    pub fn block_keys(&self, master: Key) -> Arc<BlockKeys> {
        Arc::new(BlockKeys::new(master, &|out: &mut [u8]| self.env.random.fill(out)))
    }
}

/// Data that the pool's wrapped master key is bound to.
pub(crate) fn pool_wrap_aad(pool: PoolGuid) -> Vec<u8> {
    [&b"steadfast pool key"[..], &pool.0.to_le_bytes()].concat()
}

/// Data that a dataset's wrapped master key is bound to.
pub(crate) fn dataset_wrap_aad(pool: PoolGuid, dataset: DatasetId) -> Vec<u8> {
    [&b"steadfast dataset key"[..], &pool.0.to_le_bytes(), &dataset.0.to_le_bytes()].concat()
}

/// Key of the tags of a sealed pool's uberblocks.
pub(crate) fn tag_key(master: &Key) -> Key {
    steadfast_crypto::derive(master, b"", "steadfast uberblock tag v1")
}

//! Loading and unloading keys of encryption roots.

use std::sync::Arc;

use steadfast_crypto::{BlockKeys, Key, UserKey};
use steadfast_format::{DatasetId, KdfParams, KeyFormat, PoolGuid, WrappedKey};

use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::table::{Entry, LoadedKeys};

/// What a dataset's wrapped master key is bound to.
pub(crate) fn wrap_aad(pool: PoolGuid, dataset: DatasetId) -> Vec<u8> {
    let mut aad = b"steadfast dataset key".to_vec();
    aad.extend_from_slice(&pool.0.to_le_bytes());
    aad.extend_from_slice(&dataset.0.to_le_bytes());
    aad
}

/// What the pool's wrapped master key is bound to.
pub(crate) fn pool_wrap_aad(pool: PoolGuid) -> Vec<u8> {
    let mut aad = b"steadfast pool key".to_vec();
    aad.extend_from_slice(&pool.0.to_le_bytes());
    aad
}

/// Unwraps a master key with a secret as the operator gave it. Costs one key derivation if it is a passphrase.
pub(crate) fn unwrap(
    name: &str,
    secret: &[u8],
    wrapped: &WrappedKey,
    aad: &[u8],
) -> Result<(Arc<UserKey>, Key)> {
    let user = UserKey::new(wrapped.key_format, secret, wrapped.kdf)?;
    let master = steadfast_crypto::unwrap(&user, wrapped, aad)
        .map_err(|_| Error::WrongKey { name: name.to_owned() })?;
    Ok((Arc::new(user), master))
}

/// A new user key from a secret: what `zfs create -o keyformat=...` needs.
pub fn new_user_key(
    format: KeyFormat,
    secret: &[u8],
    random: &dyn Fn(&mut [u8]),
    kdf: Option<KdfParams>,
) -> Result<UserKey> {
    let kdf = (format == KeyFormat::Passphrase).then(|| kdf.unwrap_or_else(|| UserKey::default_kdf(&random)));
    Ok(UserKey::new(format, secret, kdf)?)
}

impl Inner {
    /// The dataset as an encryption root, with its wrapped key.
    fn encryption_root(&self, name: &str) -> Result<(DatasetId, WrappedKey, bool)> {
        let table = self.table.read();
        let id = table.find(name)?;
        let entry = table.get(id).expect("just found");
        let Some(encryption) = &entry.row.encryption else {
            return Err(Error::NotEncrypted { name: name.to_owned() });
        };
        if encryption.root != id {
            let root = table.full_name(encryption.root);
            return Err(Error::NotEncryptionRoot { name: name.to_owned(), root });
        }
        Ok((id, encryption.wrapped.clone(), entry.keys.is_some()))
    }

    /// Format of the key that `load_key` wants.
    pub(crate) fn key_format(&self, name: &str) -> Result<KeyFormat> {
        Ok(self.encryption_root(name)?.1.key_format)
    }

    /// Loads the key of an encryption root and opens all datasets that take their key from it. With `dry_run` only
    /// says whether it is the right one.
    pub(crate) fn load_key(&self, name: &str, secret: &[u8], dry_run: bool) -> Result<()> {
        let (root, wrapped, loaded) = self.encryption_root(name)?;
        if loaded && !dry_run {
            return Err(Error::KeyLoaded { name: name.to_owned() });
        }
        let (user, master) = unwrap(name, secret, &wrapped, &wrap_aad(self.guid, root))?;
        if dry_run {
            return Ok(());
        }
        let random = |out: &mut [u8]| self.env.random.fill(out);
        let mut opened = vec![(root, master)];
        let followers: Vec<(DatasetId, WrappedKey)> = {
            let table = self.table.read();
            let below = table.keyed_by(root).into_iter().filter(|id| *id != root);
            below
                .filter_map(|id| Some((id, table.get(id)?.row.encryption.as_ref()?.wrapped.clone())))
                .collect()
        };
        for (id, wrapped) in followers {
            let master = steadfast_crypto::unwrap(&user, &wrapped, &wrap_aad(self.guid, id))
                .map_err(|_| Error::WrongKey { name: self.dataset_name(id) })?;
            opened.push((id, master));
        }
        {
            let mut table = self.table.write();
            for (id, master) in opened {
                let Some(entry) = table.get_mut(id) else { continue };
                let blocks = Arc::new(BlockKeys::new(master, &random));
                let user = (id == root).then(|| Arc::clone(&user));
                entry.keys = Some(LoadedKeys { blocks, user });
            }
        }
        self.space.expect_owner(root);
        let ids = self.table.read().keyed_by(root);
        for id in ids {
            self.open_head(id)?;
        }
        Ok(())
    }

    /// Forgets the key of an encryption root and closes all datasets that take their key from it. What they changed
    /// is committed first.
    pub(crate) fn unload_key(&self, name: &str) -> Result<()> {
        let (root, _, loaded) = self.encryption_root(name)?;
        if !loaded {
            return Err(Error::KeyNotLoaded { name: name.to_owned() });
        }
        let busy = |table: &crate::table::Table| {
            let ids = table.keyed_by(root);
            let used = |id: &&DatasetId| table.get(**id).is_some_and(Entry::is_in_use);
            ids.iter().find(used).map(|id| table.full_name(*id))
        };
        if let Some(name) = busy(&self.table.read()) {
            return Err(Error::Busy { name });
        }
        if !self.read_only {
            self.commit_changes()?;
        }
        let _turn = self.sync_turn.lock();
        let mut table = self.table.write();
        if let Some(name) = busy(&table) {
            return Err(Error::Busy { name });
        }
        for id in table.keyed_by(root) {
            let entry = table.get_mut(id).expect("just listed");
            entry.open = None;
            entry.keys = None;
            self.blockio.forget(id);
        }
        Ok(())
    }
}

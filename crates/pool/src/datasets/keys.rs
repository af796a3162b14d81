//! Loading and unloading keys of encryption roots.

use crate::datasets::state::Datasets;
use std::sync::Arc;

use steadfast_crypto::{BlockKeys, Key, UserKey};
use steadfast_format::{DatasetId, KdfParams, KeyFormat, PoolGuid, PoolState, WrappedKey};

use crate::core::error::{Error, Result};
use crate::datasets::dataset::NewKey;
use crate::datasets::table::{Entry, LoadedKeys, ROOT};

/// AAD of a dataset's wrapped master key.
pub(crate) fn wrap_aad(pool: PoolGuid, dataset: DatasetId) -> Vec<u8> {
    let mut aad = b"steadfast dataset key".to_vec();
    aad.extend_from_slice(&pool.0.to_le_bytes());
    aad.extend_from_slice(&dataset.0.to_le_bytes());
    aad
}

/// AAD of the pool's wrapped master key.
pub(crate) fn pool_wrap_aad(pool: PoolGuid) -> Vec<u8> {
    let mut aad = b"steadfast pool key".to_vec();
    aad.extend_from_slice(&pool.0.to_le_bytes());
    aad
}

/// Unwraps a master key with a secret as the operator gave it. Costs one key derivation if it is a
/// passphrase.
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

impl Datasets {
    /// The dataset as an encryption root, with its wrapped key.
    fn encryption_root(&self, name: &str) -> Result<(DatasetId, WrappedKey, bool)> {
        let id = self.table.read().find(name)?;
        if self.is_raw(id) {
            let roots = crate::datasets::raw::roots_of(&*self.open_head(id)?)?;
            let loaded = self.table.read().get(id).is_some_and(|entry| entry.raw_keys.is_some());
            return Ok((id, roots.wrapped, loaded));
        }
        let table = self.table.read();
        let gone = || Error::NoSuchDataset { name: name.to_owned() };
        let entry = table.get(id).ok_or_else(gone)?;
        let Some(encryption) = &entry.row.encryption else {
            return Err(Error::NotEncrypted { name: name.to_owned() });
        };
        if encryption.root != id {
            let root = table.full_name(encryption.root);
            return Err(Error::NotEncryptionRoot { name: name.to_owned(), root });
        }
        Ok((id, encryption.wrapped.clone(), entry.keys.is_some()))
    }

    /// Format of the key that [`Datasets::load_key`] wants.
    pub fn key_format(&self, name: &str) -> Result<KeyFormat> {
        Ok(self.encryption_root(name)?.1.key_format)
    }

    /// Loads the key of an encryption root; with `dry_run` only says whether it is the right one.
    pub fn load_key(&self, name: &str, secret: &[u8], dry_run: bool) -> Result<()> {
        let (root, wrapped, loaded) = self.encryption_root(name)?;
        if loaded && !dry_run {
            return Err(Error::KeyLoaded { name: name.to_owned() });
        }
        if self.is_raw(root) {
            return self.load_raw_key(root, name, secret, dry_run);
        }
        let (user, master) = unwrap(name, secret, &wrapped, &wrap_aad(self.core.identity.guid, root))?;
        if dry_run {
            return Ok(());
        }
        let random = |out: &mut [u8]| self.core.env.random.fill(out);
        let mut opened = vec![(root, master)];
        let followers: Vec<(DatasetId, WrappedKey)> = {
            let table = self.table.read();
            let below = table.keyed_by(root).into_iter().filter(|id| *id != root);
            below
                .filter_map(|id| Some((id, table.get(id)?.row.encryption.as_ref()?.wrapped.clone())))
                .collect()
        };
        for (id, wrapped) in followers {
            let master = steadfast_crypto::unwrap(&user, &wrapped, &wrap_aad(self.core.identity.guid, id))
                .map_err(|_| Error::WrongKey { name: self.core.dataset_name(id) })?;
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
        let ids = self.table.read().keyed_by(root);
        for id in ids {
            let owner =
                self.table.read().get(id).and_then(|entry| Some(entry.row.encryption.as_ref()?.owner));
            owner.into_iter().for_each(|owner| self.core.space.expect_owner(owner));
            if let Err(error) = self.open_head(id) {
                self.close_unopened(root);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Forgets keys of datasets that could not be opened with them.
    fn close_unopened(&self, root: DatasetId) {
        let mut table = self.table.write();
        for id in table.keyed_by(root) {
            let entry = table.get_mut(id).expect("just listed");
            if entry.open.is_none() {
                entry.keys = None;
            }
        }
    }

    /// Forgets the key of an encryption root. None of its datasets may be in use.
    pub fn unload_key(&self, name: &str) -> Result<()> {
        let (root, _, loaded) = self.encryption_root(name)?;
        if !loaded {
            return Err(Error::KeyNotLoaded { name: name.to_owned() });
        }
        let busy = |table: &crate::datasets::table::Table| {
            let keyed = table.keyed_by(root);
            let used = |entry: &&Entry| entry.is_in_use() || entry.is_arriving();
            let found = keyed.iter().filter_map(|id| table.get(*id)).find(used)?;
            let row = &found.row;
            Some(table.full_name(if found.is_hidden() { row.parent } else { row.id }))
        };
        if let Some(name) = busy(&self.table.read()) {
            return Err(Error::Busy { name });
        }
        if self.is_raw(root) {
            let mut table = self.table.write();
            return match table.get_mut(root).filter(|entry| !entry.is_in_use()) {
                Some(entry) => {
                    entry.raw_keys = None;
                    Ok(())
                }
                None => Err(Error::Busy { name: name.to_owned() }),
            };
        }
        if !self.core.health.read_only {
            self.core.commit_changes()?;
        }
        let _turn = self.core.sync_turn.lock();
        let mut table = self.table.write();
        if let Some(name) = busy(&table) {
            return Err(Error::Busy { name });
        }
        for id in table.keyed_by(root) {
            let entry = table.get_mut(id).expect("just listed");
            entry.open = None;
            entry.keys = None;
            let family = entry.row.family();
            self.core.blockio.forget(id, family);
        }
        drop(table);
        steadfast_device::pages::wipe();
        Ok(())
    }

    /// Gives a dataset another user key (`Some`), or the one of the encryption root above it
    /// (`None`). Its key must be loaded. Datasets below that take their key from the same place
    /// follow. Durable when it returns.
    pub fn change_key(&self, name: &str, new: Option<NewKey>, location: Option<&str>) -> Result<()> {
        self.core.check_writable()?;
        let id = self.table.read().find(name)?;
        self.check_not_raw(id, name)?;
        let (old_root, new_root, user) = self.key_change(id, name, new)?;
        let random = |out: &mut [u8]| self.core.env.random.fill(out);
        {
            let mut table = self.table.write();
            let followers: Vec<DatasetId> = table
                .keyed_by(old_root)
                .into_iter()
                // A clone may lie elsewhere than what it takes its key from.
                .filter(|follower| id == old_root || *follower == id || table.is_within(*follower, id))
                .collect();
            let moves = |follower: &&DatasetId| {
                let encryption = table.get(**follower).and_then(|entry| entry.row.encryption.as_ref());
                encryption.is_some_and(|encryption| encryption.owner != new_root)
            };
            if followers.iter().any(|follower| moves(&follower)) {
                self.core.need_feature("moved_datasets")?;
            }
            // Everything that can fail comes before the first change.
            let mut wrapped = Vec::new();
            for &follower in &followers {
                let locked = || Error::KeyNotLoaded { name: table.key_name(follower) };
                let keys = table.get(follower).and_then(|entry| entry.keys.as_ref()).ok_or_else(locked)?;
                let aad = wrap_aad(self.core.identity.guid, follower);
                wrapped.push(steadfast_crypto::wrap(&user, keys.blocks.master(), &aad, &random));
            }
            for (follower, wrapped) in followers.into_iter().zip(wrapped) {
                let entry = table.get_mut(follower).expect("just listed");
                let encryption = entry.row.encryption.as_mut().expect("it has a key");
                (encryption.root, encryption.wrapped) = (new_root, wrapped);
                entry.row_dirty = true;
                if let Some(keys) = &mut entry.keys {
                    keys.user = (follower == new_root).then(|| Arc::clone(&user));
                }
            }
            let entry = table.get_mut(id).expect("just found");
            let format = (new_root == id).then(|| user.format().name());
            for (property, value) in [("keyformat", format), ("keylocation", location)] {
                match value.filter(|_| new_root == id) {
                    Some(value) => _ = entry.props.insert(property.to_owned(), value.to_owned()),
                    None if new_root == id => continue,
                    None => _ = entry.props.remove(property),
                }
                entry.props_dirty.insert(property.to_owned());
            }
        }
        self.core.commit_changes()?;
        if id == ROOT
            && let Some(sealing) = &self.core.sealing
        {
            // The pool's own key after the rows: the labels are not part of a commit. Import says
            // what a crash between the two means.
            let turn = self.core.sync_turn.lock();
            let aad = pool_wrap_aad(self.core.identity.guid);
            let wrapped = steadfast_crypto::wrap(&user, sealing.keys.master(), &aad, &random);
            {
                let mut stored = sealing.wrapped.write();
                stored.0 = wrapped;
                if let Some(location) = location {
                    location.clone_into(&mut stored.1);
                }
            }
            let written = self.devices.write_labels(PoolState::Active, self.core.txgs.commits.committed());
            drop(turn);
            if written.is_err() {
                // The rows have the new key. As long as a label has the old one, that opens the
                // pool: commits give up what stood in the way, if the pool does without it, and
                // write them all.
                self.devices.labels_due.mark();
                self.zil.settle_labels()?;
            }
        }
        Ok(())
    }

    /// Where a dataset's key comes from, where it shall come from, and the user key that is there.
    fn key_change(
        &self,
        id: DatasetId,
        name: &str,
        new: Option<NewKey>,
    ) -> Result<(DatasetId, DatasetId, Arc<UserKey>)> {
        let table = self.table.read();
        let not_encrypted = || Error::NotEncrypted { name: name.to_owned() };
        let old_root = table.encryption_root(id).ok_or_else(not_encrypted)?;
        if table.get(id).is_none_or(|entry| entry.keys.is_none()) {
            return Err(Error::KeyNotLoaded { name: table.full_name(old_root) });
        }
        if let Some(new) = new {
            return Ok((old_root, id, new.user));
        }
        if old_root != id {
            let root = table.full_name(old_root);
            return Err(Error::NotEncryptionRoot { name: name.to_owned(), root });
        }
        let parent = table.get(id).map_or(DatasetId(0), |entry| entry.row.parent);
        let above = (id != ROOT).then(|| table.encryption_root(parent)).flatten();
        let Some(new_root) = above else {
            let parent = if id == ROOT { self.core.name() } else { table.full_name(parent) };
            return Err(Error::NothingToInherit { name: name.to_owned(), parent });
        };
        drop(table);
        Ok((old_root, new_root, self.user_key_of(new_root)?))
    }
}

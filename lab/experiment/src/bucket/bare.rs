//! The limit: transfers of a bare loop over the crate `object_store`, 32 at once, through the same
//! kind of way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::remote::Remote;
use crate::error::Error;
use crate::load::files::Noise;

/// Bytes of an object: those of a segment of a pool.
const OBJECT: u64 = 8 << 20;
/// Transfers under way.
const AT_ONCE: usize = 32;
/// Bytes of a ranged read.
const RANGE: u64 = 4096;
/// Ranges are read of objects that are at least so large.
const LARGE: u64 = 1 << 20;

/// A client of the store at an endpoint: through a link, or beside it.
pub(crate) struct Bare {
    store: Arc<AmazonS3>,
    prefix: String,
    runtime: tokio::runtime::Runtime,
}

fn failed(error: object_store::Error) -> Error {
    Error::Missing {
        what: format!("The store failed under a bare loop of object_store: {error}."),
        action: "look whether the store runs, and whether the key may write into the bucket.".to_owned(),
    }
}

impl Bare {
    /// A client at `endpoint`, `HOST:PORT`, for the objects of `prefix`.
    pub fn new(remote: &Remote, endpoint: &str, prefix: &str) -> Result<Bare, Error> {
        let store = AmazonS3Builder::new()
            .with_endpoint(format!("http://{endpoint}"))
            .with_allow_http(true)
            .with_bucket_name(&remote.bucket)
            .with_region("us-east-1")
            .with_access_key_id(&remote.key.0)
            .with_secret_access_key(&remote.key.1)
            .with_unsigned_payload(true)
            .build()
            .map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("bare")
            .enable_all()
            .build()
            .map_err(Error::io("start threads for", std::path::Path::new("object_store")))?;
        Ok(Bare { store: Arc::new(store), prefix: prefix.to_owned(), runtime })
    }

    /// Writes `bytes` in objects of 8 MiB, 32 at once. MB/s.
    pub fn write(&self, bytes: u64) -> Result<f64, Error> {
        let mut body = vec![0; OBJECT as usize];
        Noise::new(1).fill(&mut body);
        let body = bytes::Bytes::from(body);
        self.timed(bytes, move |store, path| {
            let body = body.clone();
            async move { store.put(&path, body.into()).await.map(drop) }
        })
    }

    /// Reads them again. MB/s.
    pub fn read(&self, bytes: u64) -> Result<f64, Error> {
        self.timed(bytes, |store, path| async move { store.get(&path).await?.bytes().await.map(drop) })
    }

    /// Reads every object of the prefix once, 32 at once. MB/s.
    pub fn read_all(&self) -> Result<f64, Error> {
        let listed = self.list()?;
        let paths = listed.into_iter().map(|(path, _)| path).collect();
        let bytes = Arc::new(AtomicU64::new(0));
        let seconds = self.side_by_side(AT_ONCE, paths, |store, path: ObjectPath| {
            let bytes = Arc::clone(&bytes);
            async move {
                // The pool may have deleted an object since it was listed.
                let found = match store.get(&path).await {
                    Err(object_store::Error::NotFound { .. }) => return Ok(()),
                    found => found?.bytes().await?,
                };
                bytes.fetch_add(found.len() as u64, Ordering::Relaxed);
                Ok(())
            }
        })?;
        Ok(bytes.load(Ordering::Relaxed) as f64 / 1e6 / seconds)
    }

    /// Reads so many ranges of 4 KiB, drawn at random from the large objects of the prefix, 64 at
    /// once. Seconds.
    pub fn ranges(&self, count: u32, seed: u64) -> Result<f64, Error> {
        let mut listed = self.list()?;
        listed.retain(|(_, size)| *size >= LARGE);
        let mut noise = Noise::new(seed);
        let range = |_| {
            let (path, size) = &listed[noise.below(listed.len() as u64) as usize];
            let start = noise.below(size / RANGE) * RANGE;
            (path.clone(), start..start + RANGE)
        };
        let ranges = if listed.is_empty() { Vec::new() } else { (0..count).map(range).collect() };
        self.side_by_side(2 * AT_ONCE, ranges, |store, (path, range)| async move {
            store.get_range(&path, range).await.map(drop)
        })
    }

    /// Reads 4 KiB of one object so many times, one after the other. Seconds of each.
    pub fn trips(&self, count: u32) -> Result<Vec<f64>, Error> {
        let path = ObjectPath::from(format!("{}/trip", self.prefix));
        self.runtime.block_on(async {
            self.store.put(&path, vec![7; RANGE as usize].into()).await.map_err(failed)?;
            let mut seconds = Vec::new();
            for _ in 0..count {
                let began = Instant::now();
                self.store.get_range(&path, 0..RANGE).await.map_err(failed)?;
                seconds.push(began.elapsed().as_secs_f64());
            }
            self.store.delete(&path).await.map_err(failed)?;
            Ok(seconds)
        })
    }

    /// Objects of the prefix: name and bytes.
    pub fn objects(&self) -> Result<Vec<(String, u64)>, Error> {
        Ok(self.list()?.into_iter().map(|(path, size)| (path.to_string(), size)).collect())
    }

    /// Deletes objects.
    pub fn delete(&self, names: &[String]) -> Result<(), Error> {
        let paths = names.iter().map(|name| ObjectPath::from(name.as_str())).collect();
        let delete = |store: Arc<AmazonS3>, path: ObjectPath| async move { store.delete(&path).await };
        self.side_by_side(AT_ONCE, paths, delete).map(drop)
    }

    fn timed<F>(&self, bytes: u64, transfer: impl Fn(Arc<AmazonS3>, ObjectPath) -> F) -> Result<f64, Error>
    where
        F: Future<Output = object_store::Result<()>> + Send + 'static,
    {
        let objects = bytes.div_ceil(OBJECT);
        let path = |number| ObjectPath::from(format!("{}/{number:04}", self.prefix));
        let seconds = self.side_by_side(AT_ONCE, (0..objects).map(path).collect(), transfer)?;
        Ok((objects * OBJECT) as f64 / 1e6 / seconds)
    }

    /// Does some work for each of these, so many at once. Seconds.
    fn side_by_side<T, F>(
        &self,
        at_once: usize,
        items: Vec<T>,
        work: impl Fn(Arc<AmazonS3>, T) -> F,
    ) -> Result<f64, Error>
    where
        F: Future<Output = object_store::Result<()>> + Send + 'static,
    {
        let began = Instant::now();
        self.runtime.block_on(async {
            let turn = Arc::new(Semaphore::new(at_once));
            let mut all = JoinSet::new();
            for item in items {
                let work = work(Arc::clone(&self.store), item);
                let turn = Arc::clone(&turn);
                all.spawn(async move {
                    let _held = turn.acquire_owned().await.expect("it is never closed");
                    work.await
                });
            }
            while let Some(done) = all.join_next().await {
                done.expect("no transfer panics").map_err(failed)?;
            }
            Ok::<(), Error>(())
        })?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Objects of the prefix and their bytes.
    pub fn stored(&self) -> Result<(u64, u64), Error> {
        let listed = self.list()?;
        Ok((listed.len() as u64, listed.iter().map(|(_, size)| size).sum()))
    }

    fn list(&self) -> Result<Vec<(ObjectPath, u64)>, Error> {
        let prefix = ObjectPath::from(self.prefix.as_str());
        self.runtime.block_on(async {
            let mut found = Vec::new();
            let mut listed = self.store.list(Some(&prefix));
            while let Some(object) = futures_util::StreamExt::next(&mut listed).await {
                let object = object.map_err(failed)?;
                found.push((object.location, object.size));
            }
            Ok(found)
        })
    }

    /// Removes everything of the prefix.
    pub fn clear(&self) -> Result<(), Error> {
        let listed = self.list()?;
        self.runtime.block_on(async {
            for (path, _) in listed {
                self.store.delete(&path).await.map_err(failed)?;
            }
            Ok(())
        })
    }
}

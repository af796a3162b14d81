//! The objects, and S3's operations on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use s3s::dto::{
    BucketVersioningStatus, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, DeleteObjectInput, DeleteObjectOutput,
    DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag, ETagCondition, GetBucketVersioningInput,
    GetBucketVersioningOutput, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    ListObjectsV2Input, ListObjectsV2Output, Object, PutObjectInput, PutObjectOutput, StreamingBlob,
    Timestamp, UploadPartInput, UploadPartOutput,
};
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};

use crate::wire::Shift;
use crate::{BUCKET, KEYS, Rule, Seen};

/// How conditions of writes are kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Conditions {
    /// As S3 does: looking and writing are one step.
    #[default]
    Kept,
    /// Not at all, as Garage and `rclone serve s3` do.
    Ignored,
    /// Looks, and writes later: right when asked alone, wrong in a race, as s3s-fs does.
    Late,
}

/// Names on one page of a list where nothing else was set: few, so that tests see many pages.
const PAGE: usize = 100;

/// One object.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Content.
    pub bytes: Bytes,
    etag: String,
    changed: SystemTime,
}

pub type Objects = BTreeMap<String, Stored>;

/// The state of everything at one moment.
#[derive(Clone, Debug)]
pub struct Mark {
    pub(crate) objects: Objects,
}

#[derive(Debug)]
pub struct State {
    /// Objects for the first key, and for the second one after a fork.
    pub sides: Vec<Objects>,
    pub listed: Option<Objects>,
    pub invented: Vec<String>,
    pub hidden: Vec<String>,
    pub conditions: Conditions,
    /// Names on one page of a list.
    pub page: usize,
    uploads: BTreeMap<String, BTreeMap<i32, Bytes>>,
    versions: u64,
}

impl State {
    pub fn store(&mut self, side: usize, object: &str, bytes: Bytes) {
        self.versions += 1;
        let etag = format!("v{:08x}", self.versions);
        self.sides[side].insert(object.to_owned(), Stored { bytes, etag, changed: SystemTime::now() });
    }
}

/// Everything that the server knows.
pub struct Shared {
    state: Mutex<State>,
    rules: Mutex<Vec<Rule>>,
    pub seen: Mutex<Vec<Seen>>,
    /// Counts releases.
    pub released: tokio::sync::watch::Sender<u64>,
    /// Numbers requests.
    pub requests: AtomicU64,
    /// Connections that were accepted.
    pub connections: AtomicU64,
}

impl Default for Shared {
    fn default() -> Shared {
        let state = State {
            sides: vec![Objects::new()],
            listed: None,
            invented: Vec::new(),
            hidden: Vec::new(),
            conditions: Conditions::Kept,
            page: PAGE,
            uploads: BTreeMap::new(),
            versions: 0,
        };
        Shared {
            state: Mutex::new(state),
            rules: Mutex::default(),
            seen: Mutex::default(),
            released: tokio::sync::watch::Sender::new(0),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }
}

impl Shared {
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn mark(&self) -> Mark {
        self.change(|state| Mark { objects: state.sides[0].clone() })
    }
}

/// The bucket as `s3s` calls it.
pub struct Bucket(pub std::sync::Arc<Shared>);

fn check_bucket(name: &str) -> S3Result<()> {
    if name == BUCKET { Ok(()) } else { Err(s3_error!(NoSuchBucket, "there is no bucket of this name")) }
}

/// Side of a fork that a request sees.
fn side<T>(request: &S3Request<T>, state: &State) -> usize {
    let is_second =
        request.credentials.as_ref().is_some_and(|credentials| credentials.access_key == KEYS[1].0);
    usize::from(is_second && state.sides.len() > 1)
}

async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let mut bytes = BytesMut::new();
    if let Some(mut body) = body {
        while let Some(part) = body.next().await {
            bytes.extend_from_slice(&part.map_err(|_| s3_error!(IncompleteBody, "the body ended early"))?);
        }
    }
    Ok(bytes.freeze())
}

fn blob(bytes: Bytes) -> StreamingBlob {
    StreamingBlob::from(Body::from(bytes))
}

impl Bucket {
    /// Judges the conditions of a write.
    fn check_conditions(
        state: &State,
        found: Option<&Stored>,
        if_match: Option<&ETagCondition>,
        if_none_match: Option<&ETagCondition>,
    ) -> S3Result<()> {
        if state.conditions == Conditions::Ignored {
            return Ok(());
        }
        if let Some(condition) = if_match {
            let Some(found) = found else { return Err(s3_error!(NoSuchKey, "there is no such object")) };
            let fits = condition.is_any() || condition.as_etag().is_some_and(|tag| tag.value() == found.etag);
            if !fits {
                return Err(s3_error!(PreconditionFailed, "another version is there"));
            }
        }
        if if_none_match.is_some_and(ETagCondition::is_any) && found.is_some() {
            return Err(s3_error!(PreconditionFailed, "the object is there"));
        }
        Ok(())
    }
}

#[async_trait]
impl S3 for Bucket {
    async fn put_object(
        &self,
        mut request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        check_bucket(&request.input.bucket)?;
        let body = request.input.body.take();
        let bytes = collect(body).await?;
        let input = &request.input;
        let (if_match, if_none_match) = (input.if_match.as_ref(), input.if_none_match.as_ref());
        let look = |state: &State| {
            let found = state.sides[side(&request, state)].get(&input.key);
            Bucket::check_conditions(state, found, if_match, if_none_match)
        };
        let is_late = self.0.change(|state| state.conditions == Conditions::Late);
        if is_late {
            self.0.change(|state| look(state))?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let tag = self.0.change(|state| {
            if !is_late {
                look(state)?;
            }
            let side = side(&request, state);
            state.store(side, &input.key, bytes);
            Ok::<_, s3s::S3Error>(state.sides[side][&input.key].etag.clone())
        })?;
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(ETag::Strong(tag)), ..Default::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        check_bucket(&request.input.bucket)?;
        let found =
            self.0.change(|state| state.sides[side(&request, state)].get(&request.input.key).cloned());
        let found = found.ok_or_else(|| s3_error!(NoSuchKey, "there is no such object"))?;
        let (mut bytes, mut range) = (found.bytes.clone(), None);
        if let Some(asked) = request.input.range {
            let length = found.bytes.len() as u64;
            let part = asked.check(length).map_err(|_| s3_error!(InvalidRange, "the range lies outside"))?;
            let Shift { by, is_told } = request.extensions.get::<Shift>().copied().unwrap_or_default();
            let by = by.min(length - part.end);
            let told = if is_told { by } else { 0 };
            range = Some(format!("bytes {}-{}/{length}", part.start + told, part.end + told - 1));
            let part = part.start + by..part.end + by;
            let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            bytes = bytes.slice(index(part.start)..index(part.end));
        }
        let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let output = GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(length),
            content_range: range,
            body: Some(blob(bytes)),
            e_tag: Some(ETag::Strong(found.etag)),
            last_modified: Some(Timestamp::from(found.changed)),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        check_bucket(&request.input.bucket)?;
        let found =
            self.0.change(|state| state.sides[side(&request, state)].get(&request.input.key).cloned());
        let found = found.ok_or_else(|| s3_error!(NoSuchKey, "there is no such object"))?;
        let output = HeadObjectOutput {
            content_length: Some(i64::try_from(found.bytes.len()).unwrap_or(i64::MAX)),
            e_tag: Some(ETag::Strong(found.etag)),
            last_modified: Some(Timestamp::from(found.changed)),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        check_bucket(&request.input.bucket)?;
        self.0.change(|state| {
            let side = side(&request, state);
            state.sides[side].remove(&request.input.key);
        });
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        check_bucket(&request.input.bucket)?;
        let keys: Vec<String> =
            request.input.delete.objects.iter().map(|object| object.key.clone()).collect();
        self.0.change(|state| {
            let side = side(&request, state);
            keys.iter().for_each(|key| _ = state.sides[side].remove(key));
        });
        let deleted =
            keys.into_iter().map(|key| DeletedObject { key: Some(key), ..Default::default() }).collect();
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), ..Default::default() }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        check_bucket(&request.input.bucket)?;
        let input = &request.input;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.clone().or(input.start_after.clone()).unwrap_or_default();
        let (mut contents, page): (Vec<Object>, usize) = self.0.change(|state| {
            let truth = &state.sides[side(&request, state)];
            let mut listed = state.listed.as_ref().unwrap_or(truth).clone();
            state.hidden.iter().for_each(|name| _ = listed.remove(name));
            for name in &state.invented {
                let (bytes, etag, changed) = (Bytes::new(), "v0".to_owned(), SystemTime::now());
                listed.insert(name.clone(), Stored { bytes, etag, changed });
            }
            let fits = |name: &String| name.starts_with(&prefix) && *name > after;
            let found = listed
                .into_iter()
                .filter(|(name, _)| fits(name))
                .map(|(name, stored)| Object {
                    key: Some(name),
                    size: Some(i64::try_from(stored.bytes.len()).unwrap_or(i64::MAX)),
                    e_tag: Some(ETag::Strong(stored.etag)),
                    last_modified: Some(Timestamp::from(stored.changed)),
                    ..Default::default()
                })
                .collect();
            (found, state.page)
        });
        let is_truncated = contents.len() > page;
        contents.truncate(page);
        let next = contents.last().and_then(|last| last.key.clone()).filter(|_| is_truncated);
        let output = ListObjectsV2Output {
            name: Some(BUCKET.to_owned()),
            prefix: Some(prefix),
            key_count: i32::try_from(contents.len()).ok(),
            is_truncated: Some(is_truncated),
            next_continuation_token: next,
            contents: Some(contents),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        check_bucket(&request.input.bucket)?;
        let status = Some(BucketVersioningStatus::from_static(BucketVersioningStatus::SUSPENDED));
        Ok(S3Response::new(GetBucketVersioningOutput { status, ..Default::default() }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        check_bucket(&request.input.bucket)?;
        let id = format!("upload-{}", self.0.requests.load(Ordering::Relaxed));
        self.0.change(|state| _ = state.uploads.insert(id.clone(), BTreeMap::new()));
        let output = CreateMultipartUploadOutput {
            bucket: Some(BUCKET.to_owned()),
            key: Some(request.input.key),
            upload_id: Some(id),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }

    async fn upload_part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let body = request.input.body.take();
        let bytes = collect(body).await?;
        let (id, number) = (&request.input.upload_id, request.input.part_number);
        let known = self.0.change(|state| match state.uploads.get_mut(id) {
            Some(parts) => {
                parts.insert(number, bytes);
                true
            }
            None => false,
        });
        if !known {
            return Err(s3_error!(NoSuchUpload, "there is no such upload"));
        }
        let tag = Some(ETag::Strong(format!("part-{number}")));
        Ok(S3Response::new(UploadPartOutput { e_tag: tag, ..Default::default() }))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = &request.input;
        let tag = self.0.change(|state| {
            let side = side(&request, state);
            let found = state.sides[side].get(&input.key);
            Bucket::check_conditions(state, found, input.if_match.as_ref(), input.if_none_match.as_ref())?;
            let parts = state.uploads.remove(&input.upload_id);
            let parts = parts.ok_or_else(|| s3_error!(NoSuchUpload, "there is no such upload"))?;
            let bytes: Vec<u8> = parts.into_values().flatten().collect();
            state.store(side, &input.key, bytes.into());
            Ok::<_, s3s::S3Error>(state.sides[side][&input.key].etag.clone())
        })?;
        let output = CompleteMultipartUploadOutput {
            bucket: Some(BUCKET.to_owned()),
            key: Some(input.key.clone()),
            e_tag: Some(ETag::Strong(tag)),
            ..Default::default()
        };
        Ok(S3Response::new(output))
    }
}

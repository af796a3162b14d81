//! The client of one store: blocking calls, and below them the loop that tries again.
//!
//! ## What a caller may rely on
//! [bucket.1] A create that returned well made the object, with these bytes, or found it with these
//!      bytes. If the answer to a try was lost, the object is read back and compared.
//!      test: `a_lost_answer_of_a_create_is_settled_by_reading`
//! [bucket.2] Bytes of a range are all there: a torn body, a shorter one or another range is an
//!      error, never data. A store that lies in the head too is found out above, by hash.
//!      test: `torn_bodies_and_wrong_ranges_are_never_data`
//! [bucket.3] A failure is told after at most `tries` requests, each with a deadline; while a store
//!      is known not to answer, after two. A caller that insists repeats the operation itself, and
//!      says meanwhile that the store is away: it hears of that within seconds. A try that was
//!      silent for its whole deadline counts twice; of a caller that insists, and of a store that
//!      is known not to answer, it is the last.
//!      tests: `a_store_that_never_answers_is_told_so`, `a_caller_that_insists_hears_soon`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::signer::SignedUrlOptions;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use steadfast_env::Env;
use steadfast_env::insist::is_insisting;

use crate::error::Failure;
use crate::meter::{Counts, Meter};
use crate::pace::{Ending, Hedge, Tuning, Window};
use crate::provider::{FLIGHT, Flight, Provider, connect};
use crate::runtime::block_on;
use crate::{Class, Credentials, Error, Location, Operation, Result};

/// Stands for the bucket itself where an object is named: no object's name is a slash.
const BUCKET: &str = "/";

/// A signed address is good for so long.
const SIGNED: Duration = Duration::from_secs(60);

/// Version of an object, as the store names it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tag {
    /// Entity tag.
    pub etag: Option<String>,
    /// Version, where the store has versions.
    pub version: Option<String>,
}

/// An object as a head or a list tells it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Head {
    /// Name below the prefix of the address.
    pub object: String,
    /// Bytes.
    pub size: u64,
    /// Version.
    pub tag: Tag,
    /// Seconds since 1970 of its last change, by the store's clock.
    pub changed_s: i64,
}

/// One range to read.
#[derive(Debug)]
pub struct Fetch<'a> {
    /// Object.
    pub object: &'a str,
    /// First byte.
    pub offset: u64,
    /// Where the bytes go, one buffer after the other; all of them are filled or the fetch failed.
    pub outs: Vec<&'a mut [u8]>,
    /// Outcome, once it was tried.
    pub outcome: Result<()>,
}

impl Fetch<'_> {
    fn bytes(&self) -> usize {
        self.outs.iter().map(|out| out.len()).sum()
    }

    /// Spreads the bytes of an answer, which are as many as the buffers take.
    fn fill(&mut self, body: &Body) {
        let mut frames = body.0.iter();
        let mut frame: &[u8] = &[];
        for out in &mut self.outs {
            let mut out = &mut **out;
            while !out.is_empty() {
                if frame.is_empty() {
                    frame = frames.next().expect("as many bytes as the buffers take");
                    continue;
                }
                let count = out.len().min(frame.len());
                let (now, later) = out.split_at_mut(count);
                now.copy_from_slice(&frame[..count]);
                (out, frame) = (later, &frame[count..]);
            }
        }
    }
}

/// The content of an answer, in the pieces in which it came: they are copied once, to where they
/// are wanted.
#[derive(Debug, Default)]
struct Body(Vec<Bytes>);

impl Body {
    fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn into_vec(self) -> Vec<u8> {
        match <[Bytes; 1]>::try_from(self.0) {
            Ok([whole]) => whole.into(),
            Err(pieces) => pieces.concat(),
        }
    }
}

impl PartialEq<Bytes> for Body {
    fn eq(&self, other: &Bytes) -> bool {
        let mut rest = &other[..];
        let is_next = |piece: &Bytes| {
            let same = rest.starts_with(piece);
            rest = rest.get(piece.len()..).unwrap_or_default();
            same
        };
        self.len() == other.len() && self.0.iter().all(is_next)
    }
}

/// A store of whole objects. Calls block; many threads may call at once. Names are relative to the
/// prefix of the address.
pub trait Store: Send + Sync {
    /// Its address, for messages.
    fn address(&self) -> String;

    /// Creates an object that is not there. Well if it is there already with the same bytes.
    ///
    /// # Errors
    /// [`Class::Exists`] if it is there with other bytes; every failure of a store.
    fn create(&self, object: &str, bytes: &[u8]) -> Result<()>;

    /// The same of memory that is shared until the last try has let it go.
    ///
    /// # Errors
    /// Those of [`Store::create`].
    fn create_shared(&self, object: &str, bytes: Bytes) -> Result<()>;

    /// Writes an object, whatever is there.
    ///
    /// # Errors
    /// Every failure of a store.
    fn put(&self, object: &str, bytes: &[u8]) -> Result<Tag>;

    /// Replaces the version of an object that was read.
    ///
    /// # Errors
    /// [`Class::Changed`] if another version is there; every failure of a store.
    fn replace(&self, object: &str, bytes: &[u8], expected: &Tag) -> Result<Tag>;

    /// Reads a whole object.
    ///
    /// # Errors
    /// [`Class::Missing`] if it is not there; every failure of a store.
    fn get(&self, object: &str) -> Result<(Vec<u8>, Tag)>;

    /// Reads whole objects side by side. Each has its own outcome.
    ///
    /// # Errors
    /// In each outcome those of [`Store::get`].
    fn get_each(&self, objects: &[String]) -> Vec<Result<Vec<u8>>>;

    /// Reads ranges side by side. Each has its own outcome.
    fn get_ranges(&self, fetches: &mut [Fetch<'_>]);

    /// Size and version of an object; `None` if it is not there.
    ///
    /// # Errors
    /// Every failure of a store.
    fn head(&self, object: &str) -> Result<Option<Head>>;

    /// Objects in a folder of names, in no order. A hint: a store may list late.
    ///
    /// # Errors
    /// Every failure of a store.
    fn list(&self, folder: &str) -> Result<Vec<Head>>;

    /// Deletes objects, many in one request where the store can. One that is not there is well.
    ///
    /// # Errors
    /// Every failure of a store; some of the objects may be gone.
    fn delete(&self, objects: &[String]) -> Result<()>;

    /// Counters since it was opened.
    fn counts(&self) -> Counts;
}

/// The client.
pub struct Client {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    location: Location,
    pub(crate) provider: Provider,
    meter: Arc<Meter>,
    window: Window,
    hedge: Hedge,
    tuning: Tuning,
    /// The last operation ended without an answer, after all its tries: until one comes, others are
    /// not tried as often. Callers that wait for the store ask again by themselves.
    is_away: AtomicBool,
    pub(crate) env: Env,
}

/// Tries of an operation on a store that did not answer the one before.
const TRIES_AWAY: u32 = 2;
/// Tries where a store does not answer a caller that insists: some two seconds of pauses.
const TRIES_INSISTING: u32 = 6;

/// One operation, with all that its tries need.
#[derive(Clone, Debug)]
enum Request {
    Create(Bytes),
    /// A create, without bytes, of an object that is there: a refusal needs no second look.
    CreateAgain,
    Put(Bytes),
    Replace(Bytes, Tag),
    Get(Option<(u64, u64)>),
    Head,
    List,
    Delete(Vec<String>),
}

enum Answer {
    Done,
    Tag(Tag),
    Body(Body, Tag),
    Head(Option<Head>),
    Listed(Vec<Head>),
}

impl Request {
    fn operation(&self) -> Operation {
        match self {
            Request::Create(_) | Request::CreateAgain => Operation::Create,
            Request::Put(_) => Operation::Put,
            Request::Replace(..) => Operation::Replace,
            Request::Get(_) => Operation::Get,
            Request::Head => Operation::Head,
            Request::List => Operation::List,
            Request::Delete(_) => Operation::Delete,
        }
    }

    /// Bytes that it moves, as far as is known beforehand.
    fn bytes(&self) -> u64 {
        match self {
            Request::Create(bytes) | Request::Put(bytes) | Request::Replace(bytes, _) => bytes.len() as u64,
            Request::Get(Some((start, end))) => end - start,
            // The length of a whole object is not known; none of ours is larger than a segment.
            Request::Get(None) => 8 << 20,
            Request::Delete(objects) => objects.len() as u64 * 1_024,
            Request::Head | Request::List | Request::CreateAgain => 0,
        }
    }

    fn payload(&self) -> Option<&Bytes> {
        match self {
            Request::Create(bytes) | Request::Put(bytes) | Request::Replace(bytes, _) => Some(bytes),
            _ => None,
        }
    }
}

impl Client {
    /// A client for the store at an address. No request is made: [`Client::check`] makes the first.
    ///
    /// # Errors
    /// A folder that is not there, credentials that the library refuses.
    pub fn open(location: Location, credentials: &Credentials, env: Env, tuning: Tuning) -> Result<Client> {
        Client::open_counted(location, credentials, env, tuning, Arc::default())
    }

    /// The same, with counters that others may count in too: clients of one address have one bill.
    ///
    /// # Errors
    /// Those of [`Client::open`].
    pub fn open_counted(
        location: Location,
        credentials: &Credentials,
        env: Env,
        tuning: Tuning,
        meter: Arc<Meter>,
    ) -> Result<Client> {
        let provider = connect(&location, credentials, &meter)?;
        let (window, hedge) = (Window::new(tuning.window), Hedge::new(tuning.hedges_percent));
        let is_away = AtomicBool::new(false);
        Ok(Client {
            inner: Arc::new(Inner { location, provider, meter, window, hedge, tuning, is_away, env }),
        })
    }

    /// This client with another tuning: its connections stay open.
    ///
    /// # Panics
    /// If a request is under way.
    #[must_use]
    pub fn with_tuning(self, tuning: Tuning) -> Client {
        let inner = Arc::into_inner(self.inner).expect("nothing is under way");
        let (window, hedge) = (Window::new(tuning.window), Hedge::new(tuning.hedges_percent));
        Client { inner: Arc::new(Inner { window, hedge, tuning, ..inner }) }
    }

    /// Address of the store.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.inner.location
    }

    /// Requests that may be in flight now.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.inner.window.limit()
    }

    /// Looks whether a store is there and the credentials are good: one list of one folder.
    ///
    /// # Errors
    /// Every failure of a store.
    pub fn check(&self) -> Result<()> {
        // A folder of this name holds little or nothing.
        self.list("label").map(drop)
    }

    /// True if the store refuses to create an object that is there. False if it was overwritten.
    ///
    /// # Errors
    /// Every failure of a store.
    pub fn refuses(&self, object: &str) -> Result<bool> {
        match self.run(object, Request::CreateAgain) {
            Ok(_) => Ok(false),
            Err(error) if matches!(error.class, Class::Exists | Class::Changed) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Time, randomness and tasks of this client.
    pub(crate) fn env(&self) -> &Env {
        &self.inner.env
    }

    /// Makes one request that the library does not know: status, body and `Date` of the answer.
    /// `None` if this kind of store has none of them.
    pub(crate) fn ask(
        &self,
        method: http::Method,
        object: &str,
        query: &[(&str, &str)],
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> Option<Result<(u16, String, Option<String>)>> {
        let inner = Arc::clone(&self.inner);
        inner.provider.signer.as_ref()?;
        let mut options = SignedUrlOptions::new()
            .with_query(query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        for (name, value) in headers {
            let value = object_store::HeaderValue::from_str(value).ok()?;
            options = options.with_signed_header(http::HeaderName::from_static(name), value);
        }
        let (name, bytes) = (object.to_owned(), Bytes::copy_from_slice(body));
        let flight = Flight::new(Operation::Probe);
        let answer = block_on(FLIGHT.scope(Arc::clone(&flight), async move {
            inner.ask_signed(method, &name, options, bytes).await
        }));
        Some(match answer {
            Ok(outcome) => outcome.map(|(status, text)| (status, text, flight.take().date)),
            Err(sentence) => Err(self.inner.internal(Operation::Probe, object, sentence)),
        })
    }

    /// Asks for a setting of the whole bucket.
    pub(crate) fn ask_bucket(&self, setting: &str) -> Option<Result<(u16, String)>> {
        let answer = self.ask(http::Method::GET, BUCKET, &[(setting, "")], &[], &[])?;
        Some(answer.map(|(status, text, _)| (status, text)))
    }

    /// Writes an object in parts.
    pub(crate) fn put_in_parts(&self, object: &str, parts: &[Vec<u8>]) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let (name, parts) = (object.to_owned(), parts.to_vec());
        let flight = Flight::new(Operation::Probe);
        let outcome = block_on(FLIGHT.scope(Arc::clone(&flight), async move {
            let mut upload = inner.provider.store.put_multipart(&inner.path(&name)).await?;
            for part in parts {
                upload.put_part(PutPayload::from(part)).await?;
            }
            upload.complete().await
        }));
        match outcome {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                let seen = flight.take();
                let failure = Failure::of(&error, Operation::Probe, seen.status);
                Err(self.inner.error(Operation::Probe, object, failure, (seen.status, seen.request_id), 1))
            }
            Err(sentence) => Err(self.inner.internal(Operation::Probe, object, sentence)),
        }
    }

    fn run(&self, object: &str, request: Request) -> Result<Answer> {
        let inner = Arc::clone(&self.inner);
        let (name, operation) = (object.to_owned(), request.operation());
        let tries = self.tries();
        match block_on(async move { inner.perform(&name, &request, tries).await }) {
            Ok(outcome) => outcome,
            Err(sentence) => Err(self.inner.internal(operation, object, sentence)),
        }
    }

    /// Tries of an operation that this thread begins on a store that does not answer.
    fn tries(&self) -> u32 {
        let tries = self.inner.tuning.tries;
        if is_insisting() { tries.min(TRIES_INSISTING) } else { tries }
    }

    fn bug(&self, operation: Operation, object: &str) -> Box<Error> {
        self.inner.internal(operation, object, "the answer is of another kind")
    }
}

impl Store for Client {
    fn address(&self) -> String {
        self.inner.location.to_string()
    }

    fn create(&self, object: &str, bytes: &[u8]) -> Result<()> {
        self.create_shared(object, Bytes::copy_from_slice(bytes))
    }

    fn create_shared(&self, object: &str, bytes: Bytes) -> Result<()> {
        self.run(object, Request::Create(bytes)).map(drop)
    }

    fn put(&self, object: &str, bytes: &[u8]) -> Result<Tag> {
        match self.run(object, Request::Put(Bytes::copy_from_slice(bytes)))? {
            Answer::Tag(tag) => Ok(tag),
            _ => Err(self.bug(Operation::Put, object)),
        }
    }

    fn replace(&self, object: &str, bytes: &[u8], expected: &Tag) -> Result<Tag> {
        match self.run(object, Request::Replace(Bytes::copy_from_slice(bytes), expected.clone()))? {
            Answer::Tag(tag) => Ok(tag),
            _ => Err(self.bug(Operation::Replace, object)),
        }
    }

    fn get(&self, object: &str) -> Result<(Vec<u8>, Tag)> {
        match self.run(object, Request::Get(None))? {
            Answer::Body(body, tag) => Ok((body.into_vec(), tag)),
            _ => Err(self.bug(Operation::Get, object)),
        }
    }

    fn get_each(&self, objects: &[String]) -> Vec<Result<Vec<u8>>> {
        let (inner, asked) = (Arc::clone(&self.inner), objects.to_vec());
        let tries = self.tries();
        let outcomes = block_on(async move {
            let requests = asked.iter().map(|object| inner.perform(object, &Request::Get(None), tries));
            futures_util::future::join_all(requests).await
        });
        match outcomes {
            Ok(outcomes) => objects
                .iter()
                .zip(outcomes)
                .map(|(object, outcome)| match outcome? {
                    Answer::Body(body, _) => Ok(body.into_vec()),
                    _ => Err(self.bug(Operation::Get, object)),
                })
                .collect(),
            Err(sentence) => objects
                .iter()
                .map(|object| Err(self.inner.internal(Operation::Get, object, sentence)))
                .collect(),
        }
    }

    fn get_ranges(&self, fetches: &mut [Fetch<'_>]) {
        let inner = Arc::clone(&self.inner);
        let asked: Vec<(String, Request)> = fetches
            .iter()
            .map(|fetch| {
                let end = fetch.offset.saturating_add(fetch.bytes() as u64);
                (fetch.object.to_owned(), Request::Get(Some((fetch.offset, end))))
            })
            .collect();
        let tries = self.tries();
        let outcomes = block_on(async move {
            let requests = asked.iter().map(|(object, request)| inner.perform(object, request, tries));
            futures_util::future::join_all(requests).await
        });
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(sentence) => fetches
                .iter()
                .map(|fetch| Err(self.inner.internal(Operation::Get, fetch.object, sentence)))
                .collect(),
        };
        for (fetch, outcome) in fetches.iter_mut().zip(outcomes) {
            fetch.outcome = match outcome {
                Ok(Answer::Body(body, _)) if body.len() == fetch.bytes() => {
                    fetch.fill(&body);
                    Ok(())
                }
                Ok(_) => Err(self.bug(Operation::Get, fetch.object)),
                Err(error) => Err(error),
            };
        }
    }

    fn head(&self, object: &str) -> Result<Option<Head>> {
        match self.run(object, Request::Head)? {
            Answer::Head(head) => Ok(head),
            _ => Err(self.bug(Operation::Head, object)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<Head>> {
        match self.run(folder, Request::List)? {
            Answer::Listed(heads) => Ok(heads),
            _ => Err(self.bug(Operation::List, folder)),
        }
    }

    fn delete(&self, objects: &[String]) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let name = if objects.len() == 1 { objects[0].as_str() } else { "" };
        self.run(name, Request::Delete(objects.to_vec())).map(drop)
    }

    fn counts(&self) -> Counts {
        self.inner.meter.counts()
    }
}

impl Inner {
    fn internal(&self, operation: Operation, object: &str, sentence: &str) -> Box<Error> {
        let failure = Failure::new(Class::Internal, sentence);
        self.error(operation, object, failure, (None, None), 0)
    }

    fn error(
        &self,
        operation: Operation,
        object: &str,
        failure: Failure,
        (status, request_id): (Option<u16>, Option<String>),
        tries: u32,
    ) -> Box<Error> {
        let Failure { class, code, detail, .. } = failure;
        let (device, object) = (self.location.to_string(), object.to_owned());
        Box::new(Error { device, operation, object, class, status, code, request_id, tries, detail })
    }

    pub(crate) fn path(&self, object: &str) -> Path {
        match (self.location.prefix(), object) {
            ("", object) => Path::from(object),
            (prefix, "") => Path::from(prefix),
            (prefix, object) => Path::from(format!("{prefix}/{object}")),
        }
    }

    async fn ask_signed(
        &self,
        method: http::Method,
        object: &str,
        options: SignedUrlOptions,
        body: Bytes,
    ) -> Result<(u16, String)> {
        let failed = |failure| self.error(Operation::Probe, object, failure, (None, None), 1);
        let (Some(signer), Some(http)) = (&self.provider.signer, &self.provider.http) else {
            return Err(failed(Failure::new(Class::Unsupported, "")));
        };
        let path = if object == BUCKET { Path::default() } else { self.path(object) };
        // The address that is signed holds a signature: it is never told.
        let url = signer
            .signed_url_opts(method.clone(), &path, SIGNED, &options)
            .await
            .map_err(|error| failed(Failure::of(&error, Operation::Probe, None)))?;
        let mut request = http::Request::builder().method(method).uri(url.as_str());
        for (name, value) in &options.signed_headers {
            request = request.header(name, value);
        }
        let request = request
            .body(body.into())
            .map_err(|_| failed(Failure::new(Class::Internal, "the request is malformed")))?;
        let work = async {
            let answer = http.execute(request).await?;
            let status = answer.status().as_u16();
            let body = answer.into_body().bytes().await?;
            Ok::<_, object_store::client::HttpError>((status, String::from_utf8_lossy(&body).into_owned()))
        };
        match tokio::time::timeout(self.tuning.deadline_for(1 << 20), work).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(failed(Failure::new(Class::Away, ""))),
        }
    }

    fn head_of(&self, meta: ObjectMeta) -> Head {
        let name = meta.location.to_string();
        let prefix = self.location.prefix();
        let object = match name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')) {
            Some(rest) if !prefix.is_empty() => rest.to_owned(),
            _ => name,
        };
        let tag = Tag { etag: meta.e_tag, version: meta.version };
        Head { object, size: meta.size, tag, changed_s: meta.last_modified.timestamp() }
    }

    async fn pause(&self, duration: Duration) {
        if self.tuning.steps_clock {
            self.env.clock.sleep(duration);
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(duration).await;
        }
    }

    /// Time until a read is slow. On a clock that steps none passes: the read is still under way,
    /// and would seem to have taken it.
    async fn pass(&self, duration: Duration) {
        if self.tuning.steps_clock {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(duration).await;
        }
    }

    /// One operation, with all its tries: at most `silent_max` if the store does not answer.
    async fn perform(&self, object: &str, request: &Request, silent_max: u32) -> Result<Answer> {
        let operation = request.operation();
        let (mut tries, mut silent_tries, mut lost_answer) = (0, 0, false);
        // Deletes that the store has confirmed are not asked for again.
        let mut request = request.clone();
        loop {
            tries += 1;
            if tries > 1 {
                self.meter.retry();
            }
            let (outcome, seen) = self.attempt(object, &mut request).await;
            let mut failure = match outcome {
                Ok(answer) => {
                    self.is_away.store(false, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            if failure.class != Class::Away {
                self.is_away.store(false, Ordering::Relaxed);
            }
            match (&request, failure.class) {
                (Request::Create(bytes), Class::Exists | Class::Changed) => {
                    match self.settle(object, bytes, silent_max).await {
                        Ok(Some(_)) => return Ok(Answer::Done),
                        Ok(None) => failure.class = Class::Exists,
                        // Another create is under way, and may yet fail.
                        Err(error) if error.class == Class::Missing => failure.class = Class::Away,
                        Err(error) => return Err(self.failed(error)),
                    }
                }
                (Request::Replace(bytes, _), Class::Changed) if lost_answer => {
                    let settled = self.settle(object, bytes, silent_max).await;
                    if let Some(tag) = settled.map_err(|error| self.failed(error))? {
                        return Ok(Answer::Tag(tag));
                    }
                }
                // Replacing while another replace is under way: the next try sees who won.
                (Request::Replace(..), Class::Exists) => failure.class = Class::Away,
                (Request::Head, Class::Missing) => return Ok(Answer::Head(None)),
                _ => {}
            }
            if failure.class == Class::Busy {
                self.meter.slowdown();
            }
            lost_answer |= failure.class.is_transient();
            let away = self.is_away.load(Ordering::Relaxed);
            let tries_max = match failure.class {
                _ if away => self.tuning.tries.min(TRIES_AWAY),
                Class::Away => silent_max,
                _ => self.tuning.tries,
            };
            silent_tries += u32::from(failure.is_late);
            let is_enough = failure.is_late && (away || silent_max < self.tuning.tries);
            let is_last = tries + silent_tries >= tries_max || is_enough;
            if !failure.class.is_transient() || is_last {
                self.is_away.store(failure.class == Class::Away, Ordering::Relaxed);
                let error = self.error(operation, object, failure, seen, tries);
                return Err(self.failed(error));
            }
            self.pause(self.tuning.pause_after(tries, &*self.env.random)).await;
        }
    }

    fn failed(&self, error: Box<Error>) -> Box<Error> {
        self.meter.failure(error.operation);
        error
    }

    /// Reads an object back: its version if it holds these bytes, `None` if it holds others.
    async fn settle(&self, object: &str, bytes: &Bytes, silent_max: u32) -> Result<Option<Tag>> {
        // Boxed, as it is the same loop once more; reading never settles anything.
        match Box::pin(self.perform(object, &Request::Get(None), silent_max)).await? {
            Answer::Body(found, tag) if found == *bytes => Ok(Some(tag)),
            _ => Ok(None),
        }
    }

    /// One try, in the window and within its deadline.
    #[allow(clippy::type_complexity)]
    async fn attempt(
        &self,
        object: &str,
        request: &mut Request,
    ) -> (std::result::Result<Answer, Failure>, (Option<u16>, Option<String>)) {
        let (operation, bytes) = (request.operation(), request.bytes());
        let ticket = self.window.begin().await;
        let flight = Flight::new(operation);
        if let Some(payload) = request.payload() {
            self.meter.sent(payload.len());
        }
        let deadline = self.tuning.deadline_for(bytes);
        let work = FLIGHT.scope(Arc::clone(&flight), self.ask(object, request, deadline));
        let outcome = work.await;
        let seen = flight.take();
        let outcome = outcome.map_err(|problem| match problem {
            Problem::Library(error) => Failure::of(&error, operation, seen.status),
            Problem::Late => {
                let detail = format!("no answer within {:.1} s", deadline.as_secs_f64());
                Failure { is_late: true, ..Failure::new(Class::Away, &detail) }
            }
            Problem::Short(detail) => Failure::new(Class::Short, &detail),
            Problem::Torn(detail) => Failure::new(Class::Damaged, &detail),
        });
        let ending = match &outcome {
            Ok(_) => Ending::Good,
            Err(failure) if failure.class == Class::Busy => Ending::Slow,
            Err(_) => Ending::Other,
        };
        self.window.end(ticket, ending);
        (outcome, (seen.status, seen.request_id))
    }

    fn count_unwired(&self, operation: Operation) {
        if !self.provider.is_wired {
            self.meter.request(operation);
        }
    }

    async fn ask(
        &self,
        object: &str,
        request: &mut Request,
        deadline: Duration,
    ) -> std::result::Result<Answer, Problem> {
        let (store, path) = (&self.provider.store, self.path(object));
        self.count_unwired(request.operation());
        match request {
            Request::Create(bytes) => {
                self.put_as(&path, bytes, PutMode::Create, deadline).await.map(|_| Answer::Done)
            }
            Request::CreateAgain => {
                let nothing = Bytes::new();
                self.put_as(&path, &nothing, PutMode::Create, deadline).await.map(|_| Answer::Done)
            }
            Request::Put(bytes) => {
                self.put_as(&path, bytes, PutMode::Overwrite, deadline).await.map(Answer::Tag)
            }
            Request::Replace(bytes, tag) => {
                let Tag { etag, version } = tag.clone();
                let mode = PutMode::Update(UpdateVersion { e_tag: etag, version });
                self.put_as(&path, bytes, mode, deadline).await.map(Answer::Tag)
            }
            Request::Get(range) => {
                let (bytes, tag) = self.get_hedged(&path, *range, deadline).await?;
                self.meter.received(bytes.len());
                Ok(Answer::Body(bytes, tag))
            }
            Request::Head => {
                let meta = in_time(deadline, store.head(&path)).await?;
                Ok(Answer::Head(Some(self.head_of(meta))))
            }
            Request::List => {
                let prefix = (!path.as_ref().is_empty()).then_some(&path);
                let (mut stream, mut heads) = (store.list(prefix), Vec::new());
                while let Some(meta) = in_time(deadline, async { stream.next().await.transpose() }).await? {
                    heads.push(self.head_of(meta));
                }
                Ok(Answer::Listed(heads))
            }
            Request::Delete(objects) => self.delete_listed(objects, deadline).await,
        }
    }

    async fn put_as(
        &self,
        path: &Path,
        bytes: &Bytes,
        mode: PutMode,
        deadline: Duration,
    ) -> std::result::Result<Tag, Problem> {
        let payload = PutPayload::from(bytes.clone());
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = in_time(deadline, self.provider.store.put_opts(path, payload, options)).await?;
        Ok(Tag { etag: put.e_tag, version: put.version })
    }

    /// Deletes; those that are confirmed leave the list, so that a next try asks for the rest.
    async fn delete_listed(
        &self,
        objects: &mut Vec<String>,
        deadline: Duration,
    ) -> std::result::Result<Answer, Problem> {
        let paths: Vec<Path> = objects.iter().map(|object| self.path(object)).collect();
        let listed = futures_util::stream::iter(paths.into_iter().map(Ok)).boxed();
        let (mut stream, mut gone) = (self.provider.store.delete_stream(listed), Vec::new());
        let mut first = None;
        // A stream that fails for ever ends with the list.
        for _ in 0..=objects.len() {
            match in_time(deadline, async { Ok(stream.next().await) }).await {
                Ok(None) => break,
                Ok(Some(Ok(path))) => gone.push(path),
                Ok(Some(Err(object_store::Error::NotFound { path, .. }))) => {
                    gone.push(Path::from(path));
                }
                Ok(Some(Err(error))) => first = first.or(Some(Problem::Library(error))),
                Err(problem) => {
                    first = Some(problem);
                    break;
                }
            }
        }
        match first {
            None => Ok(Answer::Done),
            Some(problem) => {
                objects.retain(|object| !gone.contains(&self.path(object)));
                Err(problem)
            }
        }
    }

    /// A read, and a second one beside it if the first is slow and few others were.
    async fn get_hedged(
        &self,
        path: &Path,
        range: Option<(u64, u64)>,
        deadline: Duration,
    ) -> std::result::Result<(Body, Tag), Problem> {
        let expected = range.map_or(0, |(start, end)| end - start);
        let slow_after = self.hedge.begin(expected);
        let began = self.env.clock.monotonic_ns();
        let first = in_time_flat(deadline, self.get_once(path, range));
        let outcome = match slow_after {
            None => first.await,
            Some(slow_after) => {
                tokio::pin!(first);
                let is_done = tokio::select! {
                    biased;
                    outcome = &mut first => Some(outcome),
                    () = self.pass(slow_after) => None,
                };
                match is_done {
                    Some(outcome) => outcome,
                    None => match self.window.try_begin().filter(|_| self.hedge.take()) {
                        None => first.await,
                        Some(ticket) => {
                            self.meter.hedge();
                            self.count_unwired(Operation::Get);
                            let second = in_time_flat(deadline, self.get_once(path, range));
                            tokio::pin!(second);
                            let outcome = match tokio::select! {
                                outcome = &mut first => (outcome, true),
                                outcome = &mut second => (outcome, false),
                            } {
                                (Ok(body), _) => Ok(body),
                                // One failed: the other may still succeed.
                                (Err(_), true) => second.await,
                                (Err(_), false) => first.await,
                            };
                            self.window.end(ticket, Ending::Other);
                            outcome
                        }
                    },
                }
            }
        };
        if outcome.is_ok() {
            self.hedge.note(expected, self.env.clock.monotonic_ns().saturating_sub(began));
        }
        outcome
    }

    async fn get_once(
        &self,
        path: &Path,
        range: Option<(u64, u64)>,
    ) -> std::result::Result<(Body, Tag), Problem> {
        let asked = range.map(|(start, end)| GetRange::Bounded(start..end));
        let options = GetOptions { range: asked, ..GetOptions::default() };
        let got = self.provider.store.get_opts(path, options).await.map_err(Problem::Library)?;
        let (size, tag) =
            (got.meta.size, Tag { etag: got.meta.e_tag.clone(), version: got.meta.version.clone() });
        let mut pieces = got.into_stream();
        let mut bytes = Body::default();
        while let Some(piece) = pieces.next().await {
            bytes.0.push(piece.map_err(|error| match error {
                // A head that said 200 and a body that did not come whole.
                error @ object_store::Error::Generic { .. } => Problem::Torn(error.to_string()),
                error => Problem::Library(error),
            })?);
        }
        match range {
            Some((start, end)) if bytes.len() as u64 != end - start => {
                let (came, wanted) = (bytes.len(), end - start);
                Err(if size < end {
                    Problem::Short(format!("it has {size} bytes, and {end} are needed"))
                } else {
                    Problem::Torn(format!("{came} bytes came instead of {wanted}"))
                })
            }
            None if bytes.len() as u64 != size => {
                Err(Problem::Torn(format!("{} bytes came instead of {size}", bytes.len())))
            }
            _ => Ok((bytes, tag)),
        }
    }
}

/// One failed try.
enum Problem {
    Library(object_store::Error),
    Late,
    Short(String),
    Torn(String),
}

async fn in_time<T>(
    deadline: Duration,
    work: impl Future<Output = object_store::Result<T>>,
) -> std::result::Result<T, Problem> {
    match tokio::time::timeout(deadline, work).await {
        Ok(outcome) => outcome.map_err(Problem::Library),
        Err(_) => Err(Problem::Late),
    }
}

async fn in_time_flat<T>(
    deadline: Duration,
    work: impl Future<Output = std::result::Result<T, Problem>>,
) -> std::result::Result<T, Problem> {
    tokio::time::timeout(deadline, work).await.unwrap_or(Err(Problem::Late))
}

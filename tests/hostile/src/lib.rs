//! A hostile store: an S3 server in memory, on a port of this machine, that keeps its promises
//! until it is told not to.
//!
//! ## Fault model
//! | The store | by |
//! |---|---|
//! | shows an old state of everything, or of one object | [`Store::roll_back`], [`Store::roll_back_object`] |
//! | shows two clients two histories | [`Store::fork`]: the second key then has its own store |
//! | acknowledges writes and drops them | [`Fault::Drop`] |
//! | sends half of a body, and closes | [`Fault::Tear`] |
//! | sends half of a body, and nothing more | [`Fault::Stall`] |
//! | sends another range than was asked for | [`Fault::Shift`], [`Fault::ShiftQuietly`] |
//! | lists what was there before, or what never was | [`Store::list_as_of`], [`Store::list_also`], [`Store::list_without`] |
//! | answers with any status and code | [`Fault::Answer`] |
//! | does what it was asked, and loses the answer | [`Fault::Lose`] |
//! | waits until it is told to go on | [`Fault::Hold`], [`Store::release`] |
//! | speaks no S3 | [`Fault::Babble`] |
//! | ignores conditions, or looks before it writes without a lock | [`Store::set_conditions`] |
//!
//! Requests are signed: [`KEYS`] are the keys it knows. Everything else is S3 as the crate `s3s`
//! reads and writes it.
#![forbid(unsafe_code)]

mod objects;
mod wire;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;

use objects::{Bucket, Shared};
pub use objects::{Conditions, Mark};

/// Names and values of the two keys that the server knows.
pub const KEYS: [(&str, &str); 2] =
    [("AKFIRST", "secret-of-the-first"), ("AKSECOND", "secret-of-the-second")];

/// The one bucket.
pub const BUCKET: &str = "bucket";

/// Requests that a rule speaks of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// PUT of an object.
    Put,
    /// GET of an object.
    Get,
    /// HEAD of an object.
    Head,
    /// DELETE of one or many.
    Delete,
    /// A list.
    List,
    /// Everything else: multipart uploads, questions about the bucket.
    Other,
}

/// A misbehaviour.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Says that it was done, and does nothing.
    Drop,
    /// Does it, and closes the connection instead of answering.
    Lose,
    /// Closes the connection after this many bytes of the body.
    Tear(usize),
    /// Sends this many bytes of the body, and then nothing until [`Store::release`].
    Stall(usize),
    /// Sends the bytes so far behind those that were asked for, and says so.
    Shift(u64),
    /// The same, and says that they are the right ones.
    ShiftQuietly(u64),
    /// Answers with this status and code, and does nothing.
    Answer(u16, &'static str),
    /// Answers with this text, as XML, and does nothing.
    Say(&'static str),
    /// Begins only after [`Store::release`].
    Hold,
    /// Answers with a page of HTML.
    Babble,
}

/// A fault and the requests that meet it.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Kind of request; `None` for all.
    pub kind: Option<Kind>,
    /// Part of the object's name; empty for all.
    pub object: String,
    /// Requests that pass before the first one is hit.
    pub after: u32,
    /// Requests that are hit.
    pub times: u32,
    /// The fault.
    pub fault: Fault,
}

impl Rule {
    /// A rule for the next `times` requests of a kind.
    #[must_use]
    pub fn next(kind: Kind, times: u32, fault: Fault) -> Rule {
        Rule { kind: Some(kind), object: String::new(), after: 0, times, fault }
    }
}

/// One request that was made, as the server saw it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seen {
    /// Kind.
    pub kind: Kind,
    /// Object, or prefix of a list.
    pub object: String,
    /// Fault that it met.
    pub fault: Option<Fault>,
}

/// The running server. It ends when this is dropped.
pub struct Store {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Store {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// If this machine gives it no port or no thread.
    #[must_use]
    pub fn start() -> Store {
        let shared = Arc::new(Shared::default());
        let (runtime, address) = serve(&shared, ([127, 0, 0, 1], 0).into());
        Store { shared, address, runtime: Some(runtime) }
    }

    /// Stops the server. Objects stay, and connections end in the middle.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(10));
        }
    }

    /// Starts it again, at the same address.
    pub fn start_again(&mut self) {
        self.stop();
        let (runtime, address) = serve(&self.shared, self.address);
        (self.runtime, self.address) = (Some(runtime), address);
    }

    /// Its address, `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Address of a prefix in its bucket, as Steadfast reads it.
    #[must_use]
    pub fn location(&self, prefix: &str) -> String {
        let slash = if prefix.is_empty() { "" } else { "/" };
        format!("s3://{BUCKET}{slash}{prefix}?endpoint={}", self.endpoint())
    }

    /// Misbehaves by a rule, as often as it says. Rules are looked at in the order in which they
    /// came; the first that fits is used.
    pub fn add(&self, rule: Rule) {
        self.shared.rules().push(rule);
    }

    /// Forgets all rules.
    pub fn behave(&self) {
        self.shared.rules().clear();
        self.release();
    }

    /// Lets everything go on that is held or stalled.
    pub fn release(&self) {
        self.shared.released.send_modify(|count| *count += 1);
    }

    /// Requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections that were accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How conditions of writes are kept.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.shared.change(|state| state.conditions = conditions);
    }

    /// Names on one page of a list.
    pub fn set_page(&self, names: usize) {
        self.shared.change(|state| state.page = names);
    }

    /// Remembers the state of everything.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.shared.mark()
    }

    /// Shows the state of a mark from now on.
    pub fn roll_back(&self, mark: &Mark) {
        self.shared.change(|state| state.sides[0] = mark.objects.clone());
    }

    /// Shows one object as it was at a mark, gone if it was not there.
    pub fn roll_back_object(&self, mark: &Mark, object: &str) {
        self.shared.change(|state| {
            let side = &mut state.sides[0];
            match mark.objects.get(object) {
                Some(old) => _ = side.insert(object.to_owned(), old.clone()),
                None => _ = side.remove(object),
            }
        });
    }

    /// From now on, the second key sees a copy of the store of its own.
    pub fn fork(&self) {
        self.shared.change(|state| {
            state.sides.truncate(1);
            let copy = state.sides[0].clone();
            state.sides.push(copy);
        });
    }

    /// Lists the names of a mark until told otherwise; `None` lists the truth.
    pub fn list_as_of(&self, mark: Option<&Mark>) {
        self.shared.change(|state| state.listed = mark.map(|mark| mark.objects.clone()));
    }

    /// Lists a name that is not there.
    pub fn list_also(&self, object: &str) {
        self.shared.change(|state| state.invented.push(object.to_owned()));
    }

    /// Leaves a name out of lists.
    pub fn list_without(&self, object: &str) {
        self.shared.change(|state| state.hidden.push(object.to_owned()));
    }

    /// Names that are stored, for the first key.
    #[must_use]
    pub fn objects(&self) -> Vec<String> {
        self.shared.change(|state| state.sides[0].keys().cloned().collect())
    }

    /// Bytes of an object, for the first key.
    #[must_use]
    pub fn object(&self, object: &str) -> Option<Vec<u8>> {
        self.shared.change(|state| state.sides[0].get(object).map(|stored| stored.bytes.to_vec()))
    }

    /// Stores an object behind everybody's back, or removes one.
    pub fn set_object(&self, object: &str, bytes: Option<&[u8]>) {
        self.shared.change(|state| match bytes {
            Some(bytes) => state.store(0, object, bytes::Bytes::copy_from_slice(bytes)),
            None => _ = state.sides[0].remove(object),
        });
    }

    /// Flips one bit of an object.
    ///
    /// # Panics
    /// If it is not there or shorter.
    pub fn flip(&self, object: &str, byte: usize) {
        let mut bytes = self.object(object).expect("the object is there");
        bytes[byte] ^= 1;
        self.set_object(object, Some(&bytes));
    }
}

/// Starts the server at an address; port 0 is any that is free.
fn serve(shared: &Arc<Shared>, at: SocketAddr) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("hostile")
        .enable_all()
        .build()
        .expect("the server's threads start");
    let mut builder = S3ServiceBuilder::new(Bucket(Arc::clone(shared)));
    let mut auth = SimpleAuth::new();
    for (name, secret) in KEYS {
        auth.register(name.to_owned(), secret.into());
    }
    builder.set_auth(auth);
    let service = builder.build();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(at)).expect("the port is free");
    let address = listener.local_addr().expect("a listener has an address");
    runtime.spawn(wire::serve(listener, service, Arc::clone(shared)));
    (runtime, address)
}

impl Drop for Store {
    fn drop(&mut self) {
        self.release();
        if let Some(runtime) = self.runtime.take() {
            // A held request may wait for ever; nobody waits for it.
            runtime.shutdown_background();
        }
    }
}

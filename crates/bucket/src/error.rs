//! Failures of a store: the device, the operation, the object, the store's own answer, and a
//! sentence that says what to do.

use std::fmt;

/// Result with this room's error.
pub type Result<T> = std::result::Result<T, Box<Error>>;

/// An operation on a store, as requests are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Opening, before any request.
    Open,
    /// Creating an object that must not be there.
    Create,
    /// Writing an object, whatever is there.
    Put,
    /// Replacing the version of an object that was read.
    Replace,
    /// Reading an object or a part of it.
    Get,
    /// Asking for an object's size and version.
    Head,
    /// Listing names.
    List,
    /// Deleting.
    Delete,
    /// Everything that only a probe asks.
    Probe,
}

impl Operation {
    /// All that make requests, in the order in which they are shown.
    pub const REQUESTS: [Operation; 8] = [
        Operation::Create,
        Operation::Put,
        Operation::Replace,
        Operation::Get,
        Operation::Head,
        Operation::List,
        Operation::Delete,
        Operation::Probe,
    ];

    /// One word for messages and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Operation::Open => "open",
            Operation::Create => "create",
            Operation::Put => "put",
            Operation::Replace => "replace",
            Operation::Get => "get",
            Operation::Head => "head",
            Operation::List => "list",
            Operation::Delete => "delete",
            Operation::Probe => "probe",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Kind of a failure: each has one meaning and one way out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Class {
    /// The bucket, container or folder is not there.
    NoBucket,
    /// The store does not know the key, or the signature is wrong.
    WrongKey,
    /// The key is right and may not do this.
    Denied,
    /// The bucket lies in another region.
    WrongRegion,
    /// This machine's clock and the store's differ too much.
    ClockOff,
    /// The endpoint answers, and not as a store.
    NotAStore,
    /// The endpoint's certificate is not valid.
    Certificate,
    /// The provider's quota, or the folder's file system, is full.
    QuotaFull,
    /// The object is not there.
    Missing,
    /// The object is there already, with other bytes.
    Exists,
    /// The object's version is no longer the one that was read.
    Changed,
    /// The object is shorter than what was asked for.
    Short,
    /// The store asks for fewer requests.
    Busy,
    /// The store failed, or cannot be reached.
    Away,
    /// Other bytes than were asked for: a torn body, another range.
    Damaged,
    /// The store cannot do this at all.
    Unsupported,
    /// Anything else that the store refused.
    Refused,
    /// A bug of this room.
    Internal,
}

impl Class {
    /// True if the same request may succeed later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Class::Busy | Class::Away | Class::Damaged)
    }

    /// True if the store, the way to it, or our access to it fails, and not this request: the same
    /// request succeeds once somebody has mended that.
    #[must_use]
    pub fn may_pass(self) -> bool {
        self.is_transient()
            || matches!(
                self,
                Class::NoBucket
                    | Class::WrongKey
                    | Class::Denied
                    | Class::WrongRegion
                    | Class::ClockOff
                    | Class::NotAStore
                    | Class::Certificate
                    | Class::QuotaFull
            )
    }

    /// One word for JSON and tests.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Class::NoBucket => "no-bucket",
            Class::WrongKey => "wrong-key",
            Class::Denied => "denied",
            Class::WrongRegion => "wrong-region",
            Class::ClockOff => "clock-off",
            Class::NotAStore => "not-a-store",
            Class::Certificate => "certificate",
            Class::QuotaFull => "quota-full",
            Class::Missing => "missing",
            Class::Exists => "exists",
            Class::Changed => "changed",
            Class::Short => "short",
            Class::Busy => "busy",
            Class::Away => "away",
            Class::Damaged => "damaged",
            Class::Unsupported => "unsupported",
            Class::Refused => "refused",
            Class::Internal => "internal",
        }
    }

    /// The problem, as the end of a sentence that begins with the operation.
    #[must_use]
    pub fn problem(self) -> &'static str {
        match self {
            Class::NoBucket => "the bucket does not exist",
            Class::WrongKey => "the store does not accept the key",
            Class::Denied => "the key may not do this",
            Class::WrongRegion => "the bucket lies in another region",
            Class::ClockOff => "the clocks of this machine and of the store differ too much",
            Class::NotAStore => "the endpoint does not answer as an object store",
            Class::Certificate => "the certificate of the endpoint is not valid",
            Class::QuotaFull => "the quota at the provider is full",
            Class::Missing => "the object is missing",
            Class::Exists => "another object of this name exists",
            Class::Changed => "somebody else replaced the object",
            Class::Short => "the object is shorter than it was written",
            Class::Busy => "the store asks for fewer requests",
            Class::Away => "the store does not answer",
            Class::Damaged => "the answer is torn or of another range",
            Class::Unsupported => "the store cannot do this",
            Class::Refused => "the store refused",
            Class::Internal => "an internal error ended the request",
        }
    }

    /// Way out, as a sentence.
    #[must_use]
    pub fn action(self) -> &'static str {
        match self {
            Class::NoBucket => "Create the bucket, or correct its name in the address.",
            Class::WrongKey => {
                "Check the keys: the environment (AWS_ACCESS_KEY_ID), ~/.aws/credentials, or the file that \
                 ?credentials= names. The daemon sees its own environment, not yours."
            }
            Class::Denied => "Let the key read, write, list and delete below the prefix of the address.",
            Class::WrongRegion => "Add the bucket's region to the address: ?region=NAME.",
            Class::ClockOff => "Set this machine's clock, for example with timedatectl set-ntp true.",
            Class::NotAStore => "Check ?endpoint=: the scheme (http or https), the host and the port.",
            Class::Certificate => {
                "Add the authority that signed it to the system's certificates, or correct the host in ?endpoint=."
            }
            Class::QuotaFull => {
                "Raise the quota at the provider, or free space in the bucket. Nothing was lost."
            }
            Class::Missing => {
                "Somebody or a lifecycle rule deleted the object. Run a scrub: it repairs from other copies if there are any."
            }
            Class::Exists | Class::Changed => {
                "Another host writes here. Use one pool on one prefix at a time."
            }
            Class::Short | Class::Damaged => {
                "Run a scrub. If this repeats, run `steadfast store probe` on the address."
            }
            Class::Busy | Class::Away => {
                "Requests go on when the store answers. Check the network and the provider."
            }
            Class::Unsupported => {
                "Run `steadfast store probe` on the address: it says what the store can be used for."
            }
            Class::Refused => "See the store's own words above.",
            Class::Internal => "See the daemon's log, and report it.",
        }
    }
}

/// One failed operation on one store, with the evidence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error {
    /// Address of the store, without secrets.
    pub device: String,
    /// The operation.
    pub operation: Operation,
    /// Object, or prefix of a list; empty for the whole store.
    pub object: String,
    /// Kind.
    pub class: Class,
    /// Status of the last answer, if one came.
    pub status: Option<u16>,
    /// The store's own code in it.
    pub code: Option<String>,
    /// The store's number of the request, for its support.
    pub request_id: Option<String>,
    /// Requests that were made for this operation.
    pub tries: u32,
    /// The store's or the library's words.
    pub detail: String,
}

impl Error {
    /// The problem with its facts and its way out, for a message that names the rest itself.
    #[must_use]
    pub fn reason(&self) -> String {
        let mut text = self.class.problem().to_owned();
        let mut facts = Vec::new();
        facts.extend(self.status.map(|status| format!("status {status}")));
        facts.extend(self.code.clone());
        facts.extend(self.request_id.as_ref().map(|id| format!("request {id}")));
        if self.tries > 1 {
            facts.push(format!("{} tries", self.tries));
        }
        if !facts.is_empty() {
            text.push_str(&format!(" ({})", facts.join(", ")));
        }
        if !self.detail.is_empty() {
            text.push_str(&format!("; {}", self.detail));
        }
        text + ". " + self.class.action()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.operation)?;
        if !self.object.is_empty() {
            write!(f, " of {}", self.object)?;
        }
        write!(f, " failed: {}", self.reason())
    }
}

impl std::error::Error for Error {}

/// Longest part of somebody else's words in a message.
const DETAIL_MAX: usize = 240;

/// The facts of one failed request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub class: Class,
    pub code: Option<String>,
    pub detail: String,
    /// Nothing was heard for the whole deadline.
    pub is_late: bool,
}

impl Failure {
    pub(crate) fn new(class: Class, detail: &str) -> Failure {
        Failure { class, code: None, detail: detail.to_owned(), is_late: false }
    }

    /// Judges an error of the library, given the status that came.
    pub(crate) fn of(error: &object_store::Error, operation: Operation, status: Option<u16>) -> Failure {
        let text = chain(error);
        let code = between(&text, "<Code>", "</Code>").or_else(|| between(&text, "(code: ", ")"));
        let class = classify(error, &text, code.as_deref(), operation, status);
        let message = between(&text, "<Message>", "</Message>").unwrap_or_else(|| last_words(error));
        Failure { class, code, detail: shorten(&message), is_late: false }
    }
}

/// All words of an error and of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        text.push_str(" / ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Words of the innermost cause: those above it repeat it.
fn last_words(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}

fn between(text: &str, before: &str, after: &str) -> Option<String> {
    let rest = text.split_once(before)?.1;
    Some(rest.split_once(after)?.0.to_owned())
}

/// One line of printable characters.
fn shorten(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.trim().trim_end_matches('.');
    match line.char_indices().nth(DETAIL_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

fn classify(
    error: &object_store::Error,
    text: &str,
    code: Option<&str>,
    operation: Operation,
    status: Option<u16>,
) -> Class {
    if let Some(class) = code.and_then(class_of_code) {
        return class;
    }
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&[crate::provider::PAGE]) {
        // In place of an object, a page may come from something on the way.
        return if operation == Operation::Get { Class::Damaged } else { Class::NotAStore };
    }
    match error {
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
            return Class::Unsupported;
        }
        object_store::Error::AlreadyExists { .. } => return Class::Exists,
        object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. } => {
            return Class::Changed;
        }
        // A folder's own words; HTTP has a status.
        object_store::Error::NotFound { .. } if status.is_none() => return Class::Missing,
        _ => {}
    }
    match status {
        Some(401) => Class::WrongKey,
        Some(403) => Class::Denied,
        // Only an object can be missing; a list of nothing is an empty list.
        Some(404) if operation == Operation::List => Class::NotAStore,
        Some(404) => Class::Missing,
        Some(409) => Class::Exists,
        Some(412) => Class::Changed,
        Some(416) => Class::Short,
        Some(301 | 307) => Class::WrongRegion,
        Some(507) => Class::QuotaFull,
        Some(429 | 503) => Class::Busy,
        Some(408 | 500 | 502 | 504) => Class::Away,
        Some(501 | 405) => Class::NotAStore,
        Some(200..=299) => Class::Damaged,
        Some(_) => Class::Refused,
        None if has(&["certificate", "Certificate"]) => Class::Certificate,
        None if has(&["InvalidMessage", "corrupt message", "invalid HTTP", "InvalidContentType"]) => {
            Class::NotAStore
        }
        None if has(&["No space left", "os error 28", "os error 122"]) => Class::QuotaFull,
        None if has(&["Permission denied", "os error 13", "os error 30"]) => Class::Denied,
        None if has(&["redirect"]) => Class::WrongRegion,
        None => Class::Away,
    }
}

fn class_of_code(code: &str) -> Option<Class> {
    Some(match code {
        "NoSuchBucket" | "ContainerNotFound" => Class::NoBucket,
        "NoSuchKey" | "BlobNotFound" => Class::Missing,
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "NotSignedUp"
        | "TokenRefreshRequired"
        | "AuthenticationFailed" => Class::WrongKey,
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" => Class::Denied,
        "AuthorizationHeaderMalformed"
        | "PermanentRedirect"
        | "TemporaryRedirect"
        | "IllegalLocationConstraintException"
        | "InvalidRegionName" => Class::WrongRegion,
        "RequestTimeTooSkewed" | "RequestExpired" => Class::ClockOff,
        "QuotaExceeded"
        | "XAmzQuotaExceeded"
        | "StorageFull"
        | "XMinioStorageFull"
        | "InsufficientStorage"
        | "ServiceQuotaExceeded"
        | "TotalRequestsSizeExceeded"
        | "AccountQuotaExceeded" => Class::QuotaFull,
        "SlowDown"
        | "ServiceUnavailable"
        | "TooManyRequests"
        | "RequestLimitExceeded"
        | "ServerBusy"
        | "Throttling"
        | "ThrottlingException" => Class::Busy,
        "InternalError" | "RequestTimeout" | "OperationTimedOut" => Class::Away,
        "BadDigest" | "IncompleteBody" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch" => {
            Class::Damaged
        }
        "ConditionalRequestConflict" | "OperationAborted" => Class::Exists,
        "PreconditionFailed" => Class::Changed,
        "InvalidRange" => Class::Short,
        "NotImplemented" => Class::Unsupported,
        _ => return None,
    })
}

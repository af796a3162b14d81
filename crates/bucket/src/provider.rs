//! One store of `object_store` for an address and its credentials, and the wire below it: every
//! request passes a service of ours, which counts it and keeps what the answer's head says.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::signer::Signer;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use crate::error::Failure;
use crate::meter::Meter;
use crate::{Class, Credentials, Error, Location, Operation, Result, Scheme, Style};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Region where the address, the profile and the environment name none.
const REGION: &str = "us-east-1";

/// Words of an answer that is a page for people.
pub(crate) const PAGE: &str = "the answer is a web page";

/// Head of the last answer of one operation.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub status: Option<u16>,
    pub request_id: Option<String>,
    /// Its `Date`, as it was written.
    pub date: Option<String>,
}

/// An operation under way, seen from the wire.
#[derive(Debug)]
pub(crate) struct Flight {
    pub operation: Operation,
    pub seen: Mutex<Seen>,
}

impl Flight {
    pub(crate) fn new(operation: Operation) -> Arc<Flight> {
        Arc::new(Flight { operation, seen: Mutex::default() })
    }

    pub(crate) fn take(&self) -> Seen {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

tokio::task_local! {
    /// The operation that the running task works for.
    pub(crate) static FLIGHT: Arc<Flight>;
}

/// The wire.
#[derive(Debug)]
struct Wire {
    client: HttpClient,
    meter: Arc<Meter>,
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let flight = FLIGHT.try_with(Arc::clone).ok();
        if let Some(flight) = &flight {
            self.meter.request(flight.operation);
        }
        let response = self.client.execute(request).await?;
        if let Some(flight) = flight {
            let text = |name: &str| {
                response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
            };
            *flight.seen.lock().unwrap_or_else(PoisonError::into_inner) = Seen {
                status: Some(response.status().as_u16()),
                request_id: text("x-amz-request-id")
                    .or_else(|| text("x-ms-request-id"))
                    .or_else(|| text("x-guploader-uploadid")),
                date: text("date"),
            };
            // A store answers in XML, or with an object of ours, which is no page.
            if response.status().is_success()
                && text("content-type").is_some_and(|kind| kind.starts_with("text/html"))
            {
                return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(PAGE)));
            }
        }
        Ok(response)
    }
}

/// Connections of all stores of this process, by the options that they were asked for with. The
/// next store at the same host uses those that one left open: a pool that is imported again opens
/// none, and each saves a round trip, with TLS two. They are closed when nothing has used them for
/// a while.
static CONNECTIONS: Mutex<BTreeMap<String, HttpClient>> = Mutex::new(BTreeMap::new());

/// Connections with these options.
fn connections(options: &ClientOptions) -> object_store::Result<HttpClient> {
    let mut kept = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    match kept.entry(format!("{options:?}")) {
        Entry::Occupied(kept) => Ok(kept.get().clone()),
        Entry::Vacant(place) => Ok(place.insert(ReqwestConnector::default().connect(options)?).clone()),
    }
}

#[derive(Debug)]
struct Connector {
    meter: Arc<Meter>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = connections(options)?;
        Ok(HttpClient::new(Wire { client, meter: Arc::clone(&self.meter) }))
    }
}

/// A store and its tools.
pub(crate) struct Provider {
    pub store: Arc<dyn ObjectStore>,
    /// Signs requests that the library does not know. Only S3.
    pub signer: Option<Arc<dyn Signer>>,
    /// Makes them.
    pub http: Option<HttpClient>,
    /// True if requests pass the wire, and are counted there.
    pub is_wired: bool,
}

fn refused(location: &Location, class: Class, detail: String) -> Box<Error> {
    Box::new(Error {
        device: location.to_string(),
        operation: Operation::Open,
        object: String::new(),
        class,
        status: None,
        code: None,
        request_id: None,
        tries: 0,
        detail,
    })
}

/// Makes the store. No request is made.
pub(crate) fn connect(
    location: &Location,
    credentials: &Credentials,
    meter: &Arc<Meter>,
) -> Result<Provider> {
    let failed = |error: object_store::Error| {
        let failure = Failure::of(&error, Operation::Open, None);
        let class = if failure.class == Class::Away { Class::Refused } else { failure.class };
        refused(location, class, failure.detail)
    };
    // Our own loop retries: it knows which answers were lost, and its pauses are the caller's.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let is_plain = location.endpoint().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let options =
        ClientOptions::new().with_allow_http(is_plain).with_timeout_disabled().with_connect_timeout(CONNECT);
    let connector = || Connector { meter: Arc::clone(meter) };
    match location.scheme() {
        Scheme::File => {
            let folder = location.folder().unwrap_or_else(|| std::path::Path::new("/"));
            match folder.metadata() {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => {
                    return Err(refused(location, Class::NotAStore, "it is no folder".to_owned()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let detail = format!("there is no folder {}", folder.display());
                    return Err(refused(location, Class::NoBucket, detail));
                }
                Err(error) => return Err(refused(location, Class::Denied, error.to_string())),
            }
            let store = LocalFileSystem::new_with_prefix(folder).map_err(failed)?.with_fsync(true);
            Ok(Provider { store: Arc::new(store), signer: None, http: None, is_wired: false })
        }
        Scheme::S3 => {
            // The role of the machine is found through the library's own variables.
            let mut builder = match credentials {
                Credentials::Surroundings { .. } => AmazonS3Builder::from_env(),
                _ => AmazonS3Builder::new(),
            };
            if let Credentials::Keys { access, secret, token, .. } = credentials {
                builder = builder.with_access_key_id(access.reveal()).with_secret_access_key(secret.reveal());
                if let Some(token) = token {
                    builder = builder.with_token(token.reveal());
                }
            }
            if let Some(endpoint) = location.endpoint() {
                builder = builder.with_endpoint(endpoint);
            }
            let region = location.region().or(credentials.region()).unwrap_or(REGION);
            let store = builder
                .with_bucket_name(location.bucket())
                .with_region(region)
                .with_virtual_hosted_style_request(location.style() == Style::Virtual)
                // TLS protects the body on its way, and every block has a hash of its own.
                .with_unsigned_payload(!is_plain)
                .with_retry(retry)
                .with_client_options(options.clone())
                .with_http_connector(connector())
                .build()
                .map_err(failed)?;
            let store = Arc::new(store);
            let http = connector().connect(&options).map_err(failed)?;
            let signer: Arc<dyn Signer> = Arc::clone(&store) as Arc<dyn Signer>;
            Ok(Provider { store, signer: Some(signer), http: Some(http), is_wired: true })
        }
        Scheme::Gs => {
            let mut builder = match credentials {
                Credentials::Document { text, .. } => {
                    GoogleCloudStorageBuilder::new().with_service_account_key(text.reveal())
                }
                _ => GoogleCloudStorageBuilder::from_env(),
            };
            if let Some(endpoint) = location.endpoint() {
                builder = builder.with_config(object_store::gcp::GoogleConfigKey::BaseUrl, endpoint);
            }
            let store = builder
                .with_bucket_name(location.bucket())
                .with_retry(retry)
                .with_client_options(options)
                .with_http_connector(connector())
                .build()
                .map_err(failed)?;
            Ok(Provider { store: Arc::new(store), signer: None, http: None, is_wired: true })
        }
        Scheme::Az => {
            let mut builder = MicrosoftAzureBuilder::from_env();
            if let Credentials::Document { text, .. } = credentials {
                builder = builder.with_access_key(text.reveal().trim());
            }
            if let Some(account) = location.account() {
                builder = builder.with_account(account);
            }
            if let Some(endpoint) = location.endpoint() {
                builder = builder.with_endpoint(endpoint.to_owned()).with_allow_http(is_plain);
            }
            let store = builder
                .with_container_name(location.bucket())
                .with_retry(retry)
                .with_client_options(options)
                .with_http_connector(connector())
                .build()
                .map_err(failed)?;
            Ok(Provider { store: Arc::new(store), signer: None, http: None, is_wired: true })
        }
    }
}

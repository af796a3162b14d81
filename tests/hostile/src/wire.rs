//! Connections, and the faults that are met on them.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::Body;
use s3s::service::S3Service;
use tokio::net::TcpListener;

use crate::objects::Shared;
use crate::{BUCKET, Fault, Kind, Seen};

/// Accepts connections until the runtime ends.
pub async fn serve(listener: TcpListener, service: S3Service, shared: Arc<Shared>) {
    loop {
        let Ok((connection, _)) = listener.accept().await else { continue };
        let (service, shared) = (service.clone(), Arc::clone(&shared));
        let _ = connection.set_nodelay(true);
        shared.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let answer = service_fn(|request| answer(request, service.clone(), Arc::clone(&shared)));
            // A connection that a fault closes ends with an error, which is meant.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(connection), answer)
                .await;
        });
    }
}

/// Marks a read whose range is to be moved. The request itself is signed, and stays as it is.
#[derive(Clone, Copy, Default)]
pub struct Shift {
    pub by: u64,
    /// True if the answer's head says so.
    pub is_told: bool,
}

/// Kind of a request and its object.
fn kind_of(request: &Request<Incoming>) -> (Kind, String) {
    let path = request.uri().path().trim_start_matches('/');
    let key = path.strip_prefix(BUCKET).unwrap_or(path).trim_start_matches('/');
    let query = request.uri().query().unwrap_or_default();
    let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix=")).unwrap_or_default();
    let asks = |word: &str| query.split('&').any(|part| part.split('=').next() == Some(word));
    let is_upload = asks("uploads") || asks("uploadId");
    let kind = match *request.method() {
        Method::PUT if !is_upload && !key.is_empty() => Kind::Put,
        Method::GET if asks("list-type") => return (Kind::List, prefix.replace("%2F", "/")),
        Method::GET if !key.is_empty() => Kind::Get,
        Method::HEAD if !key.is_empty() => Kind::Head,
        Method::DELETE if !is_upload => Kind::Delete,
        Method::POST if asks("delete") => Kind::Delete,
        _ => Kind::Other,
    };
    (kind, key.to_owned())
}

/// The fault that a request meets, which is one of its rule's times.
fn fault_of(shared: &Shared, kind: Kind, object: &str) -> Option<Fault> {
    let mut rules = shared.rules();
    for rule in rules.iter_mut() {
        if rule.times == 0 || rule.kind.is_some_and(|wanted| wanted != kind) || !object.contains(&rule.object)
        {
            continue;
        }
        if rule.after > 0 {
            rule.after -= 1;
            continue;
        }
        rule.times -= 1;
        return Some(rule.fault.clone());
    }
    None
}

async fn released(shared: &Shared) {
    let mut count = shared.released.subscribe();
    let _ = count.changed().await;
}

fn closed() -> s3s::HttpError {
    s3s::HttpError::new(Box::new(io::Error::other("closed on purpose")))
}

fn page(status: u16, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT);
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An answer without doing anything, in the words of S3.
fn refusal(status: u16, code: &str) -> Response<Body> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>told to</Message></Error>"
    );
    let status = if status == 200 { 503 } else { status };
    page(status, "application/xml", text)
}

/// A body that stops after `keep` bytes: with the connection, or only with the flow.
async fn cut(response: Response<Body>, keep: usize, stall: Option<Arc<Shared>>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let bytes = BodyExt::collect(body).await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    parts.headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    let kept = bytes.slice(..keep.min(bytes.len()));
    let rest = bytes.slice(kept.len()..);
    let first = stream::iter([Ok::<_, io::Error>(Frame::data(kept))]);
    let second = stream::once(async move {
        match stall {
            Some(shared) => {
                released(&shared).await;
                Ok(Frame::data(rest))
            }
            None => {
                // The first half must be on its way before the connection closes.
                tokio::task::yield_now().await;
                Err(io::Error::other("torn on purpose"))
            }
        }
    });
    let body = StreamBody::new(first.chain(second));
    Response::from_parts(parts, Body::http_body_unsync(body))
}

async fn answer(
    mut request: Request<Incoming>,
    service: S3Service,
    shared: Arc<Shared>,
) -> Result<Response<Body>, s3s::HttpError> {
    let number = shared.requests.fetch_add(1, Ordering::Relaxed);
    let (kind, object) = kind_of(&request);
    let fault = fault_of(&shared, kind, &object);
    let seen = Seen { kind, object, fault: fault.clone() };
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    // A body that was sent is read, so that the client does not see its own write fail.
    let drain = |request: Request<Incoming>| async move { request.into_body().collect().await.map(drop) };
    let response = match fault {
        Some(Fault::Answer(status, code)) => {
            let _ = drain(request).await;
            Ok(refusal(status, code))
        }
        Some(Fault::Babble) => {
            let _ = drain(request).await;
            Ok(page(200, "text/html", "<html><body>It works!</body></html>".to_owned()))
        }
        Some(Fault::Say(text)) => {
            let _ = drain(request).await;
            Ok(page(200, "application/xml", text.to_owned()))
        }
        Some(Fault::Drop) => {
            let _ = drain(request).await;
            let mut response = Response::new(Body::from(Bytes::new()));
            let tag = HeaderValue::from_static("\"v0\"");
            response.headers_mut().insert(http::header::ETAG, tag);
            Ok(response)
        }
        Some(Fault::Lose) => {
            let _ = call(&service, request).await;
            Err(closed())
        }
        Some(Fault::Hold) => {
            released(&shared).await;
            call(&service, request).await
        }
        Some(Fault::Tear(keep)) => Ok(cut(call(&service, request).await?, keep, None).await),
        Some(Fault::Stall(keep)) => {
            Ok(cut(call(&service, request).await?, keep, Some(Arc::clone(&shared))).await)
        }
        Some(Fault::Shift(by)) => {
            request.extensions_mut().insert(Shift { by, is_told: true });
            call(&service, request).await
        }
        Some(Fault::ShiftQuietly(by)) => {
            request.extensions_mut().insert(Shift { by, is_told: false });
            call(&service, request).await
        }
        None => call(&service, request).await,
    };
    response.map(|mut response| {
        if let Ok(id) = HeaderValue::from_str(&format!("req-{number}")) {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        response
    })
}

async fn call(service: &S3Service, request: Request<Incoming>) -> Result<Response<Body>, s3s::HttpError> {
    service.call(request.map(Body::from)).await
}

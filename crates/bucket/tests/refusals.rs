//! Each mistake of an operator and each misfortune is told by name, with a way out.

use std::io::{Read, Write};
use std::net::TcpListener;

use steadfast_bucket::{Class, Client, Credentials, Store as _, Tuning};
use steadfast_hostile::{Fault, KEYS, Kind, Rule, Store};

use crate::{client, client_with, keys, tuning};

fn class_of(outcome: steadfast_bucket::Result<()>) -> Class {
    let error = outcome.expect_err("a refusal");
    let text = error.to_string();
    assert!(text.ends_with(error.class.action()) && text.contains(error.class.problem()), "{text}");
    assert!(!text.contains(KEYS[0].1), "a secret in {text}");
    error.class
}

fn ours(address: &str) -> Client {
    client_with(address, &keys(KEYS[0].0, KEYS[0].1), Tuning { tries: 2, ..tuning() }).unwrap()
}

#[test]
fn a_wrong_bucket_key_or_secret_is_named() {
    let store = Store::start();
    let address = store.location("tank");
    assert_eq!(class_of(ours(&address.replace("bucket", "racket")).check()), Class::NoBucket);
    let stranger = client_with(&address, &keys("AKNOBODY", KEYS[0].1), tuning()).unwrap();
    assert_eq!(class_of(stranger.check()), Class::WrongKey);
    let forger = client_with(&address, &keys(KEYS[0].0, "guessed"), tuning()).unwrap();
    assert_eq!(class_of(forger.check()), Class::WrongKey);
    let requests = steadfast_bucket::Store::counts(&stranger).total() + forger.counts().total();
    assert_eq!(requests, 2, "nothing of it is tried again");
}

#[test]
fn words_of_the_provider_are_told_in_ours() {
    let store = Store::start();
    let client = client(&store);
    for (status, code, class) in [
        (400, "AuthorizationHeaderMalformed", Class::WrongRegion),
        (301, "PermanentRedirect", Class::WrongRegion),
        (403, "RequestTimeTooSkewed", Class::ClockOff),
        (403, "AccessDenied", Class::Denied),
        (403, "QuotaExceeded", Class::QuotaFull),
        (507, "InsufficientStorage", Class::QuotaFull),
        (400, "SomethingElse", Class::Refused),
        (501, "NotImplemented", Class::Unsupported),
    ] {
        store.add(Rule::next(Kind::Put, 1, Fault::Answer(status, code)));
        let error = client.create("seg/1", b"x").unwrap_err();
        // The library keeps no body of a redirect.
        assert_eq!(error.code.as_deref(), (status != 301).then_some(code), "{error}");
        assert_eq!(error.status, Some(status), "{error}");
        assert_eq!(class_of(Err(error)), class, "{status} {code}");
    }
    client.create("seg/1", b"x").unwrap();
    store.set_object("tank/seg/1", None);
    assert_eq!(class_of(client.get("seg/1").map(drop)), Class::Missing);
}

#[test]
fn an_endpoint_that_speaks_no_s3_is_named() {
    let store = Store::start();
    store.add(Rule::next(Kind::List, 2, Fault::Babble));
    assert_eq!(class_of(ours(&store.location("tank")).check()), Class::NotAStore);
    // A server of another protocol, which answers anything with a line of its own.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let Ok((mut connection, _)) = listener.accept() else { return };
        let _ = connection.read(&mut [0; 1024]);
        let _ = connection.write_all(b"220 mail.example.org ESMTP\r\n");
    });
    let client = ours(&format!("s3://bucket?endpoint=http://127.0.0.1:{port}"));
    assert_eq!(class_of(client.check()), Class::NotAStore);
    server.join().unwrap();
    // TLS to a server that has none.
    let tls = store.location("tank").replace("http://", "https://");
    assert_eq!(class_of(ours(&tls).check()), Class::NotAStore);
    // Nobody at all.
    let nobody = ours(&format!("s3://bucket?endpoint=http://127.0.0.1:{port}"));
    assert_eq!(class_of(nobody.check()), Class::Away);
}

#[test]
fn a_folder_is_a_store_too() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("file://{}", folder.path().display());
    let open = |address: &str| client_with(address, &Credentials::None, tuning());
    let client = open(&address).unwrap();
    client.check().unwrap();
    client.create("seg/1", b"first").unwrap();
    client.create("seg/1", b"first").unwrap();
    assert_eq!(client.create("seg/1", b"other").unwrap_err().class, Class::Exists);
    assert_eq!(client.list("seg").unwrap()[0].object, "seg/1");
    assert_eq!(client.head("seg/2").unwrap(), None);
    assert_eq!(client.get("seg/2").unwrap_err().class, Class::Missing);
    client.delete(&["seg/1".to_owned(), "seg/2".to_owned()]).unwrap();
    assert_eq!(client.list("seg").unwrap(), []);
    assert_eq!(class_of(open(&format!("{address}/none")).map(drop)), Class::NoBucket);
    std::fs::write(folder.path().join("file"), b"").unwrap();
    assert_eq!(class_of(open(&format!("{address}/file")).map(drop)), Class::NotAStore);
}

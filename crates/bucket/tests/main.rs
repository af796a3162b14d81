//! The client against a store that lies, loses, delays and fails.

mod client;
mod device;
mod probe;
mod refusals;

use steadfast_bucket::credentials::Secret;
use steadfast_bucket::{Client, Credentials, Tuning};
use steadfast_env::Env;
use steadfast_hostile::{KEYS, Store};

/// Pauses pass on a clock that steps, so that no test waits for them.
fn tuning() -> Tuning {
    Tuning { steps_clock: true, ..Tuning::default() }
}

fn keys(name: &str, secret: &str) -> Credentials {
    Credentials::Keys {
        access: Secret::new(name),
        secret: Secret::new(secret),
        token: None,
        region: None,
        source: "a test".to_owned(),
    }
}

fn client_with(address: &str, credentials: &Credentials, tuning: Tuning) -> steadfast_bucket::Result<Client> {
    Client::open(address.parse().unwrap(), credentials, Env::seeded(1), tuning)
}

fn client(store: &Store) -> Client {
    let (name, secret) = KEYS[0];
    client_with(&store.location("tank"), &keys(name, secret), tuning()).unwrap()
}

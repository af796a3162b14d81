//! One connection: TLS with throw-away keys, a proof of the secret from both sides, then frames of
//! bounded length.
//!
//! The agent's key is a raw public key (RFC 7250), made for this process and certified by nobody.
//! The proof shows who is at the other end: an HMAC under the shared secret over keys exported from
//! this very connection (RFC 9266's idea). Somebody in the middle has two connections with other
//! keys, and no proof fits both.

use crate::secret::{PROOF_BYTES, Role, Secret, random};
use crate::{Error, message};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme, version,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest frame after both have proved who they are: an interval of 10,000 groups has a few
/// megabytes.
const FRAME_MAX: usize = 64 << 20;
/// Handshake and proofs together.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Each side says that it is there at least so often.
const BEAT: Duration = Duration::from_secs(2);
/// Silence after which the other end is taken for gone.
const SILENCE: Duration = Duration::from_secs(20);
/// Label of the keys that proofs are bound to.
const EXPORTER: &[u8] = b"EXPORTER-steadfast-bench-agent";
/// First message of a master, before its proof.
const HELLO: &[u8; 16] = b"steadfast bench\n";
/// One master: all its connections to an agent bear the same.
pub(crate) type MasterId = [u8; 16];
/// Bytes of the first frame: hello, version, master, proof.
const HELLO_BYTES: usize = HELLO.len() + 4 + size_of::<MasterId>() + PROOF_BYTES;
/// Longest answer to it.
const ANSWER_MAX: usize = 1024;

/// Both directions of a connection. Any thread may send; one receives, through a [`Receiver`].
pub(crate) struct Link {
    tls: Mutex<Connection>,
    socket: TcpStream,
    /// When something was sent last; held while sending, so that frames do not mix.
    sent: Mutex<Instant>,
}

/// The receiving end.
pub(crate) struct Receiver {
    pub link: Arc<Link>,
    /// Bytes that have come and were not read yet.
    buffer: Vec<u8>,
}

/// The value, also if a thread died holding it: a frame is sent whole or the connection is closed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The agent's side of TLS, with a key made now.
pub(crate) fn server() -> Result<Arc<ServerConfig>, Error> {
    // PKCS #8 of an Ed25519 key (RFC 8410): these bytes, then the seed.
    const HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let mut key = [0u8; 48];
    key[..16].copy_from_slice(&HEAD);
    random(&mut key[16..])?;
    let provider = provider();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
    let key = provider.key_provider.load_private_key(key)?;
    let public =
        key.public_key().ok_or(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown))?;
    let certified = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key);
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified))));
    Ok(Arc::new(config))
}

/// The master's side of TLS.
pub(crate) fn client() -> Result<Arc<ClientConfig>, Error> {
    let provider = provider();
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Takes any raw key that signs its handshake: whose it is, the proof shows.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(
            message,
            &key,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Connects the master's side: TLS, our proof, the agent's proof.
pub(crate) fn connect(
    socket: TcpStream,
    config: Arc<ClientConfig>,
    secret: &Secret,
    master: &MasterId,
) -> Result<Receiver, Error> {
    let name = ServerName::try_from("agent").map_err(|_| rustls::Error::General("no name".into()))?;
    let connection = Connection::Client(ClientConnection::new(config, name)?);
    let until = Instant::now() + HANDSHAKE;
    let (mut receiver, exported) = shake(socket, connection, until)?;
    let (version, proof) = (message::VERSION.to_be_bytes(), secret.proof(Role::Master, &exported));
    let hello = [HELLO.as_slice(), &version, master, &proof];
    receiver.link.send_bytes(&hello.concat())?;
    let answer = receiver.frame(ANSWER_MAX, Some(until))?;
    match answer.split_first() {
        Some((0, proof)) if secret.proves(Role::Agent, &exported, proof) => Ok(receiver),
        Some((1, why)) => Err(Error::Refused(format!("the agent refuses: {}", plain(why)))),
        _ => Err(Error::Refused(
            "the other side does not know the secret; it is not one of your agents.".into(),
        )),
    }
}

/// Connects the agent's side. `busy`: why a master that is known must be turned away, if so.
pub(crate) fn accept(
    socket: TcpStream,
    config: Arc<ServerConfig>,
    secret: &Secret,
    busy: impl FnOnce(&MasterId) -> Option<&'static str>,
) -> Result<Receiver, Error> {
    let connection = Connection::Server(ServerConnection::new(config)?);
    let until = Instant::now() + HANDSHAKE;
    let (mut receiver, exported) = shake(socket, connection, until)?;
    let hello = receiver.frame(HELLO_BYTES, Some(until))?;
    let refuse = |receiver: &Receiver, why: &str| {
        // The other side may be gone already: it is refused either way.
        let _ = receiver.link.send_bytes(&[&[1u8], why.as_bytes()].concat());
        Err(Error::Refused(why.to_string()))
    };
    let Some((version, rest)) = hello.strip_prefix(HELLO).and_then(|rest| rest.split_first_chunk::<4>())
    else {
        return Err(Error::Refused("the first frame is none of ours.".into()));
    };
    if u32::from_be_bytes(*version) != message::VERSION {
        return refuse(&receiver, "the versions differ: use the same program on all hosts.");
    }
    let Some((master, proof)) = rest.split_first_chunk() else {
        return Err(Error::Refused("the first frame is none of ours.".into()));
    };
    if !secret.proves(Role::Master, &exported, proof) {
        return refuse(&receiver, "the secrets differ: give master and agent the same file.");
    }
    if let Some(why) = busy(master) {
        return refuse(&receiver, why);
    }
    receiver.link.send_bytes(&[&[0u8], secret.proof(Role::Agent, &exported).as_slice()].concat())?;
    Ok(receiver)
}

/// A sentence of the other side, fit for a terminal.
fn plain(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).collect()
}

/// TLS itself, and the keys exported from it.
fn shake(socket: TcpStream, mut tls: Connection, until: Instant) -> Result<(Receiver, [u8; 32]), Error> {
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(SILENCE))?;
    while tls.is_handshaking() || tls.wants_write() {
        while tls.wants_write() {
            tls.write_tls(&mut &socket)?;
        }
        if !tls.is_handshaking() {
            break;
        }
        patience(&socket, Some(until))?;
        if tls.read_tls(&mut &socket)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Err(error) = tls.process_new_packets() {
            // An alert says why, if the other end can read it.
            let _ = tls.write_tls(&mut &socket);
            return Err(error.into());
        }
    }
    let exported = tls.export_keying_material([0u8; 32], EXPORTER, None)?;
    let mut buffer = Vec::new();
    drain(&mut tls, &mut buffer)?;
    let link = Link { tls: Mutex::new(tls), socket, sent: Mutex::new(Instant::now()) };
    Ok((Receiver { link: Arc::new(link), buffer }, exported))
}

/// How long the next read may take: to the end of the handshake, or until it is time to say
/// something.
fn patience(socket: &TcpStream, until: Option<Instant>) -> io::Result<()> {
    let left = match until {
        Some(until) => until.saturating_duration_since(Instant::now()),
        None => BEAT,
    };
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))
}

/// Takes out what TLS has decrypted.
fn drain(tls: &mut Connection, buffer: &mut Vec<u8>) -> Result<bool, Error> {
    let state = tls.process_new_packets()?;
    let start = buffer.len();
    buffer.resize(start + state.plaintext_bytes_to_read(), 0);
    tls.reader().read_exact(&mut buffer[start..])?;
    Ok(state.peer_has_closed())
}

impl Link {
    /// Sends one message.
    pub(crate) fn send(&self, message: &impl Serialize) -> Result<(), Error> {
        let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
        if bytes.len() > FRAME_MAX {
            let text = format!("a message of {} bytes is longer than {FRAME_MAX}", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
        }
        self.send_bytes(&bytes)
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut sent = lock(&self.sent);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?.to_be_bytes();
        let done = self.put(&length).and_then(|()| self.put(bytes));
        if done.is_err() {
            // Half a frame is worse than none.
            self.close();
        }
        *sent = Instant::now();
        done
    }

    fn put(&self, mut rest: &[u8]) -> Result<(), Error> {
        while !rest.is_empty() {
            let mut out = Vec::new();
            {
                let mut tls = lock(&self.tls);
                let count = tls.writer().write(rest)?;
                rest = &rest[count..];
                while tls.wants_write() {
                    tls.write_tls(&mut out)?;
                }
            }
            (&self.socket).write_all(&out)?;
        }
        Ok(())
    }

    /// Ends both directions, and wakes a waiting read.
    pub(crate) fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next message. While none comes, `alive` is sent from time to time; a silent other side
    /// is an error.
    pub(crate) fn next<T: DeserializeOwned>(&mut self, alive: &impl Serialize) -> Result<T, Error> {
        let mut heard = Instant::now();
        loop {
            if lock(&self.link.sent).elapsed() >= BEAT {
                self.link.send(alive)?;
            }
            if let Some(frame) = self.whole(FRAME_MAX)? {
                return serde_json::from_slice(&frame).map_err(|e| io::Error::other(e).into());
            }
            match self.more(None) {
                Ok(()) => heard = Instant::now(),
                Err(Error::Io(error))
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
                        && heard.elapsed() < SILENCE => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One frame of at most `limit` bytes, before `until`.
    fn frame(&mut self, limit: usize, until: Option<Instant>) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(frame) = self.whole(limit)? {
                return Ok(frame);
            }
            self.more(until)?;
        }
    }

    /// A frame, if a whole one has come.
    fn whole(&mut self, limit: usize) -> Result<Option<Vec<u8>>, Error> {
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > limit {
            let text = format!("a message of {length} bytes is longer than {limit}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(4 + length);
        let mut frame = std::mem::replace(&mut self.buffer, rest);
        frame.drain(..4);
        Ok(Some(frame))
    }

    fn more(&mut self, until: Option<Instant>) -> Result<(), Error> {
        patience(&self.link.socket, until)?;
        let mut raw = [0u8; 16 << 10];
        let count = (&self.link.socket).read(&mut raw)?;
        let mut rest = &raw[..count];
        let mut tls = lock(&self.link.tls);
        loop {
            // Also with nothing: that is how TLS learns of the end.
            tls.read_tls(&mut rest)?;
            let closed = drain(&mut tls, &mut self.buffer)?;
            if count == 0 || closed {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}

/// A client that speaks TLS and knows nothing else.
#[cfg(test)]
pub(crate) struct Stranger(pub Receiver);

#[cfg(test)]
pub(crate) fn stranger_client(socket: TcpStream) -> Stranger {
    let name = ServerName::try_from("agent").unwrap();
    let connection = ClientConnection::new(client().unwrap(), name).unwrap();
    Stranger(shake(socket, Connection::Client(connection), Instant::now() + HANDSHAKE).unwrap().0)
}

#[cfg(test)]
pub(crate) fn stranger_server(socket: TcpStream) -> Stranger {
    let connection = ServerConnection::new(server().unwrap()).unwrap();
    Stranger(shake(socket, Connection::Server(connection), Instant::now() + HANDSHAKE).unwrap().0)
}

#[cfg(test)]
impl Stranger {
    pub(crate) fn raw_frame(&mut self) -> Vec<u8> {
        self.0.frame(4096, Some(Instant::now() + HANDSHAKE)).unwrap()
    }

    pub(crate) fn send_raw(&self, frame: &[u8]) {
        self.0.link.send_bytes(frame).unwrap();
    }

    /// Bytes without a length before them.
    pub(crate) fn send_plain(&self, bytes: &[u8]) {
        self.0.link.put(bytes).unwrap();
    }

    /// Whether the other side closes the connection.
    pub(crate) fn ended(&mut self) -> bool {
        let until = Instant::now() + 3 * HANDSHAKE;
        loop {
            match self.0.more(Some(until)) {
                Ok(()) => {}
                Err(Error::Io(error)) => {
                    return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                }
                Err(_) => return true,
            }
        }
    }
}

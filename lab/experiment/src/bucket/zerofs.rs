//! ZeroFS, a file system on a store of objects that serves NFS: its start and end, and the same
//! work by the lab's own client, so that no client in the kernel is needed.
//!
//! The client waits for each answer. In reading and writing the large file it has eight
//! connections, as a kernel reads ahead and writes behind. Written means that COMMIT was answered:
//! ZeroFS asks the store for news each second, so that it is never quiet.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::arm::Arm;
use super::remote::{Remote, write_secret};
use super::tree_files;
use crate::error::Error;
use crate::iris::client::{Client, Handle, Stable, TRANSFER};
use crate::load::files::Noise;

const PROGRAM: &str = "zerofs";
/// Connections that move the large file.
const CONNECTIONS: u64 = 8;
/// A server that listens nowhere by then never will.
const PATIENCE: Duration = Duration::from_secs(60);
/// Gigabytes of its caches on disk and in memory: those of a pool with a cache device here.
pub(super) const CACHE_GB: [f64; 2] = [1.0, 0.25];

/// A running server; dropping it ends it.
pub(crate) struct Server {
    process: Child,
    address: SocketAddr,
}

/// The version of the program that is installed.
pub(super) fn version() -> Option<String> {
    let said = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output().ok()?;
    String::from_utf8(said.stdout).ok().map(|text| text.trim().to_owned())
}

/// The configuration file, with the key of the store in it.
fn configuration(arm: &Arm, home: &Path, remote: &Remote, port: u16) -> String {
    let [disk, memory] = CACHE_GB;
    format!(
        "[cache]\ndir = \"{}/cache\"\ndisk_size_gb = {disk:?}\nmemory_size_gb = {memory:?}\n\
         [storage]\nurl = \"s3://{}/{}\"\nencryption_password = \"a password of the lab\"\n\
         [servers.nfs]\naddresses = [\"127.0.0.1:{port}\"]\n\
         [aws]\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\nendpoint = \"http://{}\"\n\
         default_region = \"us-east-1\"\nallow_http = \"true\"\n",
        home.display(),
        remote.bucket,
        arm.prefix,
        remote.key.0,
        remote.key.1,
        arm.link.address()
    )
}

impl Server {
    /// Starts it on the store, with nothing in its caches.
    pub fn start(arm: &Arm, home: &Path, remote: &Remote) -> Result<Server, Error> {
        let failed = || Error::io("find a port of", Path::new("127.0.0.1"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        let address = listener.local_addr().map_err(failed())?;
        drop(listener);
        let (file, log) = (home.join("zerofs.toml"), home.join("zerofs.log"));
        let _ = (fs::remove_dir_all(home.join("cache")), fs::remove_file(&file));
        write_secret(&file, &configuration(arm, home, remote, address.port()))?;
        let said = fs::File::create(&log).map_err(Error::io("create", &log))?;
        let errors = said.try_clone().map_err(Error::io("create", &log))?;
        let process = Command::new(PROGRAM)
            .args(["run", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(errors)
            .spawn()
            .map_err(Error::io("run", Path::new(PROGRAM)))?;
        let mut server = Server { process, address };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let gone = server.process.try_wait().map_err(Error::io("wait for", &file))?.is_some();
            if gone || began.elapsed() > PATIENCE {
                let log = fs::read_to_string(&log).unwrap_or_default();
                return Err(Error::Answer {
                    line: format!("{PROGRAM} run -c {}", file.display()),
                    answer: log.lines().last().unwrap_or_default().to_owned(),
                    expected: "a server that listens",
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// A client, and the top of the file system.
    pub fn client(&self) -> io::Result<(Client, Handle)> {
        let mut client = Client::connect(self.address)?;
        let top = client.mount("/")?;
        Ok((client, top))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Politely: it writes what it holds.
        if let Some(id) = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let began = Instant::now();
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Moves the transfers of the large file over all connections.
fn moved(
    server: &Server,
    bytes: u64,
    work: impl Fn(&mut Client, &[u8], u64) -> io::Result<()> + Sync,
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let work = &work;
                scope.spawn(move || {
                    let (mut client, top) = server.client()?;
                    let file = client.lookup(&top, "large")?;
                    let offsets = (0..bytes).step_by(TRANSFER).skip(usize::try_from(number).expect("few"));
                    for offset in offsets.step_by(usize::try_from(CONNECTIONS).expect("few")) {
                        work(&mut client, &file, offset)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no client panics"))
    })
}

/// Writes the large file, and waits until the store has it.
pub(super) fn write_large(server: &Server, bytes: u64, seed: u64) -> io::Result<()> {
    let (mut client, top) = server.client()?;
    let file = client.create(&top, "large")?;
    moved(server, bytes, |client, file, offset| {
        let mut data = vec![0; TRANSFER.min(usize::try_from(bytes - offset).unwrap_or(TRANSFER))];
        Noise::new(seed ^ offset).fill(&mut data);
        client.write(file, offset, &data, Stable::Unstable)
    })?;
    client.commit(&file)
}

/// Reads it.
pub(super) fn read_large(server: &Server, bytes: u64) -> io::Result<()> {
    moved(server, bytes, |client, file, offset| {
        let count = TRANSFER.min(usize::try_from(bytes - offset).unwrap_or(TRANSFER));
        let mut got = 0;
        while got < count {
            match client.read(file, offset + got as u64, count - got)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => got += more,
            }
        }
        Ok(())
    })
}

/// Unpacks the tree, and waits until the store has it.
pub(super) fn unpack(server: &Server, files: u64) -> io::Result<()> {
    let (mut client, top) = server.client()?;
    let tree = client.mkdir(&top, "tree")?;
    let (mut last, mut folder) = (Handle::new(), (u64::MAX, Handle::new()));
    for (number, content) in tree_files(files) {
        let at = number / 100;
        if folder.0 != at {
            folder = (at, client.mkdir(&tree, &format!("d{at}"))?);
        }
        last = client.create(&folder.1, &format!("f{number}"))?;
        client.write(&last, 0, &content, Stable::Unstable)?;
    }
    client.commit(&last)
}

/// Lists the tree with all attributes.
pub(super) fn list(server: &Server) -> io::Result<Vec<Handle>> {
    let (mut client, top) = server.client()?;
    let tree = client.lookup(&top, "tree")?;
    let mut found = Vec::new();
    for folder in client.list(&tree)? {
        found.extend(client.list(&folder)?);
    }
    Ok(found)
}

/// Reads all files of the tree, one after the other.
pub(super) fn pack(server: &Server) -> io::Result<()> {
    let (mut client, _) = server.client()?;
    for file in list(server)? {
        let mut at = 0;
        loop {
            match client.read(&file, at, TRANSFER)? {
                0 => break,
                count => at += count as u64,
            }
        }
    }
    Ok(())
}

/// Removes the tree, and waits until the store knows.
pub(super) fn remove(server: &Server, files: u64) -> io::Result<()> {
    let (mut client, top) = server.client()?;
    let tree = client.lookup(&top, "tree")?;
    for folder in 0..files.div_ceil(100) {
        let name = format!("d{folder}");
        let handle = client.lookup(&tree, &name)?;
        for number in folder * 100..files.min((folder + 1) * 100) {
            client.remove(&handle, &format!("f{number}"))?;
        }
        client.remove_folder(&tree, &name)?;
    }
    client.remove_folder(&top, "tree")?;
    let large = client.lookup(&top, "large")?;
    client.commit(&large)
}

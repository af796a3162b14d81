//! NFS-Ganesha, the server in user space that is compared: its configuration, start and end.
//!
//! It exports directories that are mounted already (its FSAL_VFS), over TCP, version 3 alone,
//! without locks. It does not start without a port mapper to register at. Where no rpcbind(8) runs,
//! one is started in a network namespace of its own: Ganesha reaches it by its Unix socket, and
//! port 111 of this machine stays free. The experiment that started it ends it, so one Ganesha
//! of experiments runs at a time on a machine.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::Export;
use crate::error::Error;
use crate::host::requirements::on_path;

const PROGRAM: &str = "ganesha.nfsd";
/// Connections that it takes; 1,024 unless told otherwise.
const CONNECTIONS_MAX: u32 = 10_000;
/// Where rpcbind(8) listens for programs of this machine.
const PORT_MAPPER: &str = "/run/rpcbind.sock";
/// Where Debian's rpcbind(8) keeps its lock.
const PORT_MAPPER_HOME: &str = "/run/rpcbind";
/// Locked while a Ganesha of some experiment runs.
const TURN: &str = "/run/rpcbind/steadfast-lab.lock";
/// A server that listens nowhere by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server; dropping it ends it.
pub(super) struct Ganesha {
    server: Child,
    port_mapper: Option<Child>,
    nfs: SocketAddr,
    mount: SocketAddr,
    /// Unlocked when it is closed.
    _turn: fs::File,
}

/// The reason why this machine has no Ganesha; `None` if it has one.
pub(super) fn lacks() -> Option<String> {
    let missing = |program: &str, package: &str| {
        (!on_path(program) && !Path::new("/usr/sbin").join(program).exists())
            .then(|| format!("{program} is not installed: apt install {package}"))
    };
    missing(PROGRAM, "nfs-ganesha nfs-ganesha-vfs")
        .or_else(|| (!Path::new(PORT_MAPPER).exists()).then(|| missing("rpcbind", "rpcbind")).flatten())
}

/// The configuration file.
fn configuration(ports: [u16; 2], exports: &[PathBuf]) -> String {
    let [nfs, mount] = ports;
    let mut text = format!(
        "NFS_CORE_PARAM {{\n  Protocols = 3;\n  Bind_addr = 127.0.0.1;\n  NFS_Port = {nfs};\n  MNT_Port = {mount};\n  \
         Enable_UDP = false;\n  Enable_NLM = false;\n  Enable_RQUOTA = false;\n  mount_path_pseudo = false;\n  \
         RPC_Max_Connections = {CONNECTIONS_MAX};\n}}\n\
         LOG {{ Default_Log_Level = EVENT; }}\n"
    );
    for (number, export) in (1..).zip(exports) {
        text += &format!(
            "EXPORT {{\n  Export_Id = {number};\n  Path = \"{}\";\n  Pseudo = /{number};\n  Access_Type = RW;\n  \
             Squash = No_root_squash;\n  SecType = sys;\n  Transports = TCP;\n  Protocols = 3;\n  MaxRead = 1048576;\n  \
             MaxWrite = 1048576;\n  PrefRead = 1048576;\n  PrefWrite = 1048576;\n  FSAL {{ Name = VFS; }}\n}}\n",
            export.display()
        );
    }
    text
}

impl Ganesha {
    /// Starts it on these directories. `home` is a directory for its files.
    pub fn start(home: &Path, exports: &[PathBuf]) -> Result<Ganesha, Error> {
        let turn = take_turn()?;
        let port_mapper = start_port_mapper(home)?;
        let [nfs, mount] = [free_port()?, free_port()?];
        let conf = home.join("ganesha.conf");
        fs::write(&conf, configuration([nfs, mount], exports)).map_err(Error::io("write", &conf))?;
        let server = spawn(
            Command::new(PROGRAM)
                .args(["-F", "-f"])
                .arg(&conf)
                .arg("-L")
                .arg(home.join("ganesha.log"))
                .arg("-p")
                .arg(home.join("ganesha.pid")),
            home,
        );
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                port_mapper.into_iter().for_each(end);
                return Err(error);
            }
        };
        let mut ganesha = Ganesha { server, port_mapper, nfs: at(nfs), mount: at(mount), _turn: turn };
        let began = Instant::now();
        while [ganesha.nfs, ganesha.mount].iter().any(|address| TcpStream::connect(address).is_err()) {
            let gone = ganesha.server.try_wait().map_err(Error::io("wait for", &conf))?.is_some();
            if gone || began.elapsed() > PATIENCE {
                let log = fs::read_to_string(home.join("ganesha.log")).unwrap_or_default();
                return Err(Error::Answer {
                    line: format!("{PROGRAM} -F -f {}", conf.display()),
                    answer: log.lines().last().unwrap_or_default().to_owned(),
                    expected: "a server that listens",
                });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(ganesha)
    }

    /// An export of it.
    pub fn export(&self, path: PathBuf) -> Export {
        Export { nfs: self.nfs, mount: self.mount, path }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.server.id()
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // Politely, so that it deregisters at the port mapper.
        if let Some(id) = i32::try_from(self.server.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let began = Instant::now();
        while self.server.try_wait().is_ok_and(|ended| ended.is_none()) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
        self.port_mapper.take().into_iter().for_each(end);
    }
}

/// Ends a port mapper that was started here.
fn end(mut port_mapper: Child) {
    let _ = port_mapper.kill();
    let _ = port_mapper.wait();
    let _ = fs::remove_file(PORT_MAPPER);
}

fn spawn(command: &mut Command, home: &Path) -> Result<Child, Error> {
    let (program, said) = (PathBuf::from(command.get_program()), home.join("said"));
    let file = fs::File::create(&said).map_err(Error::io("create", &said))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .map_err(Error::io("run", &program))
}

/// Waits until no other experiment of this machine has a Ganesha.
fn take_turn() -> Result<fs::File, Error> {
    fs::create_dir_all(PORT_MAPPER_HOME).map_err(Error::io("create", Path::new(PORT_MAPPER_HOME)))?;
    let turn = fs::File::create(TURN).map_err(Error::io("create", Path::new(TURN)))?;
    turn.lock().map_err(Error::io("lock", Path::new(TURN)))?;
    Ok(turn)
}

/// A port mapper, unless one runs.
fn start_port_mapper(home: &Path) -> Result<Option<Child>, Error> {
    let socket = Path::new(PORT_MAPPER);
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Ok(None);
    }
    let mut child = spawn(Command::new("unshare").args(["--net", "rpcbind", "-f", "-w"]), home)?;
    let began = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) || began.elapsed() > PATIENCE {
            end(child);
            let answer = fs::read_to_string(home.join("said")).unwrap_or_default();
            return Err(Error::Answer {
                line: "unshare --net rpcbind -f -w".to_owned(),
                answer,
                expected: "a port mapper that listens",
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Some(child))
}

/// A port of this machine that is free now.
fn free_port() -> Result<u16, Error> {
    let failed = || Error::io("find a port of", Path::new("127.0.0.1"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
    Ok(listener.local_addr().map_err(failed())?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_export_has_a_number_and_a_path() {
        let text = configuration([2049, 20_048], &["/a b".into(), "/c".into()]);
        assert!(text.contains("RPC_Max_Connections = 10000;"));
        assert!(text.contains("NFS_Port = 2049;") && text.contains("MNT_Port = 20048;"));
        assert!(text.contains("Export_Id = 1;\n  Path = \"/a b\";"));
        assert!(text.contains("Export_Id = 2;\n  Path = \"/c\";"));
    }
}

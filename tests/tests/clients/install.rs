//! Gets programs from their registries into a folder beside the program under test.

use std::path::{Path, PathBuf};

use steadfast_tests::{Host, Ran, is_root, no_fuse, skip, steadfast_bin};

use super::{Client, From, of};

/// Is this a run of the long forms?
fn is_long() -> bool {
    std::env::var_os("STEADFAST_LONG").is_some()
}

/// A client that is installed, and a host with the pools `src` and `dst`.
pub(super) struct Ready {
    pub host: Host,
    /// Folder of what was installed.
    pub root: PathBuf,
}

impl Ready {
    /// A line of shell with programs of `bin` below the folder on its path.
    pub fn shell(&self, bin: &str, line: &str) -> Ran {
        // Messages as programs get them.
        self.host.shell(&format!(
            "unset STEADFAST_EXPLAIN; export PATH=\"$PATH:{}\" HOME=$PWD\n{line}",
            self.root.join(bin).display()
        ))
    }

    /// A line of shell in a mount namespace in which the files of the package are in their places.
    pub fn placed(&self, line: &str) -> Ran {
        let usr = self.root.join("usr").display().to_string();
        std::fs::write(self.host.at("line"), line).expect("written");
        self.shell(
            ".",
            &format!("unshare -m bash -euc 'mount -t overlay -o lowerdir={usr}:/usr overlay /usr; . ./line'"),
        )
    }
}

/// Installs the program and makes the pools. `None`, and a word about it, where that cannot be.
pub(super) fn ready(name: &str) -> Option<Ready> {
    let client = of(name);
    if !client.always && !is_long() {
        skip(name, "a long form: STEADFAST_LONG=1 or `cargo xtask clients` runs it");
        return None;
    }
    if !is_root() {
        skip(name, "it is tried as root");
        return None;
    }
    if let Some(why) = no_fuse() {
        skip(name, &why);
        return None;
    }
    let host = Host::new();
    let root = match installed(client, &host) {
        Ok(root) => root,
        Err(why) => {
            skip(name, &format!("{} {} cannot be installed: {why}", client.name, client.version));
            return None;
        }
    };
    for pool in ["src", "dst"] {
        host.image(&format!("{pool}.img"), 256 << 20);
        host.shell(&format!("zpool create -m $PWD/{pool} {pool} $PWD/{pool}.img")).ok();
    }
    Some(Ready { host, root })
}

/// Folder of the installed program: the one of an earlier run, or a new one.
fn installed(client: &Client, host: &Host) -> Result<PathBuf, String> {
    let folder = steadfast_bin().with_file_name("clients");
    let place = folder.join(format!("{}-{}", client.name, client.version));
    if place.join("done").exists() {
        return Ok(place);
    }
    let sentence = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(&folder).map_err(sentence)?;
    // Paths stand in installed files, so it is built in its place. Of two at once one waits.
    let lock = std::fs::File::create(folder.join(format!("{}.lock", client.name))).map_err(sentence)?;
    lock.lock().map_err(sentence)?;
    if place.join("done").exists() {
        return Ok(place);
    }
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).map_err(sentence)?;
    let at = place.display().to_string();
    match client.from {
        From::Debian { part, sha256 } => debian(client, (part, sha256), host, &place)?,
        From::PyPi(wheels) => {
            let lines: Vec<String> =
                wheels.iter().map(|(wheel, sha256)| format!("{wheel} --hash=sha256:{sha256}\n")).collect();
            std::fs::write(place.join("wheels"), lines.concat()).map_err(sentence)?;
            run(host, &format!("python3 -m venv {at}"))?;
            run(host, &format!("{at}/bin/{PIP} --no-deps --require-hashes -r {at}/wheels"))?;
        }
        From::PyPiTree => {
            run(host, &format!("python3 -m venv {at}"))?;
            run(host, &format!("{at}/bin/{PIP} {}=={}", client.name.to_lowercase(), client.version))?;
        }
        From::Crates { sha256 } => {
            run(
                host,
                &format!(
                    "cargo install -q {} --version ={} --locked --root {at}",
                    client.name, client.version
                ),
            )?;
            let file = format!("{}-{}.crate", client.name, client.version);
            let cache = "${CARGO_HOME:-$HOME/.cargo}/registry/cache";
            let sum = run(host, &format!("sha256sum {cache}/*/{file} | head -1"))?;
            assert!(sum.starts_with(sha256), "{file} is another: {sum}");
        }
        From::Go { module, sum } => {
            let version = client.version;
            std::fs::write(
                place.join("go.mod"),
                format!("module clients\n\ngo 1.21\n\nrequire {module} v{version}\n"),
            )
            .map_err(sentence)?;
            std::fs::write(place.join("clients.go"), format!("package clients\n\nimport _ \"{module}\"\n"))
                .map_err(sentence)?;
            run(host, &format!("cd {at} && go mod tidy"))?;
            let sums = std::fs::read_to_string(place.join("go.sum")).map_err(sentence)?;
            assert!(sums.contains(&format!("{module} v{version} {sum}\n")), "{module} is another: {sums}");
        }
        From::GoUnsummed { module } => {
            run(host, &format!("GOBIN={at}/bin go install {module}@v{}", client.version))?;
        }
    }
    std::fs::write(place.join("done"), "").map_err(sentence)?;
    Ok(place)
}

/// Installs without asking for long where there is no network.
const PIP: &str = "pip -q --disable-pip-version-check --retries 1 --timeout 10 install";

/// Output of a line of shell, or the last line of what it complains about.
fn run(host: &Host, line: &str) -> Result<String, String> {
    let ran = host.shell(line);
    match ran.status {
        0 => Ok(ran.out),
        _ => Err(ran
            .err
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("no reason given")
            .trim()
            .to_owned()),
    }
}

/// Unpacks a package beside the system's own: it depends on ZFS, which is not here.
fn debian(client: &Client, (part, sha256): (&str, &str), host: &Host, place: &Path) -> Result<(), String> {
    let package = if client.name == "syncoid" { "sanoid" } else { client.name };
    let at = place.display();
    let wanted = format!("{package}={}", client.version);
    let asked = format!("cd {at} && apt-get -q -o APT::Sandbox::User=root download {wanted}");
    if part != "main" || run(host, &asked).is_err() {
        // Lists of our own, of the system's mirrors: those of the system stay as they are.
        let lists = "-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$PWD/sources -o Dir::State::lists=$PWD/lists \
                     -o Dir::Cache=$PWD/cache -o APT::Sandbox::User=root -o Acquire::Languages=none";
        run(
            host,
            &format!(
                "cd {at} && mkdir -p sources lists/partial cache/archives/partial && \
                 sed 's/^Components:.*/Components: {part}/' /etc/apt/sources.list.d/debian.sources > sources/debian.sources && \
                 apt-get -q {lists} update && apt-get -q {lists} download {wanted}"
            ),
        )?;
    }
    let sum = run(host, &format!("sha256sum {at}/*.deb"))?;
    assert!(sum.starts_with(sha256), "{wanted} is another: {sum}");
    run(host, &format!("dpkg-deb -x {at}/*.deb {at} && rm -rf {at}/lists {at}/cache"))?;
    // Files in their places: programs have absolute paths.
    run(host, &format!("unshare -m mount -t overlay -o lowerdir={at}/usr:/usr overlay /usr"))?;
    Ok(())
}

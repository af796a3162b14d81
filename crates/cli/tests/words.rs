//! Output and exit codes of the commands, against the engine behind a real socket pair.

use crate::answers;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use steadfast_cli::catalog::CATALOG;
use steadfast_cli::command::NotBuilt;
use steadfast_cli::program;
use steadfast_cli::world::World;
use steadfast_control::Service;
use steadfast_control::api::DataError;
use steadfast_control::client::Client;
use steadfast_control::runtime::Surroundings;
use steadfast_control::server::Server;

/// First bytes of every stream.
const STREAM_MAGIC: &[u8] = b"SFstream";

/// A machine with one host.
pub(crate) struct Machine {
    pub host: Arc<answers::Host>,
    pub folder: PathBuf,
    pub terminal: bool,
    pub explains: bool,
}

/// Outcome of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub status: u8,
    pub out: String,
    pub err: String,
    /// The stream that the daemon wrote.
    pub sent: Vec<u8>,
}

impl Machine {
    pub fn new(name: &str) -> Machine {
        let folder = std::env::temp_dir().join(format!("steadfast-words-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let host = Arc::new(answers::Host::new(&folder));
        let machine = Machine { host, folder, terminal: false, explains: true };
        for image in ["zfs_compress.img", "zfs_encrypt.img", "tank.img"] {
            machine.image(image, 256 << 20);
        }
        machine
    }

    /// Makes an image file, or changes its size.
    pub fn image(&self, name: &str, bytes: u64) {
        let path = self.folder.join(name);
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path);
        file.and_then(|file| file.set_len(bytes)).unwrap();
    }

    /// Runs a command line with text on standard input. `~` is the machine's folder.
    pub fn run_with(&self, line: &str, input: impl AsRef<[u8]>) -> Ran {
        let input = input.as_ref();
        let folder = self.folder.display().to_string();
        let arguments: Vec<String> = line.split_whitespace().map(|word| word.replace('~', &folder)).collect();
        let (given, mut giver) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut giver, input).unwrap();
        drop(giver);
        let (taken, taker) = std::io::pipe().unwrap();
        let (mut input, mut out, mut err) = (input, Vec::new(), Vec::new());
        let surroundings = Surroundings { runtime_dir: Some(self.folder.clone()), ..Surroundings::default() };
        let mut connect = |runtime: &steadfast_control::Runtime, command: &str| {
            let (near, far) = UnixStream::pair().unwrap();
            let (host, place) = (Arc::clone(&self.host) as Arc<dyn Service>, runtime.clone());
            std::thread::spawn(move || Server::converse_with(host, &place, &far));
            Ok(Client::over(near, runtime, command))
        };
        let status = program::run(
            &mut World {
                input: &mut input,
                input_is_terminal: self.terminal,
                input_fd: Some(given.into()),
                out_fd: Some(taker.into()),
                out_is_terminal: self.terminal,
                explains: self.explains,
                options_first: false,
                out: &mut out,
                err: &mut err,
                cwd: self.folder.clone(),
                surroundings,
                uid: 0,
                connect: &mut connect,
                guest: &mut |_, _| Ok(None),
                sleep: &mut |_| (),
            },
            &arguments,
        );
        let mut sent = Vec::new();
        std::io::Read::read_to_end(&mut &taken, &mut sent).unwrap();
        Ran { status, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), sent }
    }

    pub fn run(&self, line: &str) -> Ran {
        self.run_with(line, "")
    }

    /// Runs a command that must succeed without complaint, and returns what it printed.
    pub fn ok(&self, line: &str) -> String {
        let ran = self.run(line);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{line}: {ran:?}");
        ran.out
    }

    /// Runs a command that must fail with this status, and returns what it said.
    pub fn fails(&self, line: &str, status: u8) -> String {
        let ran = self.run(line);
        assert_eq!(ran.status, status, "{line}: {ran:?}");
        assert!(!ran.err.is_empty(), "{line}: a failure needs a sentence");
        ran.err
    }

    /// Runs a command that must send a stream without complaint, and returns the stream.
    pub fn sent(&self, line: &str) -> Vec<u8> {
        let ran = self.run(line);
        assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "{line}: {ran:?}");
        assert!(ran.sent.starts_with(STREAM_MAGIC), "{line}: {} bytes", ran.sent.len());
        ran.sent
    }

    pub fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(line)).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.host.shutdown(true);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn the_lines_of_the_source_reports_run() {
    let machine = Machine::new("reports");
    assert_eq!(machine.ok("zpool create zfs_compress ~/zfs_compress.img"), "");
    assert_eq!(machine.ok("zfs set compression=lz4 zfs_compress"), "");
    assert_eq!(machine.ok("zpool create zfs_encrypt ~/zfs_encrypt.img"), "");
    let line = "zfs create -o encryption=on -o keyformat=passphrase zfs_encrypt/encrypted";
    let ran = machine.run_with(line, "12345678\n");
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    assert_eq!(machine.ok("zfs get -H -o value compression zfs_compress"), "lz4\n");
    let got = machine.ok("zfs get -Ho value encryption,keystatus zfs_encrypt/encrypted");
    assert_eq!(got, "aes-256-gcm\navailable\n");
    assert_eq!(machine.ok("zpool create -f mypool ~/tank.img"), "");
    assert!(machine.ok("zpool status").contains("  pool: mypool\n state: ONLINE\n"));
}

#[test]
fn the_same_commands_answer_to_our_own_words() {
    let machine = Machine::new("own");
    machine.ok("steadfast pool create tank tank.img");
    assert_eq!(machine.ok("steadfast fs list -Ho name"), "tank\n");
    assert_eq!(machine.ok("/usr/local/bin/zpool list -H -o name"), "tank\n");
    let error = machine.fails("steadfast pool create tank tank.img", 1);
    assert!(error.contains("`steadfast pool export tank`") && error.contains("POOL-EXISTS"), "{error}");
    let error = machine.fails("zpool create tank tank.img", 1);
    assert!(error.contains("`zpool export tank`"), "{error}");
}

#[test]
fn tables_have_the_shape_of_zfs() {
    let machine = Machine::new("tables");
    assert_eq!(machine.ok("zpool list"), "no pools available\n");
    assert_eq!(machine.ok("zpool list -H"), "");
    assert_eq!(machine.ok("zfs list"), "no datasets available\n");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create tank/home");
    let pools = "NAME  SIZE  ALLOC  FREE  CKPOINT  EXPANDSZ  FRAG  CAP  DEDUP  HEALTH  ALTROOT\n\
                 tank  256M  25.9M  230M        -         -    0%  10%  1.00x  ONLINE  -\n";
    assert_eq!(machine.ok("zpool list"), pools);
    assert_eq!(machine.ok("zpool list -Hp -o name,size,cap,health tank"), "tank\t268435456\t10\tONLINE\n");
    let sets = "NAME        USED  AVAIL  REFER  MOUNTPOINT\n\
                tank       25.9M   150G    96K  /tank\n\
                tank/home  25.9M   150G    96K  /tank/home\n";
    assert_eq!(machine.ok("zfs list"), sets);
    assert_eq!(machine.ok("zfs list -Hpo name,used tank"), "tank\t27158118\n");
    assert_eq!(machine.ok("zfs list -H -o name -S name -r tank"), "tank/home\ntank\n");
    assert_eq!(machine.ok("zfs list -H -o name -d 0 tank"), "tank\n");
    assert_eq!(machine.ok("zfs list -H -t snapshot"), "");
    let got = "NAME  PROPERTY       VALUE  SOURCE\n\
               tank  compression    on     default\n\
               tank  compressratio  2.49x  -\n";
    assert_eq!(machine.ok("zfs get compression,compressratio tank"), got);
    assert_eq!(machine.ok("zfs get -Ho value,received compression tank"), "on\t-\n");
    let all = machine.ok("zfs get all tank");
    assert!(all.contains("creation") && all.contains("Sat Nov 21  5:25 2026"), "{all}");
    let verbose = machine.ok("zpool list -v -o name,size");
    assert!(verbose.contains("tank.img"), "{verbose}");
}

#[test]
fn json_has_the_header_and_shape_of_openzfs() {
    let machine = Machine::new("json");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create -o compression=zstd-9 tank/home");
    let version = |command: &str| serde_json::json!({"command": command, "vers_major": 0, "vers_minor": 1});
    let pools = machine.json("zpool list -j");
    assert_eq!(pools["output_version"], version("zpool list"));
    let tank = &pools["pools"]["tank"];
    assert_eq!((tank["type"].as_str(), tank["state"].as_str()), (Some("POOL"), Some("ONLINE")));
    let guid = machine.ok("zpool get -Hpo value guid tank").trim().to_owned();
    assert_eq!(tank["pool_guid"], guid.as_str());
    assert_eq!(tank["properties"]["size"]["value"], "256M");
    assert_eq!(tank["properties"]["size"]["source"], serde_json::json!({"type": "NONE", "data": "-"}));
    let numbers = machine.json("zpool list -j --json-int -p");
    assert_eq!(numbers["pools"]["tank"]["pool_guid"], guid.parse::<u64>().unwrap());
    assert_eq!(numbers["pools"]["tank"]["properties"]["size"]["value"], 268_435_456);
    let sets = machine.json("zfs get -j -r compression tank");
    assert_eq!(sets["output_version"], version("zfs get"));
    let home = &sets["datasets"]["tank/home"];
    assert_eq!((home["type"].as_str(), home["pool"].as_str()), (Some("FILESYSTEM"), Some("tank")));
    assert_eq!(home["properties"]["compression"]["source"]["type"], "LOCAL");
    let status = machine.json("zpool status -j");
    let root = &status["pools"]["tank"]["vdevs"]["tank"];
    let image = machine.folder.join("tank.img").display().to_string();
    assert_eq!(root["vdevs"][&image]["vdev_type"], "file");
    let tank = &status["pools"]["tank"];
    assert_eq!((&tank["spa_version"], &tank["zpl_version"]), (&"5000".into(), &"5".into()));
    assert_eq!((&tank["error_count"], &root["class"]), (&"0".into(), &"normal".into()));
    let flat = machine.json("zpool status -j --json-int --json-flat-vdevs --json-pool-key-guid");
    let flat = &flat["pools"][&guid];
    assert_eq!((&flat["name"], &flat["vdevs"][&image]["parent"]), (&"tank".into(), &"tank".into()));
    assert_eq!(flat["vdevs"]["tank"]["total_space"], 268_435_456);
    let listed = machine.json("zpool list -j -v --json-pool-key-guid");
    let device = &listed["pools"][&guid]["vdevs"][&image];
    assert_eq!(
        (&device["class"], &device["properties"]["size"]["value"]),
        (&"normal".into(), &"256M".into())
    );
    machine.ok("zpool scrub tank");
    let scan = &machine.json("zpool status -j --json-int tank")["pools"]["tank"]["scan_stats"];
    for name in ["skipped", "errors", "bytes_per_scan", "pass_start", "scrub_pause", "issued"] {
        assert!(scan[name].is_u64(), "{name} in {scan}");
    }
    assert_eq!(machine.json("zfs mount -j")["datasets"]["tank"]["mountpoint"], "/tank");
    machine.json("zfs list -j -o name,used");
    machine.json("zpool get -j all tank");
}

#[test]
fn exit_status_is_1_for_refusals_and_2_for_what_is_not_understood() {
    let machine = Machine::new("exit");
    machine.ok("zpool create tank tank.img");
    let not_understood = [
        "zpool",
        "zfs",
        "steadfast",
        "zpool frobnicate",
        "zpool list -q",
        "zpool create",
        "zpool create tank",
        "zfs create",
        "zpool list -o colour",
        "zfs get colour tank",
        "zfs list -s colour",
        "zfs list -t zebra",
        "zfs get -s nowhere all",
        "zpool destroy",
        "zpool destroy a b",
        "zfs set tank",
        "zfs set compression=on",
        "zpool export",
        "zpool export -a x",
        "zpool get -o colour all",
        "zfs inherit colour tank",
        "steadfast daemon dance",
        "zfs load-key",
        "zfs mount a b",
        "zpool create -o ashift tank ~/a",
        "zfs unmount",
        "zfs create -o a=1 -o a=2 tank/x",
        "zpool list 0",
        "zpool list 1 0",
        "zpool list 1 2 3",
        "zpool list -T x",
        "zpool iostat -wl",
        "zpool add tank",
        "zpool remove tank",
        "zpool import --accept-rollback",
        "zpool import -a --anchor /x",
        "zpool import --anchor",
        "zpool online tank",
        "zpool events a b",
        "zpool upgrade -a tank",
        "zfs rename tank/a",
        "zfs change-key -i -o keyformat=raw tank",
    ];
    for line in not_understood {
        let said = machine.fails(line, 2);
        assert!(said.contains("usage"), "{line}: {said}");
    }
    let refused = [
        ("zpool create tank tank.img", "POOL-EXISTS"),
        ("zpool create tank2 ~/missing.img", "VDEV-MISSING"),
        ("zpool create mirror1 tank.img", "NAME-INVALID"),
        ("zpool create t@nk tank.img", "NAME-INVALID"),
        ("zpool create tank2 draid a b c", "LATER"),
        ("zpool create tank2 a log raidz b c", "VDEV-LOG"),
        ("zpool create tank2 a log mirror b", "VDEV-GROUP"),
        ("zpool create tank2 a log mirror b b", "VDEV-TWICE"),
        ("zpool create tank2 a cache mirror b c", "LATER"),
        ("zpool create tank2 ~/missing.img log ~/other.img", "VDEV-MISSING"),
        ("zpool create tank2 a anchor /x anchor /y", "ANCHOR-EXISTS"),
        ("zpool create tank2 anchor /x", "VDEV-MISSING"),
        ("zpool remove tank ~/tank.img", "VDEV-NEEDED"),
        ("zpool create tank2 s3://bucket/x", "STORE-CLEAR"),
        ("zpool create tank2 s3://me:hunter2@bucket/x", "STORE-ADDRESS"),
        ("zpool create tank2 file:///no/such/folder", "STORE-FAILED"),
        ("zpool create tank2 a a", "VDEV-TWICE"),
        ("zpool create -o ashift=99 tank2 a", "PROP-VALUE"),
        ("zpool create -O acltype=nfsv4 tank2 a", "PROP-ELSEWHERE"),
        ("zpool import nothing", "POOL-NOT-FOUND"),
        ("zpool export nothing", "POOL-ABSENT"),
        ("zpool attach nothing a b", "POOL-ABSENT"),
        ("zpool split nothing two", "POOL-ABSENT"),
        ("zpool split tank t@o", "NAME-INVALID"),
        ("zpool checkpoint -d tank", "CHECKPOINT-NONE"),
        ("zpool offline tank ~/tank.img", "VDEV-NEEDED"),
        ("zpool online tank ~/other.img", "VDEV-MISSING"),
        ("zpool iostat nothing", "POOL-ABSENT"),
        ("zpool add tank dedup a b", "LATER"),
        ("zpool labelclear ~/missing.img", "VDEV-MISSING"),
        ("zfs redact tank@a", "LATER"),
        ("zfs projectspace tank", "LATER"),
        ("zfs change-key tank", "KEY-NONE"),
        ("zfs redact tank@now book tank@then", "LATER"),
        ("zfs create tank", "FS-EXISTS"),
        ("zfs create tank/a/b", "FS-PARENT"),
        ("zfs create tank/a%b", "NAME-INVALID"),
        ("zfs set compression=lz5 tank", "PROP-VALUE"),
        ("zfs set compresion=lz4 tank", "PROP-UNKNOWN"),
        ("zfs set used=1 tank", "PROP-READONLY"),
        ("zfs set encryption=on tank", "PROP-CREATION"),
        ("zfs set recordsize=100K tank", "PROP-VALUE"),
        ("zfs mount tank", "FS-MOUNTED"),
        ("zfs unmount /nowhere", "FS-ABSENT"),
        ("zfs load-key tank", "KEY-NONE"),
    ];
    for (line, code) in refused {
        let said = machine.fails(line, 1);
        assert!(said.contains(&format!("See operations/messages.md, {code}.")), "{line}: {said}");
        assert!(said.contains("action:"), "{line}: {said}");
    }
    assert_eq!(machine.ok("zpool list -Ho name"), "tank\n");
}

#[test]
fn iostat_has_the_columns_of_zfs_and_lines_up() {
    let machine = Machine::new("iostat");
    assert_eq!(machine.fails("zpool iostat", 1), "no pools available\n");
    machine.ok("zpool create tank tank.img");
    let expected = "              capacity     operations     bandwidth
pool        alloc   free   read  write   read  write
----------  -----  -----  -----  -----  -----  -----
tank        25.9M   230M    100     10   400K    10M
";
    assert_eq!(machine.ok("zpool iostat"), expected);
    let image = machine.folder.join("tank.img").display().to_string();
    let verbose = machine.ok("zpool iostat -v");
    let lines: Vec<&str> = verbose.lines().collect();
    assert!(lines[4].starts_with(&format!("  {image}  25.9M")), "{verbose}");
    assert!(lines[1..].iter().all(|line| line.len() == lines[1].len()), "{verbose}");
    let latency = machine.ok("zpool iostat -l");
    let lines: Vec<&str> = latency.lines().collect();
    assert!(lines[0].ends_with("scrub   trim  rebuild  flush"), "{latency}");
    assert!(lines[3].contains("   17us    2ms   17us    2ms      -      -"), "{latency}");
    assert!(lines[1..].iter().all(|line| line.len() == lines[1].len()), "{latency}");
    assert_eq!(machine.ok("zpool iostat -Hp tank"), "tank\t27158118\t241277338\t100\t10\t409600\t10485760\n");
    // The first report is since the import; -y leaves it out, and the count is of those that are
    // printed.
    assert_eq!(machine.ok("zpool iostat -H 1 3").lines().count(), 3);
    assert_eq!(machine.ok("zpool iostat -Hy tank 1 2").lines().count(), 2);
    assert_eq!(machine.ok("zpool iostat 1 3").lines().count(), 3 + 3, "headings once");
    assert_eq!(machine.ok("zpool iostat -v 1 2").matches("alloc").count(), 2, "headings again");
    assert_eq!(machine.ok("zpool iostat -vn 1 2").matches("alloc").count(), 1);
    for line in
        ["zpool iostat -Hp tank tank.img", "zpool iostat -Hp tank.img", "zpool iostat -Hpv tank ~/tank.img"]
    {
        let told = machine.ok(line);
        assert!(told.starts_with(&format!("{image}\t")) && told.lines().count() == 1, "{line}: {told}");
    }
    let told = machine.ok("zpool iostat tank tank.img 1 2");
    assert_eq!((told.lines().count(), told.matches("vdev ").count()), (3 + 2, 1), "{told}");
    assert!(told.contains(&format!("\n{image}  ")), "not indented: {told}");
    let told = machine.json("zpool iostat -j tank tank.img");
    assert!(told["pools"]["tank"]["vdevs"][&image].is_object(), "{told}");
    assert!(machine.fails("zpool iostat tank other.img", 1).contains("VDEV-MISSING"));
    assert!(machine.fails("zpool iostat other.img", 1).contains("POOL-ABSENT"));
    let histogram = machine.ok("zpool iostat -w");
    assert!(histogram.contains("32us") && histogram.contains("total_wait"), "{histogram}");
    let json = machine.json("zpool iostat -j -v -l --json-int");
    let pool = &json["pools"]["tank"];
    assert_eq!((&pool["read"]["operations"], &pool["read"]["wait_ns"]), (&100.into(), &17_000.into()));
    assert_eq!(pool["vdevs"][&image]["write"]["bandwidth"], 10 << 20);
}

#[test]
fn reports_repeat_with_the_time_before_them() {
    let machine = Machine::new("repeat");
    machine.ok("zpool create tank tank.img");
    assert_eq!(machine.ok("zpool list -Ho name 1 3"), "tank\n".repeat(3));
    assert_eq!(machine.ok("zpool list -Ho name tank 0.5 2"), "tank\n".repeat(2));
    assert_eq!(machine.ok("zpool status tank 1 2").matches("pool: tank").count(), 2);
    let stamped = machine.ok("zpool list -Ho name -T u 1 2");
    assert!(stamped.lines().step_by(2).all(|line| line.parse::<u64>().is_ok()), "{stamped}");
}

#[test]
fn events_are_told_with_their_fields() {
    let machine = Machine::new("events");
    machine.ok("zpool create tank tank.img");
    let damaged = DataError {
        dataset: "tank".into(),
        mountpoint: None,
        path: Some("plan\u{1b}.odt".into()),
        inode: 7,
        offset: 0,
        length: 1,
    };
    machine.host.damage("tank", damaged);
    let events = machine.ok("zpool events");
    let expected = "TIME                            CLASS\n\
                    Nov 21 2026 05:25:07.000000042  sysevent.fs.steadfast.pool_create\n\
                    Nov 21 2026 05:25:07.000000042  sysevent.fs.steadfast.history_event\n\
                    Nov 21 2026 05:25:07.000000042  ereport.fs.steadfast.data\n";
    assert_eq!(events, expected);
    let verbose = machine.ok("zpool events -vH tank");
    assert!(verbose.contains("path = \"plan\\u{1b}.odt\""), "{verbose}");
    assert_eq!(machine.ok("zpool events -c"), "cleared 2 events\n");
    assert_eq!(machine.json("zpool events -j")["events"][0]["class"], "ereport.fs.steadfast.data");
}

#[test]
fn file_systems_have_the_latest_version() {
    let machine = Machine::new("versions");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create -u tank/a");
    machine.ok("zfs create -u tank/a/b");
    machine.ok("zfs create -sV 1M tank/v");
    assert_eq!(
        machine.ok("zfs upgrade"),
        "This system is currently running ZFS filesystem version 5.\n\n\
         All filesystems are formatted with the current version.\n"
    );
    let versions = machine.ok("zfs upgrade -v");
    let head = "The following filesystem versions are supported:\n\nVER  DESCRIPTION\n---  ---";
    assert!(versions.starts_with(head) && versions.contains("\n 5   System attributes\n"), "{versions}");
    let none = "0 filesystems upgraded\n";
    for (line, many) in [("tank/a", 1), ("-r tank/a", 2), ("-a", 3), ("-V 5 tank tank/a", 2)] {
        let told = machine.ok(&format!("zfs upgrade {line}"));
        assert_eq!(told, format!("{none}{many} filesystems already at this version\n"), "{line}");
    }
    let ran = machine.run("zfs upgrade -V 4 tank");
    let told = format!("tank: can not be downgraded; it is already at version 5\n{none}");
    assert_eq!((ran.status, ran.out), (1, told));
    machine.fails("zfs upgrade -r tank/none", 1);
    for line in ["-V 6 tank", "-r", "-V 5", "-v tank", "-a tank", "-V x tank"] {
        machine.fails(&format!("zfs upgrade {line}"), 2);
    }
}

#[test]
fn a_file_system_is_waited_for() {
    let machine = Machine::new("delete_queue");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create -sV 1M tank/v");
    assert_eq!(machine.ok("zfs wait tank"), "");
    assert_eq!(machine.ok("zfs wait -t deleteq tank"), "");
    machine.fails("zfs wait -t scrub tank", 2);
    machine.fails("zfs wait", 2);
    machine.fails("zfs wait tank tank", 2);
    machine.fails("zfs wait tank/none", 1);
    machine.fails("zfs wait tank/v", 1);
}

#[test]
fn pools_grow_and_file_systems_move() {
    let machine = Machine::new("grow");
    machine.ok("zpool create -o feature@moved_datasets=disabled tank tank.img");
    let layout = machine.ok("zpool add -n tank zfs_compress.img");
    let image = |name: &str| machine.folder.join(name).display().to_string();
    let expected = format!(
        "would update 'tank' to the following configuration:\n\n\ttank\n\t  {}\n\t  {}\n",
        image("tank.img"),
        image("zfs_compress.img")
    );
    assert_eq!(layout, expected);
    machine.ok("zpool add tank zfs_compress.img");
    assert!(machine.ok("zpool status").contains("zfs_compress.img"));
    machine.ok("zpool online -e tank tank.img");
    machine.ok("zpool clear tank");
    machine.ok("zfs create tank/a");
    let first = "This system supports ZFS pool feature flags.\n\n";
    let all = machine.ok("zpool upgrade -v");
    assert!(
        all.starts_with(&format!("{first}The following features are supported:\n\nFEAT DESCRIPTION\n---"))
    );
    assert!(
        all.contains("\nmoved_datasets                       \n     a dataset may have a younger parent"),
        "{all}"
    );
    assert!(all.contains(" (read-only compatible)\n     "), "{all}");
    let listed = machine.ok("zpool upgrade");
    let begin =
        format!("{first}All pools are formatted using feature flags.\n\n\nSome supported features are not ");
    assert!(listed.starts_with(&begin), "{listed}");
    assert!(listed.ends_with("\nPOOL  FEATURE\n---------------\ntank\n      moved_datasets\n\n"), "{listed}");
    assert_eq!(
        machine.ok("zpool upgrade tank"),
        format!("{first}Enabled the following features on 'tank':\n  moved_datasets\n\n")
    );
    let done = "supported and requested features enabled.\n";
    assert_eq!(machine.ok("zpool upgrade tank"), format!("{first}Pool 'tank' already has all {done}"));
    assert_eq!(
        machine.ok("zpool upgrade -a"),
        format!(
            "{first}All pools are already formatted using feature flags.\n\nEvery feature flags pool has all {done}"
        )
    );
    assert!(machine.ok("zpool upgrade").ends_with(&format!("\n\nEvery feature flags pool has all {done}")));
    machine.ok("zfs rename -p tank/a tank/b");
    assert_eq!(machine.ok("zfs list -Ho name"), "tank\ntank/b\n");
    assert_eq!(machine.ok("zpool get -Ho value feature@moved_datasets tank"), "active\n");
    let create = "zfs create -o encryption=on -o keyformat=passphrase tank/p";
    assert_eq!(machine.run_with(create, "12345678\n").status, 0);
    assert_eq!(machine.run_with("zfs change-key tank/p", "87654321\n").status, 0);
    machine.ok("zfs unmount tank/p");
    machine.ok("zfs unload-key tank/p");
    let late = machine.run_with("zfs change-key tank/p", "12345678\n");
    assert!(late.status == 1 && late.err.contains("KEY-NEEDED"), "{late:?}");
    assert_eq!(machine.run_with("zfs load-key tank/p", "87654321\n").status, 0);
}

#[test]
fn help_is_asked_for_and_given() {
    let machine = Machine::new("help");
    let asked = [
        "zpool help",
        "zfs -?",
        "steadfast --help",
        "steadfast pool list -h",
        "zpool list --help",
        "zfs create --help",
        "zpool --version",
        "zfs help properties",
    ];
    for line in asked {
        assert!(!machine.ok(line).is_empty(), "{line}");
    }
    let help = machine.ok("zfs create --help");
    assert!(
        help.contains(
            "usage:\n    zfs create [-pnuvPs] [-o property=value] [-V size] [-b blocksize] filesystem|volume"
        ),
        "{help}"
    );
}

#[test]
fn passphrases_come_from_a_pipe_a_file_or_twice_from_a_terminal() {
    let mut machine = Machine::new("keys");
    machine.ok("zpool create tank tank.img");
    let create = |name: &str| format!("zfs create -o encryption=on -o keyformat=passphrase tank/{name}");
    let ran = machine.run_with(&create("short"), "1234567\n");
    assert!(ran.status == 1 && ran.err.contains("KEY-FORMAT") && !ran.err.contains("1234567"), "{ran:?}");
    assert_eq!(machine.run_with(&create("pipe"), "12345678\nrest").status, 0);
    machine.ok("zfs unmount tank/pipe");
    machine.ok("zfs unload-key tank/pipe");
    let wrong = machine.run_with("zfs load-key tank/pipe", "87654321\n");
    assert!(wrong.status == 1 && wrong.err.contains("KEY-WRONG"), "{wrong:?}");
    assert_eq!(machine.run_with("zfs load-key -n tank/pipe", "12345678\n").status, 0);
    assert_eq!(machine.ok("zfs get -Ho value keystatus tank/pipe"), "unavailable\n");
    assert_eq!(machine.run_with("zfs mount -l tank/pipe", "12345678\n").status, 0);
    assert_eq!(machine.ok("zfs get -Ho value keystatus,mounted tank/pipe"), "available\nyes\n");

    std::fs::write(machine.folder.join("key"), [7; 32]).unwrap();
    machine.ok("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://~/key tank/raw");
    machine.ok("zfs unmount tank/raw");
    machine.ok("zfs unload-key tank/raw");
    assert_eq!(machine.ok("zfs load-key -a"), "1 / 1 key(s) successfully loaded\n");
    machine.ok("zfs unload-key tank/raw");
    let missing = machine.fails("zfs load-key -L file:///missing/key tank/raw", 1);
    assert!(missing.contains("KEY-SOURCE"), "{missing}");

    machine.terminal = true;
    let typed = machine.run_with(&create("typed"), "12345678\n12345678\n");
    assert!(typed.status == 0 && typed.err.contains("Re-enter"), "{typed:?}");
    let slip = machine.run_with(&create("slip"), "12345678\n12345679\n");
    assert!(slip.status == 1 && slip.err.contains("KEY-MISMATCH"), "{slip:?}");
    machine.ok("zfs unmount tank/typed");
    machine.ok("zfs unload-key tank/typed");
    let again = machine.run_with("zfs load-key tank/typed", "wrongwrong\n12345678\n");
    assert!(again.status == 0 && again.err.contains("try again"), "{again:?}");
}

#[test]
fn export_and_import_tell_what_they_find() {
    let machine = Machine::new("import");
    machine.ok("zpool create tank tank.img");
    let guid = machine.ok("zpool get -Hpo value guid tank").trim().to_owned();
    machine.ok("zpool export tank");
    let listed = machine.ok("zpool import -d ~");
    assert!(listed.contains(&format!("   pool: tank\n     id: {guid}\n  state: ONLINE\n")), "{listed}");
    assert!(listed.contains("tank.img  ONLINE"), "{listed}");
    machine.ok(&format!("zpool import -d ~ {guid}"));
    assert_eq!(machine.ok("zpool list -Ho name"), "tank\n");
    let nothing = machine.run("zpool import -d ~");
    assert_eq!((nothing.status, nothing.err.as_str()), (0, "no pools available to import\n"));
}

#[test]
fn history_repeats_commands_and_no_secret() {
    let machine = Machine::new("history");
    machine.ok("zpool create tank tank.img");
    machine.run_with("zfs create -o encryption=on -o keyformat=passphrase tank/p", "correct-horse\n");
    let past = machine.ok("zpool history tank");
    assert!(
        past.starts_with("History for 'tank':\n2026-11-21.05:25:07 zpool create tank tank.img\n"),
        "{past}"
    );
    assert!(past.contains("zfs create -o encryption=on") && !past.contains("horse"), "{past}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(machine.ok("zpool history -l").contains(&format!(" [user 0 (root) on {}:linux]", host.trim())));
}

#[test]
fn inheritance_is_told_with_its_source() {
    let machine = Machine::new("inherit");
    machine.ok("zpool create -O atime=off tank tank.img");
    machine.ok("zfs create -p tank/a");
    assert_eq!(machine.ok("zfs get -Ho value,source atime tank/a"), "off\tinherited from tank\n");
    machine.ok("zfs set atime=on org:owner=ann tank/a");
    assert_eq!(machine.ok("zfs get -Ho value,source atime tank/a"), "on\tlocal\n");
    let local = machine.ok("zfs get -H -s local -o property,value all tank/a");
    assert_eq!(local, "atime\ton\norg:owner\tann\n");
    machine.ok("zfs inherit atime tank/a");
    assert_eq!(machine.ok("zfs get -Ho source atime tank/a"), "inherited from tank\n");
}

#[test]
fn compat_makes_links_once_and_again() {
    let machine = Machine::new("compat");
    let listed = machine.ok("steadfast compat ~/bin");
    assert_eq!(listed.lines().count(), 6);
    assert_eq!(machine.ok("steadfast compat ~/bin"), listed);
    assert!(machine.folder.join("bin/zpool").read_link().unwrap().is_absolute());
    std::fs::remove_file(machine.folder.join("bin/zfs")).unwrap();
    std::fs::write(machine.folder.join("bin/zfs"), "someone else's").unwrap();
    assert!(machine.fails("steadfast compat ~/bin", 1).contains("FILE-IO"));
    assert_eq!(std::fs::read_to_string(machine.folder.join("bin/zfs")).unwrap(), "someone else's");
}

#[test]
fn every_verb_and_option_is_in_help_manual_and_completions() {
    let machine = Machine::new("manual-pages");
    let listed = machine.ok("steadfast man ~/man");
    let read = |name: &str| std::fs::read_to_string(machine.folder.join("man").join(name)).unwrap();
    assert!(listed.lines().all(|path| std::path::Path::new(path).is_file()), "{listed}");
    let scripts: Vec<(&str, String)> = ["bash", "zsh", "fish"]
        .map(|shell| (shell, machine.ok(&format!("steadfast completions {shell}"))))
        .into();
    let (mut options, mut examples) = (0, 0);
    for (family, word) in CATALOG.families {
        let title = if word.is_empty() { "steadfast".to_owned() } else { format!("steadfast-{word}") };
        let overview = read(&format!("{title}.8"));
        let shown = title.replacen('-', " ", 1);
        for command in family.commands {
            let name = command.names[0];
            let page = read(&format!("{title}-{name}.8"));
            let help = machine.ok(&format!("{shown} {name} --help"));
            assert!(overview.contains(&format!("\\fB{}\\fR", name.replace('-', "\\-"))), "{title}: {name}");
            assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH DESCRIPTION"), "{title}-{name}");
            examples += usize::from(page.contains(".SH EXAMPLES"));
            for (shell, script) in &scripts {
                assert!(command.names.iter().all(|name| script.contains(name)), "{shell}: {name}");
            }
            for flag in command.syntax.flags {
                options += 1;
                let (dash, long) = (format!("-{}", flag.letter), format!("--{}", flag.long));
                let spelling = if flag.letter == '\0' { &long } else { &dash };
                assert!(help.contains(&format!("    {spelling}")), "help of {name}: {spelling}\n{help}");
                let in_page = format!("\\fB{}\\fR", spelling.replace('-', "\\-"));
                if flag.doc.starts_with("refused") {
                    // It answers when it is typed; nobody is led to it.
                    assert!(!page.contains(&format!(".TP\n{in_page}")), "page of {name}: {spelling}");
                    continue;
                }
                assert!(page.contains(&in_page), "page of {name}: {spelling}\n{page}");
                let doc = flag.doc.replace('\'', "'\\''");
                let zsh = format!("'{spelling}:{}'", doc.replace(':', "\\:"));
                assert!(scripts[1].1.contains(&zsh), "zsh: {name} {spelling}");
                let in_fish = if flag.letter == '\0' {
                    format!(" -l {}", flag.long)
                } else {
                    format!(" -s {}", flag.letter)
                };
                let lines = scripts[2].1.lines().filter(|line| {
                    line.contains(&format!("from {name}"))
                        || line.contains(&format!("from {} ", command.names.join(" ")))
                });
                let fish = lines.filter(|line| line.contains(&in_fish)).count();
                assert!(fish > 0, "fish: {name} {spelling}");
                let case = format!("\"{word} {name}\")");
                let flags = scripts[0].1.split(&case).nth(1).and_then(|rest| rest.lines().nth(1)).unwrap();
                assert!(flags.contains(spelling), "bash: {name} {spelling}: {flags}");
            }
        }
        for NotBuilt { name, .. } in family.not_built {
            assert!(overview.contains(&format!("\\fB{}\\fR", name.replace('-', "\\-"))), "{title}: {name}");
        }
    }
    assert!(options > 100, "{options} options");
    assert!(examples > 50, "{examples} pages with examples");
    let mount = read("mount.steadfast.8");
    assert!(mount.contains("remount") && mount.contains("\\fBmount.steadfast\\fR"), "{mount}");
    assert_eq!(read("mount.fuse.steadfast.8"), ".so man8/mount.steadfast.8\n");
    let (properties, codes) = (read("steadfast-properties.7"), read("steadfast-codes.7"));
    for property in steadfast_property::POOL.iter().chain(steadfast_property::DATASET) {
        assert!(
            properties.contains(&format!("\\fB{}\\fR", property.name.replace('-', "\\-"))),
            "{}",
            property.name
        );
    }
    for code in steadfast_control::Code::ALL {
        assert!(codes.contains(&code.as_str().replace('-', "\\-")), "{code}");
    }
    // No line is taken for a request that is none.
    for path in listed.lines() {
        let page = std::fs::read_to_string(path).unwrap();
        let known = [".TH ", ".SH ", ".TP", ".PP", ".br", ".BR ", ".nf", ".fi", ".so man8/mount.steadfast.8"];
        let odd =
            page.lines().find(|line| line.starts_with('.') && !known.iter().any(|k| line.starts_with(k)));
        assert_eq!(odd, None, "{path}");
    }
}

#[test]
fn an_unknown_shell_has_no_script() {
    let machine = Machine::new("shells");
    assert!(machine.fails("steadfast completions csh", 2).contains("bash, zsh, fish"));
}

#[test]
fn vdbench_is_passed_on_unread() {
    let machine = Machine::new("vdbench");
    let ran = machine.run("vdbench -f ~/missing.parm");
    assert_eq!(ran.status, 157, "{ran:?}");
    assert!(ran.err.contains("missing.parm"), "{ran:?}");
    assert_eq!(machine.run("steadfast bench -f ~/missing.parm").status, 157);
}

#[test]
fn streams_go_through_descriptors_and_not_to_terminals() {
    let mut machine = Machine::new("streams");
    machine.ok("zpool create tank ~/tank.img");
    for name in ["a", "b", "c", "new"] {
        machine.ok(&format!("zfs create -u tank/{name}"));
    }
    machine.ok("zfs snapshot -r tank@a");
    machine.ok("zfs snapshot -r tank@b");
    let stream = machine.sent("zfs send tank@a");
    let told = machine.ok("zfs send -n -v -i @a tank@b");
    assert_eq!(told, "send from tank@a to tank@b estimated size is 1M\ntotal estimated size is 1M\n");
    assert_eq!(machine.ok("zfs send -nP tank@b"), "full\ttank@b\t1048576\nsize\t1048576\n");
    for compressed in ["-c", "--compressed", "-wc", "-cRp", "-Lec"] {
        machine.sent(&format!("zfs send {compressed} tank@a"));
    }
    // In ZFS these are options of their own, and help would be taken for the stream.
    for line in ["-Rh", "--replicate --holds", "-DhV", "-R -X tank/a,tank/b -X tank/c", "--raw -R -V"] {
        machine.sent(&format!("zfs send {line} tank@a"));
    }
    machine.ok("zfs destroy tank/new@a");
    let skipped = "WARNING: skipping dataset tank/new and its children: snapshot a does not exist\n";
    for line in ["-Rs", "-Rns", "--replicate --skip-missing"] {
        let ran = machine.run(&format!("zfs send {line} tank@a"));
        assert_eq!((ran.status, ran.err.as_str()), (0, skipped), "{ran:?}");
    }
    machine.fails("zfs send -s tank@a", 2);
    machine.fails("zfs send -X tank/a tank@a", 2);
    machine.fails("zfs send -R -X tank tank/a@a", 2);
    machine.fails("zfs send -R -X tank/a, tank@a", 1);
    let refused = ["zfs send -nvS tank/a", "zfs send --redact book tank@a", "zfs receive -c tank/a"];
    for line in refused {
        let ran = machine.run(line);
        let nothing = ran.out.is_empty() && ran.sent.is_empty();
        assert!(ran.status == 1 && nothing && ran.err.contains("LATER"), "{ran:?}");
    }
    let ran = machine.run_with("zfs receive -hMv tank/copy", &stream);
    assert_eq!((ran.status, ran.out.lines().count()), (0, 2), "{ran:?}");
    assert_eq!(machine.ok("zfs diff -h tank@a"), machine.ok("zfs diff tank@a"));
    let ran = machine.run("zfs send -v tank@b");
    assert_eq!((ran.status, ran.out.as_str()), (0, ""));
    assert!(
        ran.sent.starts_with(STREAM_MAGIC) && ran.err.ends_with("\nTIME        SENT   SNAPSHOT tank@b\n"),
        "{ran:?}"
    );
    let ran = machine.run_with("zfs receive -v tank/again", &stream);
    let told = "receiving full stream of tank@a into tank/again@a\nreceived ";
    let is_told = ran.out.starts_with(told) && ran.out.ends_with("/sec)\n") && ran.out.lines().count() == 2;
    assert!(is_told, "{ran:?}");
    let ran = machine.run_with("zfs receive -s tank/part", &stream[..stream.len() - 9]);
    assert!(ran.status == 1 && ran.err.contains("STREAM-ENDS"), "{ran:?}");
    assert_eq!(machine.ok("zfs receive -A tank/part"), "");
    assert_eq!(machine.ok("zfs bookmark tank@a tank#a"), "");
    assert_eq!(machine.ok("zfs destroy -v tank#a"), "will destroy tank#a\n");
    assert_eq!(machine.ok("zfs diff tank@a"), "M\t/tank/a\nR\t/tank/b -> /tank/c\n");
    assert_eq!(
        machine.ok("zfs diff -FHt tank@a @b").lines().last(),
        Some("1795238707.5\tR\tF\t/tank/b\t/tank/c")
    );
    machine.fails("zfs bookmark tank@a other#a", 1);
    machine.fails("zfs send -i a -I b tank@c", 2);
    machine.fails("zfs send -t 1-x tank@c", 2);
    machine.fails("zfs send", 2);
    machine.fails("zfs receive -d -e tank", 2);
    machine.terminal = true;
    assert!(machine.fails("zfs send tank@a", 1).contains("STREAM-TERMINAL"));
    assert!(machine.fails("zfs receive tank/new", 1).contains("STREAM-TERMINAL"));
}

#[test]
fn a_tree_is_mounted_from_its_top() {
    let machine = Machine::new("mount_tree");
    machine.ok("zpool create tank tank.img");
    for name in ["-o canmount=noauto tank/a", "tank/a/b", "tank/c"] {
        machine.ok(&format!("zfs create -u {name}"));
    }
    let mounted = || -> Vec<String> {
        let lines = machine.ok("zfs mount");
        lines.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    };
    assert_eq!(mounted(), ["tank"]);
    // A file system that is named is mounted even with canmount=noauto.
    assert_eq!(machine.ok("zfs mount -R tank/a"), "");
    assert_eq!(mounted(), ["tank", "tank/a", "tank/a/b"]);
    machine.ok("zfs unmount tank/a/b");
    assert!(machine.ok("zfs mount -Rv tank").contains("tank/c at /tank/c"));
    assert_eq!(mounted(), ["tank", "tank/a", "tank/a/b", "tank/c"]);
    // File systems that only hold others are skipped.
    machine.ok("zfs create -u -o canmount=off tank/off");
    machine.ok("zfs create -u tank/off/in");
    machine.ok("zfs create -u -o mountpoint=none tank/no");
    machine.ok("zfs create -u -o mountpoint=~/in tank/no/in");
    for name in ["tank/off", "tank/no"] {
        assert_eq!(machine.ok(&format!("zfs mount -R {name}")), "");
    }
    assert_eq!(mounted(), ["tank", "tank/a", "tank/a/b", "tank/c", "tank/no/in", "tank/off/in"]);
    machine.fails("zfs mount -R", 2);
    machine.fails("zfs mount -aR tank", 2);
    assert!(machine.fails("zfs mount -R tank/none", 1).contains("FS-ABSENT"));
}

#[test]
fn what_is_created_is_told_to_scripts() {
    let machine = Machine::new("create_parsable");
    machine.ok("zpool create tank tank.img");
    assert_eq!(
        machine.ok("zfs create -P -o recordsize=64K -o compression=lz4 tank/p"),
        "create\ttank/p\nproperty\tcompression\tlz4\nproperty\trecordsize\t65536\n"
    );
    assert_eq!(machine.ok("zfs create -pP tank/q"), "create_ancestors\ttank/q\ncreate\ttank/q\n");
    assert_eq!(
        machine.ok("zfs create -P -V 1M tank/v"),
        "create\ttank/v\nproperty\tvolsize\t1048576\nproperty\trefreservation\t3145728\n"
    );
    assert_eq!(machine.ok("zfs create -sP -V 1M tank/w"), "create\ttank/w\nproperty\tvolsize\t1048576\n");
}

/// Runs the commands that a page of docs/operations shows, stories apart: those have a test of
/// their own (tests/tests/story.rs). Returns their number.
fn run_page(machine: &Machine, page: &std::path::Path) -> usize {
    let text = std::fs::read_to_string(page).unwrap();
    let page = page.file_name().unwrap().display();
    let sections = text.split("\n## ").filter(|section| !section.starts_with("A story"));
    let shown = sections.flat_map(str::lines).filter_map(|line| line.strip_prefix("    "));
    let mut run = 0;
    for line in shown.filter_map(|line| line.split('#').next()).flat_map(|line| line.split("&&")) {
        let line = line.trim();
        // The shell makes folders and images, and the host is no process that could be asked about
        // itself.
        if let Some(folder) = line.strip_prefix("mkdir ~/") {
            std::fs::create_dir(machine.folder.join(folder)).unwrap();
            continue;
        }
        if let Some(words) = line.strip_prefix("truncate -s ") {
            let mut words = words.split_whitespace();
            let bytes = steadfast_property::parse_size(words.next().unwrap()).unwrap();
            words.for_each(|image| machine.image(image.trim_start_matches("~/"), bytes));
            continue;
        }
        if line.is_empty() || line.starts_with("steadfast daemon ") {
            continue;
        }
        let ran = machine.run_with(line, "correct-horse-battery\n");
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{page}: {line}: {ran:?}");
        run += 1;
    }
    run
}

#[test]
fn the_commands_of_the_manual_run() {
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations");
    let mut run = 0;
    for entry in std::fs::read_dir(&manual).unwrap() {
        let page = entry.unwrap().path();
        let name = page.file_stem().unwrap().to_string_lossy().into_owned();
        let machine = Machine::new(&format!("manual-{name}"));
        // Each page says that it goes on where create.md ends.
        if name != "create" {
            run_page(&machine, &manual.join("create.md"));
        }
        run += run_page(&machine, &page);
    }
    assert!(run >= 115, "the manual shows {run} commands");
}

#[test]
fn what_is_there_is_shown_beside_what_is_not() {
    let machine = Machine::new("some_absent");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create -u tank/a");
    machine.ok("zfs create -u tank/b");
    let ran = machine.run_with("zfs list -Ho name tank/b tank/nosuch tank/a tank/b", "");
    assert_eq!((ran.status, ran.out.as_str()), (1, "tank/a\ntank/b\n"), "{ran:?}");
    assert!(ran.err.contains("cannot open 'tank/nosuch'") && ran.err.contains("FS-ABSENT"), "{ran:?}");
    let ran = machine.run_with("zfs get -Ho name,value type tank/nosuch tank/a", "");
    assert_eq!((ran.status, ran.out.as_str()), (1, "tank/a\tfilesystem\n"), "{ran:?}");
    assert!(ran.err.contains("FS-ABSENT"), "{ran:?}");
    let ran = machine.run_with("zfs list tank/nosuch tank/neither", "");
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
}

#[test]
fn programs_get_one_line_in_the_phrases_of_zfs() {
    let mut machine = Machine::new("phrases");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create tank/a");
    machine.ok("zfs snapshot tank/a@1");
    machine.ok("zfs create tank/held");
    machine.ok("zfs snapshot tank/held@1");
    machine.ok("zfs snapshot tank/held@2");
    machine.ok("zfs hold keep tank/held@2");
    machine.explains = false;
    for (line, status, said) in [
        ("zfs list tank/b", 1, "cannot open 'tank/b': dataset does not exist"),
        ("zfs list tank/a@2", 1, "cannot open 'tank/a@2': dataset does not exist"),
        ("zfs destroy tank/b", 1, "cannot open 'tank/b': dataset does not exist"),
        ("zfs destroy tank/a@2", 1, "could not find any snapshots to destroy; check snapshot names."),
        ("zfs destroy tank/a", 1, "cannot destroy 'tank/a': filesystem has children"),
        ("zfs create tank/a", 1, "cannot create 'tank/a': dataset already exists"),
        ("zfs create tank/b/c", 1, "cannot create 'tank/b/c': parent does not exist"),
        ("zfs create bad/x", 1, "cannot create 'bad/x': no such pool 'bad'"),
        ("zfs snapshot tank/a@1", 1, "cannot create snapshot 'tank/a@1': dataset already exists"),
        ("zfs rollback tank/a@2", 1, "cannot open 'tank/a@2': dataset does not exist"),
        ("zfs rename tank/a tank/a", 1, "cannot rename 'tank/a': dataset already exists"),
        ("zfs promote tank/a", 1, "cannot promote 'tank/a': not a cloned filesystem"),
        // `zfs` says of a pool what it says of a dataset, and names what was asked for.
        ("zfs list bad", 1, "cannot open 'bad': dataset does not exist"),
        ("zfs get name bad/x@1", 1, "cannot open 'bad/x@1': dataset does not exist"),
        ("zfs get name tank/b@1", 1, "cannot open 'tank/b@1': dataset does not exist"),
        ("zfs bookmark tank/a@2 tank/a#2", 1, "cannot open 'tank/a@2': dataset does not exist"),
        (
            "zfs destroy tank/held@1,2",
            1,
            "cannot destroy snapshot tank/held@2: it's being held. Run 'zfs holds -r tank/held@2' to see holders.",
        ),
        ("zfs receive -A tank/a", 1, "'tank/a' does not have any resumable receive state to abort"),
        ("zfs send -t 1-x", 1, "cannot resume send: resume token is corrupt (invalid format)"),
        ("zpool status bad", 1, "cannot open 'bad': no such pool"),
        ("zpool destroy bad", 1, "cannot open 'bad': no such pool"),
        ("zpool create tank ~/other.img", 1, "cannot create 'tank': pool already exists"),
        (
            "zpool creat tank2 ~/other.img",
            2,
            "unrecognized command 'creat': did you mean 'create'? (usage: `zpool --help`)",
        ),
        (
            "zpool create tank2 mirorr ~/a ~/b",
            1,
            "cannot create 'tank2': mirorr: no such file or device; did you mean 'mirror'?",
        ),
        ("zfs list -Q", 2, "invalid option 'Q' (usage: `zfs list --help`)"),
    ] {
        assert_eq!(machine.fails(line, status), format!("{said}\n"), "{line}");
    }
    assert_eq!(machine.run("zfs list -?").status, 2);
    assert!(machine.ok("zfs version").starts_with("zfs-2.3."));
    // Our own words explain always, and an option may ask for it.
    assert!(machine.fails("steadfast fs list tank/b", 1).contains("action:"));
    assert!(machine.fails("zfs destroy -v tank/a", 1).contains("'tank/a' has snapshots: tank/a@1"));
}

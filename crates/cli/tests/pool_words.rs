//! Outputs and options of `zpool`, as programs written for ZFS read them.

use crate::words::Machine;
use steadfast_control::api::DataError;

#[test]
fn status_shows_devices_and_names_what_is_damaged() {
    let machine = Machine::new("status");
    for line in ["zpool status", "zpool status -x", "zpool history"] {
        let ran = machine.run(line);
        let told = (ran.status, ran.out.as_str(), ran.err.as_str());
        assert_eq!(told, (0, "", "no pools available\n"), "as in ZFS, which tells it on stderr");
    }
    machine.ok("zpool create tank tank.img");
    assert_eq!(machine.ok("zpool status -x"), "all pools are healthy\n");
    assert_eq!(machine.ok("zpool status -x tank"), "pool 'tank' is healthy\n");
    let ran = machine.run("zpool status -x tank pond");
    assert_eq!((ran.status, ran.out.as_str()), (1, "pool 'tank' is healthy\n"), "{ran:?}");
    assert!(ran.err.starts_with("cannot open 'pond': no such pool\n"), "{ran:?}");
    let ran = machine.run("zpool list -Ho name pond tank lake");
    assert_eq!((ran.status, ran.out.as_str()), (1, "tank\n"), "{ran:?}");
    assert_eq!(ran.err.matches("no such pool\n").count(), 2, "{ran:?}");
    assert_eq!(machine.run("zpool list pond lake").out, "");
    assert!(machine.ok("zpool status -v tank").contains("\n   log: 256M in the pool; 0 groups, "));
    let more = machine.ok("zpool status -sd --power tank");
    assert!(more.contains(" READ WRITE CKSUM  SLOW POWER   DIO\n"), "{more}");
    assert!(more.contains(" 0     0     0     0     -     0\n"), "{more}");
    let image = machine.folder.join("tank.img").display().to_string();
    let width = image.len() + 2;
    let expected = format!(
        "  pool: tank\n state: ONLINE\nconfig:\n\n\t{:width$}  STATE     READ WRITE CKSUM\n\
         \t{:width$}  ONLINE       0     0     0\n\t  {image}  ONLINE       0     0     0\n\n\
         errors: No known data errors\n",
        "NAME", "tank"
    );
    assert_eq!(machine.ok("zpool status tank"), expected);
    let damaged = DataError {
        dataset: "tank".into(),
        mountpoint: Some("/tank".into()),
        path: Some("docs/plan.odt".into()),
        inode: 7,
        offset: 131_072,
        length: 131_072,
    };
    machine.host.damage("tank", damaged);
    let status = machine.ok("zpool status -v");
    assert!(status.contains("/tank/docs/plan.odt (bytes 131072 to 262143)"), "{status}");
    for line in [
        "\nstatus: One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.\n\t",
        "\naction: Restore the file in question if possible.\n\t",
        "\n   see: operations/messages.md, BLK-AUTH-ALL\n   log: ",
    ] {
        assert!(status.contains(line), "{line:?} in\n{status}");
    }
    let told = machine.ok("zpool status");
    assert!(told.contains("\nerrors: 1 data errors, use '-v' for a list\n"), "{told}");
    assert!(!machine.ok("zpool status").contains("plan.odt"));
    // With problems it exits 0, too: programs compare the sentence.
    let told = machine.ok("zpool status -x");
    assert!(told.starts_with("  pool: tank\n") && !told.contains("healthy"), "{told}");
}

#[test]
fn options_that_zfs_has_are_taken_or_refused_with_the_reason() {
    let machine = Machine::new("options");
    machine.ok("zpool create tank tank.img");
    let image = machine.folder.join("tank.img").display().to_string();
    let guid = machine.ok("zpool get -Ho value guid tank tank.img").trim().to_owned();
    assert!(machine.ok("zpool status -gL tank").contains(&format!("\n\t  {guid} ")));
    assert_eq!(machine.ok("zpool list -gLHv -o name,health"), format!("tank\tONLINE\n\t{guid}\tONLINE\n"));
    assert!(!machine.ok("zpool status -e tank").contains(&image));
    let damaged =
        DataError { dataset: "tank".into(), mountpoint: None, path: None, inode: 7, offset: 0, length: 1 };
    machine.host.damage("tank", damaged);
    assert!(machine.ok("zpool status -e tank").contains(&image));
    assert!(machine.json("zpool status -ej")["pools"]["tank"]["vdevs"]["tank"]["vdevs"][&image].is_object());

    assert_eq!(machine.ok("zpool get -Ho value size,state tank all-vdevs"), "256M\nONLINE\n");
    assert_eq!(machine.ok("zpool get -Hpo property,value size tank tank.img"), "size\t268435456\n");
    let told = machine.ok(&format!("zpool get -Ho name,value parent,children tank {guid}"));
    assert_eq!(told, format!("{image}\ttank\n{image}\t-\n"));
    assert_eq!(machine.ok("zpool get -Ho value health tank"), "ONLINE\n", "of the pool");
    let told = machine.json("zpool get -j --json-int checksum_errors tank all-vdevs");
    assert_eq!((&told["pool"]["name"], &told["vdevs"][&image]["type"]), (&"tank".into(), &"VDEV".into()));
    let property = &told["vdevs"][&image]["properties"]["checksum_errors"];
    assert_eq!((&property["value"], &property["source"]["type"]), (&1.into(), &"NONE".into()));
    assert!(machine.fails("zpool get colour tank all-vdevs", 2).contains("checksum_errors"));
    assert!(machine.fails("zpool get size tank ~/other.img", 1).contains("VDEV-MISSING"));
    assert!(machine.fails("zpool get size tank nothing", 1).contains("cannot open 'nothing': no such pool"));

    machine.ok("zpool scrub -a");
    for (line, reason) in [
        ("zpool scrub", "missing pool"),
        ("zpool scrub -a tank", "too many arguments"),
        ("zpool scrub -e -s -p tank", "-p cannot be combined"),
        ("zpool clear -n tank", "-n and -X only work with -F"),
        ("zpool reguid -g none tank", "invalid GUID 'none'"),
        ("zpool upgrade -V 28 tank", "invalid version '28'"),
        ("zpool status -c model tank", "ZPOOL_SCRIPTS_AS_ROOT"),
        ("zpool split -l tank other", "-l: keys are loaded only"),
        ("zpool split -o altroot=/x tank other", "-o altroot: it is a property"),
        ("zpool import -n tank", "-n only works with -F"),
        ("zpool import -T none tank", "invalid txg 'none'"),
        ("zpool iostat -r -w tank", "-w cannot be combined with -r"),
        ("zpool import -t tank", "-t needs one"),
        ("zpool import -c ~/cache -d ~ -a", "-c cannot be combined with -d"),
    ] {
        let said = machine.fails(line, 2);
        assert!(said.contains(reason), "{line}: {said}");
    }
    for line in ["zpool scrub -C tank", "zpool scrub -e tank", "zpool scrub -S 2026-01-01 tank"] {
        let ran = machine.run(line);
        assert!(ran.status == 0 && ran.err.ends_with("all data of the pool is scrubbed\n"), "{ran:?}");
        machine.run("zpool scrub -s tank");
    }
    for line in ["clear -F tank", "clear -nF tank", "reopen tank", "reopen", "upgrade -V 5000 tank"] {
        machine.ok(&format!("zpool {line}"));
    }
    let queues = machine.ok("zpool iostat -q tank");
    assert!(queues.contains("syncq_read") && queues.contains(" pend  activ"), "{queues}");
    let sizes = machine.ok("zpool iostat -r tank");
    let row = |size: &str| sizes.lines().find(|line| line.split_whitespace().next() == Some(size));
    let count = |size: &str, column: usize| {
        row(size).and_then(|row| row.split_whitespace().nth(column)).map(str::to_owned).unwrap_or_default()
    };
    assert!(sizes.contains("sync_read") && sizes.contains(" ind    agg"), "{sizes}");
    assert!(count("4K", 1) != "0" && count("1M", 3) != "0" && count("512", 1) == "0", "{sizes}");
    machine.ok("zpool reguid -g 12345 tank");
    assert_eq!(machine.ok("zpool get -Ho value guid tank"), "12345\n");
    assert!(machine.fails("zpool offline tank 99", 1).contains("VDEV-MISSING"));
    assert_eq!(machine.json("zpool history -j")["pools"]["tank"]["name"], "tank");
    assert_eq!(machine.json("zpool version -j")["output_version"]["command"], "zpool version");

    machine.ok("zpool export tank");
    assert_eq!(machine.json("zpool import -j -d ~")["pools"]["12345"]["name"], "tank");
    let told = machine.ok("zpool import -F -n -d ~ tank");
    assert!(told.starts_with("Would be able to return tank to its state as of txg "), "{told}");
    assert!(machine.fails("zpool import -T 7 -d ~ tank", 1).contains("POOL-READONLY"));
    let told = machine.ok("zpool import -F -o readonly=on -d ~ tank");
    assert!(told.starts_with("Pool tank returned to its state as of txg "), "{told}");
    machine.ok("zpool export tank");
    assert!(machine.fails("zpool import -F -n -d ~ other", 1).contains("no such pool"));
    // The devices keep the name that they have.
    machine.ok("zpool import -t -d ~ tank guest");
    assert_eq!(machine.ok("zpool get -Ho name,value cachefile"), "guest\tnone\n");
    machine.ok("zpool export guest");
    machine.ok("zpool import -s -F -d ~ tank");
    machine.ok("zpool create -t guest other ~/zfs_compress.img");
    assert_eq!(machine.ok("zfs list -Ho name guest"), "guest\n");
    machine.ok("zpool export guest");
    machine.ok("zpool import -d ~ other");
    machine.image("small.img", 128 << 20);
    let ran = machine.fails("zpool create uneven mirror ~/zfs_encrypt.img ~/small.img", 1);
    assert!(ran.contains("mirror contains devices of different sizes"), "{ran}");
    let mirror = "mirror ~/zfs_encrypt.img ~/small.img";
    assert!(machine.fails(&format!("zpool add tank {mirror}"), 1).contains("VDEV-MISMATCH"));
    machine.ok(&format!("zpool add -n --allow-replication-mismatch tank {mirror}"));
    machine.ok(&format!("zpool add -f tank {mirror}"));
    let told = machine.ok("zpool remove -n tank mirror-1");
    assert_eq!(told, "Memory that will be used after removing mirror-1: 0\n");
    assert_eq!(machine.ok("zpool remove -np tank mirror-1"), "mirror-1 0\n");
    assert!(machine.ok("zpool status tank").contains("mirror-1"), "-n removes nothing");
    machine.ok("zpool remove -w tank mirror-1");
    assert!(!machine.ok("zpool list -v tank").contains("mirror"));
    machine.fails("zpool remove -n tank mirror-1", 1);
}

#[test]
fn refusals_about_devices_have_the_phrases_of_zfs() {
    let mut machine = Machine::new("device-phrases");
    machine.ok("zpool create tank tank.img");
    machine.explains = false;
    for (line, said) in [
        ("zpool offline tank zz", "cannot offline zz: no such device in pool"),
        ("zpool offline tank tank.img", "cannot offline tank.img: no valid replicas"),
        (
            "zpool detach tank tank.img",
            "cannot detach tank.img: only applicable to mirror and replacing vdevs",
        ),
        (
            "zpool replace tank zz zfs_encrypt.img",
            "cannot replace zz with zfs_encrypt.img: no such device in pool",
        ),
        ("zpool scrub -s tank", "cannot cancel scrubbing tank: there is no active scrub"),
        ("zpool scrub -p tank", "cannot pause scrubbing tank: there is no active scrub"),
        (
            "zpool create new mirror zfs_encrypt.img",
            "invalid vdev specification: a mirror has 2 to 4 devices, not 1",
        ),
    ] {
        assert_eq!(machine.fails(line, 1), format!("{said}\n"), "{line}");
    }
    let all = machine.ok("zpool get -Ho property,value all tank tank.img");
    assert!(all.contains("slow_ios\t0\n") && all.contains("read_ops\t-\n"), "{all}");
}

#[test]
fn on_a_terminal_a_pool_on_a_store_is_encrypted_unless_told_otherwise() {
    let mut machine = Machine::new("sealed-by-default");
    machine.terminal = true;
    // Port 1 of this machine is nobody's: the store is asked only after the key was.
    let create =
        |options: &str| format!("zpool create {options} tank s3://bucket/x?endpoint=http://127.0.0.1:1");
    let asked = machine.run_with(&create(""), "12345678\n12345678\n");
    assert!(asked.status == 1 && asked.err.contains("Re-enter new passphrase for 'tank'"), "{asked:?}");
    assert!(asked.err.contains("-f stores it unencrypted") && asked.err.contains("STORE-"), "{asked:?}");
    assert!(!asked.err.contains("STORE-CLEAR"), "{asked:?}");
    for options in ["-f", "-O encryption=off"] {
        let clear = machine.run_with(&create(options), "");
        assert!(clear.status == 1 && !clear.err.contains("passphrase for"), "{clear:?}");
        assert_eq!(clear.err.contains("STORE-CLEAR"), options != "-f", "{clear:?}");
    }
    // A pool on this machine is as its options say.
    assert!(!machine.run("zpool create tank tank.img").err.contains("passphrase"));
}

#[test]
fn an_import_with_f_goes_back_from_a_damaged_root_of_a_store() {
    let machine = Machine::new("goes-back");
    let store = machine.folder.join("store");
    std::fs::create_dir(&store).expect("a folder");
    let address = format!("file://{}", store.display());
    machine.ok(&format!("zpool create tank {address}"));
    machine.ok("zfs create tank/kept");
    machine.ok("zpool export tank");
    let roots = std::fs::read_dir(store.join("pool/root")).expect("roots");
    let newest = roots.map(|entry| entry.expect("an entry").path()).max().expect("a root");
    let mut bytes = std::fs::read(&newest).expect("read");
    bytes[100] ^= 4;
    std::fs::write(&newest, bytes).expect("written");
    for refused in
        [format!("zpool import -d {address} tank"), format!("zpool import -o readonly=on -d {address} tank")]
    {
        let said = machine.fails(&refused, 1);
        assert!(said.contains("ROOT-DAMAGED") && said.contains("`zpool import -F -n tank`"), "{said}");
    }
    let told = machine.ok(&format!("zpool import -F -n -d {address} tank"));
    assert!(told.starts_with("Would be able to return tank to its state as of txg "), "{told}");
    assert!(told.contains(", ") && told.contains("\nWould discard the commit of txg "), "{told}");
    assert!(machine.fails(&format!("zpool import -d {address} tank"), 1).contains("ROOT-DAMAGED"), "a trial");
    let told = machine.ok(&format!("zpool import -F -d {address} tank"));
    assert!(told.starts_with("Pool tank returned to its state as of txg "), "{told}");
    assert!(told.contains("\nDiscarded the commit of txg "), "{told}");
    assert!(machine.ok("zfs list -Ho name").contains("tank/kept"));
    assert!(machine.ok("zpool history -i tank").contains("took the pool back from txg "));
    machine.ok("zpool export tank");
    assert_eq!(
        machine.ok(&format!("zpool import -F -d {address} tank")),
        "",
        "there is nothing to go back from"
    );
}

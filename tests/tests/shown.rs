//! SECURITY's tables say what devices show without a key: `inspect`, and a search of the images'
//! bytes, show that and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use steadfast_tests::{Host, find, is_root, skip};

const SECURITY: &str = include_str!("../../docs/SECURITY.md");
const HEADING: &str = "### Records in the clear about an encrypted dataset";
/// Words and numbers of one file system that no one may learn without its key: in its names, its
/// content, its attributes.
const KEPT: [&str; 6] = [
    "Siebenschlaefer-Liste.txt",
    "Dachstuhl-Ordner",
    "Kastanienallee im Nebel, Zeile um Zeile",
    "user.Quarzuhr",
    "Bleistift-und-Nebelhorn",
    "ziel/der/verknuepfung",
];
/// Owner and size of a file, and the time when it was changed, in seconds.
const NUMBERS: [u64; 3] = [1_305_419_896, 19_088_743, 1_234_567_891];
/// Records that the pool of this test has of its encrypted file system.
const PRESENT: [&str; 14] = [
    "dataset",
    "property",
    "segment",
    "history",
    "snapshot",
    "cell",
    "cell_run",
    "hold",
    "bookmark",
    "reference",
    "manifest",
    "manifest_birth",
    "manifest_writers",
    "sharing",
];

/// Records of the table in SECURITY, each with its fields.
fn told() -> BTreeMap<String, BTreeSet<String>> {
    let part = SECURITY.split(HEADING).nth(1).expect("its heading");
    let part = part.split("\n### ").next().expect("its end");
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let words =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let fields: BTreeSet<String> = words(cells[2]).into_iter().collect();
        words(cells[1]).into_iter().map(move |name| (name, fields.clone()))
    })
    .collect()
}

fn field(record: &Value, name: &str) -> String {
    match &record[name] {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A file system with all that is kept in it: names, content, attributes, a link, an owner, a size
/// and a time.
fn fill(host: &Host, at: &str) {
    let [name, folder, content, attribute, value, target] = KEPT;
    let [owner, size, seconds] = NUMBERS;
    fs::create_dir(host.at(at).join(folder)).expect("a folder");
    fs::write(host.at(at).join(name), content.repeat(5_000)).expect("a file");
    host.shell(&format!(
        "cd {at}; truncate -s {size} '{folder}/lang'; chown {owner}:{owner} '{folder}/lang'
         touch -d @{seconds} '{folder}/lang'; ln -s {target} '{folder}/link'
         setfattr -n {attribute} -v {value} {name}
         cp {name} '{folder}/kopie'; head -c 300000 /dev/urandom > {folder}/noise; cp {folder}/noise {folder}/noise2"
    ))
    .ok();
}

/// Which of the kept words and numbers some bytes hold.
fn kept_in(bytes: &[u8]) -> Vec<String> {
    let words = KEPT.iter().filter(|word| find(bytes, word.as_bytes()).is_some());
    let mut found: Vec<String> = words.map(|word| (*word).to_owned()).collect();
    let [owner, size, seconds] = NUMBERS;
    let owner = u32::try_from(owner).expect("a user's number").to_le_bytes();
    // Attributes of an inode stand side by side: alone four bytes may be there by chance.
    let owners = [owner, owner].concat();
    let fields =
        [("owner", owners), ("size", size.to_le_bytes().to_vec()), ("time", seconds.to_le_bytes().to_vec())];
    found.extend(
        fields.iter().filter(|(_, field)| find(bytes, field).is_some()).map(|(name, _)| (*name).to_owned()),
    );
    found
}

fn can_run(test: &str) -> bool {
    if !is_root() {
        skip(test, "giving a file to somebody needs root");
    }
    is_root()
}

#[test]
fn an_unsealed_pool_shows_what_security_says_of_an_encrypted_file_system() {
    if !can_run("what an unsealed pool shows") {
        return;
    }
    let Some(host) = Host::with_tank("what an unsealed pool shows") else { return };
    fs::write(host.at("key"), "Quittenbaum-4711\n").expect("a key");
    let vault = "-o encryption=on -o keyformat=passphrase -o keylocation=file://$PWD/key -o dedup=on";
    host.shell(&format!(
        "zfs create {vault} -o compression=off tank/vault; zfs create -o compression=off tank/clear"
    ))
    .ok();
    fill(&host, "t/vault");
    host.shell(
        "zfs set my:note=told tank/vault; zfs snapshot tank/vault@before; zfs hold kept tank/vault@before
         zfs bookmark tank/vault@before tank/vault#mark; rm t/vault/Dachstuhl-Ordner/kopie
         zfs clone tank/vault@before tank/vault/clone; zpool sync",
    )
    .ok();
    let files = host
        .shell("find t/vault -xdev -mindepth 1 | wc -l")
        .ok()
        .out
        .trim()
        .parse::<u64>()
        .expect("a number");
    host.shell("zpool export tank").ok();
    let image = fs::read(host.at("tank.img")).expect("an image");
    assert_eq!(kept_in(&image), Vec::<String>::new(), "in the bytes of the image");

    // All that is said, and no more.
    let told = told();
    let printed = host.run("inspect tree --json {}/tank.img meta").ok().out;
    assert_eq!(kept_in(printed.as_bytes()), Vec::<String>::new(), "in the pool's tree");
    for number in NUMBERS {
        assert!(!printed.contains(&number.to_string()), "{number} in the pool's tree");
    }
    let records: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for record in &records {
        let fields = record.as_object().expect("an object").keys().filter(|name| *name != "record");
        seen.entry(field(record, "record")).or_default().extend(fields.cloned());
    }
    seen.remove("node"); // nodes of the pool's own tree
    for (name, fields) in &seen {
        let said = told.get(name).unwrap_or_else(|| panic!("SECURITY says nothing of `{name}`"));
        let unsaid: Vec<&String> = fields.difference(said).collect();
        assert!(unsaid.is_empty(), "SECURITY does not say that `{name}` shows {unsaid:?}");
    }
    for name in PRESENT {
        let (said, seen) = (&told[name], seen.get(name).unwrap_or_else(|| panic!("no `{name}`")));
        let missing: Vec<&String> = said.difference(seen).collect();
        assert!(missing.is_empty(), "SECURITY says that `{name}` shows {missing:?}");
    }
    let has = |kind: &str, name: &str, value: &str| {
        records.iter().any(|record| field(record, "record") == kind && field(record, name) == value)
    };
    assert!(has("dataset", "name", "vault") && has("property", "value", "told"));
    assert!(
        has("snapshot", "name", "before") && has("bookmark", "name", "mark") && has("hold", "tag", "kept")
    );
    assert!(has("history", "text", "zfs snapshot tank/vault@before"), "{printed}");
    // Its root is an inode as well.
    let row = records.iter().find(|record| field(record, "name") == "vault").expect("its row");
    assert_eq!(field(row, "files"), (files + 1).to_string(), "inodes");

    // Its own trees open with its key alone.
    for tree in ["names:tank/vault", "extents:tank/vault"] {
        let refused = host.run(&format!("inspect tree {{}}/tank.img {tree}"));
        assert_ne!(refused.status, 0, "{tree}: {}", refused.out);
        assert_eq!(kept_in(format!("{}{}", refused.out, refused.err).as_bytes()), Vec::<String>::new());
    }
    let opened = host.run("inspect tree -k {}/key {}/tank.img names:tank/vault").ok().out;
    for word in [KEPT[0], KEPT[1], KEPT[3], KEPT[5]] {
        assert!(opened.contains(word), "{word} with the key: {opened}");
    }

    // The search finds what is there: the same in the clear.
    host.shell("zpool import -d $PWD tank").ok();
    fill(&host, "t/clear");
    host.shell("zpool export tank").ok();
    let image = fs::read(host.at("tank.img")).expect("an image");
    let mut found = kept_in(&image);
    found.sort();
    let mut all: Vec<String> = KEPT.iter().map(|word| (*word).to_owned()).collect();
    all.extend(["owner", "size", "time"].map(str::to_owned));
    all.sort();
    assert_eq!(found, all, "in the clear");
}

#[test]
fn a_sealed_pool_shows_its_labels_and_roots_alone() {
    if !can_run("what a sealed pool shows") {
        return;
    }
    let Some(host) = Host::with_images("what a sealed pool shows", 1, 128 << 20) else { return };
    fs::write(host.at("key"), "Quittenbaum-4711\n").expect("a key");
    host.shell(
        "zpool create -O encryption=on -O keyformat=passphrase -O keylocation=file://$PWD/key -O compression=off \
         -m $PWD/t tank $PWD/d1.img
         zfs create tank/Geheimfach; zfs set my:note=Notizzettel tank/Geheimfach",
    )
    .ok();
    fill(&host, "t/Geheimfach");
    host.shell(
        "zfs snapshot tank/Geheimfach@Vorgestern; zfs hold Haltemarke tank/Geheimfach@Vorgestern
         zfs bookmark tank/Geheimfach@Vorgestern tank/Geheimfach#Lesezeichen
         sync -d t/Geheimfach/Siebenschlaefer-Liste.txt; zpool export tank",
    )
    .ok();
    let image = fs::read(host.at("d1.img")).expect("an image");
    assert_eq!(kept_in(&image), Vec::<String>::new(), "in the bytes of the image");
    let told = |what: &str| {
        let ran = host.run(&format!("inspect {what}"));
        format!("{}{}", ran.out, ran.err)
    };
    let printed = [
        "label {}/d1.img",
        "uberblock {}/d1.img",
        "tail {}/d1.img",
        "segments {}/d1.img",
        "log {}/d1.img",
        "tree {}/d1.img meta",
    ]
    .map(told)
    .concat();
    for word in
        ["Geheimfach", "Notizzettel", "Vorgestern", "Haltemarke", "Lesezeichen", "zfs snapshot", "my:note"]
    {
        assert_eq!(find(&image, word.as_bytes()), None, "{word} in the bytes of the image");
        assert!(!printed.contains(word), "{word}: {printed}");
    }
    // SECURITY says that these are shown.
    let host_name = host.shell("uname -n").ok().out;
    for word in
        ["tank", "d1.img", "keyformat=passphrase", "keylocation=file:///", "time_ns=", host_name.trim()]
    {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let opened = host.run("inspect tree -k {}/key {}/d1.img meta").ok().out;
    for word in ["Geheimfach", "Notizzettel", "Vorgestern", "Haltemarke", "Lesezeichen"] {
        assert!(opened.contains(word), "{word} with the key: {opened}");
    }
}

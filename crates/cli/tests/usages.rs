//! Lists of properties in usages, and features that are set to disabled.

use crate::words::Machine;

/// A feature that is set to disabled is off, or the command says that it is not.
#[test]
fn a_feature_is_disabled_or_it_is_said_that_it_is_not() {
    let machine = Machine::new("disabled-features");
    let made = machine
        .run("zpool create -o feature@raidz_expansion=disabled -o feature@zstd=disabled tank tank.img");
    let note = "note: 'feature@raidz_expansion=disabled' has no effect: every pool has its function, and uses it when a command asks for it\n";
    assert_eq!((made.status, made.err.as_str()), (0, note));
    assert_eq!(
        machine.ok("zpool get -Ho value feature@raidz_expansion,feature@zstd tank"),
        "active\ndisabled\n"
    );
    assert!(machine.fails("zfs create -o compression=zstd tank/z", 1).contains("POOL-FEATURE"));
    machine.ok("zpool destroy tank");
    let refused = machine.fails("zpool create -o feature@redundancy=disabled tank tank.img", 1);
    assert!(
        refused.contains("'feature@redundancy' cannot be set: the command that needs it turns it on"),
        "{refused}"
    );
    let bare = machine.run("zpool create -d tank tank.img");
    assert!(
        bare.status == 0 && bare.err.starts_with("note: -d leaves out optional features only"),
        "{bare:?}"
    );
}

/// Programs take the names of properties from the usage of these commands.
#[test]
fn usages_of_get_set_and_inherit_list_the_properties() {
    use steadfast_property::{DATASET, POOL, Property};
    let machine = Machine::new("usage-lists");
    let cases: [(&str, &[Property], &str); 5] = [
        ("zfs get", DATASET, "PROPERTY"),
        ("zfs set", DATASET, "INHERIT   VALUES"),
        ("zfs inherit", DATASET, "INHERIT   VALUES"),
        ("zpool get", POOL, "EDIT   VALUES"),
        ("zpool set", POOL, "EDIT   VALUES"),
    ];
    for (line, table, heading) in cases {
        for asked in [format!("{line} -?"), line.to_owned()] {
            let usage = machine.fails(&asked, 2);
            assert!(usage.contains(heading), "{asked}: {usage}");
            for property in table {
                let is_listed = usage.lines().any(|l| l.split_whitespace().next() == Some(property.name));
                assert!(is_listed, "{asked}: {}", property.name);
            }
        }
        assert!(machine.ok(&format!("{line} --help")).contains(heading), "{line}");
    }
    assert!(!machine.fails("zfs list -?", 2).contains("PROPERTY"));
    // A mistake is still one sentence.
    assert_eq!(machine.fails("zfs get nonsense tank", 2).lines().count(), 1);
}

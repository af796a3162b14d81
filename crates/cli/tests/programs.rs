//! Outputs in which programs written for ZFS look for something.

use crate::words::Machine;

#[test]
fn programs_find_options_tokens_and_figures_where_they_look() {
    let mut machine = Machine::new("programs");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create tank/a");
    machine.ok("zfs snapshot tank/a@1");
    machine.ok("zfs create tank/held");
    machine.ok("zfs snapshot tank/held@1");
    machine.explains = false;
    // A verb alone asks for its usage, in which programs look for options.
    for (line, holds) in [
        ("zfs send", "receive_resume_token"),
        ("zfs receive", "-A <filesystem|volume>"),
        ("zfs load-key", "keylocation"),
    ] {
        let told = machine.fails(line, 2);
        let last = told.lines().last().unwrap_or_default();
        assert!(told.contains(holds) && last.ends_with(&format!("(usage: `{line} --help`)")), "{told}");
    }
    // Of a receive that breaks off: its token, where programs look for it.
    let stream = machine.run("zfs send tank/a@1").sent;
    let ran = machine.run_with("zfs receive -s tank/part", &stream[..stream.len() - 9]);
    let told = ran.err.split("zfs send -t ").collect::<Vec<_>>();
    assert_eq!((ran.status, told.len()), (1, 2), "{}", ran.err);
    assert!(told[0].starts_with("cannot receive into 'tank/part': incomplete stream\n"), "{}", ran.err);
    let token = told[1].trim();
    assert_eq!(machine.ok("zfs list -Hro name,receive_resume_token tank").matches(token).count(), 1);
    let told = machine.ok(&format!("zfs send -nvt {token}"));
    assert!(told.starts_with("resume token contents:\nnvlist version: 0\n\tobject = 0x"), "{told}");
    assert!(told.contains("\ttoname = tank/a@1\n"), "{told}");
    let nothing = machine.run_with("zfs receive tank/none", b"").err;
    assert_eq!(nothing, "cannot receive: failed to read from stream\n");
    assert_eq!(
        machine.ok("zfs get -Hpo value written@tank/a@1 tank/a"),
        machine.ok("zfs get -Hpo value written@1 tank/a")
    );
    assert_eq!(machine.ok("zfs get -Hpo value,source written@tank/held@1 tank/a"), "-\t-\n");
    assert_eq!(machine.ok("zfs get -Hpo source written@1 tank/a"), "local\n");
}

#[test]
fn a_user_property_that_is_set_to_nothing_is_removed() {
    let machine = Machine::new("emptied");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create tank/a");
    machine.ok("zfs set org:x=1 org:y=2 tank/a");
    machine.ok("zfs set org:x= org:y=3 tank/a");
    assert_eq!(machine.ok("zfs get -Ho value,source org:x tank/a"), "-\t-\n");
    assert_eq!(machine.ok("zfs get -Ho value,source org:y tank/a"), "3\tlocal\n");
    machine.fails("zfs set atime= tank/a", 1);
}

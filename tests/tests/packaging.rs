//! Files beside the program in a package, read by their readers: shells, the service manager,
//! man(1).

use std::path::Path;

use steadfast_tests::{Host, skip, steadfast_bin};

/// Is there a program of this name? Says what was skipped if not.
fn there(host: &Host, program: &str) -> bool {
    let found = host.exec("sh", &["-c", &format!("command -v {program}")], b"").status == 0;
    if !found {
        skip(program, &format!("{program} is not installed"));
    }
    found
}

#[test]
fn each_shell_reads_its_completion_script() {
    let host = Host::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = host.at(shell);
        std::fs::write(&script, host.run(&format!("completions {shell}")).ok().out).expect("written");
        // bash is everywhere; the others are asked where they are.
        if shell != "bash" && !there(&host, shell) {
            continue;
        }
        let read = |script: &Path| host.exec(shell, &["-n", &script.display().to_string()], b"");
        let read_well = read(&script).ok();
        assert_eq!(read_well.err, "", "{shell} has something to say");
        // A check that finds nothing in anything proves nothing.
        std::fs::write(&script, "if true; then ((\n").expect("written");
        assert_ne!(read(&script).status, 0, "{shell} -n accepts anything");
    }
}

#[test]
fn the_service_manager_reads_the_unit() {
    let host = Host::new();
    if !there(&host, "systemd-analyze") {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/steadfast.service");
    let text = std::fs::read_to_string(source).expect("the unit");
    let program = steadfast_bin().display().to_string();
    assert!(text.contains("ExecStart=/usr/bin/steadfast daemon run"), "{text}");
    let unit = host.at("steadfast.service");
    std::fs::write(&unit, text.replace("/usr/bin/steadfast", &program)).expect("written");
    let verified =
        host.exec("systemd-analyze", &["verify", "--man=no", &unit.display().to_string()], b"").ok();
    assert_eq!(format!("{}{}", verified.out, verified.err), "", "nothing to say of it");
}

#[test]
fn man_formats_every_page_without_a_warning() {
    let host = Host::new();
    host.run("man {}/pages").ok();
    if !there(&host, "groff") {
        return;
    }
    let mut pages = 0;
    for entry in std::fs::read_dir(host.at("pages")).expect("a folder") {
        let page = entry.expect("a page").path().display().to_string();
        // One that only names another is that other's to answer for.
        if std::fs::read_to_string(&page).expect("a page").starts_with(".so ") {
            continue;
        }
        let formatted = host.exec("groff", &["-man", "-Tutf8", "-ww", "-z", &page], b"").ok();
        assert_eq!(formatted.err, "", "{page}");
        pages += 1;
    }
    assert!(pages > 40, "{pages} pages");
}

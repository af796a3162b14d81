//! Histories of parity devices: a bounded part of `steadfast-sim --parity 100000`.

use steadfast_sim::parity_histories::{Lives, Planted, run};

#[test]
fn a_code_survives_cuts_of_its_verbs() {
    let counts = run(0, 480, 12, Lives::All, None, |_, _| ());
    let counts = counts.unwrap_or_else(|what| panic!("{what}"));
    assert!(counts.lossy > 5 && counts.restored > 20 && counts.rekeyed > 0, "{counts:?}");
    assert!(counts.visited > 0, "{counts:?}");
}

#[test]
fn a_parity_device_that_lies_about_flushes_is_found() {
    let what = run(0, 2_000, 20, Lives::All, Some(Planted::FlushLies), |_, _| ()).expect_err("it is found");
    assert!(what.contains("the parity device is not in use"), "{what}");
}

//! `steadfast lab` and `steadfast demo`. The lab runs this program by its path, and knows nothing
//! else of it.

use crate::command::{Door, FAILED};
use crate::world::World;
use steadfast_lab_conformance::main as suites;
use steadfast_lab_experiment::{Context, main as lab};

/// `steadfast lab`.
pub(crate) const LAB: Door = Door {
    name: "lab",
    usage: "list | run experiment [option]... | show report.json | conformance [option]... | stress [option]...",
    doc: "Runs experiments and prints their reports. `steadfast lab --help` lists the options.",
    run: |world, words| {
        with_context(world, |context| match words.first().map(String::as_str) {
            Some("conformance" | "stress" | "stress-worker" | "tree-of") => suites(words, context),
            _ => lab(words, context),
        })
    },
};

/// `steadfast demo`.
pub(crate) const DEMO: Door = Door {
    name: "demo",
    usage: "[--quick] [--out folder] [--elapsed seconds] [--work folder]",
    doc: "Creates pools, measures them, damages one and shows that it heals. Takes two minutes, with --quick 20 seconds.",
    run: |world, words| with_context(world, |context| super::demo::main(words, context)),
};

fn with_context(world: &mut World<'_>, run: impl FnOnce(&Context) -> i32) -> u8 {
    match std::env::current_exe() {
        Ok(steadfast) => {
            let context = Context { steadfast, version: env!("CARGO_PKG_VERSION").to_owned() };
            u8::try_from(run(&context)).unwrap_or(FAILED)
        }
        Err(error) => {
            let _ = writeln!(world.err, "steadfast: cannot find the path of this program: {error}");
            FAILED
        }
    }
}

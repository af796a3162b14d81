//! The doors to the lab: `steadfast lab` and `steadfast demo`. The lab knows of us the path of this program.

use crate::family::{Door, FAILED};
use crate::world::World;
use steadfast_lab_conformance::main as suites;
use steadfast_lab_experiment::{Context, main as lab};

/// `steadfast lab`.
pub const LAB: Door = Door {
    name: "lab",
    usage: "list | run experiment [option]... | show report.json | conformance [option]... | stress [option]...",
    doc: "Repeats an experiment and draws its report; `steadfast lab --help` explains the options.",
    run: |world, words| {
        with_context(world, |context| match words.first().map(String::as_str) {
            Some("conformance" | "stress" | "stress-worker") => suites(words, context),
            _ => lab(words, context),
        })
    },
};

/// `steadfast demo`.
pub const DEMO: Door = Door {
    name: "demo",
    usage: "[--out folder] [--elapsed seconds] [--work folder]",
    doc: "Makes pools, loads them, measures them, damages one and shows that it is noticed. Takes two minutes.",
    run: |world, words| with_context(world, |context| crate::demo::main(words, context)),
};

fn with_context(world: &mut World<'_>, run: impl FnOnce(&Context) -> i32) -> u8 {
    match std::env::current_exe() {
        Ok(steadfast) => {
            let context = Context { steadfast, version: env!("CARGO_PKG_VERSION").to_owned() };
            u8::try_from(run(&context)).unwrap_or(FAILED)
        }
        Err(error) => {
            let _ = writeln!(
                world.err,
                "steadfast: cannot find this program itself, to run it for the pools: {error}"
            );
            FAILED
        }
    }
}

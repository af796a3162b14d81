//! `zfs hold`, `zfs release` and `zfs holds`.

use crate::api::{FsHold, FsHolds, HeldBy, Outcome};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zfs::names::halves;
use crate::refusal::{Code, Refusal};
use std::collections::BTreeSet;
use steadfast_property::{TAG_BYTES_MAX, check_snapshot_name, is_tag};

impl Verb for FsHold {
    fn check(&mut self) -> Result<(), Refusal> {
        self.names.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)?;
        if !is_tag(&self.tag) {
            let what = format!("a tag has 1 to {TAG_BYTES_MAX} bytes, and no control characters");
            return Err(Refusal::new(Code::NameInvalid, what).advising("Choose another tag."));
        }
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let mut outcome = Outcome::default();
        for name in &self.names {
            let held = engine.held(halves(name)?.0)?;
            engine.check_writable(&held)?;
            let names = engine.in_tree(name, self.recursive)?;
            match self.release {
                false => held.pool.datasets().hold(&names, &self.tag),
                true => held.pool.datasets().release(&names, &self.tag),
            }
            .map_err(refuse::pool)?;
            held.note_gone(&names);
            engine.log(&held, caller);
            outcome.touched.extend(names);
        }
        Ok(outcome)
    }
}

impl Verb for FsHolds {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        self.names.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<HeldBy>, Refusal> {
        let (mut holds, mut seen) = (Vec::new(), BTreeSet::new());
        for name in &self.names {
            let held = engine.held(halves(name)?.0)?;
            for snapshot in engine.in_tree(name, self.recursive)? {
                // One name may lie below another.
                if !seen.insert(snapshot.clone()) {
                    continue;
                }
                for (tag, time) in held.pool.datasets().holds(&snapshot).map_err(refuse::pool)? {
                    holds.push(HeldBy { snapshot: snapshot.clone(), tag, time });
                }
            }
        }
        Ok(holds)
    }
}

//! `zpool set`.

use crate::api::{Outcome, PoolSet, Properties};
use crate::caller::Caller;
use crate::check::{exact, property_refusal};
use crate::engine::pool_properties::{CACHEFILE, listed, set_property};
use crate::engine::refuse;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use steadfast_property::{Change, Scope, check_user_property, is_user_property, vdev_property};

impl Verb for PoolSet {
    fn check(&mut self) -> Result<(), Refusal> {
        if let Some(vdev) = &self.vdev {
            return check_of_vdev(vdev, &self.properties);
        }
        self.properties = exact(Scope::Pool, &self.properties, &[Change::Anytime])?;
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        let mut outcome = touched(&self.name);
        if let Some(vdev) = &self.vdev {
            for (name, value) in &self.properties {
                let value = Some(value.as_str()).filter(|value| !value.is_empty());
                held.pool.set_pool_prop(&vdev_property(vdev, name), value).map_err(refuse::pool)?;
            }
            engine.log(&held, caller);
            return Ok(outcome);
        }
        for (name, value) in &self.properties {
            match name.as_str() {
                // Not stored in the pool: it holds for this import.
                CACHEFILE => {
                    *held.listed.write() = listed(&self.properties, false)?;
                    outcome.warnings.extend(engine.remember().err());
                }
                _ => set_property(&held.pool, name, value)?,
            }
            let fields = [("property", name.clone()), ("value", value.clone())];
            engine.post("property_change", &held.pool, &self.name, &fields);
        }
        // A budget that was raised lets go at once.
        engine.look_at_costs();
        engine.log(&held, caller);
        Ok(outcome)
    }
}

/// Only a comment and user properties of a group or device can be set. It is named by its number.
fn check_of_vdev(vdev: &str, properties: &Properties) -> Result<(), Refusal> {
    if vdev != "root-0" && vdev.parse::<u64>().is_err() {
        return Err(Refusal::new(Code::VdevMissing, format!("'{vdev}' is no number of a device"))
            .with("device", vdev));
    }
    properties.iter().try_for_each(|(name, value)| {
        if !is_user_property(name) && name != "comment" {
            let what = format!("'{name}' cannot be set on a device");
            return Err(Refusal::new(Code::PropValue, what).with("property", name));
        }
        // A comment has the rules of other texts. The name that is stored is longer.
        let as_user = if name == "comment" { "comment:" } else { name };
        check_user_property(as_user, value).map_err(property_refusal)?;
        match vdev_property(vdev, name).len() > 255 {
            true => {
                let what = format!("the name '{name}' is too long for a property of a device");
                Err(Refusal::new(Code::PropValue, what).with("property", name))
            }
            false => Ok(()),
        }
    })
}

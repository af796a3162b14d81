//! `zfs allow` and `zfs unallow`, and the check of a guest's request against them.
//! `docs/decisions/0152-guests.md`.

use crate::api::{Allowed, FsAllow, FsAllowed, Outcome, Request};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::engine::zfs::names::is_at_or_below;
use crate::owners;
use crate::refusal::{Code, Refusal};
use crate::rights;
use std::collections::BTreeSet;
use steadfast_property::{
    ALLOW_PREFIX, Granted, OwnerProperty, Scope, Who, check_dataset_name, is_user_property, lookup,
    permission, set_name,
};

/// Mount options that a guest may give: they take rights away.
const OPTIONS: [&str; 6] = ["ro", "nosuid", "nodev", "noexec", "noatime", "defaults"];

impl Verb for FsAllow {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)?;
        for name in &mut self.permissions {
            *name = permission(name).map_err(|reason| {
                let what = format!("the permission '{name}' cannot be given: {reason}");
                Refusal::new(Code::PropValue, what).with("property", &*name)
            })?;
        }
        if let Some(who) = self.who.iter().find(|who| Who::of_property(&property_of(who)).is_none()) {
            return Err(Refusal::new(Code::ApiRequest, format!("'{who}' is no user and no group")));
        }
        let is_apart =
            |who: &String| matches!(Who::of_property(&property_of(who)), Some(Who::Set(_) | Who::Creator));
        if self.who.iter().any(is_apart) && (self.who.len() > 1 || self.descendent) {
            return Err(Refusal::new(Code::ApiRequest, "a set or a creator is named alone, and is local"));
        }
        if self.who.is_empty() || self.permissions.is_empty() && !self.take {
            return Err(Refusal::new(Code::ApiRequest, "a permission names who is given what"));
        }
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        engine.check_writable(&held)?;
        held.pool.datasets().dataset_info(&self.name).map_err(refuse::pool)?;
        let mut touched = vec![self.name.clone()];
        if self.recursive {
            touched.extend(below(&held, &self.name));
        }
        for name in &touched {
            let local = held.pool.datasets().local_props(name).map_err(refuse::pool)?;
            let mut edits = Vec::new();
            for who in &self.who {
                let property = property_of(who);
                let before = local.get(&property).map(|value| Granted::parse(value)).unwrap_or_default();
                let mut granted = before.clone();
                for (set, is_meant) in
                    [(&mut granted.local, self.local), (&mut granted.descendent, self.descendent)]
                {
                    match (is_meant, self.take) {
                        (false, _) => {}
                        (true, false) => set.extend(self.permissions.iter().cloned()),
                        (true, true) if self.permissions.is_empty() => set.clear(),
                        (true, true) => set.retain(|given| !self.permissions.contains(given)),
                    }
                }
                if granted != before {
                    edits.push((property, granted.value()));
                }
            }
            let edits: Vec<(&str, Option<&str>)> =
                edits.iter().map(|(property, value)| (property.as_str(), value.as_deref())).collect();
            if !edits.is_empty() {
                held.pool.datasets().set_properties(name, &edits).map_err(refuse::pool)?;
            }
        }
        engine.log(&held, caller);
        Ok(Outcome { touched, warnings: Vec::new() })
    }
}

impl Verb for FsAllowed {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<Allowed>, Refusal> {
        let held = engine.held(&self.name)?;
        held.pool.datasets().dataset_info(&self.name).map_err(refuse::pool)?;
        let mut found = Vec::new();
        for dataset in at_and_above(&self.name) {
            let mut here = grants(&held, dataset);
            here.sort_by(|(one, _), (other, _)| one.cmp(other));
            found.extend(here.into_iter().map(|(who, granted)| Allowed {
                dataset: dataset.to_owned(),
                who: who.to_string(),
                local: granted.local,
                descendent: granted.descendent,
            }));
        }
        Ok(found)
    }
}

impl Engine {
    /// Refuses what a guest was not allowed to do.
    pub(in crate::engine) fn permit_guest(&self, caller: &Caller, request: &Request) -> Result<(), Refusal> {
        if rights::is_look(request) {
            return Ok(());
        }
        let needs = self.needs(request).ok_or_else(|| rights::denied(caller))?;
        for (dataset, permission) in needs {
            let held = self.held(&dataset)?;
            if !is_allowed(&held, caller, &dataset, &permission) {
                let what =
                    format!("user {} does not have the permission '{permission}' on '{dataset}'", caller.uid);
                return Err(Refusal::new(Code::PeerRights, what).with("fs", &dataset));
            }
        }
        Ok(())
    }

    /// Datasets and the permissions on them that a request needs. `None`: no permission is enough.
    fn needs(&self, request: &Request) -> Option<Vec<(String, String)>> {
        let fs_of = |name: &str| name.split(['@', '#']).next().unwrap_or_default().to_owned();
        let tree = |name: &str, recursive: bool| {
            let mut names = vec![fs_of(name)];
            if recursive && let Ok(held) = self.held(&names[0]) {
                names.extend(below(&held, &names[0]));
            }
            names
        };
        let mut needs: Vec<(String, String)> = Vec::new();
        let mut need = |names: Vec<String>, permissions: &[&str]| {
            for name in names {
                needs.extend(permissions.iter().map(|permission| (name.clone(), (*permission).to_owned())));
            }
        };
        match request {
            Request::FsSnapshot(asked) => {
                for name in &asked.names {
                    need(tree(name, asked.recursive), &["snapshot"]);
                    if !asked.properties.is_empty() {
                        need(tree(name, asked.recursive), &["userprop"]);
                    }
                }
            }
            Request::FsSnapshotDestroy(asked) if !asked.clones && !asked.force => {
                need(tree(&asked.name, asked.recursive), &["destroy", "mount"]);
            }
            Request::FsDestroy(asked) if !asked.clones => {
                need(tree(&asked.name, asked.recursive), &["destroy", "mount"]);
            }
            Request::FsCreate(asked) if asked.key.is_none() && !asked.parents => {
                let parent = asked.name.rsplit_once('/')?.0.to_owned();
                need(vec![parent.clone()], &["create", "mount"]);
                if asked.volume.is_some() {
                    need(vec![parent.clone()], &["volsize"]);
                }
                for property in asked.properties.keys() {
                    need(vec![parent.clone()], &[&of_property(property)?]);
                }
            }
            Request::FsSet(asked) => {
                for property in asked.properties.keys() {
                    need(vec![fs_of(&asked.name)], &[&of_property(property)?]);
                }
            }
            Request::FsInherit(asked) => {
                need(tree(&asked.name, asked.recursive), &[&of_property(&asked.property)?]);
            }
            Request::FsMount(asked)
                if asked.at.is_none()
                    && !asked.overlay
                    && asked.options.iter().all(|option| OPTIONS.contains(&option.as_str())) =>
            {
                need(vec![asked.name.clone()], &["mount"]);
            }
            Request::FsUnmount(asked) => {
                let mounted = |held: std::sync::Arc<ImportedPool>| held.mounted_below(&asked.name);
                let mut names = self.held(&asked.name).map(mounted).unwrap_or_default();
                names.push(asked.name.clone());
                need(names, &["mount"]);
            }
            Request::FsHold(asked) => {
                let permission = if asked.release { "release" } else { "hold" };
                asked.names.iter().for_each(|name| need(tree(name, asked.recursive), &[permission]));
            }
            Request::FsRollback(asked) if !asked.clones && !asked.force => {
                need(vec![fs_of(&asked.name)], &["rollback", "mount"]);
                if asked.destroy_younger {
                    need(vec![fs_of(&asked.name)], &["destroy"]);
                }
            }
            Request::FsSend(asked) if asked.token.is_none() => {
                need(tree(&asked.snapshot, asked.recursive), &["send"]);
                asked.base.iter().for_each(|base| need(vec![fs_of(base)], &["send"]));
            }
            Request::FsBookmark(asked) => need(vec![fs_of(&asked.of)], &["bookmark"]),
            Request::FsBookmarkDestroy(asked) => need(vec![fs_of(&asked.name)], &["destroy"]),
            Request::FsDiff(asked) => need(vec![fs_of(&asked.base), fs_of(&asked.target)], &["diff"]),
            Request::FsUserspace(asked) => need(vec![fs_of(&asked.name)], &["userused", "groupused"]),
            _ => return None,
        }
        (!needs.is_empty()).then_some(needs)
    }
}

/// The permission that a change of a property needs; `None` if there is none.
fn of_property(name: &str) -> Option<String> {
    if name.starts_with(ALLOW_PREFIX) {
        return None;
    }
    if is_user_property(name) {
        return Some("userprop".to_owned());
    }
    if OwnerProperty::split(name).is_some() {
        return permission(name.split('@').next()?).ok();
    }
    lookup(Scope::Dataset, name).and_then(|property| permission(property.name).ok())
}

fn property_of(who: &str) -> String {
    format!("{ALLOW_PREFIX}{who}")
}

fn below(held: &ImportedPool, name: &str) -> Vec<String> {
    let names = held.pool.datasets().names().into_iter();
    names.filter(|other| other != name && is_at_or_below(other, name)).collect()
}

/// A dataset and those above it, from the dataset on.
fn at_and_above(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| Some(name.rsplit_once('/')?.0))
}

/// Permissions that are stored with a dataset.
fn grants(held: &ImportedPool, dataset: &str) -> Vec<(Who, Granted)> {
    let local = held.pool.datasets().local_props(dataset).unwrap_or_default();
    let grant = |(name, value): (String, String)| Some((Who::of_property(&name)?, Granted::parse(&value)));
    local.into_iter().filter_map(grant).collect()
}

/// True if a user has a permission on a dataset: by it, or by one above it.
fn is_allowed(held: &ImportedPool, caller: &Caller, dataset: &str, permission: &str) -> bool {
    if held.pool.pool_props().get("delegation").is_some_and(|value| value == "off") {
        return false;
    }
    let mut groups: BTreeSet<u32> = owners::groups_of(caller.uid);
    groups.insert(caller.gid);
    let is_meant = |who: &Who| match who {
        Who::User(id) => *id == caller.uid,
        Who::Group(id) => groups.contains(id),
        Who::Everyone => true,
        Who::Set(_) | Who::Creator => false,
    };
    let mut sets = Sets::default();
    for at in at_and_above(dataset) {
        let here = grants(held, at);
        for (_, granted) in here.iter().filter(|(who, _)| is_meant(who)) {
            let given = if at == dataset { &granted.local } else { &granted.descendent };
            if given.contains(permission) {
                return true;
            }
            sets.name(given);
        }
        if sets.hold(&here, permission) {
            return true;
        }
    }
    false
}

/// Sets that a user has, on the way from a dataset upward.
#[derive(Default)]
struct Sets {
    /// Named, and not defined so far.
    open: BTreeSet<String>,
    /// Defined. As in ZFS, the nearest definition counts, and hides those above it.
    known: BTreeSet<String>,
}

impl Sets {
    fn name(&mut self, given: &BTreeSet<String>) {
        let names = given.iter().filter_map(|name| set_name(name)).map(str::to_owned);
        self.open.extend(names.filter(|name| !self.known.contains(name)));
    }

    /// True if a set, as it is defined on one dataset, holds a permission. Adds the sets that it
    /// names.
    fn hold(&mut self, here: &[(Who, Granted)], permission: &str) -> bool {
        loop {
            let defined = here.iter().find_map(|(who, granted)| match who {
                Who::Set(name) if self.open.contains(name) => Some((name, granted)),
                _ => None,
            });
            let Some((name, granted)) = defined else { return false };
            if granted.local.contains(permission) {
                return true;
            }
            self.open.remove(name);
            self.known.insert(name.clone());
            self.name(&granted.local);
        }
    }
}

/// Gives the creator of a dataset the permissions that those above it have for creators.
pub(in crate::engine) fn give_creator(
    held: &ImportedPool,
    name: &str,
    caller: &Caller,
) -> Result<(), Refusal> {
    let above = at_and_above(name).skip(1);
    let of_creators = above.flat_map(|at| grants(held, at)).filter(|(who, _)| *who == Who::Creator);
    let local: BTreeSet<String> = of_creators.flat_map(|(_, granted)| granted.local).collect();
    if local.is_empty() {
        return Ok(());
    }
    let (property, granted) = (Who::User(caller.uid).property(), Granted { local, ..Granted::default() });
    let edits = [(property.as_str(), granted.value())];
    let edits = edits.each_ref().map(|(property, value)| (*property, value.as_deref()));
    held.pool.datasets().set_properties(name, &edits).map_err(refuse::pool)
}

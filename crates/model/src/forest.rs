//! Several file systems and volumes with their snapshots (copies), their clones (copies of copies),
//! and the origin of each clone.
//!
//! A received snapshot is a copy of a copy too. It is the same snapshot wherever it lies, so names
//! of snapshots are given once in a history.

use std::collections::BTreeMap;

use crate::Model;

/// Why something is not done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// There is no such file system or snapshot.
    Absent,
    /// The name is taken.
    Exists,
    /// Clones need it.
    Clones,
    /// There are younger snapshots.
    Younger,
    /// It is no clone.
    NotClone,
    /// Others lie in it, or it is the topmost one.
    Needed,
    /// It is not what it was at the snapshot that an increment builds upon.
    Modified,
    /// Of a volume, and the other is none, or the reverse; or one would become shorter.
    Kind,
}

/// A file system.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Its content.
    pub now: Model,
    /// Its earlier contents, oldest first, by the names of snapshots.
    pub snapshots: Vec<(String, Model)>,
    /// Full name of the snapshot that it is a clone of.
    pub origin: Option<String>,
    /// It may be something else than its youngest snapshot.
    pub touched: bool,
}

impl Line {
    fn position(&self, snapshot: &str) -> Option<usize> {
        self.snapshots.iter().position(|(name, _)| name == snapshot)
    }
}

/// File systems by their full names.
#[derive(Clone, Debug)]
pub struct Forest {
    lines: BTreeMap<String, Line>,
}

type Done = Result<(), Refused>;

impl Forest {
    /// One, empty.
    #[must_use]
    pub fn new(name: &str) -> Forest {
        Forest { lines: BTreeMap::from([(name.to_owned(), Line::default())]) }
    }

    /// All of them.
    pub fn lines(&self) -> impl Iterator<Item = (&String, &Line)> {
        self.lines.iter()
    }

    /// The content of a file system or volume, to be changed.
    pub fn now(&mut self, name: &str) -> Option<&mut Model> {
        let line = self.lines.get_mut(name)?;
        line.touched = true;
        Some(&mut line.now)
    }

    /// Full names of all snapshots.
    #[must_use]
    pub fn snapshots(&self) -> Vec<String> {
        let of = |(name, line): (&String, &Line)| -> Vec<String> {
            line.snapshots.iter().map(|(snapshot, _)| format!("{name}@{snapshot}")).collect()
        };
        self.lines.iter().flat_map(of).collect()
    }

    fn find(&self, snapshot: &str) -> Result<(String, usize), Refused> {
        let (name, snapshot) = snapshot.split_once('@').ok_or(Refused::Absent)?;
        let line = self.lines.get(name).ok_or(Refused::Absent)?;
        Ok((name.to_owned(), line.position(snapshot).ok_or(Refused::Absent)?))
    }

    fn has_clones(&self, snapshot: &str) -> bool {
        self.lines.values().any(|line| line.origin.as_deref() == Some(snapshot))
    }

    /// Keeps a copy.
    pub fn snapshot(&mut self, snapshot: &str) -> Done {
        let (name, snapshot) = snapshot.split_once('@').ok_or(Refused::Absent)?;
        let line = self.lines.get_mut(name).ok_or(Refused::Absent)?;
        if line.position(snapshot).is_some() {
            return Err(Refused::Exists);
        }
        line.snapshots.push((snapshot.to_owned(), line.now.clone()));
        line.touched = false;
        Ok(())
    }

    /// Drops a copy.
    pub fn destroy_snapshot(&mut self, snapshot: &str) -> Done {
        let (name, at) = self.find(snapshot)?;
        if self.has_clones(snapshot) {
            return Err(Refused::Clones);
        }
        let line = self.lines.get_mut(&name).expect("found");
        line.touched |= at + 1 == line.snapshots.len();
        line.snapshots.remove(at);
        Ok(())
    }

    /// Puts the youngest copy into the place of what there is.
    pub fn rollback(&mut self, snapshot: &str) -> Done {
        let (name, at) = self.find(snapshot)?;
        let line = self.lines.get_mut(&name).expect("found");
        if at + 1 < line.snapshots.len() {
            return Err(Refused::Younger);
        }
        line.now = line.snapshots[at].1.clone();
        line.touched = false;
        Ok(())
    }

    /// Makes a file system of a copy.
    pub fn clone_of(&mut self, snapshot: &str, name: &str) -> Done {
        if self.lines.contains_key(name) {
            return Err(Refused::Exists);
        }
        let (of, at) = self.find(snapshot)?;
        let now = self.lines[&of].snapshots[at].1.clone();
        let line = Line { now, snapshots: Vec::new(), origin: Some(snapshot.to_owned()), touched: true };
        self.lines.insert(name.to_owned(), line);
        Ok(())
    }

    /// The copies up to the one that a clone was made of become the clone's, and what they were of
    /// the clone.
    pub fn promote(&mut self, name: &str) -> Done {
        let origin = self.lines.get(name).ok_or(Refused::Absent)?.origin.clone().ok_or(Refused::NotClone)?;
        let (of, at) = self.find(&origin)?;
        let old = self.lines.get_mut(&of).expect("found");
        let moved: Vec<(String, Model)> = old.snapshots.drain(..=at).collect();
        let above = old.origin.take();
        // It may have none of its own any more.
        old.touched = true;
        let new = self.lines.get_mut(name).expect("found");
        if moved.iter().any(|(snapshot, _)| new.position(snapshot).is_some()) {
            let old = self.lines.get_mut(&of).expect("found");
            old.snapshots.splice(0..0, moved);
            old.origin = above;
            return Err(Refused::Exists);
        }
        let names: Vec<String> = moved.iter().map(|(snapshot, _)| snapshot.clone()).collect();
        new.snapshots.splice(0..0, moved);
        new.origin = above;
        for line in self.lines.values_mut() {
            let of_moved = |origin: &String| {
                let (fs, snapshot) = origin.split_once('@')?;
                (fs == of && names.iter().any(|name| name == snapshot)).then(|| format!("{name}@{snapshot}"))
            };
            if let Some(renamed) = line.origin.as_ref().and_then(of_moved) {
                line.origin = Some(renamed);
            }
        }
        self.lines.get_mut(&of).expect("found").origin = Some(format!("{name}@{}", names[at]));
        Ok(())
    }

    /// Makes a volume.
    pub fn create_volume(&mut self, name: &str, bytes: usize) -> Done {
        if self.lines.contains_key(name) {
            return Err(Refused::Exists);
        }
        let line = Line { now: Model::volume(bytes), touched: true, ..Line::default() };
        self.lines.insert(name.to_owned(), line);
        Ok(())
    }

    /// Makes a volume longer.
    pub fn grow_volume(&mut self, name: &str, bytes: usize) -> Done {
        let line = self.lines.get_mut(name).ok_or(Refused::Absent)?;
        if line.now.volume_bytes().is_none_or(|has| bytes < has) {
            return Err(Refused::Kind);
        }
        line.touched = true;
        line.now.set_size(Model::ROOT, bytes).map_err(|_| Refused::Kind)
    }

    /// Sends a snapshot, all of it or what is new since an older one, and makes it the youngest of
    /// a file system: a new one, or one that has the older snapshot. With `force` it goes back to
    /// that first, or is replaced. Snapshots that it already has stay as they are.
    pub fn receive(&mut self, snapshot: &str, base: Option<&str>, target: &str, force: bool) -> Done {
        let (from, at) = self.find(snapshot)?;
        let (name, now) = self.lines[&from].snapshots[at].clone();
        let Some(base) = base else {
            if self.lines.contains_key(target) {
                if !force {
                    return Err(Refused::Exists);
                }
                self.check_replaced(target)?;
            }
            let snapshots = vec![(name, now.clone())];
            self.lines.insert(target.to_owned(), Line { now, snapshots, origin: None, touched: false });
            return Ok(());
        };
        let base = base.split('@').nth(1).ok_or(Refused::Absent)?;
        let line = self.lines.get(target).ok_or(Refused::Absent)?;
        if line.position(&name).is_some() {
            // It is passed over.
            return Ok(());
        }
        let upon = line.position(base).ok_or(Refused::Absent)?;
        if upon + 1 < line.snapshots.len() && !force {
            return Err(Refused::Younger);
        }
        let younger = &line.snapshots[upon + 1..];
        if younger.iter().any(|(snapshot, _)| self.has_clones(&format!("{target}@{snapshot}"))) {
            return Err(Refused::Clones);
        }
        if line.touched && !force {
            return Err(Refused::Modified);
        }
        let line = self.lines.get_mut(target).expect("found");
        line.snapshots.truncate(upon + 1);
        line.snapshots.push((name, now.clone()));
        (line.now, line.touched) = (now, false);
        Ok(())
    }

    /// Sends what a clone's snapshot has beyond its origin, and makes another clone of the origin
    /// of that.
    pub fn receive_clone(&mut self, snapshot: &str, origin: &str, target: &str) -> Done {
        let (from, at) = self.find(snapshot)?;
        self.find(origin)?;
        if self.lines.contains_key(target) {
            return Err(Refused::Absent);
        }
        let (name, now) = self.lines[&from].snapshots[at].clone();
        let line = Line {
            snapshots: vec![(name, now.clone())],
            now,
            origin: Some(origin.to_owned()),
            touched: false,
        };
        self.lines.insert(target.to_owned(), line);
        Ok(())
    }

    /// A whole stream replaces the content of these, and not the dataset.
    #[must_use]
    pub fn stays(&self, name: &str) -> bool {
        let below = format!("{name}/");
        !name.contains('/') || self.lines.keys().any(|other| other.starts_with(&below))
    }

    /// A replaced dataset has no clones, and no snapshots.
    fn check_replaced(&self, name: &str) -> Done {
        let snapshots = &self.lines[name].snapshots;
        let has_clones = |snapshot: &str| self.has_clones(&format!("{name}@{snapshot}"));
        if !self.stays(name) && snapshots.iter().any(|(snapshot, _)| has_clones(snapshot)) {
            return Err(Refused::Clones);
        }
        if snapshots.is_empty() { Ok(()) } else { Err(Refused::Younger) }
    }

    /// Something else than what it was at its youngest snapshot can be seen.
    #[must_use]
    pub fn is_changed(&self, name: &str) -> bool {
        let youngest = |line: &Line| line.snapshots.last().is_some_and(|(_, model)| *model == line.now);
        !self.lines.get(name).is_some_and(youngest)
    }

    /// Drops a file system and its copies.
    pub fn destroy(&mut self, name: &str) -> Done {
        let line = self.lines.get(name).ok_or(Refused::Absent)?;
        let below = format!("{name}/");
        if !name.contains('/') || self.lines.keys().any(|other| other.starts_with(&below)) {
            return Err(Refused::Needed);
        }
        if line.snapshots.iter().any(|(snapshot, _)| self.has_clones(&format!("{name}@{snapshot}"))) {
            return Err(Refused::Clones);
        }
        self.lines.remove(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(forest: &mut Forest, name: &str, file: &[u8]) {
        forest.now(name).expect("there").create_file(Model::ROOT, file, 0o644).expect("new");
    }

    fn files(model: &Model) -> usize {
        model.entries(Model::ROOT).expect("the root").len()
    }

    #[test]
    fn a_promotion_exchanges_what_is_whose_and_changes_no_content() {
        let mut forest = Forest::new("p");
        for snapshot in ["p@a", "p@b", "p@c"] {
            write(&mut forest, "p", snapshot.as_bytes());
            forest.snapshot(snapshot).expect("taken");
        }
        forest.clone_of("p@b", "p/c").expect("made");
        forest.clone_of("p@a", "p/d").expect("made");
        assert_eq!(forest.destroy_snapshot("p@b"), Err(Refused::Clones));
        assert_eq!(forest.promote("p"), Err(Refused::NotClone));
        forest.promote("p/c").expect("promoted");
        assert_eq!(forest.snapshots(), ["p@c", "p/c@a", "p/c@b"]);
        let origins: Vec<Option<&str>> = forest.lines().map(|(_, line)| line.origin.as_deref()).collect();
        assert_eq!(origins, [Some("p/c@b"), None, Some("p/c@a")]);
        let counts: Vec<usize> = forest.lines().map(|(_, line)| files(&line.now)).collect();
        assert_eq!(counts, [3, 2, 1]);
        forest.promote("p").expect("back");
        assert_eq!(forest.snapshots(), ["p@a", "p@b", "p@c"]);
        assert_eq!(forest.rollback("p@b"), Err(Refused::Younger));
        assert_eq!(forest.destroy("p/c"), Ok(()));
        assert_eq!(forest.destroy("p"), Err(Refused::Needed));
    }

    #[test]
    fn what_is_received_is_a_copy_and_is_received_once() {
        let mut forest = Forest::new("p");
        for snapshot in ["p@a", "p@b", "p@c"] {
            write(&mut forest, "p", snapshot.as_bytes());
            forest.snapshot(snapshot).expect("taken");
        }
        forest.receive("p@a", None, "p/r", false).expect("new");
        assert_eq!(forest.receive("p@a", None, "p/r", false), Err(Refused::Exists));
        assert_eq!(forest.receive("p@a", None, "p/r", true), Err(Refused::Younger));
        assert_eq!(forest.receive("p@c", Some("p@b"), "p/r", false), Err(Refused::Absent));
        forest.receive("p@b", Some("p@a"), "p/r", false).expect("upon it");
        write(&mut forest, "p/r", b"own");
        assert_eq!(forest.receive("p@c", Some("p@b"), "p/r", false), Err(Refused::Modified));
        forest.snapshot("p/r@own").expect("taken");
        assert_eq!(forest.receive("p@c", Some("p@b"), "p/r", false), Err(Refused::Younger));
        forest.clone_of("p/r@own", "p/c").expect("made");
        assert_eq!(forest.receive("p@c", Some("p@b"), "p/r", true), Err(Refused::Clones));
        forest.destroy("p/c").expect("gone");
        forest.receive("p@c", Some("p@b"), "p/r", true).expect("back, and on");
        assert_eq!(forest.snapshots(), ["p@a", "p@b", "p@c", "p/r@a", "p/r@b", "p/r@c"]);
        let counts: Vec<usize> = forest.lines().map(|(_, line)| files(&line.now)).collect();
        assert_eq!(counts, [3, 3]);
        forest.create_volume("p/v", 8).expect("made");
        assert_eq!(forest.grow_volume("p/v", 4), Err(Refused::Kind));
        forest.grow_volume("p/v", 16).expect("longer");
        forest.receive("p@a", None, "p/v", true).expect("it has nothing that keeps it");
    }
}

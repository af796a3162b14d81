//! Several file systems, and what they were: snapshots as copies, clones as copies of copies, and who is whose clone.

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
}

/// A file system.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// What it holds.
    pub now: Model,
    /// What it held, oldest first, by the names of snapshots.
    pub snapshots: Vec<(String, Model)>,
    /// Full name of the snapshot that it is a clone of.
    pub origin: Option<String>,
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

    /// What a file system holds.
    pub fn now(&mut self, name: &str) -> Option<&mut Model> {
        Some(&mut self.lines.get_mut(name)?.now)
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
        Ok(())
    }

    /// Drops a copy.
    pub fn destroy_snapshot(&mut self, snapshot: &str) -> Done {
        let (name, at) = self.find(snapshot)?;
        if self.has_clones(snapshot) {
            return Err(Refused::Clones);
        }
        self.lines.get_mut(&name).expect("found").snapshots.remove(at);
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
        Ok(())
    }

    /// Makes a file system of a copy.
    pub fn clone_of(&mut self, snapshot: &str, name: &str) -> Done {
        if self.lines.contains_key(name) {
            return Err(Refused::Exists);
        }
        let (of, at) = self.find(snapshot)?;
        let now = self.lines[&of].snapshots[at].1.clone();
        let line = Line { now, snapshots: Vec::new(), origin: Some(snapshot.to_owned()) };
        self.lines.insert(name.to_owned(), line);
        Ok(())
    }

    /// The copies up to the one that a clone was made of become the clone's, and what they were of the clone.
    pub fn promote(&mut self, name: &str) -> Done {
        let origin = self.lines.get(name).ok_or(Refused::Absent)?.origin.clone().ok_or(Refused::NotClone)?;
        let (of, at) = self.find(&origin)?;
        let old = self.lines.get_mut(&of).expect("found");
        let moved: Vec<(String, Model)> = old.snapshots.drain(..=at).collect();
        let above = old.origin.take();
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
}

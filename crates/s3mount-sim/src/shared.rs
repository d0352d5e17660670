//! What holds of names that several mounts, or strangers, change. Nobody can say what such a name stands for, but what
//! a mount shows of it is some version of the store, or what its own programs write, and never older than what it has
//! shown before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::content::{CELL, decode, shown};
use crate::history::NEVER;
use crate::opened::Opened;
use crate::promise::{Check, Rule, broken};
use crate::store::{By, SimStore, Version, live};
use crate::world::LIVES;

/// The name `path`, as a mount has it.
type Place = (usize, String);

/// A program of a mount changes a name, or what it stands for, between two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    place: Place,
    from: u64,
    to: u64,
}

/// What a mount has shown of a name between two moments: one of some versions.
#[derive(Debug)]
struct Showing {
    place: Place,
    from: u64,
    to: u64,
    /// Versions by their number; 0 is nothing, before there was any.
    versions: Vec<usize>,
}

/// What is known of shared names.
#[derive(Debug)]
pub(crate) struct Shared {
    store: Arc<SimStore>,
    uses: Vec<Use>,
    /// Names of files that a program has closed and that were not stored by then.
    kept: BTreeSet<Place>,
    /// Names that may stand for what no store has.
    unclear: BTreeSet<Place>,
    showings: Vec<Showing>,
    /// When a `close` that was told of a conflict was asked for, and when it was told.
    conflicts: BTreeMap<Place, (u64, u64)>,
}

impl Shared {
    pub(crate) fn new(store: Arc<SimStore>) -> Self {
        Self {
            store,
            uses: Vec::new(),
            kept: BTreeSet::new(),
            unclear: BTreeSet::new(),
            showings: Vec::new(),
            conflicts: BTreeMap::new(),
        }
    }

    /// A program begins to change a name, or opens it for writing.
    pub(crate) fn begin(&mut self, mount: usize, path: &str, from: u64) {
        self.uses.push(Use { place: (mount, path.to_owned()), from, to: NEVER });
    }

    /// A program gives a folder another name: all names below it change.
    pub(crate) fn begin_folder(&mut self, mount: usize, (old, new): (&str, &str), from: u64) {
        let mut paths = self.store.ever();
        paths.extend(self.uses.iter().map(|of| of.place.1.clone()));
        let below = |path: &String| {
            [old, new].iter().find_map(|of| path.strip_prefix(*of)?.strip_prefix('/').map(str::to_owned))
        };
        let leaves: BTreeSet<String> = paths.iter().filter_map(below).collect();
        for leaf in leaves.iter().filter(|leaf| !leaf.is_empty()) {
            let paths = [old, new].map(|folder| format!("{folder}/{leaf}"));
            if !self.uses.iter().any(|of| of.from == from && of.place.1 == paths[0]) {
                paths.iter().for_each(|path| self.begin(mount, path, from));
            }
        }
    }

    /// What began at the moment `from` is over.
    pub(crate) fn end(&mut self, from: u64, now: u64) {
        self.uses.iter_mut().filter(|of| of.from == from).for_each(|of| of.to = now);
    }

    /// The change that began at the moment `from` has an answer.
    pub(crate) fn named(&mut self, from: u64, now: u64, is_done: bool) {
        self.end(from, now);
        let places = self.uses.iter().filter(|of| of.from == from).map(|of| of.place.clone());
        let places: Vec<Place> = places.collect();
        // Where a folder gets another name, there are many pairs.
        for pair in places.chunks(2) {
            for of in [&mut self.kept, &mut self.unclear] {
                if pair.iter().any(|place| of.contains(place)) {
                    of.extend(pair.iter().cloned());
                }
            }
            let [old, new] = pair else { continue };
            // Who writes the file that is renamed writes the new name.
            let is_open = |of: &&Use| of.place == *old && of.to >= from && of.from != from;
            let moved = |of: &Use| Use { place: new.clone(), ..of.clone() };
            let moved: Vec<Use> = self.uses.iter().filter(is_open).map(moved).collect();
            let is_new = |of: &Use| !self.uses.contains(of);
            let moved: Vec<Use> = moved.into_iter().filter(is_new).collect();
            self.uses.extend(moved);
        }
        if !is_done {
            self.unclear.extend(places);
        }
    }

    /// Whether programs of the mount leave a name alone between two moments, but for what began at the moment `own`.
    fn is_left_alone(&self, place: &Place, (from, to): (u64, u64), own: Option<u64>) -> bool {
        let mut uses = self.uses.iter().filter(|of| of.place == *place && Some(of.from) != own);
        uses.all(|of| of.to < from || of.from > to)
    }

    /// Whether nobody else of the mount could write to a file since `asked`.
    pub(crate) fn was_last(&self, opened: &Opened, (asked, now): (u64, u64)) -> bool {
        self.is_left_alone(&opened.place(), (asked, now), Some(opened.asked))
    }

    /// Whether nobody else of the mount has had to do with the file since it was opened.
    pub(crate) fn is_alone(&self, opened: &Opened, now: u64) -> bool {
        let place = opened.place();
        !self.unclear.contains(&place) && self.is_left_alone(&place, (opened.asked, now), Some(opened.asked))
    }

    /// An `open` for writing has failed, and may have emptied or made the file.
    pub(crate) fn failed_to_open(&mut self, mount: usize, path: &str, from: u64, now: u64) {
        self.end(from, now);
        self.unclear.insert((mount, path.to_owned()));
    }

    /// A `close` says that the bytes are kept, and they may not be in the store yet.
    pub(crate) fn keep(&mut self, opened: &Opened) {
        // Its name, and those that it was renamed to.
        let moved = self.uses.iter().filter(|of| of.from == opened.asked).map(|of| of.place.clone());
        let places: Vec<Place> = moved.chain([opened.place()]).collect();
        self.kept.extend(places.iter().cloned());
        self.unclear.extend(places);
    }

    /// What was set of a file is kept, and may not be in the store yet.
    pub(crate) fn keep_name(&mut self, mount: usize, path: &str) {
        self.kept.insert((mount, path.to_owned()));
        self.unclear.insert((mount, path.to_owned()));
    }

    /// Whether `open` may tell, once, that what was kept is lost (promise 25).
    pub(crate) fn tells_loss(&mut self, mount: usize, path: &str) -> bool {
        self.kept.remove(&(mount, path.to_owned()))
    }

    /// A `close` tells of a conflict. Who then opens the file anew has the version that is there, so he meets another one
    /// only where somebody else changes the object once more.
    pub(crate) fn conflict(&mut self, opened: &Opened, (asked, now): (u64, u64)) -> Check {
        let place = opened.place();
        let Some((before, told)) = self.conflicts.insert(place, (asked, now)) else { return Ok(()) };
        let is_others = |by: By| !matches!(by, By::Mount(number) if number % LIVES == opened.mount);
        let versions = self.store.versions(&opened.path);
        let has_changed = versions.iter().any(|version| version.tick >= before && is_others(version.by));
        if opened.asked <= told || has_changed || !self.is_alone(opened, now) {
            return Ok(());
        }
        let what =
            format!("{} met a conflict at [{told}] already, and nobody has changed it since", opened.path);
        Err(broken(Rule::Errno, what))
    }

    /// A `close` says that what was written is stored. Whoever has replaced it since has to have seen it.
    pub(crate) fn stored(
        &self,
        opened: &Opened,
        now: u64,
        check: impl Fn(&[u8]) -> Result<(), String>,
    ) -> Check {
        if !self.is_alone(opened, now) {
            return Ok(());
        }
        let versions = self.store.versions(&opened.path);
        let mut wrong = "it was never there".to_owned();
        for version in live(&versions, opened.asked, now) {
            let Some(bytes) = &version.bytes else { continue };
            match check(bytes) {
                Ok(()) => return Ok(()),
                Err(text) => wrong = text,
            }
        }
        let what = format!("{} in the store is not what was acknowledged: {wrong}", opened.path);
        Err(broken(Rule::Stored, what))
    }

    /// A mount has shown something of a name between two moments: one of the versions that `may_be`.
    fn show(
        &mut self,
        place: Place,
        (from, to): (u64, u64),
        what: &str,
        may_be: impl Fn(Option<&Version>) -> bool,
    ) -> Check {
        if self.unclear.contains(&place) || !self.is_left_alone(&place, (from, to), None) {
            return Ok(());
        }
        let held = self.store.versions(&place.1);
        let numbered = std::iter::once(None).chain(held.iter().map(Some)).enumerate();
        let mut versions: Vec<usize> =
            numbered.filter(|(_, version)| may_be(*version)).map(|(number, _)| number).collect();
        // What is read of one open file is of one version.
        let before = self.showings.iter().position(|of| of.place == place && of.from == from);
        if let Some(before) = before.map(|before| &self.showings[before].versions) {
            versions.retain(|version| before.contains(version));
        }
        let (Some(least), Some(most)) = (versions.first(), versions.last()) else {
            return Err(broken(Rule::Whole, format!("{what} is of no version of {}", place.1)));
        };
        for other in self.showings.iter().filter(|other| other.place == place) {
            let (Some(first), Some(last)) = (other.versions.first(), other.versions.last()) else { continue };
            if (other.to < from && most < first) || (to < other.from && last < least) {
                let what = format!(
                    "{what} is of the versions {versions:?} of {}, and between [{}] and [{}] they were {:?}",
                    place.1, other.from, other.to, other.versions
                );
                return Err(broken(Rule::Back, what));
            }
        }
        match before {
            Some(before) => (self.showings[before].to, self.showings[before].versions) = (to, versions),
            None => self.showings.push(Showing { place, from, to, versions }),
        }
        Ok(())
    }

    /// A program that only reads has read bytes.
    pub(crate) fn read(&mut self, opened: &Opened, now: u64, cells: Range<u64>, bytes: &[u8]) -> Check {
        let (at, most) = ((cells.start * CELL) as usize, ((cells.end - cells.start) * CELL) as usize);
        let is_of = |version: &Version| {
            let Some(whole) = &version.bytes else { return false };
            let rest = whole.get(at..).unwrap_or_default();
            // A read that comes to what is gone ends before it; the next one fails.
            let is_cut = !bytes.is_empty() && bytes.len() < most;
            rest.starts_with(bytes) && (is_cut || bytes.len() == most.min(rest.len()))
        };
        let what = format!("{} at {}", shown(&decode(bytes, cells.start)), cells.start);
        self.show(opened.place(), (opened.asked, now), &what, |version| version.is_some_and(is_of))
    }

    /// `stat` has shown a size, or that there is nothing.
    pub(crate) fn stat(&mut self, place: Place, between: (u64, u64), size: Option<u64>) -> Check {
        let length = |version: &Version| version.bytes.as_ref().map(|bytes| bytes.len() as u64);
        let what = format!("the size {size:?}");
        self.show(place, between, &what, |version| version.and_then(length) == size)
    }

    /// A listing has shown these names of a folder, and no others.
    pub(crate) fn listed(
        &mut self,
        (mount, folder): (usize, &str),
        (since, asked, now): (u64, u64, u64),
        names: &[String],
    ) -> Check {
        for path in self.store.ever() {
            let name = match path.rsplit_once('/') {
                Some((of, name)) if of == folder => name,
                None if folder.is_empty() => &path,
                _ => continue,
            };
            let is_there = names.iter().any(|shown| shown == name);
            let is_so = |version: Option<&Version>| {
                version.is_some_and(|version| version.bytes.is_some()) == is_there
            };
            let what = format!("a listing {} it", if is_there { "with" } else { "without" });
            let place = (mount, path.clone());
            self.show(place.clone(), (asked, now), &what, is_so)?;
            // In a walk, the listing of a folder may be older.
            if folder.is_empty() && !self.was_there(&place, (since, now), is_there) {
                let what = format!(
                    "{what} ({path}) is older than the moment [{since}], and the call is of [{asked}]"
                );
                return Err(broken(Rule::Fresh, what));
            }
        }
        Ok(())
    }

    /// Whether a name was there, or was not, at some moment between two, as far as is known.
    fn was_there(&self, place: &Place, (from, to): (u64, u64), is_there: bool) -> bool {
        let versions = self.store.versions(&place.1);
        let was_nothing = versions.first().is_none_or(|first| first.tick >= from);
        self.unclear.contains(place)
            || !self.is_left_alone(place, (from, to), None)
            || live(&versions, from, to).iter().any(|version| version.bytes.is_some() == is_there)
            || (was_nothing && !is_there)
    }

    /// The daemon of a mount was killed: the next one has shown nothing, and nobody writes there.
    pub(crate) fn killed(&mut self, mount: usize) {
        let is_there = |place: &Place| place.0 == mount;
        self.uses.retain(|of| !is_there(&of.place));
        self.showings.retain(|of| !is_there(&of.place));
        self.kept.retain(|place| !is_there(place));
        self.unclear.retain(|place| !is_there(place));
        self.conflicts.retain(|place, _| !is_there(place));
    }
}

//! Daemons that die, and what the next one goes on with: all that was acknowledged, and nothing of what was being
//! written.
//!
//! What the dead daemon has sent may be done for a while yet. Until then, names of files that were being written may
//! stand for anything. After that, they stand for what the store has.

use std::collections::BTreeSet;

use super::Judge;
use super::death::{Death, GoesOn};
use super::folder_names::folder_of;
use crate::content::{CellContent, decode};
use crate::history::{Edit, File, NEVER, Target, Value};
use crate::opened::Opened;
use crate::promise::{Check, Rule, broken};
use crate::store::{SimStore, live};

impl Judge {
    /// A daemon has died. What was acknowledged has to be in the store. Returns the number of its death.
    ///
    /// # Errors
    /// When something is not there.
    pub fn died(&mut self, store: &SimStore) -> Result<usize, crate::promise::Broken> {
        let now = self.ticks.next();
        for path in self.all_paths(store) {
            if !self.is_moving(&path, now, now) {
                self.survives(&path, now, store)?;
            }
        }
        let open = |at: &usize| self.writers[*at].2 == NEVER && !self.opening.contains(at);
        let is_kept = |at: &usize| self.writers[*at].0.is_some_and(|file| self.is_gone_on_with(file, now));
        let writers: BTreeSet<usize> =
            (0..self.writers.len()).filter(open).filter(|at| !is_kept(at)).collect();
        let mut lost: BTreeSet<usize> = writers.iter().filter_map(|at| self.writers[*at].0).collect();
        // What was appended and closed may not be stored yet (promise 44).
        lost.extend(self.kept.keys().filter(|file| !self.is_gone_on_with(**file, now)));
        let is_unsure = writers.iter().any(|at| self.writers[*at].0.is_none());
        let is_in_doubt = |target: &Target| match target {
            Target::File(file) => lost.contains(file) || (is_unsure && self.files[*file].is_unknown),
            Target::Unknown => is_unsure,
            Target::Nothing => false,
        };
        let paths = self.paths().into_iter();
        let paths: Vec<String> =
            paths.filter(|path| self.targets(path, now, now).iter().any(is_in_doubt)).collect();
        let names = paths.into_iter().map(|path| (path.clone(), self.name(&path).ask(now, Target::Unknown)));
        let names = names.collect();
        // Attributes may be written later than they were set, and be lost (promise 40).
        self.files.iter_mut().for_each(|file| file.doubt_sets(now));
        let folders: Vec<String> =
            self.folders.names.keys().filter(|path| self.may_vanish(path, now)).cloned().collect();
        let folders = folders.into_iter().map(|path| {
            let name = self.folders.names.entry(path.clone()).or_default();
            (path, name.ask(now, Target::Unknown))
        });
        let folders = folders.collect();
        let written = BTreeSet::new();
        self.deaths.push(Death { at: now, settled: NEVER, lost, writers, written, names, folders });
        Ok(self.deaths.len() - 1)
    }

    /// Whether the next daemon goes on with a file that is being written.
    fn is_gone_on_with(&self, of: usize, now: u64) -> bool {
        let file = &self.files[of];
        let is_stored = (file.stored > 0 || !file.is_new()) && !file.may_change(file.stored, now);
        let is_copied = self.copies.iter().any(|(to, _)| to.is_none_or(|to| to == of));
        let goes_on = match self.goes_on {
            GoesOn::Nothing => false,
            GoesOn::Stored => is_stored,
            GoesOn::All => is_stored || !self.may_be_renamed(of, now),
        };
        goes_on && !file.is_unknown && !is_copied
    }

    /// Whether a file may have got another name, or lost its name, since it was opened by who writes it.
    fn may_be_renamed(&self, of: usize, now: u64) -> bool {
        let writers = self.writers.iter().filter(|writer| writer.0 == Some(of));
        let Some(since) = writers.map(|writer| writer.1).min() else { return true };
        let is_it = |target: &Target| matches!(target, Target::Unknown) || *target == Target::File(of);
        let mut names =
            self.names.iter().filter(|(path, _)| self.targets(path, since, now).iter().any(is_it));
        // Who has made the file has changed its name once.
        let (name, others) = (names.next(), names.next());
        others.is_some()
            || name.is_none_or(|(path, name)| {
                name.may_change_times(2, since, now) || self.is_moving(path, since, now)
            })
    }

    /// A program has written a file.
    pub(super) fn edited_after_deaths(&mut self, file: usize) {
        for death in self.deaths.iter_mut().filter(|death| death.lost.contains(&file)) {
            death.written.insert(file);
        }
    }

    /// Whether a program that had a file open when a daemon died may have gone on to write it, or may yet.
    fn may_be_gone_on_with(&self, death: usize, target: Target) -> bool {
        let Death { writers, written, .. } = &self.deaths[death];
        let is_open = |file: usize| {
            writers
                .iter()
                .map(|at| &self.writers[*at])
                .any(|writer| writer.2 == NEVER && writer.0.is_none_or(|of| of == file))
        };
        match target {
            Target::File(file) => self.has_orphan_edits || written.contains(&file) || is_open(file),
            Target::Nothing | Target::Unknown => false,
        }
    }

    /// Whether a folder is one that only the daemon knows of: it has no object, and none in it.
    fn may_vanish(&self, folder: &str, now: u64) -> bool {
        let targets = self.folders.targets(folder, now, now);
        let is_marked =
            |target: &Target| matches!(target, Target::File(of) if self.folders.marked.contains(of));
        let is_sure = |path: &String| {
            matches!(self.targets(path, now, now)[..], [Target::File(file)]
                if self.files[file].stored > 0 && !self.has_writers(file, now))
        };
        let mut paths = self.names.keys().filter(|path| folder_of(path) == folder);
        targets != [Target::Nothing] && !targets.iter().all(is_marked) && !paths.any(is_sure)
    }

    /// Nothing is under way any more of what a dead daemon has sent. Names of files that were being written stand for
    /// what the store has, unless they were used since.
    ///
    /// # Errors
    /// When the store has something else than the file may have been.
    pub fn settled(&mut self, death: usize, store: &SimStore) -> Check {
        let now = self.ticks.next();
        let at = self.deaths[death].at;
        self.deaths[death].settled = now;
        for (path, change) in self.deaths[death].names.clone() {
            let targets: Vec<Target> = self.targets(&path, at.saturating_sub(1), at);
            self.name(&path).answer(change, now);
            // What nobody knows for sure may be gone on with, too, and be stored at any time.
            let is_used = self.goes_on == GoesOn::All || self.was_used(&path, death, now);
            if is_used || targets.iter().any(|target| self.may_be_gone_on_with(death, *target)) {
                continue;
            }
            self.is_one_of(&path, &targets, at, store)?;
            let target = self.target_in(store, &path);
            let now = self.ticks.next();
            self.name(&path).change(now, now, target);
        }
        for (path, change) in self.deaths[death].folders.clone() {
            let prefix = format!("{path}/");
            let is_there = store.keys().iter().any(|key| key.starts_with(&prefix));
            let targets = self.folders.targets(&path, at.saturating_sub(1), at);
            let known = targets.into_iter().find(|target| matches!(target, Target::File(_)));
            let name = self.folders.names.entry(path).or_default();
            name.answer(change, now);
            if let Some(known) = known.filter(|_| is_there && !name.may_change_times(2, at, now)) {
                let now = self.ticks.next();
                name.change(now, now, known);
            }
        }
        Ok(())
    }

    /// Whether a name was changed, or opened for writing, since a daemon has died.
    fn was_used(&mut self, path: &str, death: usize, now: u64) -> bool {
        let Death { at, writers, .. } = &self.deaths[death];
        let is_other = |(number, writer): (usize, &(Option<usize>, u64, u64))| {
            !writers.contains(&number) && writer.2 >= *at && self.writer_paths[number] == path
        };
        self.writers.iter().enumerate().any(is_other)
            || self.is_moving(path, *at, now)
            || self.names.get(path).is_some_and(|name| name.may_change_times(2, *at, now))
    }

    /// Whether the store has one of some files, or none of this name if that is right, too.
    fn is_one_of(&self, path: &str, targets: &[Target], to: u64, store: &SimStore) -> Check {
        let bytes = store.bytes(path);
        let mut wrong = "it may be nothing of it".to_owned();
        for target in targets {
            let file = match target {
                Target::Unknown => return Ok(()),
                Target::Nothing if bytes.is_none() => return Ok(()),
                Target::Nothing => continue,
                Target::File(file) => &self.files[*file],
            };
            if file.stored == 0 && file.is_new() {
                return Ok(());
            }
            match &bytes {
                None => "it is not there".clone_into(&mut wrong),
                Some(bytes) => match file.check_whole(bytes, file.stored, to) {
                    Ok(()) => return Ok(()),
                    Err(text) => wrong = text,
                },
            }
        }
        let what = format!("after the death at [{to}], {path} in the store is wrong: {wrong}");
        Err(broken(Rule::Stored, what))
    }

    /// What a name stands for in the store: a file of the model that is new.
    pub(super) fn target_in(&mut self, store: &SimStore, path: &str) -> Target {
        let Some(bytes) = store.bytes(path) else { return Target::Nothing };
        let asked = self.ticks.next();
        let mut file = File::default();
        for (cells, found) in decode(&bytes, 0) {
            let value = match found {
                CellContent::Written(tag) => Value::Written(tag),
                _ => Value::Zeros,
            };
            let edit = file.ask(asked, Edit::Write(cells, value));
            file.answer(edit, self.ticks.next());
        }
        file.stored = self.ticks.next();
        self.files.push(file);
        Target::File(self.files.len() - 1)
    }

    /// A file was opened for writing while a daemon has died: by which one, nobody knows.
    pub(super) fn opened_by_dead(&mut self, opened: &Opened, asked: u64, now: u64) {
        let Some(file) = opened.file.filter(|_| opened.changes()) else { return };
        let dead: Vec<usize> =
            (0..self.deaths.len()).filter(|of| (asked..=now).contains(&self.deaths[*of].at)).collect();
        for death in dead {
            let Death { at, settled, .. } = self.deaths[death];
            self.deaths[death].lost.insert(file);
            let is_it = |path: &String| self.targets(path, asked, now).contains(&Target::File(file));
            for path in self.paths().into_iter().filter(is_it).collect::<Vec<_>>() {
                let change = self.name(&path).ask(at, Target::Unknown);
                match settled {
                    NEVER => self.deaths[death].names.push((path, change)),
                    _ => self.name(&path).answer(change, now),
                }
            }
        }
    }

    /// Whether an open file is one of those that were being written when a daemon has died.
    pub fn may_be_lost(&self, opened: &Opened) -> bool {
        self.deaths.iter().any(|death| {
            let is_lost = |file: usize| death.lost.contains(&file);
            let is_writer = opened.writer.is_some_and(|writer| death.writers.contains(&writer));
            opened.asked <= death.at && (is_writer || opened.file.is_none_or(is_lost))
        })
    }

    /// Whether the daemon that had a file open has died.
    pub fn was_orphaned(&self, opened: &Opened) -> bool {
        self.deaths.iter().any(|death| opened.asked <= death.at)
    }

    /// How often a name may have become stale between two moments: the kernel looks it up again once.
    pub(super) fn stale_times(&self, path: &str, from: u64, to: u64) -> usize {
        let is_then = |death: &&Death| {
            let was_before = death.at < from && death.settled >= from;
            (from..=to).contains(&death.at) || (was_before && death.names.iter().any(|name| name.0 == path))
        };
        self.deaths.iter().filter(is_then).count()
    }

    /// A `close` that was asked for at the moment `asked` says that all of a file is stored, which was being written
    /// when a daemon has died.
    ///
    /// # Errors
    /// When it is not.
    pub fn outlived(&self, store: &SimStore, opened: &Opened, asked: u64) -> Check {
        let now = self.ticks.now();
        let is_lost = |death: &Death| opened.file.is_some_and(|file| death.lost.contains(&file));
        let is_between = |death: &&Death| opened.answered < death.at && death.at < asked && is_lost(death);
        let (Some(death), Some(file)) = (self.deaths.iter().rfind(is_between), opened.file) else {
            return Ok(());
        };
        for path in self.names.keys() {
            let targets = self.targets(path, death.at, now);
            let is_it = |target: &Target| matches!(target, Target::Unknown) || *target == Target::File(file);
            if !targets.contains(&Target::File(file)) || !targets.iter().all(is_it) {
                continue;
            }
            let versions = store.versions(path);
            let live = live(&versions, death.at, now);
            let stored = live.iter().filter_map(|version| version.bytes.as_ref());
            let checked: Vec<_> =
                stored.map(|bytes| self.files[file].check_whole(bytes, death.at, now)).collect();
            if checked.iter().all(Result::is_err) {
                let what = format!(
                    "the close of {path} says that all is stored, and the daemon that had it died at [{}]: {checked:?}",
                    death.at
                );
                return Err(broken(Rule::Stored, what));
            }
        }
        Ok(())
    }
}

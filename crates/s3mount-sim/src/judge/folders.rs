//! Folders, compared with the model.
//!
//! A folder has a name of its own in the model, and files below it have paths. While a folder's name changes, nobody
//! knows which of its names a path leads to: a call that has found the folder before goes on in it, wherever it is
//! by then. So of paths below such a folder, only what they can't be is wrong. Once the folder has its new name, all paths
//! below it have changed in one step.

use super::Judge;
use super::folder_names::{FolderChange, Move, folder_of, last_of};
use crate::history::{NEVER, Target};
use crate::promise::{Broken, Check, Rule, broken};
use crate::store::SimStore;

impl Judge {
    /// Whether the folder of a path may be another one at some time between two moments.
    pub(super) fn is_moving(&self, path: &str, from: u64, to: u64) -> bool {
        self.folders.is_moving(folder_of(path), from, to)
    }

    /// Whether a path may have no folder at some time between two moments, or two: who has found the one that was replaced
    /// finds nothing in it, and can't make anything there.
    pub(super) fn may_lack_folder(&self, path: &str, from: u64, to: u64) -> bool {
        !matches!(self.folders.targets(folder_of(path), from, to)[..], [Target::File(_)])
    }

    /// Whether a path may have a folder at some time between two moments.
    pub(super) fn may_have_folder(&self, path: &str, from: u64, to: u64) -> bool {
        self.folders.targets(folder_of(path), from, to).iter().any(|target| *target != Target::Nothing)
    }

    /// The paths that may be meant by a path whose folder gets other names between two moments, and the path itself.
    pub(super) fn aliases(&self, path: &str, from: u64, to: u64) -> Vec<String> {
        let mut folders = vec![folder_of(path).to_owned()];
        let mut at = 0;
        while let Some(folder) = folders.get(at).cloned() {
            at += 1;
            for of in self.folders.moves(&folder, from, to).filter(|of| of.from == folder) {
                if !folders.contains(&of.to) {
                    folders.push(of.to.clone());
                }
            }
        }
        let within = |folder: String| match folder.is_empty() {
            true => path.to_owned(),
            false => format!("{folder}/{}", last_of(path)),
        };
        folders.into_iter().map(within).collect()
    }

    /// What a call that uses a path may find between two moments.
    pub(super) fn found(&self, path: &str, from: u64, to: u64) -> Vec<Target> {
        if self.is_shared() || !self.is_moving(path, from, to) {
            let mut targets = self.targets(path, from, to);
            if self.has_come_back(path, from, to) && !targets.contains(&Target::Unknown) {
                targets.push(Target::Unknown);
            }
            return targets;
        }
        let aliases = self.aliases(path, from, to);
        let mut targets: Vec<Target> = aliases.iter().flat_map(|path| self.targets(path, from, to)).collect();
        targets.extend([Target::Nothing, Target::Unknown]);
        targets.sort();
        targets.dedup();
        targets
    }

    /// A call has changed one of the names that a path may mean, and nobody knows which one.
    pub(super) fn confuse(&mut self, path: &str, from: u64, to: u64) {
        for path in self.aliases(path, from, to) {
            self.name(&path).change(from, to, Target::Unknown);
        }
    }

    /// The names of files that were ever used below a folder.
    pub(super) fn leaves(&self, folder: &str) -> Vec<String> {
        let all = self.names.keys().filter(|path| folder_of(path) == folder);
        all.map(|path| last_of(path).to_owned()).collect()
    }

    /// The names that any of two folders ever had.
    pub(super) fn leaves_of_both(&self, of: (&str, &str)) -> Vec<String> {
        let mut leaves = self.leaves(of.0);
        leaves.extend(self.leaves(of.1));
        leaves.sort();
        leaves.dedup();
        leaves
    }

    /// Whether a folder may be empty at some time between two moments, and whether it may hold something.
    fn may_be_empty(&self, folder: &str, from: u64, to: u64) -> (bool, bool) {
        if self.folders.moves(folder, from, to).nth(1).is_some() {
            // Another folder may have had the name meanwhile.
            return (true, true);
        }
        let (mut may_be, mut may_hold) = (true, false);
        for leaf in self.leaves(folder) {
            let targets = self.targets(&format!("{folder}/{leaf}"), from, to);
            may_be &= targets.iter().any(|target| !matches!(target, Target::File(_)));
            may_hold |= targets.iter().any(|target| *target != Target::Nothing);
        }
        (may_be, may_hold)
    }

    fn ask_folder(&mut self, path: &str, asked: u64, target: Target) -> (String, usize) {
        let name = self.folders.names.entry(path.to_owned()).or_default();
        (path.to_owned(), name.ask(asked, target))
    }

    /// A program makes a folder.
    pub fn make_folder(&mut self, mount: usize, path: &str, has_marker: bool) -> FolderChange {
        let asked = self.ticks.next();
        let path = path.to_owned();
        let mut changes = Vec::new();
        if !self.is_shared() {
            self.folders.made += 1;
            if has_marker {
                self.folders.marked.push(self.folders.made);
            }
            changes.push(self.ask_folder(&path, asked, Target::File(self.folders.made)));
        }
        FolderChange { asked, mount, path, to: None, changes }
    }

    /// A program removes a folder.
    pub fn remove_folder(&mut self, mount: usize, path: &str) -> FolderChange {
        let asked = self.ticks.next();
        let path = path.to_owned();
        let mut changes = Vec::new();
        if !self.is_shared() {
            changes.push(self.ask_folder(&path, asked, Target::Nothing));
        }
        FolderChange { asked, mount, path, to: None, changes }
    }

    /// A program gives a folder another name.
    pub fn rename_folder(&mut self, mount: usize, from: &str, to: &str) -> FolderChange {
        let asked = self.ticks.next();
        let (path, to) = (from.to_owned(), to.to_owned());
        let mut changes = Vec::new();
        if let Some(shared) = &mut self.shared {
            shared.begin_folder(mount, (&path, &to), asked);
        } else if path != to {
            let target = match self.folders.targets(&path, asked, asked)[..] {
                [target @ Target::File(_)] => target,
                _ => Target::Unknown,
            };
            changes.push(self.ask_folder(&path, asked, Target::Nothing));
            changes.push(self.ask_folder(&to, asked, target));
            self.folders.moves.push(Move { from: path.clone(), to: to.clone(), asked, answered: NEVER });
        }
        FolderChange { asked, mount, path, to: Some(to), changes }
    }

    /// The fewest and the most objects that a folder may have between two moments, its own among them.
    fn objects(&self, folder: &str, from: u64, to: u64) -> (usize, usize) {
        let (mut least, mut most) = (0, 0);
        for leaf in self.leaves(folder) {
            let targets = self.targets(&format!("{folder}/{leaf}"), from, to);
            most += usize::from(targets.iter().any(|target| *target != Target::Nothing));
            let is_stored = |file: usize| self.files[file].stored > 0 && !self.has_writers(file, from);
            least += usize::from(matches!(targets[..], [Target::File(file)] if is_stored(file)));
        }
        let is_marked = !self.folders.marked.is_empty();
        (least, most + usize::from(is_marked))
    }

    /// Whether somebody may have a file open for writing since a moment.
    pub(super) fn has_writers(&self, file: usize, since: u64) -> bool {
        self.writers.iter().any(|writer| writer.0.is_none_or(|of| of == file) && writer.2 >= since)
    }

    /// The change of a folder has an answer.
    ///
    /// # Errors
    /// When it should have another, or when the store has not what it should have by now.
    pub fn folder_changed(
        &mut self,
        change: FolderChange,
        answer: Result<(), i32>,
        limit: usize,
        store: &SimStore,
    ) -> Check {
        let now = self.ticks.next();
        let FolderChange { asked, mount, path, to, changes } = change;
        if let Some(shared) = &mut self.shared {
            if let Some(to) = &to {
                shared.begin_folder(mount, (&path, to), asked);
                shared.named(asked, now, answer.is_ok());
            }
            // If others take a copy away while the folder moves, the store has lost it, as far as the mount can tell.
            let right = [libc::ENOENT, libc::EEXIST, libc::ENOTEMPTY, libc::ESTALE, libc::EXDEV, libc::EIO];
            return match answer {
                Err(errno) if !right.contains(&errno) => {
                    Err(broken(Rule::Errno, format!("{path} gave errno {errno}")))
                }
                _ => Ok(()),
            };
        }
        if answer == Err(libc::ENOTCONN) {
            return Err(broken(Rule::Errno, format!("{path} has no answer")));
        }
        let makes = to.is_none()
            && changes
                .iter()
                .any(|(path, change)| self.folders.names[path].asks_for(*change) != Target::Nothing);
        let own: Vec<(String, usize, Target)> = changes
            .into_iter()
            .map(|(path, change)| {
                let target = self.folders.names.entry(path.clone()).or_default().take(change);
                (path, change, target)
            })
            .collect();
        let targets = self.folders.targets(&path, asked, now);
        let verdict = match &to {
            Some(to) => self.renames((&path, to), (asked, now), answer, limit),
            None => self.makes_or_removes(&path, makes, (asked, now), answer),
        };
        let is_done = answer.is_ok() && path != *to.as_deref().unwrap_or_default();
        self.folders.end(asked, now, is_done);
        verdict?;
        if !is_done {
            return Ok(());
        }
        let source = match targets[..] {
            [target] => target,
            _ => {
                match targets.iter().filter(|target| matches!(target, Target::File(_))).collect::<Vec<_>>()[..]
                {
                    [target] => *target,
                    _ => Target::Unknown,
                }
            }
        };
        for (at, (path, change, target)) in own.into_iter().enumerate() {
            let target = if at == 1 { source } else { target };
            let name = self.folders.names.entry(path).or_default();
            name.turn(change, target);
            *name = std::mem::take(name).redone(change, asked, now);
        }
        match &to {
            Some(to) => self.moved((&path, to), (asked, now), store),
            None if !makes => self.emptied(&path, (asked, now), store),
            None => Ok(()),
        }
    }

    fn makes_or_removes(
        &self,
        path: &str,
        makes: bool,
        (asked, now): (u64, u64),
        answer: Result<(), i32>,
    ) -> Check {
        let targets = self.folders.targets(path, asked, now);
        let may_lack = targets.iter().any(|target| !matches!(target, Target::File(_)));
        let may_be = targets.iter().any(|target| *target != Target::Nothing);
        let (may_be_empty, may_hold) = self.may_be_empty(path, asked, now);
        let call = if makes { "mkdir" } else { "rmdir" };
        let told = |what: &str| format!("{call} {what}, where the folder {path} may be {targets:?}");
        match (makes, answer) {
            (true, Ok(())) if !may_lack => Err(broken(Rule::Posix, told("made it"))),
            (true, Err(libc::EEXIST)) if may_be => Ok(()),
            (false, Ok(())) if !may_be => Err(broken(Rule::Posix, told("found it"))),
            (false, Ok(())) if !may_be_empty => Err(broken(Rule::Posix, told("found it empty"))),
            (false, Err(libc::ENOENT)) if may_lack => Ok(()),
            (false, Err(libc::ENOTEMPTY)) if may_be && may_hold => Ok(()),
            (_, Ok(())) => Ok(()),
            (_, Err(errno)) => Err(broken(Rule::Errno, told(&format!("gave errno {errno}")))),
        }
    }

    /// Whether the answer to the rename of a folder is right.
    fn renames(
        &self,
        (from, to): (&str, &str),
        (asked, now): (u64, u64),
        answer: Result<(), i32>,
        limit: usize,
    ) -> Check {
        let targets = [from, to].map(|path| self.folders.targets(path, asked, now));
        let is_nothing = |target: &Target| *target == Target::Nothing;
        let (may_be, may_lack) = (!targets[0].iter().all(is_nothing), targets[0].iter().any(is_nothing));
        let (may_be_empty, may_hold) = self.may_be_empty(to, asked, now);
        let is_taken = !targets[1].iter().any(is_nothing) && !may_be_empty && from != to;
        let (least, most) = self.objects(from, asked, now);
        let is_unsure = targets[0].contains(&Target::Unknown);
        let told = |what: &str| {
            format!(
                "rename {what}, where the folders {from} and {to} may be {targets:?}, with {least} to {most} objects"
            )
        };
        match answer {
            Ok(()) if !may_be => Err(broken(Rule::Posix, told("found it"))),
            Ok(()) if is_taken => Err(broken(Rule::Posix, told("replaced what is not empty"))),
            Ok(()) if least > limit && from != to && !self.is_behind => {
                Err(broken(Rule::Posix, told("did not keep to the limit")))
            }
            Ok(()) => Ok(()),
            Err(libc::ENOENT) if may_lack || is_unsure => Ok(()),
            Err(libc::ENOTEMPTY) if may_hold => Ok(()),
            Err(libc::EXDEV) if most > limit => Ok(()),
            Err(errno) => Err(broken(Rule::Errno, told(&format!("gave errno {errno}")))),
        }
    }

    /// A folder was removed, so it was empty.
    fn emptied(&mut self, path: &str, (asked, now): (u64, u64), store: &SimStore) -> Check {
        for leaf in self.leaves(path) {
            let path = format!("{path}/{leaf}");
            if self.targets(&path, asked, now).contains(&Target::Unknown) {
                self.name(&path).change(asked, now, Target::Nothing);
            }
        }
        self.has_no_marker(path, store)
    }

    /// A folder that is not there has no object.
    pub(super) fn has_no_marker(&self, path: &str, store: &SimStore) -> Check {
        let now = self.ticks.now();
        let is_gone = self.folders.targets(path, now, now) == [Target::Nothing];
        if is_gone && store.bytes(&format!("{path}/")).is_some() {
            return Err(broken(
                Rule::Stored,
                format!("the folder {path} is gone, and its object is in the store"),
            ));
        }
        Ok(())
    }

    /// A program has listed a folder. What it was shown may be as old as the moment `since`.
    ///
    /// # Errors
    /// When it should have shown something else.
    pub fn listed(
        &mut self,
        (mount, folder): (usize, &str),
        (since, asked): (u64, u64),
        answer: Result<Vec<String>, i32>,
    ) -> Check {
        let now = self.ticks.next();
        let targets = self.folders.targets(folder, asked, now);
        let told = |what: &str| format!("the list of {folder} {what}, and it may be {targets:?}");
        let names = match answer {
            Ok(names) => names,
            Err(libc::ENOENT) if self.is_shared() && !folder.is_empty() => return Ok(()),
            // A folder that another has replaced since it was opened shows nothing.
            Err(libc::ENOENT) if !matches!(targets[..], [Target::File(_)]) => return Ok(()),
            Err(errno) => return Err(broken(Rule::Errno, told(&format!("gave errno {errno}")))),
        };
        let is_twice = |at: &usize| names[..*at].contains(&names[*at]);
        if let Some(at) = (0..names.len()).find(is_twice) {
            return Err(broken(Rule::Posix, told(&format!("shows {} twice", names[at]))));
        }
        if let Some(shared) = &mut self.shared {
            return shared.listed((mount, folder), (since, asked, now), &names);
        }
        if targets == [Target::Nothing] {
            return Err(broken(Rule::Posix, told("found it")));
        }
        let below = |paths: Vec<String>| paths.into_iter().filter(|path| folder_of(path) == folder);
        for path in below(self.folders.names.keys().cloned().collect()) {
            let may_be = self.folders.targets(&path, asked, now);
            self.shows("list", &path, &may_be, names.iter().any(|name| name == last_of(&path)))?;
        }
        if self.folders.is_moving(folder, asked, now) {
            return self.is_not_half(folder, asked, &names);
        }
        for path in below(self.paths()) {
            self.shown("list", &path, asked, names.iter().any(|name| name == last_of(&path)))?;
        }
        let is_known = |name: &&String| {
            let path = if folder.is_empty() { (*name).clone() } else { format!("{folder}/{name}") };
            self.names.contains_key(&path) || self.folders.names.contains_key(&path)
        };
        match names.iter().find(|name| !is_known(name)) {
            Some(name) => Err(broken(Rule::Posix, told(&format!("shows {name}, which nobody has made")))),
            None => Ok(()),
        }
    }

    /// Compares the objects of folders with the model, once all is over.
    pub(super) fn finally_folders(&self, store: &SimStore) -> Check {
        let now = self.ticks.now();
        self.folders.names.keys().try_for_each(|path| {
            self.has_no_marker(path, store)?;
            match self.folders.targets(path, now, now)[..] {
                [Target::File(folder)] if self.folders.marked.contains(&folder) => {
                    let there = store.bytes(&format!("{path}/"));
                    let missing = || broken(Rule::Stored, format!("the folder {path} has no object"));
                    there.map(drop).ok_or_else(missing)
                }
                _ => Ok(()),
            }
        })
    }

    /// `open` has an answer that can't be, for the sake of its folder.
    pub(super) fn folder_of_opened(
        &self,
        path: &str,
        (asked, now): (u64, u64),
        answer: Result<(), i32>,
    ) -> Result<(), Broken> {
        if answer.is_ok() && !self.is_shared() && !self.may_have_folder(path, asked, now) {
            return Err(broken(Rule::Posix, format!("open({path}) found a folder that is not there")));
        }
        Ok(())
    }
}

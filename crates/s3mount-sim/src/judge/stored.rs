//! What the store holds, compared with the model.

use std::ops::Range;

use super::Judge;
use super::folder_names::Folders;
use crate::content::{CellContent, Tag, decode, shown};
use crate::history::{Name, Target};
use crate::opened::Opened;
use crate::promise::{Check, Rule, broken};
use crate::store::{By, SimStore, Version, live};

impl Judge {
    /// All that was written to a file is stored, says the store's mount: since `asked`, the call by which it was to be
    /// stored.
    ///
    /// # Errors
    /// When the store did not have it.
    pub fn stored(&mut self, store: &SimStore, opened: &Opened, asked: u64) -> Check {
        let now = self.ticks.next();
        let Some(file) = opened.file else { return Ok(()) };
        if let Some(shared) = &self.shared {
            return shared.stored(opened, now, |bytes| {
                self.files[file].check_whole(bytes, asked, now)?;
                self.lines(file, bytes).map_err(|wrong| wrong.what)
            });
        }
        let path = self.names.keys().find(|path| self.targets(path, asked, now) == [Target::File(file)]);
        let Some(path) = path.cloned() else { return Ok(()) };
        let versions = store.versions(&path);
        let mut live = live(&versions, asked, now).into_iter().peekable();
        if live.peek().is_none() {
            return Err(broken(Rule::Stored, format!("{path} is not in the store")));
        }
        let mut wrong = String::new();
        // Whoever changes nothing any more stores nothing of what others append, and leave unpublished (promise 44).
        let kept = self.kept.get(&file).copied().unwrap_or(asked);
        for version in live {
            match &version.bytes {
                Some(bytes) => match self.files[file].check_whole(bytes, asked, now) {
                    Ok(()) => {
                        self.files[file].stored = asked;
                        self.kept.remove(&file);
                        self.copies.retain(|copy| copy.0 != Some(file));
                        return Ok(());
                    }
                    Err(_) if self.files[file].check_whole(bytes, kept, now).is_ok() => return Ok(()),
                    Err(text) => wrong = text,
                },
                None => "it was deleted".clone_into(&mut wrong),
            }
        }
        Err(broken(Rule::Stored, format!("{path} in the store is not what was acknowledged: {wrong}")))
    }

    /// A `close` that was asked for at the moment `asked` tells that somebody else has changed the object.
    ///
    /// # Errors
    /// When nobody has.
    pub fn conflict(&mut self, opened: &Opened, asked: u64) -> Check {
        let now = self.ticks.next();
        // What it is a copy of may have been replaced (promise 37).
        if opened.file.is_some() && self.copies.iter().any(|(to, _)| *to == opened.file) {
            return Ok(());
        }
        self.shared.as_mut().map_or(Ok(()), |shared| shared.conflict(opened, (asked, now)))
    }

    /// A `close` says that the bytes are safe, which are stored later.
    ///
    /// # Errors
    /// None: it is seen when a daemon is killed, and in the end.
    pub fn acknowledged(&mut self, opened: &Opened, asked: u64) -> Check {
        if let Some(file) = opened.file.filter(|_| self.shared.is_none()) {
            self.files[file].stored = asked;
        }
        Ok(())
    }

    /// A `close` says that the bytes are kept, which are not stored by then.
    ///
    /// # Errors
    /// None: what is kept may yet be lost.
    pub fn kept(&mut self, opened: &Opened) -> Check {
        if opened.wrote || opened.has_emptied {
            self.shared.iter_mut().for_each(|shared| shared.keep(opened));
        }
        if let Some(file) = opened.file.filter(|_| opened.only_appends) {
            self.kept.entry(file).or_insert(opened.asked);
        }
        Ok(())
    }

    /// A name is gone from the store, unless somebody else has used it meanwhile.
    ///
    /// # Errors
    /// When it is there.
    pub fn gone(&self, store: &SimStore, path: &str) -> Check {
        let now = self.ticks.now();
        let is_there = store.bytes(path).is_some() && !self.has_come_back(path, now, now);
        if self.targets(path, now, now) == [Target::Nothing] && is_there {
            return Err(broken(Rule::Stored, format!("{path} was removed, and is in the store")));
        }
        Ok(())
    }

    /// All names that any program has used, or that were ever in the store.
    pub(super) fn all_paths(&self, store: &SimStore) -> Vec<String> {
        let mut paths = self.paths();
        paths.extend(store.ever().into_iter().filter(|path| !path.ends_with('/')));
        paths.sort();
        paths.dedup();
        paths
    }

    /// Compares the store with the model, once all is over.
    ///
    /// # Errors
    /// When they differ.
    pub fn finally(&self, store: &SimStore) -> Check {
        let now = self.ticks.next();
        self.finally_folders(store)?;
        let paths = self.all_paths(store);
        for path in &paths {
            match self.targets(path, now, now)[..] {
                [Target::File(file)] => {
                    let bytes = store.bytes(path);
                    let missing = || broken(Rule::Stored, format!("in the end, {path} is not in the store"));
                    let file_of = &self.files[file];
                    file_of.check_whole(&bytes.clone().ok_or_else(missing)?, now, now).map_err(|wrong| {
                        broken(Rule::Stored, format!("in the end, {path} in the store is wrong: {wrong}"))
                    })?;
                    self.lines(file, &bytes.unwrap_or_default())?;
                }
                [Target::Nothing] => self.gone(store, path)?,
                _ => {}
            }
        }
        // Objects of folders are replaced by nobody either who has not seen them.
        for path in paths
            .iter()
            .chain(&store.ever().into_iter().filter(|path| path.ends_with('/')).collect::<Vec<_>>())
        {
            let refused = store.refuses_conditions();
            for version in store.versions(path) {
                if !version.saw_before && version.by != By::Stranger && !refused {
                    let Version { by, operation, tick, .. } = version;
                    let what =
                        format!("{operation} of {by:?} at [{tick}] replaced {path}, which it had not seen");
                    return Err(broken(Rule::Unseen, what));
                }
                self.is_whole(path, &version)?;
            }
        }
        Ok(())
    }

    /// A daemon was killed, and nothing that it has sent is under way any more. What was acknowledged has to be in the
    /// store. From here on, the files are what the store has.
    ///
    /// # Errors
    /// When something is not there.
    pub fn killed(&mut self, store: &SimStore, mount: usize, is_recovered: bool) -> Check {
        if let Some(shared) = &mut self.shared {
            shared.killed(mount);
            return Ok(());
        }
        self.survive_moves(store, is_recovered)?;
        let now = self.ticks.next();
        let paths = self.all_paths(store);
        for path in &paths {
            self.survives(path, now, store)?;
        }
        self.folders = Folders::of(store.keys().iter().map(String::as_str));
        (self.names, self.appended, self.copies, self.writers, self.kept) = Default::default();
        (self.writer_paths, self.opening) = Default::default();
        for path in paths {
            if let Target::File(file) = self.target_in(store, &path) {
                self.names.insert(path, Name::of(file));
            }
        }
        Ok(())
    }

    /// Whether the store has of a name what the mount has acknowledged that was killed.
    pub(super) fn survives(&self, path: &str, now: u64, store: &SimStore) -> Check {
        let targets = self.targets(path, now, now);
        let bytes = store.bytes(path);
        let mut wrong = String::new();
        for target in &targets {
            let Target::File(file) = target else {
                if *target == Target::Unknown || bytes.is_none() || self.has_come_back(path, now, now) {
                    return Ok(());
                }
                "it was removed".clone_into(&mut wrong);
                continue;
            };
            let file = &self.files[*file];
            // Of a file that was never closed, nothing has to be there.
            if file.stored == 0 && file.is_new() {
                return Ok(());
            }
            match &bytes {
                None => "it is not there".clone_into(&mut wrong),
                Some(bytes) => match file.check_whole(bytes, file.stored, now) {
                    Ok(()) => return Ok(()),
                    Err(text) => wrong = text,
                },
            }
        }
        Err(broken(Rule::Stored, format!("after the kill, {path} in the store is wrong: {wrong}")))
    }

    /// Each line that was appended to a file is there once.
    fn lines(&self, file: usize, bytes: &[u8]) -> Check {
        if self.has_stray_edits || !self.files[file].only_grows() {
            return Ok(());
        }
        let runs = decode(bytes, 0);
        for (_, tag, cells) in self.appended.iter().filter(|(to, ..)| *to == file) {
            let found = runs.iter().filter(|run| run.1 == CellContent::Written(*tag));
            let count: u64 = found.map(|(range, _)| range.end - range.start).sum();
            if count != *cells {
                return Err(broken(
                    Rule::Stored,
                    format!("{count} of {cells} cells that {tag} appended: {}", shown(&runs)),
                ));
            }
        }
        Ok(())
    }

    /// What an object has of an open file whose program has not said that it is complete (promise 25).
    fn is_half(&self, path: &str, version: &Version, runs: &[(Range<u64>, CellContent)]) -> Option<Tag> {
        let is_synced = self.syncs.get(path).is_some_and(|asked| *asked <= version.tick);
        if version.operation != "PutObject" || is_synced || self.has_copied {
            return None;
        }
        let is_open = |tag: &Tag| {
            self.written.get(tag).is_some_and(|(handle, name)| {
                name == path && self.closes.get(handle).is_none_or(|asked| *asked > version.tick)
            })
        };
        runs.iter().find_map(|(_, found)| match found {
            CellContent::Written(tag) if is_open(tag) => Some(*tag),
            _ => None,
        })
    }

    /// Whether an object that a mount has written is what some file was at some time.
    fn is_whole(&self, path: &str, version: &Version) -> Check {
        let Some(bytes) = version.bytes.as_ref().filter(|_| version.by != By::Stranger) else {
            return Ok(());
        };
        // The object of a folder has no bytes (promise 30).
        if path.ends_with('/') && bytes.is_empty() {
            return Ok(());
        }
        let runs = decode(bytes, 0);
        if runs.iter().any(|run| matches!(run.1, CellContent::Garbage | CellContent::Misplaced(..))) {
            return Err(broken(Rule::Whole, format!("{path} at [{}] was {}", version.tick, shown(&runs))));
        }
        if let Some(tag) = self.is_half(path, version, &runs) {
            let what =
                format!("{path} at [{}] has {tag}, which was not closed: {}", version.tick, shown(&runs));
            return Err(broken(Rule::Whole, what));
        }
        if self.is_shared()
            || self.is_unsure
            || self.files.iter().any(|file| file.check_whole(bytes, 0, version.tick).is_ok())
        {
            return Ok(());
        }
        Err(broken(Rule::Whole, format!("{path} at [{}] was no file: {}", version.tick, shown(&runs))))
    }
}

//! What is right: a file system that is too simple to be wrong, and what was shown and stored compared with it.

mod attributes;
mod death;
mod folder_names;
mod folders;
mod moved;
mod names;
mod stored;
mod taken_over;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use self::death::Death;
pub use self::death::GoesOn;
pub use self::folder_names::FolderChange;
use self::folder_names::Folders;
use crate::content::{CELL, COMMON, CellContent, Tag, decode, shown};
use crate::history::{Edit, File, NEVER, Name, Target, Value};
use crate::opened::Opened;
use crate::promise::{Broken, Check, Rule, broken};
use crate::shared::Shared;
use crate::store::SimStore;
use crate::ticks::Ticks;

/// What the programs of a mount share.
#[derive(Debug)]
pub struct Judge {
    files: Vec<File>,
    names: BTreeMap<String, Name>,
    folders: Folders,
    /// What was appended, to which file.
    appended: Vec<(usize, Tag, u64)>,
    /// Files that bytes were copied to since they were stored, where it is known which, and as what their source was
    /// open.
    copies: Vec<(Option<usize>, Opened)>,
    store: Arc<SimStore>,
    /// What is known where others change the bucket, too. Then names say nothing.
    shared: Option<Shared>,
    /// Whether somebody writes a file of which nobody knows which one it is.
    is_unsure: bool,
    /// Whether somebody has changed such a file otherwise than by appending.
    has_stray_edits: bool,
    /// Open files that may write, and files that are being opened so: the file if it is known, and the moments at which
    /// `open` was asked for and `close` answered.
    writers: Vec<(Option<usize>, u64, u64)>,
    /// The names by which they were opened.
    writer_paths: Vec<String>,
    /// Those of which the `open` has no answer yet.
    opening: BTreeSet<usize>,
    /// Daemons that have died, and others have taken over.
    deaths: Vec<Death>,
    /// What those go on with of what was being written.
    goes_on: GoesOn,
    /// Whether a program has written a file of which nobody knows which one it is, through a daemon that did not open it.
    has_orphan_edits: bool,
    /// Who has written what by which name, as the moment at which he has opened it.
    written: BTreeMap<Tag, (u64, String)>,
    /// When open files were asked to close, by the moment at which they were opened.
    closes: BTreeMap<u64, u64>,
    /// When names were first asked to be synced.
    syncs: BTreeMap<String, u64>,
    /// Whether files were copied.
    has_copied: bool,
    /// Files that were appended to, and closed before they were stored: when the first who did so has opened them.
    kept: BTreeMap<usize, u64>,
    /// Whether files that were closed may be stored later.
    is_behind: bool,
    ticks: Arc<Ticks>,
}

/// An `open` under way.
#[derive(Debug)]
pub struct Opening {
    asked: u64,
    mount: usize,
    path: String,
    flags: i32,
    made: Option<(usize, usize)>,
    cuts: Vec<(usize, usize)>,
    writer: Option<usize>,
}

impl Judge {
    /// The model of a bucket that has these objects; of one that others change, too, if it `is_shared`.
    pub fn new(objects: &[(String, u64)], store: Arc<SimStore>, is_shared: bool, ticks: Arc<Ticks>) -> Self {
        let (mut files, mut names) = (Vec::new(), BTreeMap::new());
        for (at, (name, cells)) in objects.iter().enumerate() {
            files.push(File::of(Tag { writer: 0, call: at as u16 }, *cells));
            names.insert(name.clone(), Name::of(at));
        }
        Self {
            files,
            names,
            folders: Folders::of(objects.iter().map(|(key, _)| key.as_str())),
            appended: Vec::new(),
            copies: Vec::new(),
            shared: is_shared.then(|| Shared::new(store.clone())),
            store,
            is_unsure: false,
            has_stray_edits: false,
            writers: Vec::new(),
            writer_paths: Vec::new(),
            opening: BTreeSet::new(),
            deaths: Vec::new(),
            goes_on: GoesOn::Nothing,
            has_orphan_edits: false,
            written: BTreeMap::new(),
            closes: BTreeMap::new(),
            syncs: BTreeMap::new(),
            has_copied: false,
            kept: BTreeMap::new(),
            is_behind: false,
            ticks,
        }
    }

    /// Files that were closed may be stored later.
    pub fn store_later(&mut self) {
        self.is_behind = true;
    }

    /// Daemons that take over go on with this of what was being written.
    pub fn go_on(&mut self, goes_on: GoesOn) {
        self.goes_on = goes_on;
    }

    /// What a name may stand for between two moments.
    pub fn targets(&self, path: &str, from: u64, to: u64) -> Vec<Target> {
        let targets = match self.names.get(path) {
            _ if self.is_shared() => return vec![Target::Unknown],
            Some(name) => name.targets(from, to),
            None => return vec![Target::Nothing],
        };
        let may_be_lost =
            |target: &Target| matches!(target, Target::File(file) if self.may_lack_copies(*file));
        if targets.iter().any(may_be_lost) { vec![Target::Unknown] } else { targets }
    }

    /// Whether a file can't be stored, because what was copied to it may be gone (promise 37).
    fn may_lack_copies(&self, file: usize) -> bool {
        self.copies.iter().any(|(to, from)| to.is_none_or(|to| to == file) && self.may_have_changed(from))
    }

    fn name(&mut self, path: &str) -> &mut Name {
        self.names.entry(path.to_owned()).or_default()
    }

    /// A program opens a file.
    pub fn open(&mut self, mount: usize, path: &str, flags: i32) -> Opening {
        let asked = self.ticks.next();
        let (mut made, mut cuts) = (None, Vec::new());
        if flags & libc::O_TRUNC != 0 {
            for target in self.targets(path, asked, asked) {
                if let Target::File(file) = target {
                    cuts.push((file, self.files[file].ask(asked, Edit::Cut(0))));
                }
            }
        }
        if flags & libc::O_CREAT != 0 && self.targets(path, asked, asked).contains(&Target::Nothing) {
            let file = self.files.len();
            self.files.push(File::default());
            made = Some((self.name(path).ask(asked, Target::File(file)), file));
        }
        let changes = flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) != libc::O_RDONLY;
        let writer = changes.then(|| {
            self.shared.iter_mut().for_each(|shared| shared.begin(mount, path, asked));
            self.writers.push((None, asked, NEVER));
            self.writer_paths.push(path.to_owned());
            self.opening.insert(self.writers.len() - 1);
            self.writers.len() - 1
        });
        Opening { asked, mount, path: path.to_owned(), flags, made, cuts, writer }
    }

    /// Whether a name may have become stale again after the kernel has looked it up anew.
    fn may_be_stale_twice(&mut self, path: &str, known: usize, from: u64, to: u64) -> bool {
        let times = 2_usize.saturating_sub(known + self.stale_times(path, from, to));
        self.name(path).may_change_times(times, from, to)
    }

    /// The `open` has an answer.
    ///
    /// # Errors
    /// When it should have another.
    pub fn opened(&mut self, opening: Opening, answer: Result<(), i32>) -> Result<Option<Opened>, Broken> {
        let Opening { asked, mount, path, flags, made, cuts, writer } = opening;
        let now = self.ticks.next();
        if let Some(writer) = writer {
            self.opening.remove(&writer);
        }
        if let (Some(writer), Err(_)) = (writer, answer) {
            self.writers[writer].2 = now;
            self.shared.iter_mut().for_each(|shared| shared.failed_to_open(mount, &path, asked, now));
        }
        if answer == Err(libc::ENOTCONN) {
            // The daemon was killed: what was asked for may have been done.
            return Err(broken(Rule::Errno, format!("open({path}) has no answer")));
        }
        if let Some((change, _)) = made {
            self.name(&path).withdraw(change);
        }
        self.folder_of_opened(&path, (asked, now), answer)?;
        let targets = self.found(&path, asked, now);
        let is_unsure = targets.contains(&Target::Unknown);
        let (may_be, may_lack) = (
            targets.iter().any(|target| *target != Target::Nothing),
            targets.contains(&Target::Nothing) || is_unsure,
        );
        let told = |what: &str| format!("open({path}) {what}, where it may be {targets:?}");
        let empties = usize::from(flags & libc::O_TRUNC != 0);
        let (creates, excludes) = (flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0);
        let mut opened = Opened {
            mount,
            path: path.clone(),
            flags,
            file: None,
            asked,
            answered: now,
            has_emptied: flags & libc::O_TRUNC != 0,
            wrote: false,
            only_appends: flags & libc::O_APPEND != 0,
            writer,
        };
        match answer {
            Ok(()) if excludes && !may_lack => return Err(broken(Rule::Posix, told("made it"))),
            Ok(()) if !creates && !may_be => return Err(broken(Rule::Posix, told("found it"))),
            Err(libc::ENOENT) if !creates && may_lack => return Ok(None),
            Err(libc::ENOENT) if self.may_lack_folder(&path, asked, now) => return Ok(None),
            Err(libc::EEXIST) if excludes && may_be => return Ok(None),
            Err(libc::ENOENT | libc::EEXIST | libc::ESTALE) if self.is_shared() => return Ok(None),
            // The kernel looks a name up again once. An `open` that empties a file which others read makes the name anew
            // itself (promise 11).
            Err(libc::ESTALE) if self.may_be_stale_twice(&path, empties, asked, now) => return Ok(None),
            Err(libc::ESTALE) if empties == 1 && is_unsure && !self.copies.is_empty() => return Ok(None),
            Err(libc::EIO) if self.shared.as_mut().is_some_and(|of| of.tells_loss(mount, &path)) => {
                return Ok(None);
            }
            // A program was told that its bytes were stored, and what they are a copy of is gone (promises 25 and 37).
            Err(libc::EIO) if is_unsure && !self.copies.is_empty() => return Ok(None),
            Err(errno) => return Err(broken(Rule::Errno, told(&format!("gave errno {errno}")))),
            Ok(()) => {}
        }
        match (&targets[..], made) {
            ([Target::File(file)], _) => {
                opened.file = Some(*file);
                for (cut, edit) in cuts {
                    match cut == *file {
                        true => self.files[cut].answer(edit, now),
                        false => self.files[cut].withdraw(edit),
                    }
                }
            }
            // Who empties the file does not care that it has come back.
            ([Target::Nothing], Some((change, file)))
            | ([Target::Nothing, Target::Unknown], Some((change, file)))
                if targets.len() == 1 || (empties == 1 && self.has_come_back(&path, asked, now)) =>
            {
                let name = self.name(&path);
                name.turn(change, Target::File(file));
                *name = std::mem::take(name).redone(change, asked, now);
                opened.file = Some(file);
                opened.has_emptied = true;
            }
            _ if self.is_shared() && opened.changes() => {
                // What others make of the name, they make of another file.
                opened.file = Some(self.files.len());
                self.files.push(if opened.has_emptied { File::default() } else { File::of_somebody() });
            }
            _ if !self.is_shared() => {
                self.is_unsure |= opened.writes();
                if creates {
                    self.confuse(&path, asked, now);
                }
                for target in &targets {
                    if let Target::File(file) = target {
                        self.files[*file].is_unknown |= opened.writes();
                    }
                }
            }
            _ => {}
        }
        if let Some(writer) = writer {
            self.writers[writer].0 = opened.file;
        }
        self.opened_by_dead(&opened, asked, now);
        Ok(Some(opened))
    }

    /// A program has closed a file. It may have said with it that the file is complete: while it has not, it counts as one
    /// that writes. Returns whether nobody else could write to the file since `asked`.
    pub fn closed(&mut self, opened: &Opened, asked: u64, is_said: bool) -> bool {
        let now = self.ticks.next();
        self.closes.insert(opened.asked, asked);
        let Some(own) = opened.writer else { return false };
        if is_said {
            self.writers[own].2 = now;
        }
        if let Some(shared) = &mut self.shared {
            shared.end(opened.asked, now);
            return shared.was_last(opened, (asked, now));
        }
        let file = self.writers[own].0;
        let may_be_it = |other: Option<usize>| other.is_none() || other == file;
        let mut others =
            self.writers.iter().enumerate().filter(|(at, writer)| *at != own && may_be_it(writer.0));
        others.all(|(_, writer)| writer.2 < asked)
    }

    /// A program has closed its last descriptor of a file that it has made or emptied.
    pub fn said(&mut self, opened: &Opened) {
        let now = self.ticks.next();
        if let Some(own) = opened.writer {
            self.writers[own].2 = now;
        }
    }

    /// A program has all of a file made safe.
    pub fn sync(&mut self, opened: &Opened) {
        let now = self.ticks.next();
        self.syncs.entry(opened.path.clone()).or_insert(now);
    }

    /// Whether two open files of a program may be one file.
    pub fn may_be_same(&self, one: &Opened, other: &Opened) -> bool {
        match (one.file, other.file) {
            _ if self.is_shared() => one.path == other.path,
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }

    /// Whether others change the bucket, too.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// A program changes an open file.
    pub fn edit(&mut self, opened: &Opened, edit: Edit) -> Option<(usize, usize)> {
        let asked = self.ticks.next();
        match &edit {
            Edit::Write(_, Value::Written(tag)) if tag.writer != COMMON => {
                self.written.insert(*tag, (opened.asked, opened.path.clone()));
            }
            Edit::Write(_, Value::Written(_)) => {}
            Edit::Write(..) => self.has_copied = true,
            // The kernel does not say whose bytes of a map it writes back, and does so when anybody closes the file.
            Edit::Store(..) | Edit::Append { .. } | Edit::Cut(_) => {}
        }
        self.has_orphan_edits |= opened.file.is_none() && self.was_orphaned(opened);
        self.has_stray_edits |= opened.file.is_none() && !matches!(edit, Edit::Append { .. });
        opened.file.map(|file| (file, self.files[file].ask(asked, edit)))
    }

    /// The change is done.
    pub fn edited(&mut self, edit: Option<(usize, usize)>) {
        let now = self.ticks.next();
        if let Some((file, edit)) = edit {
            self.files[file].answer(edit, now);
            self.edited_after_deaths(file);
        }
    }

    /// What a change is was found out.
    pub fn turn(&mut self, edit: Option<(usize, usize)>, what: Edit) {
        if let Some((file, edit)) = edit {
            self.files[file].turn(edit, what);
        }
    }

    /// Whether an open file may be shorter than these cells by now, or has lost bytes.
    pub fn may_lack(&self, opened: &Opened, cells: Range<u64>) -> bool {
        let now = self.ticks.now();
        let is_cut = |file: usize| {
            self.files[file].cells(opened.asked, now).is_none_or(|(least, _)| least < cells.end)
        };
        self.may_be_gone(opened) || opened.file.is_none_or(is_cut)
    }

    /// A program appends cells.
    pub fn append(&mut self, opened: &Opened, tag: Tag, cells: u64) -> Option<(usize, usize)> {
        let now = self.ticks.now();
        let file = opened.file?;
        let from = self.files[file].cells(now, now).map_or(0, |(least, _)| least);
        let edit = self.edit(opened, Edit::Append { from, cells });
        self.appended.push((file, tag, cells));
        edit
    }

    /// Some cells of one file were copied to another, from the beginning.
    pub fn copied(&mut self, (from, asked): (&Opened, u64), edit: Option<(usize, usize)>, cells: u64) {
        let now = self.ticks.next();
        self.copies.push((edit.map(|(file, _)| file), from.clone()));
        let Some((file, edit)) = edit else { return };
        let source = from.file.filter(|source| !self.files[*source].is_unknown && *source != file);
        let runs = source.and_then(|source| self.files[source].only(0..cells, from.asked.min(asked), now));
        match runs {
            Some(runs) => {
                self.files[file].withdraw(edit);
                for (range, value) in runs {
                    let edit = self.files[file].ask(asked, Edit::Write(range, value));
                    self.files[file].answer(edit, now);
                }
            }
            None => {
                self.files[file].turn(edit, Edit::Write(0..cells, Value::Any));
                self.files[file].answer(edit, now);
            }
        }
    }

    /// Compares what was read with the file.
    ///
    /// # Errors
    /// When other bytes, or another number of them, were right.
    pub fn read(&mut self, opened: &Opened, asked: u64, cells: Range<u64>, bytes: &[u8]) -> Check {
        let now = self.ticks.next();
        let runs = decode(bytes, cells.start);
        if let Some(run) =
            runs.iter().find(|run| matches!(run.1, CellContent::Garbage | CellContent::Misplaced(..)))
        {
            return Err(broken(
                Rule::Bytes,
                format!("{} of {} holds {}", opened.path, cells.start, shown(std::slice::from_ref(run))),
            ));
        }
        if let Some(shared) = &mut self.shared {
            if !opened.writes() {
                return shared.read(opened, now, cells, bytes);
            }
            if !shared.is_alone(opened, now) {
                return Ok(());
            }
        }
        let file = opened.file.filter(|_| !self.may_be_lost(opened));
        let Some(file) = file.map(|file| &self.files[file]) else { return Ok(()) };
        // Who only reads may see the version that he has opened.
        let from = if opened.writes() { asked } else { opened.asked };
        let got = bytes.len() as u64 / CELL;
        if let Some((least, most)) = file.cells(from, now) {
            let of = |size: u64| size.clamp(cells.start, cells.end) - cells.start;
            // A read that comes to what is gone ends before it; the next one fails.
            let is_cut = got > 0
                && if opened.writes() { self.may_be_gone(opened) } else { self.may_have_changed(opened) };
            if (got < of(least) && !is_cut) || got > of(most) {
                let what = format!(
                    "read {got} cells of {} at {}, which has {least} to {most}",
                    opened.path, cells.start
                );
                return Err(broken(Rule::Posix, what));
            }
        }
        file.check(bytes, cells.start, from, now).map_err(|wrong| {
            broken(Rule::Posix, format!("reading {} at {}: {wrong}", opened.path, cells.start))
        })
    }

    /// Whether what a program has open may have changed since.
    pub fn may_have_changed(&self, opened: &Opened) -> bool {
        let now = self.ticks.now();
        // Attributes of what was uploaded in parts make another version (promise 43).
        let has_changed = |file: usize| {
            let file = &self.files[file];
            file.may_change(opened.asked, now) || file.may_be_set(opened.asked, now)
        };
        let is_renamed = |name: &Name| name.may_change(opened.asked, now);
        self.is_shared()
            || opened.file.is_none_or(has_changed)
            || self.names.get(&opened.path).is_some_and(is_renamed)
    }

    /// Whether the name of what a program has open may stand for something else since.
    pub fn may_be_gone(&self, opened: &Opened) -> bool {
        let now = self.ticks.now();
        self.is_shared()
            || opened.file.is_none_or(|file| {
                self.targets(&opened.path, opened.asked, now) != [Target::File(file)]
                    || self.may_lack_copies(file)
            })
    }
}

//! What is right: a file system that is too simple to be wrong, and what was shown and stored compared with it.

mod stored;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::content::{CELL, Found, Tag, decode, shown};
use crate::history::{Edit, File, NEVER, Name, Target, Value};
use crate::ticks::Ticks;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// What was acknowledged is stored.
    Stored,
    /// An object is never half of two.
    Whole,
    /// Nobody replaces or deletes what he has not seen.
    Unseen,
    /// Programs see what a local file system would show.
    Posix,
    /// No call fails where a local file system's would not.
    Errno,
    /// No byte is read that nobody wrote at that place.
    Bytes,
    /// What was shown of a name never goes back in time.
    Back,
    /// No call waits for ever.
    Waits,
    /// All is given back at the end.
    Rest,
    /// Nothing panics.
    Panic,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which one.
    pub rule: Rule,
    /// What was seen, and what is right.
    pub what: String,
}

/// The result of a check.
pub type Check = Result<(), Broken>;

fn broken(rule: Rule, what: impl Into<String>) -> Broken {
    Broken { rule, what: what.into() }
}

/// What the programs of a mount share.
#[derive(Debug)]
pub struct Judge {
    files: Vec<File>,
    names: BTreeMap<String, Name>,
    /// What was appended, to which file.
    appended: Vec<(usize, Tag, u64)>,
    /// Files that bytes were copied to since they were stored, and as what their source was open.
    copies: Vec<(usize, Opened)>,
    /// Whether others change the bucket, too. Then names say nothing.
    is_shared: bool,
    /// Whether somebody writes a file of which nobody knows which one it is.
    is_unsure: bool,
    /// Open files that may write, and files that are being opened so: the file if it is known, and the moments at which
    /// `open` was asked for and `close` answered.
    writers: Vec<(Option<usize>, u64, u64)>,
    ticks: Arc<Ticks>,
}

/// A file as a program has opened it.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Its name then.
    pub path: String,
    /// libc's flags.
    pub flags: i32,
    /// The file of the model, if it can be only one.
    pub file: Option<usize>,
    /// When it was opened: asked, and answered.
    pub asked: u64,
    /// Whether its `open` has made the file, or emptied it.
    pub has_emptied: bool,
    /// Whether something was written to it.
    pub wrote: bool,
    /// Its number among those that may write.
    writer: Option<usize>,
}

impl Opened {
    /// Whether it may write.
    pub fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// An `open` under way.
#[derive(Debug)]
pub struct Opening {
    asked: u64,
    path: String,
    flags: i32,
    made: Option<(usize, usize)>,
    cuts: Vec<(usize, usize)>,
    writer: Option<usize>,
}

impl Judge {
    /// The model of a bucket that has these objects.
    pub fn new(objects: &[(String, u64)], is_shared: bool, ticks: Arc<Ticks>) -> Self {
        let (mut files, mut names) = (Vec::new(), BTreeMap::new());
        for (at, (name, cells)) in objects.iter().enumerate() {
            files.push(File::of(Tag { writer: 0, call: at as u16 }, *cells));
            names.insert(name.clone(), Name::of(at));
        }
        Self {
            files,
            names,
            appended: Vec::new(),
            copies: Vec::new(),
            is_shared,
            is_unsure: false,
            writers: Vec::new(),
            ticks,
        }
    }

    /// What a name may stand for between two moments.
    pub fn targets(&self, path: &str, from: u64, to: u64) -> Vec<Target> {
        let targets = match self.names.get(path) {
            _ if self.is_shared => return vec![Target::Unknown],
            Some(name) => name.targets(from, to),
            None => return vec![Target::Nothing],
        };
        let may_be_lost =
            |target: &Target| matches!(target, Target::File(file) if self.may_lack_copies(*file));
        if targets.iter().any(may_be_lost) { vec![Target::Unknown] } else { targets }
    }

    /// Whether a file can't be stored, because what was copied to it may be gone (promise 37).
    fn may_lack_copies(&self, file: usize) -> bool {
        self.copies.iter().any(|(to, from)| *to == file && self.may_have_changed(from))
    }

    fn name(&mut self, path: &str) -> &mut Name {
        self.names.entry(path.to_owned()).or_default()
    }

    /// A program opens a file.
    pub fn open(&mut self, path: &str, flags: i32) -> Opening {
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
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let writer = writes.then(|| {
            self.writers.push((None, asked, NEVER));
            self.writers.len() - 1
        });
        Opening { asked, path: path.to_owned(), flags, made, cuts, writer }
    }

    /// The `open` has an answer.
    ///
    /// # Errors
    /// When it should have another.
    pub fn opened(&mut self, opening: Opening, answer: Result<(), i32>) -> Result<Option<Opened>, Broken> {
        let Opening { asked, path, flags, made, cuts, writer } = opening;
        let now = self.ticks.next();
        if let (Some(writer), Err(_)) = (writer, answer) {
            self.writers[writer].2 = now;
        }
        if answer == Err(libc::ENOTCONN) {
            // The daemon was killed: what was asked for may have been done.
            return Err(broken(Rule::Errno, format!("open({path}) has no answer")));
        }
        if let Some((change, _)) = made {
            self.name(&path).withdraw(change);
        }
        let targets = self.targets(&path, asked, now);
        let is_unsure = targets.contains(&Target::Unknown);
        let (may_be, may_lack) = (
            targets.iter().any(|target| *target != Target::Nothing),
            targets.contains(&Target::Nothing) || is_unsure,
        );
        let told = |what: &str| format!("open({path}) {what}, where it may be {targets:?}");
        let (creates, excludes) = (flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0);
        let mut opened = Opened {
            path: path.clone(),
            flags,
            file: None,
            asked,
            has_emptied: flags & libc::O_TRUNC != 0,
            wrote: false,
            writer,
        };
        match answer {
            Ok(()) if excludes && !may_lack => return Err(broken(Rule::Posix, told("made it"))),
            Ok(()) if !creates && !may_be => return Err(broken(Rule::Posix, told("found it"))),
            Err(libc::ENOENT) if !creates && may_lack => return Ok(None),
            Err(libc::EEXIST) if excludes && may_be => return Ok(None),
            Err(libc::ENOENT | libc::EEXIST | libc::ESTALE) if self.is_shared => return Ok(None),
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
            ([Target::Nothing], Some((change, file))) => {
                let name = self.name(&path);
                name.turn(change, Target::File(file));
                *name = std::mem::take(name).redone(change, asked, now);
                opened.file = Some(file);
                opened.has_emptied = true;
            }
            _ if !self.is_shared => {
                self.is_unsure |= opened.writes();
                if creates {
                    let name = self.name(&path);
                    let change = name.ask(asked, Target::Unknown);
                    name.answer(change, now);
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
        Ok(Some(opened))
    }

    /// A program has closed a file. Returns whether nobody else could write to it since `asked`.
    pub fn closed(&mut self, opened: &Opened, asked: u64) -> bool {
        let now = self.ticks.next();
        let Some(own) = opened.writer else { return false };
        self.writers[own].2 = now;
        let file = self.writers[own].0;
        let may_be_it = |other: Option<usize>| other.is_none() || other == file;
        let mut others =
            self.writers.iter().enumerate().filter(|(at, writer)| *at != own && may_be_it(writer.0));
        others.all(|(_, writer)| writer.2 < asked)
    }

    /// Whether others change the bucket, too.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// A program changes an open file.
    pub fn edit(&mut self, opened: &Opened, edit: Edit) -> Option<(usize, usize)> {
        let asked = self.ticks.next();
        opened.file.map(|file| (file, self.files[file].ask(asked, edit)))
    }

    /// The change is done.
    pub fn edited(&mut self, edit: Option<(usize, usize)>) {
        let now = self.ticks.next();
        if let Some((file, edit)) = edit {
            self.files[file].answer(edit, now);
        }
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
        let Some((file, edit)) = edit else { return };
        self.copies.push((file, from.clone()));
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
    pub fn read(&self, opened: &Opened, asked: u64, cells: Range<u64>, bytes: &[u8]) -> Check {
        let now = self.ticks.next();
        let runs = decode(bytes, cells.start);
        if let Some(run) = runs.iter().find(|run| matches!(run.1, Found::Garbage | Found::Misplaced(..))) {
            return Err(broken(
                Rule::Bytes,
                format!("{} of {} holds {}", opened.path, cells.start, shown(std::slice::from_ref(run))),
            ));
        }
        let Some(file) = opened.file.map(|file| &self.files[file]) else { return Ok(()) };
        // Who only reads may see the version that he has opened.
        let from = if opened.writes() { asked } else { opened.asked };
        let got = bytes.len() as u64 / CELL;
        if let Some((least, most)) = file.cells(from, now) {
            let of = |size: u64| size.clamp(cells.start, cells.end) - cells.start;
            // A read that comes to what is gone ends before it; the next one fails.
            let is_cut = got > 0 && !opened.writes() && self.may_have_changed(opened);
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
        let has_changed = |file: usize| self.files[file].may_change(opened.asked, now);
        let is_renamed = |name: &Name| name.may_change(opened.asked, now);
        self.is_shared
            || opened.file.is_none_or(has_changed)
            || self.names.get(&opened.path).is_some_and(is_renamed)
    }

    /// Whether the name of what a program has open may stand for something else since.
    pub fn may_be_gone(&self, opened: &Opened) -> bool {
        let now = self.ticks.now();
        self.is_shared
            || opened.file.is_none_or(|file| {
                self.targets(&opened.path, opened.asked, now) != [Target::File(file)]
                    || self.may_lack_copies(file)
            })
    }

    /// A program asks to change a name. Returns what to hand to [`named`](Self::named).
    pub fn rename(&mut self, from: &str, to: &str) -> (u64, Vec<(String, usize)>) {
        let asked = self.ticks.next();
        if self.is_shared || from == to {
            return (asked, Vec::new());
        }
        let target = match self.targets(from, asked, asked)[..] {
            [target @ Target::File(_)] => target,
            _ => Target::Unknown,
        };
        let moved = self.name(from).ask(asked, Target::Nothing);
        let replaced = self.name(to).ask(asked, target);
        (asked, vec![(from.to_owned(), moved), (to.to_owned(), replaced)])
    }

    /// A program asks to remove a name.
    pub fn unlink(&mut self, path: &str) -> (u64, Vec<(String, usize)>) {
        let asked = self.ticks.next();
        if self.is_shared {
            return (asked, Vec::new());
        }
        let change = self.name(path).ask(asked, Target::Nothing);
        (asked, vec![(path.to_owned(), change)])
    }

    /// The change of the name `path` has an answer.
    ///
    /// # Errors
    /// When it should have another.
    pub fn named(
        &mut self,
        call: &str,
        path: &str,
        (asked, changes): (u64, Vec<(String, usize)>),
        answer: Result<(), i32>,
    ) -> Check {
        let now = self.ticks.next();
        if answer == Err(libc::ENOTCONN) {
            return Err(broken(Rule::Errno, format!("{call}({path}) has no answer")));
        }
        let mut own = Vec::new();
        for (path, change) in changes {
            own.push((self.name(&path).take(change), path, change));
        }
        let targets = self.targets(path, asked, now);
        let told = |what: &str| format!("{call} {what}, where {path} may be {targets:?}");
        let is_unsure = targets.contains(&Target::Unknown);
        let verdict = match answer {
            Ok(()) if targets == [Target::Nothing] => Err(broken(Rule::Posix, told("found it"))),
            Ok(()) => Ok(true),
            Err(libc::ENOENT) if is_unsure || targets.contains(&Target::Nothing) => Ok(false),
            Err(libc::ENOENT | libc::ESTALE) if self.is_shared => Ok(false),
            Err(errno) => Err(broken(Rule::Errno, told(&format!("gave errno {errno}")))),
        }?;
        for (target, path, change) in own {
            if verdict {
                // It may have been renamed by others in between.
                let target = match (target, &targets[..]) {
                    (Target::Nothing, _) => Target::Nothing,
                    (_, [file @ Target::File(_)]) => *file,
                    _ => Target::Unknown,
                };
                let name = self.name(&path);
                name.turn(change, target);
                *name = std::mem::take(name).redone(change, asked, now);
            }
        }
        Ok(())
    }

    /// A listing, or attributes, have shown whether a name is there.
    ///
    /// # Errors
    /// When it should have shown the other.
    pub fn shown(&self, call: &str, path: &str, asked: u64, is_there: bool) -> Check {
        let targets = self.targets(path, asked, self.ticks.now());
        let is_right = targets.iter().any(|target| match target {
            Target::Unknown => true,
            Target::Nothing => !is_there,
            Target::File(_) => is_there,
        });
        let there = if is_there { "there" } else { "not there" };
        let wrong =
            || broken(Rule::Posix, format!("{call} shows {path} as {there}, and it may be {targets:?}"));
        is_right.then_some(()).ok_or_else(wrong)
    }

    /// Compares the size that was shown of a name.
    ///
    /// # Errors
    /// When it is wrong.
    pub fn sized(&self, path: &str, asked: u64, bytes: u64) -> Check {
        let now = self.ticks.now();
        let [Target::File(file)] = self.targets(path, asked, now)[..] else { return Ok(()) };
        let Some((least, most)) = self.files[file].cells(asked, now) else { return Ok(()) };
        let cells = bytes / CELL;
        let wrong =
            || broken(Rule::Posix, format!("stat({path}) shows {cells} cells, and it has {least} to {most}"));
        (least..=most).contains(&cells).then_some(()).ok_or_else(wrong)
    }

    /// All names that any program has used.
    pub fn paths(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }
}

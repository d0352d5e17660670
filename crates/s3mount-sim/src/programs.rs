//! What programs do: rows of calls, as data, so that a failing run can be cut down.

use std::fmt;
use std::time::Duration;

use crate::content::CELL;
use crate::draw::Draw;
use crate::history::Attribute;
use crate::kernel::Listing;

mod folders;

/// An open file of a program.
pub type Slot = u8;

/// One thing that a program does. Places and lengths are in cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Opens a file; the flags are libc's.
    Open(Slot, String, i32),
    /// Reads at a place.
    Read(Slot, u64, u64),
    /// Reads from the beginning to the end, in pieces of this length.
    ReadAll(Slot, u64),
    /// Writes at a place; to the end if the file was opened so.
    Write(Slot, u64, u64),
    /// Writes at a place through a shared map, which stays until the file is closed. What would lie behind the end is
    /// left out.
    Map(Slot, u64, u64),
    /// Writes from the beginning what others write, too: the bytes of this number, of which there is always the same.
    Again(Slot, u16),
    /// Writes to a place from now on, though the file was opened to append.
    Unappend(Slot),
    /// Cuts an open file.
    Cut(Slot, u64),
    /// `fsync`.
    Sync(Slot),
    /// `close`.
    Close(Slot),
    /// Copies the first cells of one open file into another.
    Copy(Slot, Slot, u64),
    /// Shows attributes.
    Stat(String),
    /// Sets a mode, or a time.
    Set(String, Attribute),
    /// Lists a folder; the root has no name.
    List(String, Listing),
    /// `rename`.
    Rename(String, String),
    /// `unlink`.
    Unlink(String),
    /// `mkdir`.
    MakeFolder(String),
    /// `rmdir`.
    RemoveFolder(String),
    /// `rename` of a folder.
    RenameFolder(String, String),
    /// Waits for some milliseconds.
    Pause(u64),
    /// Only of a stranger: puts an object of this many cells.
    Put(String, u64),
    /// Only of a stranger: deletes an object.
    Delete(String),
    /// Writes lines to a file of `.s3mount` that takes them.
    Hint(&'static str, String),
    /// The daemon is killed, and another mount takes its place.
    Kill,
    /// The daemon is killed after so many requests, and another takes over after some milliseconds.
    TakeOver(u64, u64),
}

/// A program, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number in the run: it writes it into each cell.
    pub number: u16,
    /// The mount that it uses; `None` for a stranger.
    pub mount: Option<usize>,
    /// What it is.
    pub kind: Role,
    /// What it does, one after another. The number stays when others are taken out.
    pub acts: Vec<(u16, Act)>,
}

/// What a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Writes a file beside, syncs it, and renames it over the old one.
    Saver,
    /// Writes a file anew in its place.
    Overwriter,
    /// Changes bytes of a file in their place.
    Patcher,
    /// Changes bytes of a file through a map, beside those that it writes or appends.
    Mapper,
    /// Writes a file anew, again and again with one of two contents, and removes it now and then.
    Switcher,
    /// Adds lines to a file, which it opens for each.
    Appender,
    /// Writes pieces of one file by several open files.
    Downloader,
    /// Reads files whole.
    Reader,
    /// Reads pieces of one open file again and again.
    Poller,
    /// Lists, and asks for attributes.
    Lister,
    /// Lists in pieces, and takes its time.
    Scanner,
    /// Sets modes and times of files, now and then of one that it has written just before.
    Stamper,
    /// Removes files.
    Remover,
    /// Gives files other names.
    Renamer,
    /// Makes and removes a lock file.
    Locker,
    /// Copies files inside the store, now and then over what it has written before.
    Copier,
    /// Gives a file another name while it writes it, and makes another of the old name.
    Rotator,
    /// Fills a new folder, and gives it the name of another.
    Trainer,
    /// Makes folders, and files in them.
    Maker,
    /// Lists folders, and reads what is in them.
    Walker,
    /// Removes folders with all that is in them.
    Clearer,
    /// Gives folders other names.
    FolderRenamer,
    /// Says which files it will read, and which are to be kept on the disk.
    Hinter,
    /// Changes the limit of the mount's memory.
    Divider,
    /// Puts and deletes objects behind the mounts.
    Stranger,
    /// Kills the daemon.
    Killer,
    /// Kills the daemon so that another takes over.
    Successor,
}

impl Role {
    /// All that use a mount and no folders, and do no harm to it.
    pub const PROGRAMS: [Self; 13] = [
        Self::Saver,
        Self::Overwriter,
        Self::Patcher,
        Self::Mapper,
        Self::Appender,
        Self::Downloader,
        Self::Reader,
        Self::Poller,
        Self::Lister,
        Self::Remover,
        Self::Renamer,
        Self::Locker,
        Self::Copier,
    ];
}

/// What programs are drawn from.
#[derive(Clone, Debug)]
pub struct Theme {
    /// The names that all use.
    pub names: Vec<String>,
    /// The folders that all use.
    pub folders: Vec<String>,
    /// The names of files in folders.
    pub leaves: Vec<String>,
    /// The most cells of a file.
    pub most_cells: u64,
    /// The most cells of one call.
    pub call_cells: u64,
}

impl Theme {
    fn name(&self, draw: &Draw) -> String {
        draw.one(&self.names).clone()
    }

    fn cells(&self, draw: &Draw) -> u64 {
        match draw.below(6) {
            0 => 0,
            1 | 2 => 1 + draw.below(8),
            3 | 4 => 1 + draw.below(self.most_cells.min(200)),
            _ => 1 + draw.below(self.most_cells),
        }
    }

    /// Writes from the beginning to the end.
    fn write_all(&self, draw: &Draw, slot: Slot, acts: &mut Vec<Act>) {
        let cells = self.cells(draw);
        let mut at = 0;
        while at < cells {
            let piece = if draw.happens(500) { self.call_cells } else { 1 + draw.below(self.call_cells) };
            let piece = piece.min(cells - at);
            acts.push(Act::Write(slot, at, piece));
            at += piece;
        }
    }

    /// Patches, and now and then a cut.
    fn patch(&self, draw: &Draw, slot: Slot, acts: &mut Vec<Act>) {
        for _ in 0..=draw.below(4) {
            match draw.below(6) {
                0 => acts.push(Act::Cut(slot, self.cells(draw))),
                1 => acts.push(Act::ReadAll(slot, self.call_cells)),
                _ => {
                    let at = draw.below(self.most_cells);
                    acts.push(Act::Write(slot, at, 1 + draw.below(self.call_cells.min(64))));
                }
            }
        }
    }

    /// Lists a folder some names at a time.
    fn scan(&self, draw: &Draw, folder: String) -> Act {
        let bytes = 64 + 32 * draw.below(6) as usize;
        Act::List(folder, Listing { bytes, pause: Duration::from_millis(draw.below(300)) })
    }

    /// Names files, and now and then something that is none.
    fn hint(&self, draw: &Draw) -> Act {
        let mut text = String::new();
        for _ in 0..=draw.below(3) {
            let name = if draw.happens(150) { "nobody".to_owned() } else { self.name(draw) };
            let (at, cells) = (draw.below(self.most_cells), 1 + draw.below(self.most_cells));
            text.push_str(&match draw.below(6) {
                0 => format!("{name}\t0\t1\n"),
                1 | 2 => format!("{name}\t{}\t{}\n", at * CELL, cells * CELL),
                3 if draw.happens(200) => format!("{name}\t\t\n"),
                _ => format!("{name}\n"),
            });
        }
        Act::Hint(if draw.happens(700) { "prefetch" } else { "keep" }, text)
    }

    fn round(&self, draw: &Draw, kind: Role, number: u16, acts: &mut Vec<Act>) {
        let name = self.name(draw);
        match kind {
            Role::Saver => {
                let beside = format!("tmp{number}");
                acts.push(Act::Open(0, beside.clone(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
                self.write_all(draw, 0, acts);
                if draw.happens(600) {
                    acts.push(Act::Sync(0));
                }
                if draw.happens(850) {
                    acts.extend([Act::Close(0), Act::Rename(beside, name)]);
                } else {
                    acts.extend([Act::Rename(beside, name), Act::Close(0)]);
                }
            }
            Role::Overwriter => {
                acts.push(Act::Open(0, name, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
                self.write_all(draw, 0, acts);
                if draw.happens(200) {
                    acts.push(Act::Sync(0));
                }
                acts.push(Act::Close(0));
            }
            Role::Switcher => {
                for _ in 0..=draw.below(4) {
                    if draw.happens(200) {
                        acts.push(Act::Unlink(name.clone()));
                    }
                    let is_beside = draw.happens(300);
                    let at = if is_beside { format!("tmp{number}") } else { name.clone() };
                    acts.push(Act::Open(0, at.clone(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
                    acts.extend([Act::Again(0, 1 + draw.below(2) as u16), Act::Close(0)]);
                    if is_beside {
                        acts.push(Act::Rename(at, name.clone()));
                    }
                }
            }
            Role::Patcher => {
                let made = if draw.happens(300) { libc::O_CREAT } else { 0 };
                acts.push(Act::Open(0, name, libc::O_RDWR | made));
                self.patch(draw, 0, acts);
                if draw.happens(300) {
                    acts.push(Act::Sync(0));
                    self.patch(draw, 0, acts);
                }
                acts.push(Act::Close(0));
            }
            Role::Mapper => {
                let (made, appends) = (draw.happens(300), draw.happens(400));
                let flag = |is_set: bool, flag: i32| if is_set { flag } else { 0 };
                let flags = libc::O_RDWR | flag(made, libc::O_CREAT) | flag(appends, libc::O_APPEND);
                acts.push(Act::Open(0, name, flags));
                for _ in 0..=draw.below(4) {
                    let (at, cells) = (draw.below(self.most_cells), 1 + draw.below(self.call_cells.min(64)));
                    match draw.below(8) {
                        0 => acts.push(Act::Unappend(0)),
                        1 => acts.push(Act::Sync(0)),
                        2 => acts.push(Act::Pause(draw.below(200))),
                        3 | 4 => acts.push(Act::Write(0, at, cells)),
                        _ => acts.push(Act::Map(0, at, cells)),
                    }
                }
                acts.push(Act::Close(0));
            }
            Role::Appender => {
                acts.push(Act::Open(0, name, libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND));
                for _ in 0..=draw.below(3) {
                    acts.push(Act::Write(0, 0, 1 + draw.below(4)));
                }
                acts.push(Act::Close(0));
            }
            Role::Downloader => {
                acts.push(Act::Open(0, name.clone(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
                acts.push(Act::Open(1, name.clone(), libc::O_WRONLY));
                acts.push(Act::Open(2, name, libc::O_RDWR));
                let piece = 1 + draw.below(self.call_cells);
                for at in 0..=draw.below(5) {
                    acts.push(Act::Write(draw.below(3) as Slot, at * piece, piece));
                }
                acts.extend([Act::Close(1), Act::Close(0), Act::Close(2)]);
            }
            Role::Reader => {
                acts.push(Act::Open(0, name, libc::O_RDONLY));
                acts.push(Act::ReadAll(0, self.call_cells));
                acts.push(Act::Close(0));
            }
            Role::Poller => {
                acts.push(Act::Open(0, name, libc::O_RDONLY));
                for _ in 0..=draw.below(5) {
                    acts.push(Act::Read(0, draw.below(self.most_cells), 1 + draw.below(self.call_cells)));
                    acts.push(Act::Pause(draw.below(300)));
                }
                acts.push(Act::Close(0));
            }
            Role::Lister => {
                acts.push(if draw.happens(500) {
                    Act::List(String::new(), Listing::default())
                } else {
                    Act::Stat(name)
                });
            }
            Role::Stamper => {
                let is_written = draw.happens(500);
                if is_written {
                    acts.push(Act::Open(0, name.clone(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
                    self.write_all(draw, 0, acts);
                    acts.push(Act::Close(0));
                }
                for _ in 0..=draw.below(2) {
                    let what = match draw.below(2) {
                        0 => Attribute::Mode(*draw.one(&[0o600, 0o644, 0o755])),
                        _ => Attribute::Time(1_000_000 + draw.below(3)),
                    };
                    acts.push(Act::Set(name.clone(), what));
                }
                if is_written && draw.happens(300) {
                    acts.push(Act::Rename(name.clone(), self.name(draw)));
                }
                if draw.happens(600) {
                    acts.push(Act::Pause(draw.below(3_000)));
                    acts.push(Act::Stat(name));
                }
            }
            Role::Scanner => acts.push(self.scan(draw, String::new())),
            Role::Remover => acts.push(Act::Unlink(name)),
            Role::Renamer => acts.push(Act::Rename(name, self.name(draw))),
            Role::Locker => {
                let access = if draw.happens(500) { libc::O_WRONLY } else { libc::O_RDONLY };
                acts.push(Act::Open(0, name.clone(), access | libc::O_CREAT | libc::O_EXCL));
                acts.push(Act::Close(0));
                acts.push(Act::Unlink(name));
            }
            Role::Copier => {
                acts.push(Act::Open(0, name, libc::O_RDONLY));
                acts.push(Act::Open(1, self.name(draw), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
                if draw.happens(300) {
                    self.write_all(draw, 1, acts);
                }
                acts.push(Act::Copy(0, 1, self.most_cells));
                acts.extend([Act::Close(1), Act::Close(0)]);
            }
            Role::Rotator => {
                let how = if draw.happens(500) { libc::O_APPEND } else { libc::O_TRUNC };
                let (old, flags) = (format!("old{number}"), libc::O_WRONLY | libc::O_CREAT | how);
                acts.push(Act::Open(0, name.clone(), flags));
                self.write_all(draw, 0, acts);
                acts.extend([Act::Rename(name.clone(), old), Act::Open(1, name, flags)]);
                self.write_all(draw, 1, acts);
                let first = draw.below(2) as Slot;
                acts.extend([Act::Close(first), Act::Close(1 - first)]);
            }
            Role::Stranger => acts.push(match draw.below(5) {
                0 => Act::Delete(name),
                _ => Act::Put(name, self.cells(draw)),
            }),
            Role::Hinter => acts.push(self.hint(draw)),
            // Also what is too little and too much.
            Role::Divider => acts.push(Act::Hint("memory", (draw.below(100) << 20).to_string())),
            Role::Killer => acts.push(Act::Kill),
            Role::Successor => acts.push(Act::TakeOver(draw.below(40), draw.below(60))),
            Role::Trainer | Role::Maker | Role::Walker | Role::Clearer | Role::FolderRenamer => {
                self.folder_round(draw, kind, number, acts);
            }
        }
    }

    /// A program of this kind.
    pub fn program(&self, draw: &Draw, kind: Role, number: u16, mount: Option<usize>) -> Program {
        let mut acts = Vec::new();
        acts.push(Act::Pause(draw.below(400)));
        let rounds = match kind {
            Role::Killer => 1,
            Role::Divider => 4 + draw.below(20),
            _ => 1 + draw.below(4),
        };
        for _ in 0..rounds {
            self.round(draw, kind, number, &mut acts);
            if draw.happens(400) {
                acts.push(Act::Pause(match draw.below(4) {
                    0 => 0,
                    1 | 2 => draw.below(200),
                    _ => draw.below(4_000),
                }));
            }
        }
        let acts = acts.into_iter().enumerate().map(|(at, act)| (at as u16 + 1, act)).collect();
        Program { number, mount, kind, acts }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = |flags: i32| {
            let mut text = match flags & libc::O_ACCMODE {
                libc::O_RDONLY => "r",
                libc::O_WRONLY => "w",
                _ => "rw",
            }
            .to_owned();
            for (flag, name) in [
                (libc::O_CREAT, "|CREAT"),
                (libc::O_EXCL, "|EXCL"),
                (libc::O_TRUNC, "|TRUNC"),
                (libc::O_APPEND, "|APPEND"),
            ] {
                if flags & flag != 0 {
                    text.push_str(name);
                }
            }
            text
        };
        match self {
            Act::Open(slot, path, how) => write!(f, "f{slot} = open({path}, {})", flags(*how)),
            Act::Read(slot, at, cells) => write!(f, "pread(f{slot}, {cells} at {at})"),
            Act::ReadAll(slot, piece) => write!(f, "read all(f{slot}, by {piece})"),
            Act::Write(slot, at, cells) => write!(f, "pwrite(f{slot}, {cells} at {at})"),
            Act::Map(slot, at, cells) => write!(f, "store(f{slot}, {cells} at {at})"),
            Act::Again(slot, which) => write!(f, "write(f{slot}, content {which})"),
            Act::Unappend(slot) => write!(f, "fcntl(f{slot}, no O_APPEND)"),
            Act::Cut(slot, cells) => write!(f, "ftruncate(f{slot}, {cells})"),
            Act::Sync(slot) => write!(f, "fsync(f{slot})"),
            Act::Close(slot) => write!(f, "close(f{slot})"),
            Act::Copy(from, to, cells) => write!(f, "copy_file_range(f{from} to f{to}, {cells})"),
            Act::Stat(path) => write!(f, "stat({path})"),
            Act::Set(path, what) => write!(f, "set({path}, {what:?})"),
            Act::List(path, how) if *how == Listing::default() => write!(f, "list({path})"),
            Act::List(path, how) => write!(f, "list({path}, {how:?})"),
            Act::Rename(from, to) => write!(f, "rename({from}, {to})"),
            Act::Unlink(path) => write!(f, "unlink({path})"),
            Act::MakeFolder(path) => write!(f, "mkdir({path})"),
            Act::RemoveFolder(path) => write!(f, "rmdir({path})"),
            Act::RenameFolder(from, to) => write!(f, "rename({from}/, {to}/)"),
            Act::Pause(milliseconds) => write!(f, "sleep({milliseconds} ms)"),
            Act::Put(key, cells) => write!(f, "the stranger puts {key}, {cells}"),
            Act::Delete(key) => write!(f, "the stranger deletes {key}"),
            Act::Hint(file, text) => write!(f, "write(.s3mount/{file}, {text:?})"),
            Act::Kill => write!(f, "the daemon is killed"),
            Act::TakeOver(requests, milliseconds) => {
                write!(
                    f,
                    "the daemon is killed after {requests} requests, the next begins after {milliseconds} ms"
                )
            }
        }
    }
}

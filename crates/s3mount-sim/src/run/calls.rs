//! The calls of a program that runs, each judged by its answer.

use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use s3mount_fs::{AttrChange, NewTime};
use tokio::time::sleep;

use super::Player;
use crate::content::{CELL, COMMON, Tag, appended, fill};
use crate::history::{Attribute, Edit, Value};
use crate::kernel::{Fd, Process};
use crate::opened::Opened;
use crate::programs::{Act, Slot};
use crate::promise::{Broken, Check, Rule};

impl Player {
    fn note<T: std::fmt::Debug>(&self, call: u16, answer: &T) {
        let number = self.program.number;
        self.world.ticks.note(|| format!("    {number}.{call} answers {answer:?}"));
    }

    pub(super) async fn act(&mut self, call: u16, act: &Act) -> Check {
        let world = self.world.clone();
        let tag = Tag { writer: self.program.number, call };
        if let Act::Pause(milliseconds) = act {
            sleep(Duration::from_millis(*milliseconds)).await;
            return Ok(());
        }
        match act {
            Act::Kill => return self.kill().await,
            Act::TakeOver(requests, milliseconds) => return self.take_over(*requests, *milliseconds).await,
            _ => {}
        }
        let mount = self.program.mount.unwrap_or_default();
        let (Some(process), Some(place)) = (self.process.as_ref(), self.place.clone()) else {
            match act {
                Act::Put(key, cells) => world.store.put(key, Bytes::from(fill(tag, 0..*cells))),
                Act::Delete(key) => world.store.delete(key),
                _ => {}
            }
            return Ok(());
        };
        let limit = place.folder_rename_limit();
        match act {
            Act::Open(slot, path, flags) => {
                if self.open.contains_key(slot) {
                    return Ok(());
                }
                let opening = world.judge().open(mount, path, *flags);
                let answer = process.open(path, *flags).await;
                self.note(call, &answer);
                let opened = world.judge().opened(opening, answer.map(drop))?;
                if let (Some(opened), Ok(fd)) = (opened, answer) {
                    self.open.insert(*slot, (fd, opened));
                }
                Ok(())
            }
            Act::Read(slot, at, cells) => self.read(call, *slot, *at, *cells).await.map(drop),
            Act::ReadAll(slot, piece) => {
                let mut at = 0;
                loop {
                    match self.read(call, *slot, at, *piece).await? {
                        0 => return Ok(()),
                        got => at += got,
                    }
                }
            }
            Act::Write(slot, at, cells) => self.write((call, tag), *slot, *at, *cells).await,
            Act::Again(slot, which) => {
                let tag = Tag { writer: COMMON, call: *which };
                self.write((call, tag), *slot, 0, u64::from(*which)).await
            }
            Act::Map(slot, at, cells) => self.write_to_map(call, *slot, *at..*at + *cells).await,
            Act::Unappend(slot) => {
                let Some((fd, opened)) = self.open.get_mut(slot) else { return Ok(()) };
                opened.flags &= !libc::O_APPEND;
                let answer = process.set_append(*fd, false);
                self.done(&self.open[slot].1, answer)
            }
            Act::Cut(slot, cells) => {
                let Some((fd, opened)) = self.writable(*slot) else { return Ok(()) };
                opened.wrote = true;
                let (fd, opened) = (*fd, opened.clone());
                let edit = world.judge().edit(&opened, Edit::Cut(*cells));
                let answer = self.own().ftruncate(fd, cells * CELL).await;
                self.note(call, &answer);
                self.done(&opened, answer)?;
                // One that has failed may have cut the file, or not.
                if answer.is_ok() {
                    world.judge().edited(edit);
                }
                Ok(())
            }
            Act::Sync(slot) => {
                let Some((fd, opened)) = self.open.get(slot) else { return Ok(()) };
                world.judge().sync(opened);
                let answer = process.fsync(*fd).await;
                self.note(call, &answer);
                self.done(&opened.clone(), answer)
            }
            Act::Close(slot) => self.close(*slot).await,
            Act::Copy(from, to, cells) => self.copy(call, *from, *to, *cells).await,
            Act::Stat(path) => {
                let asked = world.ticks.next();
                let answer = process.stat(path).await;
                self.note(call, &answer.as_ref().map(|stat| stat.size));
                match answer {
                    Ok(stat) => {
                        world.judge().stat(mount, path, asked, Some(stat.size))?;
                        if !place.keeps_attributes() {
                            return Ok(());
                        }
                        world.judge().shows_attributes(path, asked, stat.mode, stat.mtime)
                    }
                    Err(libc::ENOENT) => world.judge().stat(mount, path, asked, None),
                    Err(errno) => Err(Broken { rule: Rule::Errno, what: format!("errno {errno}") }),
                }
            }
            Act::List(folder, how) => {
                let since = world.ticks.before(place.listing_age());
                let asked = world.ticks.next();
                let answer = process.readdir(folder, *how).await;
                self.note(call, &answer);
                world.judge().listed((mount, folder), (since, asked), answer)
            }
            Act::Rename(from, to) => {
                let change = world.judge().rename(mount, from, to);
                let answer = process.rename(from, to).await;
                self.note(call, &answer);
                world.judge().named("rename", from, change, answer)?;
                if answer.is_ok() && from != to { world.judge().gone(&world.store, from) } else { Ok(()) }
            }
            Act::Unlink(path) => {
                let change = world.judge().unlink(mount, path);
                let answer = process.unlink(path).await;
                self.note(call, &answer);
                world.judge().named("unlink", path, change, answer)?;
                if answer.is_ok() { world.judge().gone(&world.store, path) } else { Ok(()) }
            }
            Act::MakeFolder(path) => {
                let change = world.judge().make_folder(mount, path, place.marks_folders());
                let answer = process.mkdir(path).await;
                self.note(call, &answer);
                world.judge().folder_changed(change, answer, limit, &world.store)
            }
            Act::RemoveFolder(path) => {
                let change = world.judge().remove_folder(mount, path);
                let answer = process.rmdir(path).await;
                self.note(call, &answer);
                world.judge().folder_changed(change, answer, limit, &world.store)
            }
            Act::RenameFolder(from, to) => {
                let change = world.judge().rename_folder(mount, from, to);
                let answer = process.rename(from, to).await;
                self.note(call, &answer);
                world.judge().folder_changed(change, answer, limit, &world.store)
            }
            Act::Set(path, what) => {
                let setting = world.judge().set(mount, path, *what);
                let change = match *what {
                    Attribute::Mode(mode) => AttrChange { mode: Some(mode), ..AttrChange::default() },
                    Attribute::Time(seconds) => {
                        let time = NewTime::At(UNIX_EPOCH + Duration::from_secs(seconds));
                        AttrChange { mtime: Some(time), ..AttrChange::default() }
                    }
                };
                let answer = process.set_attr(path, change).await;
                self.note(call, &answer);
                world.judge().was_set(path, setting, answer)
            }
            Act::Hint(file, text) => self.hint(call, file, text).await,
            Act::Pause(_) | Act::Put(..) | Act::Delete(_) | Act::Kill | Act::TakeOver(..) => Ok(()),
        }
    }

    /// The program's own process; a stranger has no open file.
    fn own(&self) -> &Process {
        self.process.as_ref().expect("who opens a file uses a mount")
    }

    fn writable(&mut self, slot: Slot) -> Option<&mut (Fd, Opened)> {
        self.open.get_mut(&slot).filter(|(_, opened)| opened.writes())
    }

    /// A call on an open file has failed, or not.
    fn done(&self, opened: &Opened, answer: Result<(), i32>) -> Check {
        let Err(errno) = answer else { return Ok(()) };
        let judge = self.world.judge();
        // Who writes a file that was removed may need bytes of the object that is gone.
        let is_gone =
            if opened.writes() { judge.may_be_gone(opened) } else { judge.may_have_changed(opened) };
        let is_stale = errno == libc::ESTALE && is_gone;
        // The daemon that had its bytes has died.
        let is_lost = matches!(errno, libc::EIO | libc::ESTALE)
            && (judge.may_be_lost(opened) || (judge.was_orphaned(opened) && is_gone));
        if is_stale || is_lost || (judge.is_shared() && matches!(errno, libc::ESTALE | libc::ENOENT)) {
            return Ok(());
        }
        Err(Broken { rule: Rule::Errno, what: format!("errno {errno}") })
    }

    async fn read(&self, call: u16, slot: Slot, at: u64, cells: u64) -> Result<u64, Broken> {
        let Some((fd, opened)) = self.open.get(&slot) else { return Ok(0) };
        if opened.flags & libc::O_ACCMODE == libc::O_WRONLY {
            return Ok(0);
        }
        let asked = self.world.ticks.next();
        let answer = self.own().pread(*fd, at * CELL, (cells * CELL) as usize).await;
        self.note(
            call,
            &answer.as_ref().map(|bytes| crate::content::shown(&crate::content::decode(bytes, at))),
        );
        match answer {
            Ok(bytes) => {
                let got = bytes.len() as u64 / CELL;
                // A read that the daemon's death cuts off has the bytes that came before.
                let cells = if self.is_cut_off() { got } else { cells };
                self.world.judge().read(opened, asked, at..at + cells, &bytes)?;
                Ok(got)
            }
            Err(errno) => self.done(opened, Err(errno)).map(|()| 0),
        }
    }

    async fn write(&mut self, (call, tag): (u16, Tag), slot: Slot, at: u64, cells: u64) -> Check {
        let Some((fd, opened)) = self.writable(slot) else { return Ok(()) };
        let appends = opened.flags & libc::O_APPEND != 0;
        opened.wrote = true;
        opened.only_appends &= appends;
        let (fd, opened) = (*fd, opened.clone());
        let (edit, bytes) = if appends {
            (self.world.judge().append(&opened, tag, cells), appended(tag, cells))
        } else {
            let value = Value::Written(tag);
            (self.world.judge().edit(&opened, Edit::Write(at..at + cells, value)), fill(tag, at..at + cells))
        };
        let answer = if appends {
            self.own().write(fd, &bytes).await
        } else {
            self.own().pwrite(fd, at * CELL, &bytes).await
        };
        self.note(call, &answer);
        match answer {
            Ok(written) if written == bytes.len() => {
                self.world.judge().edited(edit);
                Ok(())
            }
            // A write that the daemon's death cuts off has written the bytes that went before.
            Ok(_) if self.is_cut_off() || self.world.judge().may_be_lost(&opened) => Ok(()),
            Ok(written) => Err(Broken { rule: Rule::Posix, what: format!("{written} bytes were written") }),
            Err(errno) => self.done(&opened, Err(errno)),
        }
    }

    /// Stores bytes to a shared map.
    async fn write_to_map(&mut self, call: u16, slot: Slot, cells: Range<u64>) -> Check {
        let Some((fd, opened)) = self.writable(slot) else { return Ok(()) };
        let (fd, opened) = (*fd, opened.clone());
        let map = match self.maps.get(&slot) {
            Some(map) => *map,
            None => match self.own().mmap(fd, true).await {
                Ok(map) => *self.maps.entry(slot).or_insert(map),
                Err(errno) => return self.done(&opened, Err(errno)),
            },
        };
        let value = Value::Written(Tag { writer: self.program.number, call });
        let edit = self.world.judge().edit(&opened, Edit::Store(cells.start..cells.start, value));
        let size = match self.own().fstat(fd).await {
            Ok(stat) => stat.size / CELL,
            Err(errno) => return self.done(&opened, Err(errno)),
        };
        let cells = cells.start.min(size)..cells.end.min(size);
        let had_written = opened.wrote;
        if let (false, Some((_, opened))) = (cells.is_empty(), self.writable(slot)) {
            opened.wrote = true;
        }
        self.world.judge().turn(edit, Edit::Store(cells.clone(), value));
        let bytes = fill(Tag { writer: self.program.number, call }, cells.clone());
        let answer = self.own().map_write(map, cells.start * CELL, &bytes).await;
        self.note(call, &answer);
        match answer {
            Ok(()) => {
                self.world.judge().edited(edit);
                Ok(())
            }
            // SIGBUS: the file was cut, or the bytes around are gone.
            Err(libc::EFAULT) if self.world.judge().may_lack(&opened, cells) => {
                // Nobody has to store what was not written (promise 11).
                if let Some((_, opened)) = self.writable(slot) {
                    opened.wrote = had_written;
                }
                Ok(())
            }
            Err(errno) => self.done(&opened, Err(errno)),
        }
    }

    /// Writes lines to a file of `.s3mount`. Nobody is told of a hint that is no use, but of a file that can't be kept.
    async fn hint(&self, call: u16, file: &str, text: &str) -> Check {
        let errno = |errno: i32| Broken { rule: Rule::Errno, what: format!("errno {errno}") };
        let fd = self.own().open(&format!(".s3mount/{file}"), libc::O_WRONLY).await.map_err(errno)?;
        let written = self.own().write(fd, text.as_bytes()).await;
        self.note(call, &written);
        let closed = self.own().close(fd).await;
        if file != "keep" {
            written.map_err(errno)?;
        }
        closed.map_err(errno)
    }

    async fn copy(&mut self, call: u16, from: Slot, to: Slot, cells: u64) -> Check {
        let Some((source, from)) = self.open.get(&from).cloned() else { return Ok(()) };
        let Some((fd, opened)) = self.writable(to) else { return Ok(()) };
        if from.flags & libc::O_ACCMODE == libc::O_WRONLY || from.path == opened.path {
            return Ok(());
        }
        opened.wrote = true;
        let (fd, opened) = (*fd, opened.clone());
        let asked = self.world.ticks.next();
        let edit = self.world.judge().edit(&opened, Edit::Write(0..cells, Value::Any));
        let answer = self.own().copy_file_range(source, 0, fd, 0, (cells * CELL) as usize).await;
        self.note(call, &answer);
        match answer {
            Ok(_) | Err(libc::EOPNOTSUPP | libc::EXDEV | libc::EINVAL) => {
                // Programs that are refused then copy by themselves.
                let cells = answer.unwrap_or(0) as u64 / CELL;
                self.world.judge().copied((&from, asked), edit, cells);
                Ok(())
            }
            Err(libc::EIO | libc::ESTALE) if self.world.judge().may_be_lost(&opened) => Ok(()),
            Err(errno) => self.done(&from, Err(errno)),
        }
    }

    pub(super) async fn close(&mut self, slot: Slot) -> Check {
        let Some((fd, opened)) = self.open.remove(&slot) else { return Ok(()) };
        let world = self.world.clone();
        let asked = world.ticks.next();
        if let Some(map) = self.maps.remove(&slot) {
            // What can't be written back is told to who closes the file.
            let _told_later = self.own().munmap(map).await;
        }
        let answer = self.own().close(fd).await;
        self.note(0, &(slot, &answer));
        // Who has only made or emptied a file says so by closing his last descriptor of it (promise 25).
        let has_another = self.open.values().any(|(_, other)| world.judge().may_be_same(&opened, other));
        let is_said = opened.wrote || (opened.has_emptied && !has_another);
        let is_half = opened.has_emptied && !is_said;
        let was_last = world.judge().closed(&opened, asked, !is_half);
        if is_half {
            self.unsaid.push(opened.clone());
        }
        let is_open =
            |one: &Opened| self.open.values().any(|(_, other)| world.judge().may_be_same(one, other));
        let (half, said): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unsaid).into_iter().partition(is_open);
        self.unsaid = half;
        said.iter().for_each(|one| world.judge().said(one));
        self.done(&opened, answer)?;
        let is_delayed =
            self.place.as_ref().is_some_and(|place| place.delays_appends() && opened.only_appends);
        let is_behind = self.place.as_ref().filter(|place| place.is_behind());
        if let Some(place) = is_behind.filter(|_| answer.is_ok() && is_said && was_last) {
            if self.draw.happens(500) {
                // Programs write on, and daemons are killed, before it is uploaded.
                return world.judge().acknowledged(&opened, asked);
            }
            if !place.flush().await {
                return Ok(());
            }
        }
        let is_stored = is_said && was_last && !is_delayed;
        if answer.is_ok() && opened.wrote && is_stored {
            world.judge().outlived(&world.store, &opened, asked)?;
        }
        match answer {
            Ok(()) if is_stored => world.judge().stored(&world.store, &opened, asked),
            Ok(()) => world.judge().kept(&opened),
            Err(libc::ESTALE) => world.judge().conflict(&opened, asked),
            Err(_) => Ok(()),
        }
    }
}

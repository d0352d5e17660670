//! What names stand for, compared with the model.

use super::Judge;
use crate::content::CELL;
use crate::history::Target;
use crate::promise::{Check, Rule, broken};

impl Judge {
    /// A program asks to change a name. Returns what to hand to [`named`](Self::named).
    pub fn rename(&mut self, mount: usize, from: &str, to: &str) -> (u64, Vec<(String, usize)>) {
        let asked = self.ticks.next();
        if let Some(shared) = &mut self.shared {
            [from, to].into_iter().for_each(|path| shared.begin(mount, path, asked));
        }
        if self.is_shared() || from == to {
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
    pub fn unlink(&mut self, mount: usize, path: &str) -> (u64, Vec<(String, usize)>) {
        let asked = self.ticks.next();
        if let Some(shared) = &mut self.shared {
            shared.begin(mount, path, asked);
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
        self.shared.iter_mut().for_each(|shared| shared.named(asked, now, answer.is_ok()));
        if answer == Err(libc::ENOTCONN) {
            return Err(broken(Rule::Errno, format!("{call}({path}) has no answer")));
        }
        let mut own = Vec::new();
        for (path, change) in changes {
            own.push((self.name(&path).take(change), path, change));
        }
        let targets = self.found(path, asked, now);
        let told = |what: &str| format!("{call} {what}, where {path} may be {targets:?}");
        let is_unsure = targets.contains(&Target::Unknown);
        let verdict = match answer {
            Ok(()) if targets == [Target::Nothing] => Err(broken(Rule::Posix, told("found it"))),
            Ok(()) => Ok(true),
            Err(libc::ENOENT) if own.iter().any(|(_, path, _)| self.may_lack_folder(path, asked, now)) => {
                Ok(false)
            }
            Err(libc::ENOENT) if is_unsure || targets.contains(&Target::Nothing) => Ok(false),
            Err(libc::ENOENT | libc::ESTALE) if self.is_shared() => Ok(false),
            Err(libc::ESTALE) if self.stale_times(path, asked, now) > 1 => Ok(false),
            Err(errno) => Err(broken(Rule::Errno, told(&format!("gave errno {errno}")))),
        }?;
        for (target, path, change) in own {
            if verdict && self.is_moving(&path, asked, now) {
                self.confuse(&path, asked, now);
            } else if verdict {
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
        self.shows(call, path, &self.found(path, asked, self.ticks.now()), is_there)
    }

    /// Whether it is right that a name is shown as there, or as not there.
    pub(super) fn shows(&self, call: &str, path: &str, targets: &[Target], is_there: bool) -> Check {
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

    /// `stat` has shown the size of a name, or that it is not there.
    ///
    /// # Errors
    /// When that is wrong.
    pub fn stat(&mut self, mount: usize, path: &str, asked: u64, bytes: Option<u64>) -> Check {
        let now = self.ticks.next();
        if let Some(shared) = &mut self.shared {
            return shared.stat((mount, path.to_owned()), (asked, now), bytes);
        }
        self.shown("stat", path, asked, bytes.is_some())?;
        let (Some(bytes), [Target::File(file)]) = (bytes, &self.found(path, asked, now)[..]) else {
            return Ok(());
        };
        let Some((least, most)) = self.files[*file].cells(asked, now) else { return Ok(()) };
        let cells = bytes / CELL;
        let wrong =
            || broken(Rule::Posix, format!("stat({path}) shows {cells} cells, and it has {least} to {most}"));
        (least..=most).contains(&cells).then_some(()).ok_or_else(wrong)
    }

    /// Whether a name that was removed may be there between two moments, because the store has done a request late
    /// (promise 27).
    pub(super) fn has_come_back(&self, path: &str, from: u64, to: u64) -> bool {
        !self.is_shared() && self.store.has_come_back(path, from, to)
    }

    /// All names that any program has used.
    pub fn paths(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }
}

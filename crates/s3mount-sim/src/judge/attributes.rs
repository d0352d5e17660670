//! Modes and times of files, compared with the model (promise 40).

use std::time::{SystemTime, UNIX_EPOCH};

use super::Judge;
use crate::history::{Attribute, Target};
use crate::promise::{Check, Rule, broken};
use crate::store::SimStore;

/// The mode of files of which none is known.
const DEFAULT_MODE: u32 = 0o644;

/// A program sets something of the files that a name may stand for.
#[derive(Debug)]
pub struct Setting {
    asked: u64,
    mount: usize,
    what: Attribute,
    sets: Vec<(usize, usize)>,
}

impl Judge {
    fn ask_set(&mut self, setting: &mut Setting, targets: &[Target]) {
        for target in targets {
            if let Target::File(file) = target
                && !setting.sets.iter().any(|(of, _)| of == file)
            {
                setting.sets.push((*file, self.files[*file].ask_set(setting.asked, setting.what)));
            }
        }
    }

    /// A program sets something of a file.
    pub fn set(&mut self, mount: usize, path: &str, what: Attribute) -> Setting {
        let asked = self.ticks.next();
        let mut setting = Setting { asked, mount, what, sets: Vec::new() };
        self.ask_set(&mut setting, &self.targets(path, asked, asked));
        setting
    }

    /// It is set, or not.
    ///
    /// # Errors
    /// When there should be another answer.
    pub fn was_set(&mut self, path: &str, mut setting: Setting, answer: Result<(), i32>) -> Check {
        let (asked, now) = (setting.asked, self.ticks.next());
        let targets = self.found(path, asked, now);
        self.ask_set(&mut setting, &targets);
        let told = |what: &str| format!("{:?} {what}, where {path} may be {targets:?}", setting.what);
        let is_unsure = self.is_shared() || targets.contains(&Target::Unknown);
        match answer {
            Ok(()) if targets == [Target::Nothing] => return Err(broken(Rule::Posix, told("found it"))),
            // It may be written later, and be lost (promises 25 and 40).
            Ok(()) => self.shared.iter_mut().for_each(|shared| shared.keep_name(setting.mount, path)),
            Err(libc::ENOENT) if is_unsure || targets.contains(&Target::Nothing) => return Ok(()),
            Err(libc::ESTALE) if is_unsure => return Ok(()),
            // The kernel looks a name up again once.
            Err(libc::ESTALE) if self.name(path).may_change_times(2, asked, now) => return Ok(()),
            Err(errno) => return Err(broken(Rule::Errno, told(&format!("gave errno {errno}")))),
        }
        if let [Target::File(only)] = targets[..] {
            for (file, set) in setting.sets {
                self.files[file].answer_set(set, (file == only).then_some(now));
            }
        }
        Ok(())
    }

    /// `stat` has shown mode and time of a name.
    ///
    /// # Errors
    /// When they are others.
    pub fn shows_attributes(&self, path: &str, asked: u64, mode: Option<u16>, time: SystemTime) -> Check {
        let now = self.ticks.now();
        let [Target::File(file)] = self.found(path, asked, now)[..] else { return Ok(()) };
        let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let shown = [Attribute::Mode(mode.map_or(DEFAULT_MODE, u32::from)), Attribute::Time(seconds)];
        self.has(file, shown, (asked, now)).map_err(|wrong| {
            broken(
                Rule::Posix,
                format!("stat({path}) shows {wrong:?}, which nobody has set, and not what was set"),
            )
        })
    }

    /// Whether a file may have attributes between two moments; if not, which of them is wrong.
    fn has(&self, file: usize, all: [Attribute; 2], (from, to): (u64, u64)) -> Result<(), Attribute> {
        let is_wrong = |of: &&Attribute| !self.files[file].may_have(**of, Some(**of), from, to);
        all.iter().find(is_wrong).map_or(Ok(()), |wrong| Err(*wrong))
    }

    /// Compares what objects have beside their bytes with the model, once all is over.
    ///
    /// # Errors
    /// When they differ.
    pub fn finally_attributes(&self, store: &SimStore) -> Check {
        let now = self.ticks.next();
        for path in self.paths() {
            let [Target::File(file)] = self.targets(&path, now, now)[..] else { continue };
            let number = |name| store.metadata(&path)?.get(name)?.parse::<u64>().ok();
            // What a file is shown with as it is may have been left away.
            let mode = number("mode").map_or(DEFAULT_MODE, |mode| mode as u32 & 0o7777);
            let kept = [
                (Attribute::Mode(0), Some(Attribute::Mode(mode))),
                (Attribute::Time(0), number("mtime").map(Attribute::Time)),
            ];
            let is_right = |(like, kept): &(_, _)| self.files[file].may_have(*like, *kept, now, now);
            if let Some((_, wrong)) = kept.iter().find(|kept| !is_right(kept)) {
                let what =
                    format!("in the end, {path} in the store has {wrong:?}, which is not what was set");
                return Err(broken(Rule::Stored, what));
            }
        }
        Ok(())
    }
}

//! Folders that get other names, with all that lies below them, compared with the model.

use super::Judge;
use super::folder_names::Move;
use crate::history::{NEVER, Target};
use crate::promise::{Check, Rule, broken};
use crate::store::{SimStore, live};

impl Judge {
    /// All names below a folder have changed in one step (promise 33), and so has the store.
    pub(super) fn moved(
        &mut self,
        (from, to): (&str, &str),
        (asked, now): (u64, u64),
        store: &SimStore,
    ) -> Check {
        let mut stay = Vec::new();
        for leaf in self.leaves_of_both((from, to)) {
            let [old, new] = [from, to].map(|folder| format!("{folder}/{leaf}"));
            let there = match self.targets(&old, asked, now)[..] {
                [target] => target,
                _ => Target::Unknown,
            };
            let was_empty = self.targets(&new, asked, now) == [Target::Nothing];
            let there_now = if was_empty { there } else { Target::Unknown };
            self.name(&old).change(asked, now, Target::Nothing);
            self.name(&new).change(asked, now, there_now);
            stay.push((old, new, there_now));
        }
        for (old, new, target) in stay {
            self.gone(store, &old)?;
            let Target::File(file) = target else { continue };
            if self.files[file].stored > 0 && !self.is_behind && !self.has_writers(file, asked) {
                self.is_at(store, (&[&new], file), (asked, now)).map_err(|wrong| {
                    broken(
                        Rule::Stored,
                        format!("after the rename of its folder, {new} in the store is wrong: {wrong}"),
                    )
                })?;
            }
        }
        self.has_no_marker(from, store)
    }

    /// Whether the store has a file at one of some paths between two moments.
    fn is_at(
        &self,
        store: &SimStore,
        (paths, file): (&[&String], usize),
        (from, to): (u64, u64),
    ) -> Result<(), String> {
        let mut wrong = "it is not there".to_owned();
        for path in paths {
            let versions = store.versions(path);
            for version in live(&versions, from, to) {
                let Some(bytes) = &version.bytes else { continue };
                match self.files[file].check_whole(bytes, from, to) {
                    Ok(()) => return Ok(()),
                    Err(text) => wrong = text,
                }
            }
        }
        Err(wrong)
    }

    /// A listing of a folder that gets another name meanwhile has all that lies in it, or nothing (promise 33).
    pub(super) fn is_not_half(&self, folder: &str, asked: u64, names: &[String]) -> Check {
        let now = self.ticks.now();
        let moves: Vec<&Move> = self.folders.moves(folder, asked, now).collect();
        let [one] = moves[..] else { return Ok(()) };
        let before = asked.min(one.asked).saturating_sub(1);
        let is_still = |folder: &str| {
            self.folders.names.get(folder).is_none_or(|name| !name.may_change_times(2, before, now))
        };
        if !is_still(&one.from) || !is_still(&one.to) {
            return Ok(());
        }
        let stays = |leaf: &String| {
            let paths = [&one.from, &one.to].map(|folder| format!("{folder}/{leaf}"));
            let is_still = |path: &String| {
                self.names.get(path).is_none_or(|name| !name.may_change_times(2, before, now))
            };
            let is_file = matches!(self.targets(&paths[0], before, before)[..], [Target::File(_)]);
            is_file && paths.iter().all(is_still) && {
                // Beside the move, nobody has changed it.
                let own = usize::from(one.answered != NEVER);
                self.names.get(&paths[0]).is_none_or(|name| !name.may_change_times(own + 1, before, now))
            }
        };
        // A folder that holds something is not replaced.
        let is_nothing =
            |leaf: &String| self.targets(&format!("{}/{leaf}", one.to), before, before) == [Target::Nothing];
        if !self.leaves(&one.to).iter().all(is_nothing) {
            return Ok(());
        }
        let there: Vec<String> = self.leaves(&one.from).into_iter().filter(stays).collect();
        let shown = there.iter().filter(|leaf| names.contains(leaf)).count();
        if shown != 0 && shown != there.len() {
            let what = format!("the list of {folder} shows {names:?}, half of {there:?}, while {one:?}");
            return Err(broken(Rule::Posix, what));
        }
        Ok(())
    }

    /// Names below folders whose rename was cut off may be at either place. Each file is at one of them, and all are at
    /// the same once that `is_recovered` (promise 35).
    pub(super) fn survive_moves(&mut self, store: &SimStore, is_recovered: bool) -> Check {
        let now = self.ticks.next();
        let cut_off: Vec<Move> =
            self.folders.moves.iter().filter(|of| of.answered == NEVER).cloned().collect();
        for of in cut_off {
            let (mut at_old, mut at_new) = (Vec::new(), Vec::new());
            for leaf in self.leaves_of_both((&of.from, &of.to)) {
                let [old, new] = [&of.from, &of.to].map(|folder| format!("{folder}/{leaf}"));
                let there = match self.targets(&old, of.asked, now)[..] {
                    [target] => target,
                    _ => Target::Unknown,
                };
                let was_empty = self.targets(&new, of.asked, now) == [Target::Nothing];
                if let (true, Target::File(file)) = (was_empty, there)
                    && self.files[file].stored > 0
                    && !self.has_writers(file, of.asked)
                {
                    self.is_at(store, (&[&old, &new], file), (now, now)).map_err(|wrong| {
                        broken(
                            Rule::Stored,
                            format!("after the kill, {old} is not in the store, nor is {new}: {wrong}"),
                        )
                    })?;
                    at_old.extend(store.bytes(&old).map(|_| old.clone()));
                    at_new.extend(store.bytes(&new).map(|_| new.clone()));
                }
                self.name(&old).ask(of.asked, Target::Nothing);
                self.name(&new).ask(of.asked, if was_empty { there } else { Target::Unknown });
            }
            if is_recovered && !at_old.is_empty() && !at_new.is_empty() {
                let what = format!("after the recovery, {at_old:?} and {at_new:?} are in the store");
                return Err(broken(Rule::Whole, what));
            }
        }
        Ok(())
    }
}

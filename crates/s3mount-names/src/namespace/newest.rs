//! Chooses the newest of pages and answers: a shown name never goes back to an older state.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Namespace;
use crate::error::NamesError;
use crate::fact::Fact;
use crate::name::{NameKind, Named, NamedDraft, Target};
use crate::pages::snapshots::Known;

/// The most times that a look-up asks again because its answer was late. Then it returns an answer that is not cached.
const MOST_AGAIN: usize = 2;

impl<D: NamedDraft> Namespace<D> {
    /// Newer facts about names, in the order of their keys, than the listings that have shown them, if there are any. A
    /// name in doubt keeps its shown state, and is not cached.
    pub fn newer<'a>(
        &self,
        prefix: &str,
        names: impl Iterator<Item = &'a Named<D>> + Clone,
    ) -> Vec<Option<Fact<D>>> {
        let shown = names.clone().map(|named| (&*named.name, named.target.kind(), named.at));
        let now = Instant::now();
        let newer = self.snapshots.newer(prefix, shown, now);
        let merge = |(named, known): (&Named<D>, Option<Known>)| {
            let fact = known.and_then(|known| match known {
                Known::InDoubt => {
                    Some(Fact { target: Some(named.target.clone()), at: named.at, left: Duration::ZERO })
                }
                known => self.fact((prefix, &named.name), known, now),
            });
            let at = fact.as_ref().map_or(named.at, |fact| fact.at);
            let own = self.overlay.since(prefix, &named.name, at);
            own.map(|target| self.own_fact(target)).or(fact)
        };
        names.zip(newer).map(merge).collect()
    }

    /// The names after the key `after` and up to the key `upto` (unset: the end) in the directory `prefix` from pages
    /// that were requested after `at`, or from this mount's changes since. Also returns whether there may be others,
    /// which are in doubt.
    pub fn shown_since(
        &self,
        prefix: &str,
        (after, upto): (&str, Option<&str>),
        at: Instant,
    ) -> (Vec<Named<D>>, bool) {
        let (mut names, is_in_doubt) = self.snapshots.shown_since(prefix, after, upto, at);
        names.extend(self.overlay.made_since(prefix, (after, upto), at));
        (names, is_in_doubt)
    }

    /// Calls `act` with a fact about a name, unless this mount has changed the name since.
    pub fn unless_overtaken<T>(
        &self,
        prefix: &str,
        name: &str,
        fact: &Fact<D>,
        act: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        self.overlay.unless_overtaken(prefix, name, fact, act)
    }

    /// How many pages so far have shown that names had changed.
    pub fn changes(&self) -> u64 {
        self.snapshots.changes()
    }

    /// Asks the store for `name`, and again while pages have shown another state since the request: then the answer is
    /// late, and a shown name never goes back to an older state.
    pub(super) async fn find_newest(
        self: &Arc<Self>,
        prefix: &Arc<str>,
        name: &str,
    ) -> Result<Fact<D>, NamesError> {
        let mut found = self.find(prefix, name).await?;
        for _ in 0..MOST_AGAIN {
            if !self.is_overtaken(prefix, name, &found) {
                break;
            }
            found = self.find(prefix, name).await?;
        }
        Ok(found)
    }

    /// The state of a name that pages have shown since the request of this answer, if it differs, even if it has
    /// expired.
    fn unlike(&self, prefix: &str, name: &str, answer: &Fact<D>) -> Option<Known> {
        let kind = answer.target.as_ref().map_or(NameKind::File, Target::kind);
        let asked = std::iter::once((name, kind, answer.at));
        let known = self.snapshots.newer(prefix, asked, Instant::now()).pop().flatten()?;
        let is_same = match known {
            Known::InDoubt | Known::Unknown => false,
            Known::Found(..) | Known::Absent(_) => match (known.stored(), &answer.target) {
                (None, None) => true,
                (Some(stored), Some(target)) => target == stored,
                (Some(_), None) | (None, Some(_)) => false,
            },
        };
        (!is_same).then_some(known)
    }

    /// Whether pages have shown another state of a name since the request of this answer.
    pub(super) fn is_overtaken(&self, prefix: &str, name: &str, answer: &Fact<D>) -> bool {
        self.unlike(prefix, name, answer).is_some()
    }

    /// Gives the kernel a name by `look_up`, with a fact that was the newest when the count of changes was `changes`.
    /// Returns `None` if the fact is no longer true: this mount has changed the name, or a page has shown a change
    /// before the kernel knew the name, when the listener could do nothing. Then calls `take_back`.
    pub fn give<T>(
        &self,
        (prefix, name): (&str, &str),
        fact: &Fact<D>,
        changes: u64,
        look_up: impl FnOnce() -> Option<T>,
        take_back: impl FnOnce(T),
    ) -> Option<T> {
        let given = self.unless_overtaken(prefix, name, fact, look_up)?;
        let has_changed = self.changes() != changes
            && self.unlike(prefix, name, fact).is_some_and(|known| {
                // If the name is in doubt, the kernel asks again.
                known != Known::InDoubt || !fact.left.is_zero()
            });
        if !has_changed {
            return Some(given);
        }
        take_back(given);
        // The kernel may know the name from another answer, which may have changed, too.
        self.listener.tell(prefix, &[name.into()]);
        None
    }
}

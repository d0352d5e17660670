//! Changes that are in the spool's file before they are acknowledged, so that another process can go on with the draft.
//!
//! A change has three steps, in the draft's turn. First it is made in memory, as without a keeper. Then its bytes are
//! written to the spool's file, and at last the keeper is told. What goes to the file because memory is short can't come
//! between with older bytes: it takes the file's newest, and its place in the file alone (`spooling`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Draft;
use crate::kept::KeptChanges;
use crate::state::Keeping;

impl Draft {
    /// Has `keeper` told of each change from now on, so that another process can go on with the draft
    /// ([`Writer::go_on`](crate::Writer::go_on)). To be called once, before the first change. Nothing is kept without a
    /// spool.
    pub fn keep(&self, keeper: Arc<dyn KeptChanges>) {
        if self.shared.spool.is_some() {
            // A second one is told of nothing.
            let _ = self.keeper.set(keeper);
        }
    }

    /// Whether changes have to wait until they are in the spool's file.
    pub(super) fn is_kept(&self) -> bool {
        self.keeper.get().is_some() && self.state().keeping != Keeping::GivenUp
    }

    /// Begins a change. `None` if nobody is to be told of it.
    pub(super) async fn begin_change(&self) -> Option<&Arc<dyn KeptChanges>> {
        let keeper = self.keeper.get()?;
        let before = {
            let mut state = self.state();
            if state.failed.is_some() {
                return None;
            }
            let before = state.keeping;
            if before == Keeping::Kept {
                state.keeping = Keeping::Changing;
            }
            before
        };
        match before {
            Keeping::Kept => Some(keeper),
            Keeping::GivenUp => None,
            Keeping::Changing => {
                // The call that made the change before was cut off, and the keeper does not know how far it got.
                self.give_up_keeping();
                None
            }
            Keeping::Unchanged => match self.begin_keeping(keeper).await {
                Ok(true) => self.is_kept().then_some(keeper),
                Ok(false) => {
                    self.give_up_keeping();
                    None
                }
                Err(error) => {
                    self.tell_unkept(&error);
                    self.give_up_keeping();
                    None
                }
            },
        }
    }

    /// Tells the keeper of the file, which has no bytes of the draft yet. Returns whether it takes the file.
    async fn begin_keeping(&self, keeper: &Arc<dyn KeptChanges>) -> io::Result<bool> {
        let _alone = self.spooling.write().await;
        let file = self.spool_file().await?;
        let (base_bytes, size) = {
            let state = self.state();
            (state.published.as_ref().map_or(0, |(_, published)| published.size), state.size())
        };
        if !keeper.begin(file.bytes(), base_bytes, size)? {
            return Ok(false);
        }
        let has_failed = {
            let mut state = self.state();
            state.keeping = Keeping::Changing;
            state.failed.is_some()
        };
        if has_failed {
            self.give_up_keeping();
        }
        Ok(true)
    }

    /// Ends a change that wrote `data` at `offset`, if it `is_done`.
    pub(super) async fn end_write_kept(
        &self,
        keeper: &Arc<dyn KeptChanges>,
        offset: u64,
        data: Bytes,
        is_done: bool,
    ) {
        let end = offset + data.len() as u64;
        if is_done && let Err(error) = self.write_through(offset, data).await {
            self.tell_unkept(&error);
            self.give_up_keeping();
        }
        self.end_change(|| {
            if is_done {
                keeper.wrote(offset, end);
            }
        });
    }

    /// Ends a change, of which `tell` tells the keeper, if the draft is still kept.
    pub(super) fn end_change(&self, tell: impl FnOnce()) {
        if self.state().keeping == Keeping::Changing {
            tell();
            let mut state = self.state();
            if state.keeping == Keeping::Changing {
                state.keeping = Keeping::Kept;
            }
        }
    }

    /// Writes bytes that the draft has in memory to the spool's file.
    async fn write_through(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let _alone = self.spooling.write().await;
        let file = self.spool_file().await?;
        let (spool, end) = (file.spool().clone(), offset + data.len() as u64);
        spool.run(move || file.write(&[(offset, data)])).await?;
        self.state().in_file.add(offset, end);
        Ok(())
    }

    /// Tells the keeper that no other process can go on with the draft before it is published.
    pub(super) fn give_up_keeping(&self) {
        let Some(keeper) = self.keeper.get() else { return };
        let is_told = {
            let mut state = self.state();
            let is_told = state.keeping == Keeping::GivenUp || state.is_discarded;
            state.keeping = Keeping::GivenUp;
            is_told
        };
        if !is_told {
            keeper.given_up();
        }
    }

    /// As [`give_up_keeping`](Self::give_up_keeping), if the draft has changed since it was published.
    pub(super) fn give_up_kept(&self) {
        if matches!(self.state().keeping, Keeping::Kept | Keeping::Changing) {
            self.give_up_keeping();
        }
    }

    /// Says once that files are not kept.
    fn tell_unkept(&self, error: &io::Error) {
        let key = self.state().key.clone();
        if self.shared.has_told_unkept.swap(true, Ordering::Relaxed) {
            tracing::debug!(key, %error, "a changed file is lost if the daemon is killed before it is published");
        } else {
            tracing::warn!(
                key, %error,
                "the spool can't take a file: what changes in it is lost if the daemon is killed before it is published"
            );
        }
    }
}

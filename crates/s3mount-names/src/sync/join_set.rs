//! A set of the checker's tasks, with as much of tokio's as this crate uses.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use shuttle::future::{JoinError, JoinHandle};
use tokio::runtime::Handle;

/// Tasks that are given up when the set is dropped.
#[derive(Debug)]
pub(crate) struct JoinSet<T>(Vec<JoinHandle<T>>);

impl<T> JoinSet<T> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Cancels all tasks.
    pub(crate) fn abort_all(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }

    /// The result of an ended task. The checker's tasks are only polled while a caller waits.
    #[expect(clippy::unused_self, reason = "as tokio has it")]
    pub(crate) fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        None
    }

    /// Waits for the first task that ends; `None` if there is none.
    pub(crate) async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|context| {
            for index in 0..self.0.len() {
                if let Poll::Ready(ended) = Pin::new(&mut self.0[index]).poll(context) {
                    drop(self.0.swap_remove(index));
                    return Poll::Ready(Some(ended));
                }
            }
            if self.0.is_empty() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

impl<T: Send + 'static> JoinSet<T> {
    /// Runs `task` as one of the checker's tasks.
    pub(crate) fn spawn_on(&mut self, task: impl Future<Output = T> + Send + 'static, _: &Handle) {
        self.0.push(shuttle::future::spawn(task));
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

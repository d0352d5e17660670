//! Threads for blocking reads, and the waiters for their results.
//!
//! A disk may hang, and a thread that waits for it can't be interrupted. So [`Pool::give_up`] fails tasks that take too
//! long, and their waiters go on. The result of such a thread is dropped when it returns.
//!
//! A waiter is a future, or a function that runs in the thread of the task. The function saves the switch to another
//! thread, which costs as much as the read of a small file.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::disk::clock::SinceBoot;

/// An idle thread ends after this time. Making a thread again takes some 20 µs.
const IDLE: Duration = Duration::from_secs(30);

type Task = Box<dyn FnOnce() + Send>;

/// A waiter whose task can be given up.
trait Waiter: Send + Sync {
    /// Ends the wait without a result. Returns whether it had not ended before.
    fn give_up(&self) -> bool;
}

/// Called with the result of a task, or without one if the task was given up.
type Then<T> = Box<dyn FnOnce(Option<T>) + Send>;

/// The receiver of a task's result, until it is called.
struct Answer<T>(Mutex<Option<Then<T>>>);

impl<T> Answer<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Then<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Then<T>> {
        self.lock().take()
    }
}

impl<T> Waiter for Answer<T> {
    fn give_up(&self) -> bool {
        self.take().map(|then| then(None)).is_some()
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        // The pool is closed, or the task has panicked.
        if let Some(then) = self.take() {
            then(None);
        }
    }
}

/// A bounded set of threads. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<ThreadPool>);

struct ThreadPool {
    name: String,
    max_threads: usize,
    state: Mutex<TaskQueue>,
    came: Condvar,
    /// Notified of each task, in a pool without threads.
    bell: Option<Arc<Notify>>,
}

#[derive(Default)]
struct TaskQueue {
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
    is_closed: bool,
    /// The waiters, and when each began to wait, in the order of their tasks.
    waiters: VecDeque<(SinceBoot, Weak<dyn Waiter>)>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of at most `max_threads` threads of this name, made when they are needed.
    pub(crate) fn new(name: String, max_threads: usize) -> Self {
        let (state, came) = (Mutex::default(), Condvar::new());
        Self(Arc::new(ThreadPool { name, max_threads, state, came, bell: None }))
    }

    /// A pool without threads: tasks wait for [`step`](Self::step), and each notifies `bell`.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn by_hand(bell: Arc<Notify>) -> Self {
        let (state, came) = (Mutex::default(), Condvar::new());
        Self(Arc::new(ThreadPool { name: String::new(), max_threads: 0, state, came, bell: Some(bell) }))
    }

    /// How many tasks wait.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().tasks.len()
    }

    /// Runs the waiting task with this number; the oldest is 0.
    #[cfg(any(test, feature = "by-hand"))]
    pub(crate) fn step(&self, number: usize) {
        let task = self.0.lock().tasks.remove(number);
        if let Some(task) = task {
            task();
        }
    }

    /// Runs `work` in a thread. The result is an error if the task was given up.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        now: SinceBoot,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        // The receiver may be gone.
        self.run_then(now, work, move |result| drop(result.map(|result| sender.send(result))));
        receiver
    }

    /// Runs `work` in a thread, and calls `then` there. If the task is given up, the caller of
    /// [`give_up`](Self::give_up) calls `then`, without a result. If the pool is closed, this thread does. So `then` is
    /// always called.
    pub(crate) fn run_then<T: Send + 'static>(
        &self,
        now: SinceBoot,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(Option<T>) + Send + 'static,
    ) {
        let answer = Arc::new(Answer(Mutex::new(Some(Box::new(then) as Then<T>))));
        let waiter = Arc::downgrade(&answer);
        let task = Box::new(move || {
            // A task that was given up while it waited for a thread is not run.
            if answer.lock().is_none() {
                return;
            }
            let result = work();
            if let Some(then) = answer.take() {
                then(Some(result));
            }
        });
        self.push(now, waiter, task);
    }

    fn push(&self, now: SinceBoot, waiter: Weak<dyn Waiter>, task: Task) {
        let mut state = self.0.lock();
        if state.is_closed {
            drop(state);
            // This calls `then` without a result.
            return drop(task);
        }
        while state.waiters.front().is_some_and(|(_, waiter)| waiter.strong_count() == 0) {
            state.waiters.pop_front();
        }
        state.waiters.push_back((now, waiter));
        state.tasks.push_back(task);
        let needs_thread = state.idle < state.tasks.len() && state.threads < self.0.max_threads;
        if needs_thread {
            state.threads += 1;
        }
        drop(state);
        if needs_thread {
            self.start();
        } else {
            self.0.came.notify_one();
        }
        if let Some(bell) = &self.0.bell {
            bell.notify_one();
        }
    }

    fn start(&self) {
        let pool = self.0.clone();
        let started = std::thread::Builder::new().name(self.0.name.clone()).spawn(move || pool.work());
        if let Err(error) = started {
            tracing::warn!(%error, "start a thread of the disk cache");
            self.0.lock().threads -= 1;
        }
    }

    /// Gives up tasks whose waiters have waited longer than `limit`, because the disk hangs. Returns how many.
    pub(crate) fn give_up(&self, now: SinceBoot, limit: Duration) -> usize {
        let late: Vec<_> = {
            let mut state = self.0.lock();
            state.waiters.retain(|(_, waiter)| waiter.strong_count() > 0);
            let late = state.waiters.partition_point(|(since, _)| now.since(*since) > limit);
            state.waiters.drain(..late).collect()
        };
        late.iter().filter_map(|(_, waiter)| waiter.upgrade()).filter(|waiter| waiter.give_up()).count()
    }

    /// Ends the threads after their present tasks, and gives up the waiting tasks.
    pub(crate) fn close(&self) {
        let tasks = {
            let mut state = self.0.lock();
            state.is_closed = true;
            std::mem::take(&mut state.tasks)
        };
        drop(tasks);
        self.0.came.notify_all();
    }
}

impl ThreadPool {
    fn lock(&self) -> MutexGuard<'_, TaskQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                drop(state);
                // A panic has been logged, and the waiter ends without a result: see `Answer`.
                drop(catch_unwind(AssertUnwindSafe(task)));
                state = self.lock();
                continue;
            }
            if state.is_closed {
                break;
            }
            state.idle += 1;
            let waited = self.came.wait_timeout(state, IDLE);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.tasks.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::Pool;
    use crate::disk::clock::SinceBoot;

    #[tokio::test]
    async fn tasks_are_answered() {
        let pool = Pool::new("test".to_owned(), 3);
        let answers: Vec<_> = (0..100).map(|number| pool.run(SinceBoot(0), move || number * 2)).collect();
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await, Ok(number * 2));
        }
        assert_eq!(pool.give_up(SinceBoot(u64::MAX), Duration::ZERO), 0);
        pool.close();
        assert!(pool.run(SinceBoot(0), || ()).await.is_err());
    }

    #[tokio::test]
    async fn whatever_comes_of_a_task_its_waiter_goes_on() {
        let pool = Pool::new("test".to_owned(), 1);
        let (sender, results) = mpsc::channel();
        let tell = || {
            let sender = sender.clone();
            move |result: Option<std::thread::ThreadId>| sender.send(result).expect("the test waits")
        };
        let here = || std::thread::current().id();
        pool.run_then(SinceBoot(0), here, tell());
        let there = results.recv().expect("a result").expect("it was done");
        assert_ne!(there, here());
        pool.run_then(SinceBoot(0), || panic!("this task is to panic"), tell());
        assert_eq!(results.recv(), Ok(None), "it has panicked");
        pool.run_then(SinceBoot(0), here, tell());
        assert!(results.recv().expect("a result").is_some(), "the thread goes on");
        let (release, hung) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let hang = move || begin.send(()).is_ok() && hung.recv().is_ok();
        drop(pool.run(SinceBoot(0), hang));
        begun.recv().expect("a thread hangs");
        pool.run_then(SinceBoot(0), here, tell());
        assert_eq!(pool.give_up(SinceBoot(20), Duration::from_nanos(10)), 2);
        assert_eq!(results.recv(), Ok(None), "it was given up");
        pool.run_then(SinceBoot(0), here, tell());
        pool.close();
        assert_eq!(results.recv(), Ok(None), "nobody will do it");
        pool.run_then(SinceBoot(0), here, tell());
        assert_eq!(results.recv(), Ok(None), "nobody can do it");
        release.send(()).expect("the thread waits");
        assert!(results.try_recv().is_err(), "each was told once");
    }

    #[tokio::test]
    async fn who_waits_too_long_is_let_go() {
        let pool = Pool::new("test".to_owned(), 1);
        let (release, hung) = mpsc::channel::<()>();
        let first = pool.run(SinceBoot(0), move || hung.recv().is_ok());
        let second = pool.run(SinceBoot(5), || true);
        let third = pool.run(SinceBoot(20), || true);
        assert_eq!(pool.give_up(SinceBoot(20), Duration::from_nanos(10)), 2);
        assert!(first.await.is_err() && second.await.is_err());
        release.send(()).expect("the thread waits");
        assert_eq!(third.await, Ok(true));
    }
}

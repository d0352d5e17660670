//! Permits: how many requests of each class are under way at once, and of all classes together.
//!
//! A class that nobody uses takes no permit from the others. Where several classes wait, they are served in turn,
//! so none of them can keep another from its share, and inside a class who came first is served first.
//!
//! A permit is held only while one attempt at one request is under way, and never by somebody who waits for
//! another permit, for memory or for a lock. So permits always come back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::Class;

const CLASSES: usize = Class::ALL.len();

/// The permits of one store.
#[derive(Debug)]
pub struct Limits {
    most: usize,
    state: Mutex<ClassQueues>,
}

#[derive(Debug, Default)]
struct ClassQueues {
    running: [usize; CLASSES],
    waiting: [VecDeque<oneshot::Sender<Permit>>; CLASSES],
    /// The class that is served first the next time.
    next: usize,
}

/// One request of a class is under way as long as this lives.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    class: Class,
}

impl Limits {
    /// For `most` requests at once: the connections of the store's client.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), state: Mutex::default() })
    }

    /// How many requests of `class` may be under way at once, while no others are.
    ///
    /// Readers may use all connections, and GETs ahead of them all but an eighth. One of four may send bodies, so
    /// that readers always find the others. Questions, and what the store does by itself, take half.
    pub fn most(&self, class: Class) -> usize {
        let most = match class {
            Class::Read => self.most,
            Class::Ahead => self.most - self.most / 8,
            Class::List | Class::Copy => self.most.div_ceil(2),
            Class::Write => self.most.div_ceil(4),
        };
        most.max(1)
    }

    /// How many requests are under way.
    pub fn running(&self) -> usize {
        self.state().running.iter().sum()
    }

    /// A permit, as soon as there is one.
    pub async fn permit(self: &Arc<Self>, class: Class) -> Permit {
        let served = {
            let mut state = self.state();
            if state.waiting[class as usize].is_empty() && self.has_room(&state, class) {
                return self.take(&mut state, class);
            }
            let (sender, served) = oneshot::channel();
            state.waiting[class as usize].push_back(sender);
            served
        };
        // A sender leaves its queue only with a permit, or when nobody listens any more.
        served.await.expect("a request that waits is served")
    }

    /// A permit, if there is one now.
    pub fn try_permit(self: &Arc<Self>, class: Class) -> Option<Permit> {
        let mut state = self.state();
        let is_free = state.waiting.iter().all(VecDeque::is_empty) && self.has_room(&state, class);
        is_free.then(|| self.take(&mut state, class))
    }

    fn state(&self) -> MutexGuard<'_, ClassQueues> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, state: &ClassQueues, class: Class) -> bool {
        let all: usize = state.running.iter().sum();
        // Both kinds of GETs together are reads.
        let (read, ahead) = (Class::Read as usize, Class::Ahead as usize);
        let gets = state.running[read] + state.running[ahead];
        let of_class = match class {
            Class::Read | Class::Ahead => gets,
            Class::List | Class::Write | Class::Copy => state.running[class as usize],
        };
        all < self.most && of_class < self.most(class)
    }

    fn take(self: &Arc<Self>, state: &mut ClassQueues, class: Class) -> Permit {
        state.running[class as usize] += 1;
        Permit { limits: self.clone(), class }
    }

    /// A permit has come back: those who wait get what is free.
    fn give_back(self: &Arc<Self>, class: Class) {
        let mut served = Vec::new();
        {
            let mut state = self.state();
            state.running[class as usize] -= 1;
            while let Some(index) = (0..CLASSES)
                .map(|step| (state.next + step) % CLASSES)
                .find(|index| !state.waiting[*index].is_empty() && self.has_room(&state, Class::ALL[*index]))
            {
                state.next = (index + 1) % CLASSES;
                if let Some(sender) = state.waiting[index].pop_front().filter(|sender| !sender.is_closed()) {
                    served.push((sender, self.take(&mut state, Class::ALL[index])));
                }
            }
        }
        for (sender, permit) in served {
            // The lock is not held here: a request that stopped waiting at this moment gives its permit back.
            drop(sender.send(permit));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limits.give_back(self.class);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::Limits;
    use crate::Class;

    #[test]
    fn all_classes_together_keep_to_the_connections() {
        let limits = Limits::new(16);
        let writes: Vec<_> = std::iter::from_fn(|| limits.try_permit(Class::Write)).collect();
        let lists: Vec<_> = std::iter::from_fn(|| limits.try_permit(Class::List)).collect();
        let reads: Vec<_> = std::iter::from_fn(|| limits.try_permit(Class::Read)).collect();
        assert_eq!((writes.len(), lists.len(), reads.len(), limits.running()), (4, 8, 4, 16));
        drop((writes, lists));
        assert_eq!(limits.running(), 4);
        let ahead: Vec<_> = std::iter::from_fn(|| limits.try_permit(Class::Ahead)).collect();
        assert_eq!(ahead.len(), 10, "an eighth is for readers that wait");
    }

    #[test]
    fn those_who_wait_are_served_in_turn() {
        let limits = Limits::new(1);
        let held = limits.try_permit(Class::Read).expect("one is free");
        let [mut write, mut other, mut list] =
            [Class::Write, Class::Write, Class::List].map(|class| Box::pin(limits.permit(class)));
        for waits in [&mut write, &mut other, &mut list] {
            assert!(waits.now_or_never().is_none());
        }
        drop(write);
        drop(held);
        assert!(limits.try_permit(Class::Read).is_none(), "others came before");
        let list = list.now_or_never().expect("it is its turn");
        assert!((&mut other).now_or_never().is_none(), "all connections are taken");
        drop(list);
        drop(other.now_or_never().expect("a permit"));
        assert_eq!(limits.running(), 0);
    }

    #[test]
    fn a_store_with_one_connection_serves_each_class() {
        let limits = Limits::new(0);
        assert!(Class::ALL.into_iter().all(|class| limits.try_permit(class).is_some()));
    }
}

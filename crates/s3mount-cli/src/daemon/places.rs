//! Places for clients of the control socket that stay: who send hints, or listen to events.
//!
//! Each user has places of his own, so that no user keeps another out. The owner of the mount and root share the
//! owner's. One user may have many numbers, so all others together have a bound, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The places of each user.
const OF_ONE: usize = 64;

/// The places of all users but the owner.
const OF_OTHERS: usize = 128;

/// The user of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// The user who mounted, or root.
    Owner,
    /// Another user, by number.
    Other(u32),
}

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    owner: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// Those of the other users who have clients.
    by_user: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// A place. Dropping it makes it free.
#[derive(Debug)]
pub(super) struct Place {
    _of_user: OwnedSemaphorePermit,
    _of_others: Option<OwnedSemaphorePermit>,
}

impl Default for Places {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self { owner: places(OF_ONE), others: places(OF_OTHERS), by_user: Mutex::default() }
    }
}

impl Places {
    /// Waits for a place.
    pub(super) async fn take(&self, client: Client) -> Option<Place> {
        let of_user = match client {
            Client::Owner => self.owner.clone(),
            Client::Other(uid) => self.of_user(uid),
        };
        // It fails only for a semaphore that was closed.
        let _of_user = of_user.acquire_owned().await.ok()?;
        let _of_others = match client {
            Client::Owner => None,
            Client::Other(_) => Some(self.others.clone().acquire_owned().await.ok()?),
        };
        Some(Place { _of_user, _of_others })
    }

    fn of_user(&self, uid: u32) -> Arc<Semaphore> {
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        // Each client holds the semaphore of its user.
        by_user.retain(|_, places| Arc::strong_count(places) > 1);
        by_user.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::{Client, OF_ONE, OF_OTHERS, Place, Places};

    /// As many places as a client can have now.
    fn all(places: &Places, client: Client) -> Vec<Place> {
        std::iter::from_fn(|| places.take(client).now_or_never().flatten()).collect()
    }

    #[test]
    fn no_user_keeps_another_out() {
        let places = Places::default();
        let first = all(&places, Client::Other(1));
        let (second, third) = (all(&places, Client::Other(2)), all(&places, Client::Other(3)));
        assert_eq!([first.len(), second.len(), third.len()], [OF_ONE, OF_ONE, OF_OTHERS - 2 * OF_ONE]);
        assert_eq!(all(&places, Client::Owner).len(), OF_ONE);
        drop((first, second));
        assert_eq!(all(&places, Client::Other(3)).len(), OF_ONE);
        assert_eq!(places.by_user.lock().expect("no panic").len(), 1, "who has left is forgotten");
    }
}

//! Mounts that promise blocks and do not bring them, and whether other mounts are usually first. Pure: the caller
//! passes times.

use std::collections::HashMap;
use std::time::Duration;

use s3mount_object::UserMetadata;

/// The name of the metadata of a lease that says which mount holds it.
const NAME: &str = "s3mount-holder";

/// A mount that has not kept a promise is given up for this long.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// The most mounts that are given up. If there are more, the tier is at fault.
const MOST: usize = 1000;

/// The mount that holds a lease, as far as the lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder(u64);

impl Holder {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// The metadata of its leases.
    pub(crate) fn to_metadata(self) -> UserMetadata {
        UserMetadata::from([(NAME.to_owned(), format!("{:016x}", self.0))])
    }

    /// The holder of the lease that has this metadata.
    pub(crate) fn from_metadata(metadata: &UserMetadata) -> Option<Self> {
        u64::from_str_radix(metadata.get(NAME)?, 16).ok().map(Self)
    }
}

/// Knowledge about other mounts.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// The mounts that are given up, and until when.
    given_up: HashMap<Holder, Duration>,
    /// Whether another mount held the last lease that this mount asked for.
    was_late: bool,
}

impl Holders {
    /// Gives up `holder`, which has not brought a promised block within the wait.
    pub(crate) fn give_up(&mut self, holder: Holder, now: Duration) {
        self.given_up.retain(|_, until| *until > now);
        if self.given_up.len() < MOST {
            self.given_up.insert(holder, now + GIVEN_UP);
        }
    }

    /// Whether `holder` is given up now.
    pub(crate) fn is_given_up(&self, holder: Holder, now: Duration) -> bool {
        self.given_up.get(&holder).is_some_and(|until| *until > now)
    }

    /// Notes that a lease was asked for. `was_late` tells whether another mount was first.
    pub(crate) fn note_lease(&mut self, was_late: bool) {
        self.was_late = was_late;
    }

    /// Whether to look for a lease before writing one: a write costs twelve times as much as a look. A mount that was
    /// late the last time is likely to be late again, and a lease of a given-up mount must be recognised.
    pub(crate) fn looks_first(&self, now: Duration) -> bool {
        self.was_late || self.given_up.values().any(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3mount_object::UserMetadata;

    use super::{GIVEN_UP, Holder, Holders, MOST};

    #[test]
    fn a_lease_says_who_holds_it() {
        for number in [0, 1, u64::MAX] {
            let holder = Holder::new(number);
            assert_eq!(Holder::from_metadata(&holder.to_metadata()), Some(holder));
        }
        let odd = UserMetadata::from([(super::NAME.to_owned(), "?".to_owned())]);
        assert_eq!((Holder::from_metadata(&odd), Holder::from_metadata(&UserMetadata::new())), (None, None));
    }

    #[test]
    fn who_breaks_a_promise_is_given_up_for_a_while() {
        let (mut holders, now) = (Holders::default(), Duration::from_secs(10));
        let (one, other) = (Holder::new(1), Holder::new(2));
        assert!(!holders.looks_first(now));
        holders.give_up(one, now);
        assert!(
            holders.is_given_up(one, now) && !holders.is_given_up(other, now) && holders.looks_first(now)
        );
        assert!(!holders.is_given_up(one, now + GIVEN_UP) && !holders.looks_first(now + GIVEN_UP));
        (0..2 * MOST as u64).for_each(|number| holders.give_up(Holder::new(number), now + GIVEN_UP));
        assert_eq!(holders.given_up.len(), MOST);
    }

    #[test]
    fn who_was_late_looks_first() {
        let mut holders = Holders::default();
        holders.note_lease(true);
        assert!(holders.looks_first(Duration::ZERO));
        holders.note_lease(false);
        assert!(!holders.looks_first(Duration::ZERO));
    }
}

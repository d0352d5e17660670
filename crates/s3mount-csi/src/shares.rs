//! How the memory of a node is divided among its mounts, by use. It only computes.

use serde::Deserialize;

/// So many times what a mount has used lately is its share if it wants no more: room for what it does next.
const ROOM: u64 = 2;

/// A mount that uses more than this part of its limit, of so many, wants more.
const FULL: (u64, u64) = (3, 4);

/// What a mount says of its memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Use {
    /// The least limit that it can have.
    pub(crate) floor: u64,
    /// The highest limit that it can have.
    pub(crate) ceiling: u64,
    /// Its limit now.
    pub(crate) limit: u64,
    /// How much it uses now.
    pub(crate) used: u64,
    /// The most that it has used lately.
    pub(crate) most_used: u64,
    /// What its readers wait for.
    pub(crate) waiting: u64,
    /// The part of the ceiling that it has given back.
    pub(crate) away: u64,
}

impl Use {
    /// The most that it may take as it is.
    pub(crate) fn held(&self) -> u64 {
        self.ceiling.saturating_sub(self.away)
    }

    fn wants_more(&self) -> bool {
        let (part, of) = FULL;
        self.waiting > 0 || self.used > self.limit / of * part
    }

    /// The limit that it would have if there were enough for all.
    fn demand(&self) -> u64 {
        let enough = if self.wants_more() { self.ceiling } else { self.most_used.saturating_mul(ROOM) };
        enough.max(self.floor).min(self.ceiling.max(self.floor))
    }
}

/// The limits of mounts that have `bytes` together: nobody has less than its floor, nor more than it has use for. Those
/// that have less than that have the same, but for floors. What the floors take beyond `bytes` is too much.
pub(crate) fn divide(bytes: u64, uses: &[Use]) -> Vec<u64> {
    let at = |level: u64| uses.iter().map(move |mount| level.clamp(mount.floor, mount.demand()));
    let fits = |level: u64| at(level).try_fold(0, u64::checked_add).is_some_and(|sum| sum <= bytes);
    // The highest level that fits.
    let (mut low, mut high) = (0, bytes);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    at(low).collect()
}

/// The limits that may be raised at once to these `targets`, while `free` bytes are nobody's: the smallest first.
pub(crate) fn raises(mut free: u64, uses: &[Use], targets: &[u64]) -> Vec<(usize, u64)> {
    let mut raised: Vec<_> =
        (0..).zip(uses).zip(targets).filter(|((_, mount), target)| **target > mount.limit).collect();
    raised.sort_by_key(|((_, mount), _)| mount.limit);
    let granted = raised.into_iter().map(|((index, mount), target)| {
        // What has not gone away yet since its limit fell is still its own.
        let granted = (*target).min(mount.held().saturating_add(free));
        free -= granted.saturating_sub(mount.held());
        (index, granted)
    });
    granted.filter(|(index, granted)| *granted > uses[*index].limit).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Use, divide, raises};

    const MIB: u64 = 1 << 20;

    /// A mount with these MiB of a limit, used, and used at most.
    fn mount(limit: u64, used: u64, most_used: u64) -> Use {
        Use {
            floor: 64 * MIB,
            ceiling: 1024 * MIB,
            limit: limit * MIB,
            used: used * MIB,
            most_used: most_used * MIB,
            waiting: 0,
            away: (1024 - limit) * MIB,
        }
    }

    fn divided(mib: u64, uses: &[Use]) -> Vec<u64> {
        divide(mib * MIB, uses).into_iter().map(|bytes| bytes / MIB).collect()
    }

    #[test]
    fn who_reads_has_what_the_others_do_not_use() {
        let (idle, light, busy) = (mount(64, 0, 10), mount(200, 20, 50), mount(100, 90, 90));
        assert_eq!(divided(512, &[idle, light, busy, idle]), [64, 100, 284, 64]);
        assert_eq!(divided(512, &[busy, busy, idle]), [224, 224, 64]);
        assert_eq!(divided(512, &[light, idle]), [100, 64], "nobody wants the rest");
        assert_eq!(divided(4096, &[busy, idle]), [1024, 64], "a ceiling is one");
        assert_eq!(divided(100, &[busy, idle]), [64, 64], "a floor, too");
        let waits = Use { waiting: 1, ..idle };
        assert_eq!(divided(512, &[waits, idle]), [448, 64]);
    }

    #[test]
    fn only_what_is_free_is_given() {
        let (low, high) = (mount(64, 60, 60), mount(128, 128, 128));
        let raised = |free: u64, uses: &[Use]| {
            let targets = vec![256 * MIB; uses.len()];
            let raised = raises(free * MIB, uses, &targets).into_iter();
            raised.map(|(index, bytes)| (index, bytes / MIB)).collect::<Vec<_>>()
        };
        assert_eq!(raised(512, &[high, low]), [(1, 256), (0, 256)]);
        assert_eq!(raised(200, &[high, low]), [(1, 256), (0, 136)]);
        assert_eq!(raised(100, &[high, low]), [(1, 164)]);
        assert_eq!(raised(0, &[high, low]), []);
        let shrinking = Use { away: (1024 - 300) * MIB, ..low };
        assert_eq!(raised(0, &[shrinking]), [(0, 256)], "it has that anyway");
    }

    fn any_use() -> impl Strategy<Value = Use> {
        let bytes = || 0..1000u64;
        (bytes(), bytes(), bytes(), bytes(), bytes(), any::<bool>(), bytes()).prop_map(
            |(floor, more, limit, used, most_used, waits, away)| {
                let (ceiling, waiting) = (floor + more, u64::from(waits));
                let limit = floor + limit % (more + 1);
                Use { floor, ceiling, limit, used, most_used, waiting, away: away % (ceiling - limit + 1) }
            },
        )
    }

    proptest! {
        /// All together have no more than there is, unless the floors do; each has its floor, and no more than its
        /// ceiling; nobody has less than another and wants more, unless that is the other's floor; and nothing is left
        /// that somebody wants.
        #[test]
        fn it_is_fair(bytes in 0..5000u64, uses in proptest::collection::vec(any_use(), 0..8)) {
            let targets = divide(bytes, &uses);
            let (sum, floors): (u64, u64) = (targets.iter().sum(), uses.iter().map(|mount| mount.floor).sum());
            prop_assert!(sum <= bytes.max(floors));
            let least_unmet = uses.iter().zip(&targets).filter(|(mount, target)| **target < mount.demand());
            let least_unmet = least_unmet.map(|(_, target)| *target).min();
            for (mount, target) in uses.iter().zip(&targets) {
                prop_assert!((mount.floor..=mount.ceiling).contains(target));
                prop_assert!(least_unmet.is_none_or(|least| *target <= least.max(mount.floor)));
            }
            if least_unmet.is_some() && floors <= bytes {
                prop_assert!(sum + uses.len() as u64 > bytes);
            }
        }

        /// What mounts hold, with what is given to them, is no more than what they held with what was free.
        #[test]
        fn no_more_is_given_than_is_free(free in 0..3000u64, uses in proptest::collection::vec(any_use(), 0..8)) {
            let targets = divide(5000, &uses);
            let mut after: Vec<u64> = uses.iter().map(Use::held).collect();
            for (index, limit) in raises(free, &uses, &targets) {
                prop_assert!(limit > uses[index].limit && limit <= targets[index]);
                after[index] = after[index].max(limit);
            }
            let before: u64 = uses.iter().map(Use::held).sum();
            prop_assert!(after.iter().sum::<u64>() <= before + free);
        }
    }
}

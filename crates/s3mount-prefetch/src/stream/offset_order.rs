//! Slots in the order of their offsets: found in O(log n), and moved without an allocation.

use std::cmp::Ordering;

/// Pairs of an offset and a slot, sorted.
#[derive(Debug, Default)]
pub(super) struct OffsetOrder(Vec<(u64, u16)>);

impl OffsetOrder {
    pub(super) fn insert(&mut self, offset: u64, slot: u16) {
        let at = self.0.partition_point(|entry| *entry < (offset, slot));
        self.0.insert(at, (offset, slot));
    }

    pub(super) fn remove(&mut self, offset: u64, slot: u16) {
        if let Ok(at) = self.0.binary_search(&(offset, slot)) {
            self.0.remove(at);
        }
    }

    /// Moves `slot` from one offset to another: it changes places with the slots that it passes.
    pub(super) fn moved(&mut self, from: u64, to: u64, slot: u16) {
        let (Ok(old), Ok(new) | Err(new)) =
            (self.0.binary_search(&(from, slot)), self.0.binary_search(&(to, slot)))
        else {
            return;
        };
        match new.cmp(&old) {
            Ordering::Greater => {
                self.0[old..new].rotate_left(1);
                self.0[new - 1] = (to, slot);
            }
            Ordering::Less => {
                self.0[new..=old].rotate_right(1);
                self.0[new] = (to, slot);
            }
            Ordering::Equal => self.0[old] = (to, slot),
        }
    }

    /// The slots at `offset` or beyond, the nearest first.
    pub(super) fn from(&self, offset: u64) -> impl Iterator<Item = (u64, u16)> {
        let at = self.0.partition_point(|(found, _)| *found < offset);
        self.0[at..].iter().copied()
    }

    /// The slots before `offset`, the nearest first.
    pub(super) fn before(&self, offset: u64) -> impl Iterator<Item = (u64, u16)> {
        let at = self.0.partition_point(|(found, _)| *found < offset);
        self.0[..at].iter().rev().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::OffsetOrder;

    proptest! {
        /// After any insertions, moves and removals, the slots are in the order of their offsets.
        #[test]
        fn is_sorted(steps in proptest::collection::vec((0u16..20, 0u64..50, any::<bool>()), 1..200)) {
            let mut order = OffsetOrder::default();
            let mut offsets = [None; 20];
            for (slot, offset, leaves) in steps {
                let old = offsets[usize::from(slot)];
                match old {
                    None => order.insert(offset, slot),
                    Some(old) if leaves => order.remove(old, slot),
                    Some(old) => order.moved(old, offset, slot),
                }
                offsets[usize::from(slot)] = (old.is_none() || !leaves).then_some(offset);
                let mut want: Vec<_> =
                    (0..).zip(offsets).filter_map(|(slot, offset)| Some((offset?, slot))).collect();
                want.sort_unstable();
                prop_assert_eq!(&order.0, &want);
                let from: Vec<_> = order.from(25).collect();
                let mut all: Vec<_> = order.before(25).collect();
                all.reverse();
                all.extend(from);
                prop_assert_eq!(all, want);
            }
        }
    }
}

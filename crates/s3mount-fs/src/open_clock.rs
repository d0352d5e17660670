//! A clock that counts opens.

/// A moment, by the number of files that were opened since the mount; it wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenClock(pub(crate) u32);

impl OpenClock {
    /// Before the first.
    pub(crate) const NEVER: Self = Self(0);

    /// Whether something was opened at all at this moment.
    pub(crate) fn was_ever(self) -> bool {
        self != Self::NEVER
    }

    /// How many files were opened from `earlier` on; a moment that is not later has none.
    pub(crate) fn since(self, earlier: Self) -> u32 {
        let opens = self.0.wrapping_sub(earlier.0);
        if self.was_ever() && opens.cast_signed() > 0 { opens } else { 0 }
    }

    /// The moment so many opens before.
    pub(crate) fn earlier(self, opens: usize) -> Self {
        Self(self.0.wrapping_sub(u32::try_from(opens).unwrap_or(u32::MAX)))
    }

    /// The moment of the next open.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1).max(1))
    }
}

//! A clock that counts opens.

/// A time, counted in opens of files since the mount. It wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenClock(pub(crate) u32);

impl OpenClock {
    /// The time before the first open.
    pub(crate) const NEVER: Self = Self(0);

    /// Whether this is the time of an open. `NEVER` is not.
    pub(crate) fn was_ever(self) -> bool {
        self != Self::NEVER
    }

    /// How many files were opened since `earlier`. Returns 0 if this time is not later.
    pub(crate) fn since(self, earlier: Self) -> u32 {
        let opens = self.0.wrapping_sub(earlier.0);
        if self.was_ever() && opens.cast_signed() > 0 { opens } else { 0 }
    }

    /// The time `opens` opens before this one.
    pub(crate) fn earlier(self, opens: usize) -> Self {
        Self(self.0.wrapping_sub(u32::try_from(opens).unwrap_or(u32::MAX)))
    }

    /// The time of the next open.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1).max(1))
    }
}

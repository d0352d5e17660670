//! Names of metrics, for those who read what a mount shows. A name has the type of the instrument that counts it, so
//! whoever reads a metric that is gone, or is of another kind by now, does not compile.

use std::marker::PhantomData;

use crate::definition::key;
use crate::label::{Labels, values};
use crate::{Counter, Family, Gauge, Histogram, Total};

/// The name of a metric that a `T` counts. Made by [`metrics!`](crate::metrics), beside the metric.
#[derive(Debug)]
pub struct Name<T>(&'static str, PhantomData<fn() -> T>);

impl<T> Clone for Name<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Name<T> {}

impl<T> Name<T> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name, PhantomData)
    }

    /// The name as Prometheus has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl<T, L: Labels> Name<Family<T, L>> {
    /// The key of the series with these labels.
    #[must_use]
    pub fn at(self, labels: L) -> Key<T> {
        Key(key(self.0, &values(L::NAMES, labels.index())), PhantomData)
    }
}

/// The name in JSON of one series that a `T` counts.
#[derive(Clone, Debug)]
pub struct Key<T>(String, PhantomData<fn() -> T>);

impl<T> Key<T> {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Instruments without labels: their names are keys.
macro_rules! single {
    ($($name:ident),+) => {$(
        impl From<Name<$name>> for Key<$name> {
            fn from(name: Name<$name>) -> Self {
                Self(key(name.0, &[]), PhantomData)
            }
        }
    )+};
}

single!(Counter, Total, Gauge, Histogram);

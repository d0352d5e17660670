//! The two macros that define metrics and labels.

/// Defines the metrics of a layer: a struct with a field for each.
///
/// ```
/// use s3mount_metrics::{Counter, Family, Histogram};
///
/// s3mount_metrics::labels! {
///     /// What a pet does.
///     pub enum Deed("deed") {
///         /// It eats.
///         Eat = "eat",
///         /// It sleeps.
///         Sleep = "sleep",
///     }
/// }
/// s3mount_metrics::metrics! {
///     /// What pets do.
///     pub struct PetMetrics {
///         /// Bytes of food.
///         food: Counter = ("s3mount_food_bytes_total", Bytes, Stable),
///         /// What they have done.
///         deeds: Family<Counter, Deed> = ("s3mount_deeds_total", Count, Experimental),
///         /// How long they slept.
///         sleep: Histogram = ("s3mount_sleep_seconds", Seconds, Stable, s3mount_metrics::bounds::ANSWERS),
///     }
/// }
/// let pets = PetMetrics::default();
/// pets.food.add(3);
/// pets.deeds.at(Deed::Sleep).inc();
/// assert_eq!((pets.food.get(), pets.deeds.at(Deed::Sleep).get()), (3, 1));
/// assert_eq!(PetMetrics::NAMES.deeds.at(Deed::Sleep).as_str(), "deeds_sleep");
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $vis:vis struct $group:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = ($name:literal, $unit:ident, $stability:ident $(, $bounds:expr)?)
            ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $group {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        const _: () = {
            /// The name of each metric.
            #[derive(Clone, Copy, Debug)]
            $vis struct Names {
                $($(#[doc = $help])+ pub $field: $crate::Name<$type>,)+
            }

            impl $group {
                /// Their names, for those who read what is shown of them.
                pub const NAMES: Names = Names { $($field: $crate::Name::new($name),)+ };
            }
        };

        impl $group {
            /// What is said of each of them, in the order of the fields.
            pub const DEFINITIONS: &'static [$crate::Definition] = &[$($crate::Definition {
                name: $group::NAMES.$field.as_str(),
                kind: <$type as $crate::Instrument>::KIND,
                unit: $crate::Unit::$unit,
                labels: <$type as $crate::Instrument>::LABELS,
                help: concat!($($help),+),
                stability: $crate::Stability::$stability,
                bounds: $crate::metrics!(@bounds $($bounds)?),
            }),+];
        }

        impl Default for $group {
            fn default() -> Self {
                Self { $($field: $crate::Instrument::new($crate::metrics!(@bounds $($bounds)?)),)+ }
            }
        }

        impl $crate::Group for $group {
            fn definitions(&self) -> &'static [$crate::Definition] {
                Self::DEFINITIONS
            }

            fn samples(&self) -> Vec<Vec<$crate::Value>> {
                vec![$($crate::Instrument::values(&self.$field)),+]
            }
        }
    };
    (@bounds) => { &[] };
    (@bounds $bounds:expr) => { $bounds };
}

/// Defines a label: an enum of its values, in the order in which they are shown.
#[macro_export]
macro_rules! labels {
    (
        $(#[$meta:meta])*
        $vis:vis enum $label:ident($name:literal) {
            $($(#[$value_meta:meta])* $value:ident = $text:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $vis enum $label {
            $($(#[$value_meta])* $value),+
        }

        impl $label {
            /// All values, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// Its value as it is shown.
            #[must_use]
            pub fn name(self) -> &'static str {
                <Self as $crate::Label>::NAMES.values[self as usize]
            }
        }

        impl $crate::Label for $label {
            const NAMES: $crate::Names = $crate::Names { name: $name, values: &[$($text),+] };

            fn index(self) -> usize {
                self as usize
            }
        }

        impl $crate::Labels for $label {
            const NAMES: &'static [$crate::Names] = &[<Self as $crate::Label>::NAMES];

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

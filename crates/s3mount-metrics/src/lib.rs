//! The metrics of a mount, and how they are shown: as JSON, as Prometheus text, and as a page of
//! documentation.
//!
//! Each metric is defined once, by [`metrics!`]: its name, unit, labels, help and stability stand beside
//! the field that counts it. A layer has one such struct; the layer's code adds to the fields, and the
//! [`Registry`] of the mount shows all structs. There is no global registry, so that a process may have
//! several mounts.
//!
//! Who reads what a mount shows takes the names from there, too: `PetMetrics::NAMES.food` is the [`Name`] of a metric, and
//! knows its labels and how it behaves.
//!
//! What happens one by one is for those who listen to the [`Recorder`] of the mount.
//!
//! **Cost:** adding to a counter is one relaxed atomic addition, in a cache line that threads on other
//! cores rarely write to; noting a value in a histogram is two. Nothing here locks or allocates but
//! making a struct and showing it.

mod definition;
mod instrument;
mod label;
mod macros;
mod name;
mod recorder;
mod registry;
mod show;

pub use definition::{Definition, MetricKind, Stability, Unit, bounds};
pub use instrument::{Counter, Distribution, Family, Gauge, Histogram, Instrument, Number, Total, Value};
pub use label::{Label, Labels, Names};
pub use name::{Key, Name};
pub use recorder::{CallEvent, ChangeEvent, Event, Listener, Recorder, RequestEvent};
pub use registry::{Group, Registry, Sample, Snapshot};
pub use show::{json_string, markdown};

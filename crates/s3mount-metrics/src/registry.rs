//! All metrics of one mount.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Definition, Value, label};

/// A struct of metrics. Made by [`metrics!`](crate::metrics).
pub trait Group: Send + Sync + 'static {
    /// What is said of each metric.
    fn definitions(&self) -> &'static [Definition];

    /// What each metric shows now: a value for each combination of its labels.
    fn samples(&self) -> Vec<Vec<Value>>;
}

/// One series of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The values of its labels, in their order.
    pub labels: Vec<&'static str>,
    /// What it shows.
    pub value: Value,
}

/// What all metrics of a mount showed at one time.
#[derive(Clone, Debug)]
pub struct Snapshot(pub(crate) Vec<(&'static Definition, Vec<Sample>)>);

impl Snapshot {
    /// Each metric, and its series.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Definition, &[Sample])> {
        self.0.iter().map(|(definition, samples)| (*definition, samples.as_slice()))
    }
}

struct Registered {
    group: Arc<dyn Group>,
    refresh: Box<dyn Fn() + Send + Sync>,
}

/// The metrics of one mount: each layer adds its own.
#[derive(Default)]
pub struct Registry(Mutex<Vec<Registered>>);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Registry {
    /// Adds the metrics of a layer. `refresh` is called before they are shown, to bring its gauges up to
    /// date.
    pub fn add(&self, group: Arc<dyn Group>, refresh: impl Fn() + Send + Sync + 'static) {
        let refresh = Box::new(refresh);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Registered { group, refresh });
    }

    /// What all metrics show now.
    pub fn snapshot(&self) -> Snapshot {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut metrics = Vec::new();
        for Registered { group, refresh } in groups.iter() {
            refresh();
            for (definition, values) in group.definitions().iter().zip(group.samples()) {
                let labels = |index| label::values(definition.labels, index);
                let samples = values.into_iter().enumerate();
                let samples = samples.map(|(index, value)| Sample { labels: labels(index), value });
                metrics.push((definition, samples.collect()));
            }
        }
        Snapshot(metrics)
    }
}

//! What counts: counters, gauges and histograms, and families of them.
//!
//! Counters and histograms are sharded: each thread adds to one of a few cells, which lie in cache lines
//! of their own, and whoever shows them adds the cells up. Without shards every thread of a mount would
//! write to the same cache line with each read.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::MetricKind;
use crate::label::{Labels, Names, combinations};

/// Cells of a counter. A counter takes 64 bytes for each; with eight, sixteen session threads meet two by
/// two.
const SHARDS: usize = 8;

/// Numbers of a cache line.
const LINE: usize = 8;

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The shard of this thread.
fn shard() -> usize {
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

/// What one series shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A counter's, or a gauge's.
    Number(u64),
    /// A histogram's.
    Distribution(Distribution),
}

/// A field of a struct of metrics.
pub trait Instrument: Send + Sync + 'static {
    /// How it behaves.
    const KIND: MetricKind;

    /// Its labels.
    const LABELS: &'static [Names] = &[];

    /// An instrument that has counted nothing; `bounds` are those of a histogram.
    fn new(bounds: &'static [u64]) -> Self;

    /// What it shows now: a value for each series.
    fn values(&self) -> Vec<Value>;
}

#[repr(align(64))]
#[derive(Debug, Default)]
struct Line(AtomicU64);

/// A sum that only grows.
#[derive(Debug, Default)]
pub struct Counter([Line; SHARDS]);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0[shard()].0.fetch_add(count, Ordering::Relaxed);
    }

    /// The sum.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }
}

/// A sum that somebody else keeps, copied here before it is shown.
#[derive(Debug, Default)]
pub struct Total(AtomicU64);

impl Total {
    /// Copies the sum.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// The sum as it was copied last.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets the value to a number of things.
    pub fn set_len(&self, len: usize) {
        self.set(len as u64);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes one away, which was added before.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Instruments that are one number.
pub trait Number: Instrument {}

/// Makes such instruments.
macro_rules! numbers {
    ($($name:ident: $kind:ident),+) => {$(
        impl Instrument for $name {
            const KIND: MetricKind = MetricKind::$kind;

            fn new(_: &'static [u64]) -> Self {
                Self::default()
            }

            fn values(&self) -> Vec<Value> {
                vec![Value::Number(self.get())]
            }
        }

        impl Number for $name {}
    )+};
}

numbers!(Counter: Counter, Total: Counter, Gauge: Gauge);

/// How many values lay below each of some bounds, and their sum. Seconds are kept as nanoseconds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// For each shard the values up to each bound and above the one before, those above all bounds, and
    /// the sum, filled up to whole cache lines.
    lines: Box<[CellLine]>,
}

#[repr(align(64))]
#[derive(Debug, Default)]
struct CellLine([AtomicU64; LINE]);

/// What a histogram has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The bounds; a value that equals one lies below it.
    pub bounds: &'static [u64],
    /// How many values lay between each bound and the one before; the last are those above all bounds.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
}

impl Distribution {
    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Histogram {
    /// Cache lines of a shard.
    fn stride(&self) -> usize {
        (self.bounds.len() + 2).div_ceil(LINE)
    }

    fn cell(lines: &[CellLine], cell: usize) -> &AtomicU64 {
        &lines[cell / LINE].0[cell % LINE]
    }

    /// Notes a value.
    pub fn note(&self, value: u64) {
        let lines = &self.lines[shard() * self.stride()..];
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        Self::cell(lines, bucket).fetch_add(1, Ordering::Relaxed);
        Self::cell(lines, self.bounds.len() + 1).fetch_add(value, Ordering::Relaxed);
    }

    /// Notes a time.
    pub fn note_time(&self, time: Duration) {
        self.note(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What it has seen.
    pub fn get(&self) -> Distribution {
        let shards = || self.lines.chunks_exact(self.stride());
        let sum_of =
            |cell: usize| shards().map(|shard| Self::cell(shard, cell).load(Ordering::Relaxed)).sum();
        let counts = (0..=self.bounds.len()).map(sum_of).collect();
        Distribution { bounds: self.bounds, counts, sum: sum_of(self.bounds.len() + 1) }
    }
}

impl Instrument for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn new(bounds: &'static [u64]) -> Self {
        let mut histogram = Self { bounds, lines: Box::default() };
        histogram.lines = (0..SHARDS * histogram.stride()).map(|_| CellLine::default()).collect();
        histogram
    }

    fn values(&self) -> Vec<Value> {
        vec![Value::Distribution(self.get())]
    }
}

/// An instrument for each combination of labels.
#[derive(Debug)]
pub struct Family<T, L> {
    series: Box<[T]>,
    labels: PhantomData<fn(L)>,
}

impl<T, L: Labels> Family<T, L> {
    /// The instrument of these labels.
    pub fn at(&self, labels: L) -> &T {
        &self.series[labels.index()]
    }
}

impl<T: Instrument, L: Labels> Instrument for Family<T, L> {
    const KIND: MetricKind = T::KIND;
    const LABELS: &'static [Names] = L::NAMES;

    fn new(bounds: &'static [u64]) -> Self {
        let series = (0..combinations(L::NAMES)).map(|_| T::new(bounds)).collect();
        Self { series, labels: PhantomData }
    }

    fn values(&self) -> Vec<Value> {
        self.series.iter().flat_map(T::values).collect()
    }
}

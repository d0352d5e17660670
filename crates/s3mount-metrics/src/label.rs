//! Labels: each is an enum, so that all series of a metric are known when it is made.

/// A label and the values that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: &'static [&'static str],
}

/// One label. Made by [`labels!`](crate::labels).
pub trait Label: Copy + Send + Sync + 'static {
    /// Its name and values.
    const NAMES: Names;

    /// Which of the values it is.
    fn index(self) -> usize;
}

/// The labels of a metric: one, or a pair.
pub trait Labels: Copy + Send + Sync + 'static {
    /// Their names and values.
    const NAMES: &'static [Names];

    /// Which of all combinations it is; the last label changes fastest.
    fn index(self) -> usize;
}

impl<A: Label, B: Label> Labels for (A, B) {
    const NAMES: &'static [Names] = &[A::NAMES, B::NAMES];

    fn index(self) -> usize {
        self.0.index() * B::NAMES.values.len() + self.1.index()
    }
}

/// The values of the labels of the series at `index`.
pub(crate) fn values(names: &[Names], mut index: usize) -> Vec<&'static str> {
    let mut values: Vec<_> = names
        .iter()
        .rev()
        .map(|label| {
            let value = label.values[index % label.values.len()];
            index /= label.values.len();
            value
        })
        .collect();
    values.reverse();
    values
}

/// How many combinations there are.
pub(crate) fn combinations(names: &[Names]) -> usize {
    names.iter().map(|label| label.values.len()).product()
}

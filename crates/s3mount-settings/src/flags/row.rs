//! A flag of another program, beside what there is here.

/// A flag of another program.
#[derive(Clone, Copy)]
pub(crate) struct Foreign {
    /// The flag's name, without hyphens before it.
    pub(crate) name: &'static str,
    /// The flags that do the same here; empty if none does.
    pub(crate) ours: &'static str,
    /// How the two differ, or what to use instead.
    pub(crate) note: &'static str,
}

pub(crate) const fn foreign(name: &'static str, ours: &'static str, note: &'static str) -> Foreign {
    Foreign { name, ours, note }
}

/// A flag whose name and meaning are the same here.
pub(crate) const fn same(name: &'static str) -> Foreign {
    foreign(name, "", "")
}

impl Foreign {
    /// What there is here instead of the flag, as the end of a sentence.
    pub(crate) fn instead(&self) -> String {
        match (self.ours, self.note) {
            ("", note) => format!("there is no such flag here: {note}"),
            (ours, "") => format!("here it is {ours}"),
            (ours, note) => format!("here it is {ours} ({note})"),
        }
    }
}

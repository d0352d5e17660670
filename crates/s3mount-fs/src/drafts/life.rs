//! The steps that a draft takes in each state of its life. Pure.
//!
//! A step that changes a draft is taken in its turn, so the state does not change before the step is done. Reads are no
//! step: open handles read a draft in each state.

/// The state of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// The draft has changes that are not published.
    Dirty,
    /// The object of its name has all of the draft's bytes.
    Clean,
    /// The draft can never be published. Its name refers to the version in the store.
    Failed,
    /// Its name is gone, or refers to another file. Its handles stay open.
    Unlinked,
    /// Its name refers to the version that it has become.
    Sealed,
    /// As [`Failed`](Self::Failed) or [`Unlinked`](Self::Unlinked), and no handle has it open: its bytes are dropped.
    GivenUp,
}

/// A step of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open it by its inode.
    Open,
    /// Write bytes, cut it, or copy into it.
    Change,
    /// Make an object of it, or send its bytes to the store.
    Publish,
    /// Rename or unlink it.
    Name,
    /// Make its name refer to the version that it has become.
    Seal,
    /// Drop its bytes, when no handle has it open.
    Discard,
}

/// Whether a draft takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It takes the step.
    Go,
    /// There is nothing to do.
    Skip,
    /// The step fails with the error that the draft keeps.
    Fail,
    /// The draft is not the caller's file: look the name up again.
    LookAgain,
}

impl Life {
    /// Whether a draft in this state takes a step.
    pub(crate) fn verdict(self, step: Step) -> Verdict {
        use Verdict::{Fail, Go, LookAgain, Skip};
        match (self, step) {
            (Life::Dirty | Life::Clean | Life::Unlinked, Step::Open | Step::Change)
            | (Life::Dirty | Life::Clean, Step::Name)
            | (Life::Dirty, Step::Publish)
            | (Life::Clean, Step::Seal)
            | (Life::Failed | Life::Unlinked, Step::Discard) => Go,
            (Life::Clean | Life::Unlinked | Life::Sealed | Life::GivenUp, Step::Publish)
            | (Life::Dirty | Life::Failed | Life::Unlinked | Life::Sealed | Life::GivenUp, Step::Seal)
            | (Life::Dirty | Life::Clean | Life::Sealed | Life::GivenUp, Step::Discard) => Skip,
            (Life::Failed, Step::Change | Step::Publish) => Fail,
            (Life::Failed | Life::Sealed | Life::GivenUp, Step::Open)
            | (Life::Sealed | Life::GivenUp, Step::Change)
            | (Life::Failed | Life::Unlinked | Life::Sealed | Life::GivenUp, Step::Name) => LookAgain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Life, Step, Verdict};

    #[test]
    fn the_table_is_as_it_is_written_here() {
        use Verdict::{Fail, Go, LookAgain as Look, Skip};
        let steps = [Step::Open, Step::Change, Step::Publish, Step::Name, Step::Seal, Step::Discard];
        let table = [
            (Life::Dirty, [Go, Go, Go, Go, Skip, Skip]),
            (Life::Clean, [Go, Go, Skip, Go, Go, Skip]),
            (Life::Failed, [Look, Fail, Fail, Look, Skip, Go]),
            (Life::Unlinked, [Go, Go, Skip, Look, Skip, Go]),
            (Life::Sealed, [Look, Look, Skip, Look, Skip, Skip]),
            (Life::GivenUp, [Look, Look, Skip, Look, Skip, Skip]),
        ];
        for (life, verdicts) in table {
            for (step, verdict) in steps.into_iter().zip(verdicts) {
                assert_eq!(life.verdict(step), verdict, "{life:?} {step:?}");
            }
        }
    }
}

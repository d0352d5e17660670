//! Which steps a draft takes in which state of its life. Pure.
//!
//! A step that changes a draft is taken in its turn, so the state does not change before the step is done. Reads are
//! no step: a draft is read in each state, by who has it open.

/// The state of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has changes that are not published.
    Dirty,
    /// The object of its name has all of its bytes.
    Clean,
    /// It could not be published, and never can be. Its name stands for what the store has.
    Failed,
    /// Its name is gone, or stands for another file. Its handles go on.
    Unlinked,
    /// Its name stands for the version that it has become.
    Sealed,
    /// As [`Failed`](Self::Failed) or [`Unlinked`](Self::Unlinked), and nobody has it open: its bytes are given up.
    GivenUp,
}

/// What is to be done with a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open it by its inode.
    Open,
    /// Write bytes, cut it, or copy into it.
    Change,
    /// Make an object of it, or have the store take its bytes.
    Publish,
    /// Give it another name, or none.
    Name,
    /// Have its name stand for the version that it has become.
    Seal,
    /// Give its bytes up, once no handle has it open.
    Discard,
}

/// Whether a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is.
    Go,
    /// There is nothing to do.
    Skip,
    /// It fails, by the error that the draft keeps.
    Fail,
    /// The draft is not what the caller looks for: the name has to be looked up again.
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

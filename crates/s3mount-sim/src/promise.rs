//! What is promised, and what became of it.

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// What was acknowledged is stored.
    Stored,
    /// An object is never half of two.
    Whole,
    /// Nobody replaces or deletes what he has not seen.
    Unseen,
    /// Programs see what a local file system would show.
    Posix,
    /// No call fails where a local file system's would not.
    Errno,
    /// No byte is read that nobody wrote at that place.
    Bytes,
    /// What was shown of a name never goes back in time.
    Back,
    /// A listing is hardly older than its call.
    Fresh,
    /// No call waits for ever.
    Waits,
    /// No more requests are sent than the calls need.
    Requests,
    /// All is given back at the end.
    Rest,
    /// Nothing panics.
    Panic,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which one.
    pub rule: Rule,
    /// What was seen, and what is right.
    pub what: String,
}

/// The result of a check.
pub type Check = Result<(), Broken>;

/// A promise is broken.
pub(crate) fn broken(rule: Rule, what: impl Into<String>) -> Broken {
    Broken { rule, what: what.into() }
}

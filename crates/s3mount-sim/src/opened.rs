//! Open files of programs.

/// A file as a program has opened it.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The mount.
    pub mount: usize,
    /// Its name then.
    pub path: String,
    /// libc's flags.
    pub flags: i32,
    /// The file of the model, if it can be only one.
    pub file: Option<usize>,
    /// When it was asked to be opened.
    pub asked: u64,
    /// When it was.
    pub answered: u64,
    /// Whether its `open` has made the file, or emptied it.
    pub has_emptied: bool,
    /// Whether something was written to it.
    pub wrote: bool,
    /// Whether it was opened to append, and nothing was written elsewhere, unless through a map.
    pub only_appends: bool,
    /// Its number among those that may write, or whose `open` may have changed the file.
    pub(crate) writer: Option<usize>,
}

impl Opened {
    /// Whether it may write.
    pub fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether it may write, or its `open` has changed the file.
    pub fn changes(&self) -> bool {
        self.writes() || self.has_emptied
    }

    /// The mount and the name.
    pub(crate) fn place(&self) -> (usize, String) {
        (self.mount, self.path.clone())
    }
}

//! Faults that tests and simulations put in the way of the file system.

use std::io;

/// An operation of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "by-hand")), expect(unreachable_pub, reason = "only simulations name it"))]
pub enum Op {
    /// A file is opened.
    Open,
    /// Bytes or a record are read.
    Read,
    /// A file is made, or bytes are written.
    Write,
    /// A file gets its name, or its record.
    Publish,
    /// A file is deleted.
    Remove,
    /// All writes are synced to the disk.
    Sync,
}

/// No faults, outside of tests and simulations.
#[derive(Debug, Default)]
#[cfg(not(any(test, feature = "by-hand")))]
pub(crate) struct Faults(());

#[cfg(not(any(test, feature = "by-hand")))]
impl Faults {
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "in tests and simulations it does something"
    )]
    pub(crate) fn at(&self, _: Op) -> io::Result<()> {
        Ok(())
    }
}

/// Called before each operation. It may fail, and it may wait.
#[cfg(any(test, feature = "by-hand"))]
type Fault = std::sync::Arc<dyn Fn(Op) -> io::Result<()> + Send + Sync>;

/// The faults of a test.
#[cfg(any(test, feature = "by-hand"))]
#[derive(Default)]
pub(crate) struct Faults(std::sync::Mutex<Option<Fault>>);

#[cfg(any(test, feature = "by-hand"))]
impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

#[cfg(any(test, feature = "by-hand"))]
impl Faults {
    pub(crate) fn at(&self, op: Op) -> io::Result<()> {
        let fault = self.0.lock().expect("no test panics with it").clone();
        fault.map_or(Ok(()), |fault| fault(op))
    }

    /// Calls `fault` before each operation from now on.
    pub(crate) fn set(&self, fault: impl Fn(Op) -> io::Result<()> + Send + Sync + 'static) {
        *self.0.lock().expect("no test panics with it") = Some(std::sync::Arc::new(fault));
    }

    /// Removes the fault.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        *self.0.lock().expect("no test panics with it") = None;
    }
}

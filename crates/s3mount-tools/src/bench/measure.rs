//! Takes one measurement, by the client alone or through a mount.

use std::ffi::OsString;

use anyhow::Context;
use s3mount_crt::{CrtConfig, usual_event_loops};

use super::client;
use super::measured::{Measured, Point};
use super::private::PrivateMount;
use super::subject::Bench;

impl Bench {
    /// Measures the client alone, with one part in flight on each connection.
    pub(crate) fn client(&self, point: Point) -> anyhow::Result<Measured> {
        let config = self.store.crt_config(point.connections)?;
        let config = CrtConfig { event_loops: usual_event_loops(), ..config };
        self.runtime.block_on(client::measure(self, config, point)).context("cannot measure the client alone")
    }

    /// Measures a read through a mount with these flags.
    pub(crate) fn mount(&self, flags: &[OsString]) -> anyhow::Result<Measured> {
        let mount = PrivateMount::new(self, flags)?;
        mount.measure(self.bytes, self.limit)
    }
}

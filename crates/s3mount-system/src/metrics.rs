//! What the daemon measures of its own process.

use s3mount_metrics::{Gauge, metrics};

metrics! {
    /// What the process holds.
    pub struct DaemonMetrics {
        /// Connections that the daemon has open: to the store, and for a moment those that resolve names or
        /// fetch credentials.
        connections: Gauge = ("s3mount_connections", Count, Stable),
    }
}

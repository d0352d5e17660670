//! What the tests and the demo are built on: an S3 server, a guard for mounts, and a client in memory.
//!
//! - [`TestS3`] is a real S3 server on loopback, in this process or as the program `s3mount-test-server`. Its
//!   synthetic objects ([`content`]) have any size and take no memory, and every range of them can be
//!   checked. The server counts its requests and bytes, and a test can make it slow or faulty.
//! - [`OtherServer`] is an S3 server that somebody else wrote, such as moto.
//! - [`MountGuard`] mounts a bucket with the real binary. It takes the mount down again, also when a test
//!   panics.
//! - [`Network`] has machines with networks of their own, for servers and mounts.
//! - [`MemoryClient`] is such a bucket without a network: an [`ObjectClient`](s3mount_object::ObjectClient)
//!   for the tests of single layers. [`NullClient`] answers without copying a byte, so that a measurement
//!   shows what the layers above it cost.
//! - [`contract`] checks that a client keeps what the trait promises.
#![expect(
    clippy::disallowed_methods,
    reason = "servers and mounts are other processes, which live by the machine's time"
)]

mod client;
mod content;
pub mod contract;
mod lent;
mod list;
mod mount;
mod network;
mod null_client;
mod object;
mod other_server;
mod process;
mod random;
mod server;
mod server_process;
mod sums;
mod uploads;

pub use client::{MemoryClient, Requests};
pub use content::{check, content};
pub use mount::{MountGuard, WatchdogGuard, cpu_seconds, peak_rss_bytes, switches, watchdog};
pub use network::{Machine, Network};
pub use null_client::NullClient;
pub use other_server::OtherServer;
pub use process::run_with_timeout;
pub use random::{Sequence, mix};
pub use server::fault::{Fault, FaultKind, Operation};
pub use server::inspect::{OpenUpload, Stored};
pub use server::shape::{FirstByte, Shape};
pub use server::stats::{Counts, Stats};
pub use server::{Builder, TestS3};
pub use server_process::ServerProcess;

/// The methods of an [`ObjectClient`](s3mount_object::ObjectClient) that move no bytes of objects. Each of
/// them calls the same method of the client in the field `$inner`. A client that only changes how GETs are
/// answered uses this macro. A client that changes listings, too, writes
/// `delegate_metadata!(inner, but no listings)`.
#[macro_export]
macro_rules! delegate_metadata {
    ($inner:tt) => {
        $crate::delegate_metadata!($inner, but no listings);

        fn list_objects(
            &self,
            request: ::s3mount_object::ListObjects,
        ) -> ::futures::future::BoxFuture<
            '_,
            Result<::s3mount_object::ListPage, ::s3mount_object::ObjectError>,
        > {
            self.$inner.list_objects(request)
        }
    };
    ($inner:tt, but no listings) => {
        fn head_object<'a>(
            &'a self,
            key: &'a str,
        ) -> ::futures::future::BoxFuture<
            'a,
            Result<::s3mount_object::ObjectMeta, ::s3mount_object::ObjectError>,
        > {
            self.$inner.head_object(key)
        }

        fn checksum<'a>(
            &'a self,
            object: &'a ::s3mount_object::ObjectId,
        ) -> ::futures::future::BoxFuture<
            'a,
            Result<::s3mount_object::KeptChecksum, ::s3mount_object::ObjectError>,
        > {
            self.$inner.checksum(object)
        }

        fn upload_parts<'a>(
            &'a self,
            object: &'a ::s3mount_object::ObjectId,
            after: u32,
        ) -> ::futures::future::BoxFuture<
            'a,
            Result<::s3mount_object::UploadParts, ::s3mount_object::ObjectError>,
        > {
            self.$inner.upload_parts(object, after)
        }

        fn head_bucket(
            &self,
        ) -> ::futures::future::BoxFuture<
            '_,
            Result<::s3mount_object::BucketInfo, ::s3mount_object::ObjectError>,
        > {
            self.$inner.head_bucket()
        }

        fn refused_requests(&self) -> u64 {
            self.$inner.refused_requests()
        }

        fn repeated_requests(&self) -> u64 {
            self.$inner.repeated_requests()
        }

        fn lists_in_order(&self) -> bool {
            self.$inner.lists_in_order()
        }
    };
}

/// Parses a size such as `8GiB`, `100KiB` or `4096`. Units are powers of 1024.
///
/// # Errors
/// When the text is not a size.
pub fn parse_size(text: &str) -> anyhow::Result<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => anyhow::bail!("{text:?} is not a size such as 8GiB"),
    };
    let number: u64 = number.parse().map_err(|_| anyhow::anyhow!("{text:?} is not a size such as 8GiB"))?;
    number.checked_mul(1 << shift).ok_or_else(|| anyhow::anyhow!("{text:?} is too large"))
}

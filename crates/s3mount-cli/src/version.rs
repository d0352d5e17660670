//! What `s3mount --version` says.

use std::sync::LazyLock;

/// The commit that the packages are built from. `packaging/build` sets it.
const COMMIT: Option<&str> = option_env!("S3MOUNT_COMMIT");

static LONG: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\ncommit: {}\nmachine: {}-{}\nTLS: AWS-LC and s2n for the store, ring for other services; no validated module (FIPS)",
        env!("CARGO_PKG_VERSION"),
        COMMIT.unwrap_or("not known, because it was not built by make package"),
        std::env::consts::ARCH,
        std::env::consts::OS,
    )
});

/// The version, and what it was built from.
pub(crate) fn long() -> &'static str {
    &LONG
}

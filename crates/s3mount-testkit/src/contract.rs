//! What every [`ObjectClient`](s3mount_object::ObjectClient) promises, and every
//! [`ObjectWriter`](s3mount_object::ObjectWriter), as two suites of checks.
//!
//! Each check is a promise of the trait's documentation. [`check`] runs all of them on a bucket that holds
//! [`objects`] and nothing else, whichever client and store serve this bucket. What a store lacks of S3 is
//! written in [`Store`], and the suite then checks that the store really lacks it. Only keys that a store
//! refuses are not checked in this way.

mod get;
mod lend;
mod list;
mod metadata;
mod store;
mod upload;
mod write;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use tokio::time::timeout;

pub use get::*;
pub use list::*;
pub use metadata::*;
pub use store::{PART_BYTES, PARTS_KEY, Store, objects};
pub use upload::*;
pub use write::*;

/// The most time that a check may take. No check needs more, in a build without optimisation on a busy
/// machine.
const LIMIT: Duration = Duration::from_secs(60);

macro_rules! all {
    ($store:ident: $($check:ident),* $(,)?) => { [$((stringify!($check), $check($store).boxed_local())),*] };
}

/// Runs all checks.
///
/// # Panics
/// When the store breaks promises. The message names all that are broken.
pub async fn check(store: &Store<'_>) {
    let checks = all![store:
        whole_objects_come_as_they_were_put,
        ranges_come_exactly_and_in_the_lent_memory,
        gets_at_once_keep_to_their_buffers,
        a_get_of_another_version_is_refused,
        a_get_of_no_object_is_refused,
        a_range_that_is_not_in_the_object_is_refused,
        a_range_that_does_not_fit_is_refused,
        a_version_without_etag_is_refused,
        dropped_requests_leave_nothing_behind,
        a_head_tells_of_the_object,
        a_head_of_no_object_is_refused,
        checksums_are_of_the_bytes,
        checksums_of_another_version_are_refused,
        parts_are_those_of_the_upload,
        the_bucket_is_there_or_not,
        listings_tell_what_heads_tell,
        listings_have_every_key_in_order,
        pages_are_no_longer_than_asked_for_and_add_up,
        prefixes_are_rolled_up,
        listings_start_after_any_name,
        markers_are_objects_of_their_folders,
        nothing_is_an_empty_page,
    ];
    run(checks).await;
}

/// Runs all checks of uploads. They write to the bucket, so [`check`] does not pass after them.
///
/// # Panics
/// As [`check`].
pub async fn check_writer(store: &WritableStore<'_>) {
    run(all![store:
        uploads_come_back_with_their_metadata,
        an_upload_replaces_what_is_there,
        an_upload_of_a_new_object_leaves_what_is_there,
        one_of_many_uploads_of_a_new_object_wins,
        a_get_of_the_latest_version_is_as_strict_as_others,
    ])
    .await;
}

/// Runs all checks of what a writer of files needs: puts with all that is beside the bytes, uploads in parts,
/// copies, deletions and renames. They write to the bucket, so [`check`] does not pass after them.
///
/// # Panics
/// As [`check`].
pub async fn check_uploads(store: &WritableStore<'_>) {
    run(all![store:
        a_put_answers_with_its_version,
        a_put_keeps_to_its_condition,
        damaged_bytes_are_refused,
        parts_become_an_object,
        wrong_parts_become_nothing,
        a_completion_keeps_to_its_condition,
        an_aborted_upload_leaves_nothing,
        uploads_are_listed_until_they_end,
        copies_are_of_the_version_that_is_named,
        parts_may_be_ranges_of_objects,
        tags_are_told_and_copied,
        deletions_keep_to_their_version,
        renames_move_objects_or_are_unsupported,
    ])
    .await;
}

async fn run<'a>(checks: impl IntoIterator<Item = (&'static str, LocalBoxFuture<'a, ()>)>) {
    let mut broken = Vec::new();
    for (name, promise) in checks {
        let result = AssertUnwindSafe(timeout(LIMIT, promise)).catch_unwind().await;
        if !matches!(result, Ok(Ok(()))) {
            broken.push(name);
        }
    }
    assert!(broken.is_empty(), "broken: {}", broken.join(", "));
}

//! The clients without a network keep the contract that the real one keeps.

use s3mount_object::ObjectClient;
use s3mount_testkit::contract::{self, PART_BYTES, Store, WritableStore};
use s3mount_testkit::{MemoryClient, NullClient};

/// What differs from S3 in a bucket that stands for all there is.
fn only_bucket(client: &dyn ObjectClient) -> Store<'_> {
    // There is no other bucket that could be missing.
    Store { missing_bucket: None, ..Store::new(client, client) }
}

fn filled(client: MemoryClient) -> MemoryClient {
    for (key, bytes) in contract::objects() {
        client.put(&key, bytes);
    }
    client
}

fn with_parts() -> MemoryClient {
    let client = MemoryClient::new();
    client.keep_part_checksums(PART_BYTES);
    filled(client)
}

#[tokio::test]
async fn the_client_in_memory_keeps_the_contract() {
    contract::check(&only_bucket(&with_parts())).await;
}

#[tokio::test]
async fn the_client_in_memory_keeps_the_contract_of_uploads() {
    let client = MemoryClient::new();
    contract::check_writer(&WritableStore::new(&client)).await;
    contract::check_uploads(&WritableStore::new(&client)).await;
    let client = MemoryClient::new();
    client.refuse_conditions();
    let lacking =
        WritableStore { has_conditions: false, deletes_if_matched: false, ..WritableStore::new(&client) };
    contract::check_writer(&lacking).await;
    contract::check_uploads(&lacking).await;
    let client = MemoryClient::new();
    client.make_directory_bucket();
    contract::check_uploads(&WritableStore { renames: true, ..WritableStore::new(&client) }).await;
}

#[tokio::test]
async fn so_it_does_as_a_store_without_checksums_that_keeps_prefixes() {
    let client = filled(MemoryClient::new());
    client.keep_no_checksums();
    client.keep_prefixes();
    let lacking = Store {
        // Both were just asked for.
        has_checksums: false,
        keeps_prefixes: true,
        // Those who keep no checksum keep none of parts.
        tells_part_checksums: false,
        ..only_bucket(&client)
    };
    contract::check(&lacking).await;
}

/// Bytes and versions are none of its business, nor are times.
#[tokio::test]
async fn the_null_client_keeps_the_contract_of_names() {
    let sizes = contract::objects().into_iter().map(|(key, bytes)| (key, bytes.len() as u64));
    let client = NullClient::new(sizes);
    let store = Store { has_checksums: false, tells_part_checksums: false, ..only_bucket(&client) };
    contract::a_range_that_does_not_fit_is_refused(&store).await;
    contract::a_head_of_no_object_is_refused(&store).await;
    contract::listings_tell_what_heads_tell(&store).await;
    contract::listings_have_every_key_in_order(&store).await;
    contract::pages_are_no_longer_than_asked_for_and_add_up(&store).await;
    contract::prefixes_are_rolled_up(&store).await;
    contract::listings_start_after_any_name(&store).await;
    contract::markers_are_objects_of_their_folders(&store).await;
    contract::nothing_is_an_empty_page(&store).await;
}

/// The suite finds out a store that breaks its word.
#[tokio::test]
#[should_panic(expected = "broken: whole_objects_come_as_they_were_put, ranges_come_exactly")]
async fn a_client_that_loses_bits_is_found_out() {
    let client = with_parts();
    client.flip_next([true; 400]);
    contract::check(&only_bucket(&client)).await;
}

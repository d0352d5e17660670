//! The simulated store without faults keeps the contract that the real client keeps.

use std::sync::Arc;

use s3mount_sim::store::client::MountClient;
use s3mount_sim::store::{Faults, SimStore};
use s3mount_sim::ticks::Ticks;
use s3mount_testkit::contract::{self, Store, WritableStore};

fn store(faults: Faults) -> Arc<SimStore> {
    SimStore::new(7, faults, 1000, Arc::new(Ticks::new(false)))
}

#[tokio::test(start_paused = true)]
async fn the_store_keeps_the_contract_of_readers() {
    let store = store(Faults::default());
    for (key, bytes) in contract::objects() {
        store.put(&key, bytes);
    }
    let client = MountClient::new(store, 0);
    contract::check(&Store { missing_bucket: None, ..Store::new(&*client, &*client) }).await;
}

#[tokio::test(start_paused = true)]
async fn the_store_keeps_the_contract_of_writers() {
    let client = MountClient::new(store(Faults::default()), 0);
    contract::check_writer(&WritableStore::new(&*client)).await;
    contract::check_uploads(&WritableStore::new(&*client)).await;
    let client = MountClient::new(store(Faults { refuses_conditions: true, ..Faults::default() }), 0);
    let lacking =
        WritableStore { has_conditions: false, deletes_if_matched: false, ..WritableStore::new(&*client) };
    contract::check_writer(&lacking).await;
    contract::check_uploads(&lacking).await;
}

//! The store has one door: only `s3mount-bucket` sends requests, and makes them again.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{Ident, ItemMod};

/// What a crate may not name that has a bucket: clients, and what the loop is made of.
const BEHIND_THE_DOOR: &[&str] =
    &["ObjectWriter", "ObjectClient", "RetryBudget", "Retries", "MeasuredClient"];

/// The crates above the door.
const ABOVE: &[&str] =
    &["s3mount-fs", "s3mount-fuse", "s3mount-names", "s3mount-prefetch", "s3mount-shared", "s3mount-write"];

/// The crates of the command line.
const COMMAND_LINE: &[&str] = &["s3mount-cli", "s3mount-settings", "s3mount-system", "s3mount-tools"];

/// The modules of the command line that join clients and buckets together, or try a client out. All others have a
/// bucket, if anything.
const WIRING: &[&str] = &[
    "s3mount-cli/src/daemon/client.rs",
    "s3mount-settings/src/resolved/store.rs",
    "s3mount-tools/src/bench",
    "s3mount-tools/src/doctor",
    "s3mount-tools/src/tune.rs",
    "s3mount-tools/src/volume.rs",
];

#[derive(Default)]
struct Named(BTreeSet<String>);

impl<'ast> Visit<'ast> for Named {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.0.insert(ident.to_string());
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        // Tests have clients of their own.
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }
}

fn is_above(path: &str) -> bool {
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    let of = |name: &&str| path.contains(&format!("crates/{name}/src/"));
    let is_wiring = WIRING.iter().any(|wiring| path.contains(wiring));
    !is_test && (ABOVE.iter().any(of) || COMMAND_LINE.iter().any(of) && !is_wiring)
}

#[test]
fn only_the_door_knows_clients_and_retries() {
    let mut checked = 0;
    for path in crate::files("crates".as_ref(), "rs") {
        let name = path.display().to_string();
        if !is_above(&name) {
            continue;
        }
        let file = syn::parse_file(&crate::read(&path)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let mut named = Named::default();
        named.visit_file(&file);
        for behind in BEHIND_THE_DOOR {
            assert!(!named.0.contains(*behind), "{name} names {behind}: take a Bucket");
        }
        checked += 1;
    }
    assert!(checked > 150, "the crates' sources were not found");
}

//! Clients around clients pass every method on.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{Attribute, ItemImpl, Meta};

/// Clients that answer by themselves; `Scripted` is in the unit tests of `MeasuredClient`. All others stand
/// around a client, and pass on what they don't change: a default method of the trait would answer in that
/// client's place.
const ANSWER_BY_THEMSELVES: &[&str] = &["CrtClient", "MemoryClient", "NullClient", "Scripted"];

/// The types that implement `ObjectClient`, and whether each denies missing methods.
#[derive(Default)]
struct Clients {
    found: BTreeSet<(String, bool)>,
}

impl<'ast> Visit<'ast> for Clients {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let implemented = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        if implemented.is_some_and(|segment| segment.ident == "ObjectClient")
            && let syn::Type::Path(client) = &*item.self_ty
            && let Some(name) = client.path.segments.last()
        {
            self.found.insert((name.ident.to_string(), item.attrs.iter().any(denies_missing_methods)));
        }
        visit::visit_item_impl(self, item);
    }
}

fn denies_missing_methods(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("deny") && list.tokens.to_string().replace(' ', "") == "clippy::missing_trait_methods"
}

#[test]
fn wrappers_of_clients_pass_every_method_on() {
    let mut clients = Clients::default();
    let folders = ["crates", "tests", "benches"];
    for path in folders.iter().flat_map(|folder| crate::files(folder.as_ref(), "rs")) {
        let file = syn::parse_file(&crate::read(&path)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        clients.visit_file(&file);
    }
    let (denying, others): (Vec<_>, Vec<_>) = clients.found.into_iter().partition(|(_, denies)| *denies);
    let others: Vec<_> = others.into_iter().map(|(name, _)| name).collect();
    assert_eq!(others, ANSWER_BY_THEMSELVES, "clients that may lack methods of the trait");
    assert!(denying.len() >= 5, "the wrappers were not found: {denying:?}");
}

//! A type's name says what it is, also where it is used far from its definition.

use syn::buffer::{Cursor, TokenBuffer};
use syn::visit::{self, Visit};
use syn::{Ident, ItemEnum, ItemStruct, ItemTrait, ItemType, ItemUnion, Macro};

/// Names that fit any type, so they say nothing of one.
const SAY_NOTHING: &[&str] = &["Found", "Inner", "Kind", "State"];

/// The words before the name of a type that is defined.
const DEFINE: &[&str] = &["enum", "struct", "trait", "type", "union"];

/// The names of the types that a file defines, at any depth, and in calls of macros: `labels!` defines types.
#[derive(Default)]
struct Types(Vec<String>);

impl Types {
    fn note(&mut self, name: &Ident) {
        self.0.push(name.to_string());
    }

    fn note_all(&mut self, mut at: Cursor<'_>) {
        let mut defines = false;
        while !at.eof() {
            if let Some((inside, _, _, behind)) = at.any_group() {
                self.note_all(inside);
                (defines, at) = (false, behind);
            } else if let Some((word, behind)) = at.ident() {
                if defines {
                    self.note(&word);
                }
                (defines, at) = (DEFINE.iter().any(|define| word == define), behind);
            } else {
                let (_, behind) = at.token_tree().expect("it is not the end");
                (defines, at) = (false, behind);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.note(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.note(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.note(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.note(&item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast ItemUnion) {
        self.note(&item.ident);
        visit::visit_item_union(self, item);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.note_all(TokenBuffer::new2(call.tokens.clone()).begin());
    }
}

fn types(code: &str) -> Vec<String> {
    let mut types = Types::default();
    types.visit_file(&syn::parse_file(code).unwrap_or_else(|error| panic!("{error}: {code}")));
    types.0
}

#[test]
fn types_say_what_they_are() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    let folders = ["crates", "tests", "benches"];
    for path in folders.iter().flat_map(|folder| crate::files(folder.as_ref(), "rs")) {
        let types = types(&crate::read(&path));
        checked += types.len();
        let bare = types.iter().filter(|name| SAY_NOTHING.contains(&name.as_str()));
        wrong.extend(bare.map(|name| format!("{path:?} has a type {name}")));
    }
    assert!(
        wrong.is_empty(),
        "{}\nName what it is or holds, as BreakerState, FaultKind or TaskQueue do",
        wrong.join("\n")
    );
    assert!(checked > 1000, "the crates' types were not found");
}

#[test]
fn types_are_found_wherever_they_are_defined() {
    let code = r#"
        union A { a: u8 }
        trait B { type Associated; }
        mod inside { type C = u8; }
        fn function() { enum D { State, Kind } }
        labels! {
            /// The type State is only named here.
            pub enum E("e") { Found = "found" }
        }
        macro_rules! define { ($name:ident) => { struct $name; struct F(State); } }
    "#;
    assert_eq!(types(code), ["A", "B", "C", "D", "E", "F"]);
}

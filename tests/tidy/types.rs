//! A type's name means one thing within a crate.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use crate::files::{complain, files_below, root, short};

/// Names of structs, enums, unions, traits and aliases; not of associated types, nor of what a macro makes.
#[derive(Default)]
struct Types(Vec<String>);

impl Visit<'_> for Types {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_union(&mut self, item: &syn::ItemUnion) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.0.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &syn::ItemType) {
        self.0.push(item.ident.to_string());
    }
}

fn types(text: &str) -> Vec<String> {
    let mut types = Types::default();
    types.visit_file(&syn::parse_file(text).unwrap());
    types.0
}

/// Folders with a manifest: each is a crate, its tests included.
fn crates() -> Vec<std::path::PathBuf> {
    let src = std::fs::read_dir(root().join("src")).unwrap().map(|entry| entry.unwrap().path());
    let all = src.chain(["proto", "bench", "tests"].map(|name| root().join(name)));
    all.filter(|folder| folder.join("Cargo.toml").exists()).collect()
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    let mut twice = Vec::new();
    for folder in crates() {
        let mut places = BTreeMap::<String, Vec<String>>::new();
        for (path, text) in files_below(&folder, &["rs"]) {
            for name in types(&text) {
                places.entry(name).or_default().push(short(&path));
            }
        }
        let shared = places.into_iter().filter(|(_, files)| files.len() > 1);
        twice.extend(shared.map(|(name, files)| format!("{name}: {}", files.join(", "))));
    }
    complain(&format!("{} names of types that mean several things in one crate", twice.len()), &twice);
}

#[test]
fn types_are_found_wherever_they_are() {
    let text = "struct A; enum B {} trait C { type No; } impl C for A { type No = (); } type D = ();
        mod inner { pub struct E; } fn f() { struct F; } make!(struct G;);";
    assert_eq!(types(text), ["A", "B", "C", "D", "E", "F"]);
}

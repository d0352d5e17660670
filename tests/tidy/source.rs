//! One crate's modules, and which of them names which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A module's path below its crate. The crate's root has the empty path.
pub(crate) type Module = Vec<String>;

/// A crate's source, without its unit tests.
pub(crate) struct Source {
    files: BTreeMap<Module, syn::File>,
    /// Names that the root re-exports, and the module that each comes from.
    exports: BTreeMap<String, Module>,
}

impl Source {
    /// Reads `src`, the folder with `lib.rs` or `main.rs`.
    pub(crate) fn read(src: &Path) -> Self {
        let files: BTreeMap<_, _> = code_files(src)
            .into_iter()
            .map(|path| {
                let parsed = syn::parse_file(&crate::read(&path)).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                (module(src, &path), parsed)
            })
            .collect();
        let mut source = Self { files, exports: BTreeMap::new() };
        let root = source.files.get(&Module::new()).expect("a crate has a root");
        let uses = root.items.iter().filter_map(|item| match item {
            Item::Use(item) if !matches!(item.vis, Visibility::Inherited) => Some(&item.tree),
            _ => None,
        });
        let paths: Vec<_> = uses.flat_map(|tree| paths(tree, &[])).collect();
        source.exports = paths
            .into_iter()
            .filter_map(|path| Some((path.last()?.clone(), source.owner(&Module::new(), &path)?)))
            .collect();
        source
    }

    /// The modules that each module names, without the root and itself.
    pub(crate) fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut edges = BTreeMap::new();
        for (module, file) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let mut named = Named::default();
            named.visit_file(file);
            let owners = named.0.iter().filter_map(|path| self.owner(module, path));
            edges.insert(module.clone(), owners.filter(|to| to != module && !to.is_empty()).collect());
        }
        edges
    }

    /// The module of this crate that `path`, as written in `module`, leads to.
    fn owner(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut full = match first.as_str() {
            "crate" => match rest.first().and_then(|name| self.exports.get(name)) {
                Some(owner) => return Some(owner.clone()),
                None => rest.to_vec(),
            },
            "self" => [module, rest].concat(),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                [&module[..module.len().checked_sub(ups)?], &path[ups..]].concat()
            }
            // A module of its own.
            _ => [module, path].concat(),
        };
        let is_anchored = matches!(first.as_str(), "crate" | "self" | "super");
        loop {
            if self.files.contains_key(&full) && (is_anchored || full.len() > module.len()) {
                return Some(full);
            }
            full.pop()?;
        }
    }
}

/// The source files of a crate, without those of tests.
pub(crate) fn code_files(src: &Path) -> Vec<PathBuf> {
    let is_test =
        |path: &PathBuf| path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"));
    crate::files(src, "rs").into_iter().filter(|path| !is_test(path)).collect()
}

/// How many lines a file has before its unit tests.
pub(crate) fn code_lines(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

fn module(src: &Path, path: &Path) -> Module {
    let below = path.strip_prefix(src).expect("it is below").with_extension("");
    let mut names: Module = below.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

fn paths(tree: &UseTree, before: &[String]) -> Vec<Vec<String>> {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => paths(&path.tree, &with(&path.ident)),
        UseTree::Name(name) => vec![with(&name.ident)],
        UseTree::Rename(name) => vec![with(&name.ident)],
        UseTree::Glob(_) => vec![before.to_vec()],
        UseTree::Group(group) => group.items.iter().flat_map(|tree| paths(tree, before)).collect(),
    }
}

/// All paths in a file, except in its tests.
#[derive(Default)]
struct Named(Vec<Vec<String>>);

impl<'a> Visit<'a> for Named {
    fn visit_item(&mut self, item: &'a Item) {
        if !attributes(item).iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.0.extend(paths(&item.tree, &[]));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => &[],
    }
}

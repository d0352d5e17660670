//! No circle between the modules of a crate, and no file that is too long to be read at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::source::{Module, Source, code_files, code_lines};

/// The most lines of code that a file may have.
const MOST_LINES: usize = 500;

/// The most lines of code that the median of all files may have.
const MEDIAN_LINES: usize = 130;

fn sources() -> Vec<PathBuf> {
    let crates = std::fs::read_dir("crates").expect("the workspace's crates");
    let mut sources: Vec<_> = crates.map(|entry| entry.expect("a crate").path().join("src")).collect();
    sources.sort();
    sources
}

/// The groups of modules in which each module leads to all others. Each group is one line.
fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let reached = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<_> = edges.get(from).into_iter().flatten().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module.clone()) {
                next.extend(edges.get(module).into_iter().flatten());
            }
        }
        reached
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|module| (module, reached(module))).collect();
    let in_circles = edges.keys().filter(|module| reached[module].contains(*module));
    let groups: BTreeSet<Vec<String>> = in_circles
        .map(|module| {
            let back = |other: &&Module| reached.get(other).is_some_and(|from| from.contains(module));
            reached[module].iter().filter(back).map(|module| module.join("::")).collect()
        })
        .collect();
    groups.into_iter().map(|group| group.join(" ")).collect()
}

#[test]
fn modules_name_each_other_in_no_circle() {
    let wrong: Vec<_> = sources()
        .iter()
        .flat_map(|src| {
            circles(&Source::read(src).edges()).into_iter().map(move |circle| format!("{src:?}: {circle}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Which rooms name which. A room is a module of the crate's root with all modules below it.
fn rooms(edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut rooms: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in edges {
        let others = to.iter().map(|to| to[..1].to_vec()).filter(|to| *to != from[..1]);
        rooms.entry(from[..1].to_vec()).or_default().extend(others);
    }
    rooms
}

#[test]
fn folders_name_each_other_in_no_circle() {
    let wrong: Vec<_> = sources()
        .iter()
        .flat_map(|src| {
            let rooms = rooms(&Source::read(src).edges());
            circles(&rooms).into_iter().map(move |circle| format!("{src:?}: {circle}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn circles_are_found() {
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")];
    let module = |name: &str| vec![name.to_owned()];
    let mut map: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in edges {
        map.entry(module(from)).or_default().insert(module(to));
    }
    assert_eq!(circles(&map), ["a b c"]);
    let path = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Module>();
    let map = BTreeMap::from([
        (path(&["a", "one"]), BTreeSet::from([path(&["b"]), path(&["a"])])),
        (path(&["b"]), BTreeSet::from([path(&["a", "two"])])),
        (path(&["a", "two"]), BTreeSet::new()),
    ]);
    assert!(circles(&map).is_empty(), "no file leads back to itself");
    assert_eq!(circles(&rooms(&map)), ["a b"]);
}

#[test]
fn files_are_short() {
    let mut lines = Vec::new();
    for path in sources().iter().flat_map(|src| code_files(src)) {
        let count = code_lines(&crate::read(&path));
        assert!(count <= MOST_LINES, "{path:?} has {count} lines of code");
        lines.push(count);
    }
    lines.sort_unstable();
    let median = lines[lines.len() / 2];
    assert!(median <= MEDIAN_LINES, "half of the files have more than {median} lines");
    assert!(lines.len() > 100, "the crates' sources were not found");
}

//! The crates' edges, checked: `docs/ARCHITECTURE.md` states who may know whom.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Every crate, and the crates of this workspace it may use outside its tests.
const EDGES: &[(&str, &[&str])] = &[
    ("s3mount", &["s3mount-cli"]),
    (
        "s3mount-cli",
        &[
            "s3mount-cache",
            "s3mount-crt",
            "s3mount-fs",
            "s3mount-fuse",
            "s3mount-memory",
            "s3mount-object",
            "s3mount-prefetch",
        ],
    ),
    ("s3mount-fuse", &["s3mount-fs"]),
    ("s3mount-fs", &["s3mount-memory", "s3mount-object", "s3mount-prefetch"]),
    ("s3mount-prefetch", &["s3mount-cache", "s3mount-memory", "s3mount-object"]),
    ("s3mount-cache", &["s3mount-memory", "s3mount-object"]),
    ("s3mount-crt", &["s3mount-memory", "s3mount-object"]),
    ("s3mount-memory", &[]),
    ("s3mount-object", &[]),
    ("s3mount-testkit", &["s3mount-object"]),
];

/// Libraries that only one crate may name.
const OWNERS: &[(&str, &str)] = &[
    ("fuser", "s3mount-fuse"),
    ("mountpoint-s3-crt", "s3mount-crt"),
    ("mountpoint-s3-crt-sys", "s3mount-crt"),
];

/// For each crate of the workspace, what it depends on outside its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata of this workspace");
    let normal = |package: &cargo_metadata::Package| {
        let dependencies = package.dependencies.iter();
        dependencies
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .map(|dependency| dependency.name.clone())
            .collect()
    };
    metadata.packages.iter().map(|package| (package.name.to_string(), normal(package))).collect()
}

#[test]
fn crates_know_only_those_below_them() {
    let allowed: BTreeMap<_, _> = EDGES.iter().copied().collect();
    for (package, dependencies) in dependencies() {
        let may_use =
            allowed.get(package.as_str()).unwrap_or_else(|| panic!("{package} is not in the table"));
        for used in dependencies.iter().filter(|name| name.starts_with("s3mount")) {
            assert!(may_use.contains(&used.as_str()), "{package} must not use {used}");
        }
    }
}

#[test]
fn each_foreign_world_has_one_door() {
    for (package, dependencies) in dependencies() {
        for (library, owner) in OWNERS {
            assert!(
                !dependencies.contains(*library) || package == *owner,
                "{package} must not use {library}"
            );
        }
    }
}

#[test]
fn only_the_command_line_reads_the_environment() {
    let mut checked = 0;
    for entry in std::fs::read_dir("crates").expect("the workspace's crates") {
        let source = entry.expect("a crate").path().join("src");
        let name = source.display().to_string();
        if name.contains("s3mount-cli") || name.contains("s3mount-testkit") {
            continue;
        }
        for file in std::fs::read_dir(&source).expect("the crate's source") {
            let path = file.expect("a source file").path();
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            assert!(!text.contains("env::var"), "{} reads the environment", path.display());
            checked += 1;
        }
    }
    assert!(checked > 20, "the crates' sources were not found");
}

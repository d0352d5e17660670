//! Which crate may use which other crate, and which crate alone may use a library.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Each crate, and the crates of this workspace that it may use outside of its tests.
const EDGES: &[(&str, &[&str])] = &[
    ("s3mount", &["s3mount-cli"]),
    (
        "s3mount-cli",
        &[
            "s3mount-bucket",
            "s3mount-cache",
            "s3mount-changes",
            "s3mount-crt",
            "s3mount-csi",
            "s3mount-fs",
            "s3mount-fuse",
            "s3mount-listed",
            "s3mount-memory",
            "s3mount-metrics",
            "s3mount-outbox",
            "s3mount-prefetch",
            "s3mount-settings",
            "s3mount-shared",
            "s3mount-system",
            "s3mount-tools",
            "s3mount-write",
        ],
    ),
    ("s3mount-fuse", &["s3mount-fs", "s3mount-metrics"]),
    (
        "s3mount-fs",
        &[
            "s3mount-bucket",
            "s3mount-cache",
            "s3mount-memory",
            "s3mount-metrics",
            "s3mount-names",
            "s3mount-object",
            "s3mount-outbox",
            "s3mount-prefetch",
            "s3mount-write",
        ],
    ),
    (
        "s3mount-prefetch",
        &[
            "s3mount-bucket",
            "s3mount-cache",
            "s3mount-memory",
            "s3mount-metrics",
            "s3mount-object",
            "s3mount-shared",
        ],
    ),
    ("s3mount-bucket", &["s3mount-metrics", "s3mount-object"]),
    ("s3mount-cache", &["s3mount-memory", "s3mount-metrics", "s3mount-object"]),
    ("s3mount-changes", &["s3mount-credentials", "s3mount-metrics"]),
    ("s3mount-credentials", &["s3mount-crt"]),
    ("s3mount-crt", &["s3mount-object"]),
    ("s3mount-csi", &["s3mount-settings", "s3mount-system"]),
    ("s3mount-listed", &["s3mount-bucket", "s3mount-object"]),
    ("s3mount-memory", &[]),
    ("s3mount-metrics", &[]),
    ("s3mount-names", &["s3mount-bucket", "s3mount-cache", "s3mount-object"]),
    ("s3mount-object", &[]),
    ("s3mount-outbox", &["s3mount-object"]),
    (
        "s3mount-settings",
        &[
            "s3mount-bucket",
            "s3mount-cache",
            "s3mount-changes",
            "s3mount-credentials",
            "s3mount-crt",
            "s3mount-fs",
            "s3mount-listed",
            "s3mount-memory",
            "s3mount-object",
            "s3mount-outbox",
            "s3mount-prefetch",
            "s3mount-shared",
            "s3mount-system",
            "s3mount-write",
        ],
    ),
    ("s3mount-shared", &["s3mount-bucket", "s3mount-memory", "s3mount-metrics", "s3mount-object"]),
    (
        "s3mount-sim",
        &[
            "s3mount-bucket",
            "s3mount-cache",
            "s3mount-fs",
            "s3mount-memory",
            "s3mount-object",
            "s3mount-outbox",
            "s3mount-prefetch",
            "s3mount-testkit",
            "s3mount-write",
        ],
    ),
    ("s3mount-system", &["s3mount-fuse", "s3mount-metrics"]),
    ("s3mount-testkit", &["s3mount-object"]),
    (
        "s3mount-tools",
        &[
            "s3mount-bucket",
            "s3mount-cache",
            "s3mount-changes",
            "s3mount-credentials",
            "s3mount-crt",
            "s3mount-fs",
            "s3mount-listed",
            "s3mount-memory",
            "s3mount-metrics",
            "s3mount-object",
            "s3mount-outbox",
            "s3mount-prefetch",
            "s3mount-settings",
            "s3mount-shared",
            "s3mount-system",
            "s3mount-write",
        ],
    ),
    ("s3mount-write", &["s3mount-bucket", "s3mount-memory", "s3mount-metrics", "s3mount-object"]),
];

/// Libraries that only one crate may name.
const OWNERS: &[(&str, &str)] = &[
    ("aws-config", "s3mount-credentials"),
    ("aws-sdk-sqs", "s3mount-changes"),
    ("fuser", "s3mount-fuse"),
    ("mountpoint-s3-crt", "s3mount-crt"),
    ("mountpoint-s3-crt-sys", "s3mount-crt"),
    ("parquet", "s3mount-listed"),
];

/// The crates of the command line that read the environment, and the test kit.
const READ_ENVIRONMENT: &[&str] =
    &["s3mount-cli", "s3mount-csi", "s3mount-settings", "s3mount-testkit", "s3mount-tools"];

/// What each crate of the workspace depends on, outside of its tests or in these alone.
fn dependencies(in_tests: bool) -> BTreeMap<String, BTreeSet<String>> {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata of this workspace");
    let normal = |package: &cargo_metadata::Package| {
        let dependencies = package.dependencies.iter();
        dependencies
            .filter(|dependency| (dependency.kind == DependencyKind::Development) == in_tests)
            .map(|dependency| dependency.name.clone())
            .collect()
    };
    metadata.packages.iter().map(|package| (package.name.to_string(), normal(package))).collect()
}

#[test]
fn crates_know_only_those_below_them() {
    let allowed: BTreeMap<_, _> = EDGES.iter().copied().collect();
    for (package, dependencies) in dependencies(false) {
        let may_use =
            allowed.get(package.as_str()).unwrap_or_else(|| panic!("{package} is not in the table"));
        for used in dependencies.iter().filter(|name| name.starts_with("s3mount")) {
            assert!(may_use.contains(&used.as_str()), "{package} must not use {used}");
        }
        let unused: Vec<_> = may_use.iter().filter(|name| !dependencies.contains(**name)).collect();
        assert!(unused.is_empty(), "{package} does not use {unused:?}: strike it out of the table");
    }
}

#[test]
fn tests_and_examples_know_no_crate_above_theirs() {
    let all = dependencies(false);
    for (package, used_in_tests) in dependencies(true) {
        for used in used_in_tests.iter().filter(|name| name.starts_with("s3mount")) {
            // All crates below `used`.
            let (mut below, mut left) = (BTreeSet::new(), vec![used]);
            while let Some(next) = left.pop() {
                let further = all.get(next).into_iter().flatten().filter(|name| all.contains_key(*name));
                left.extend(further.filter(|name| below.insert((*name).clone())));
            }
            assert!(!below.contains(&package), "{package} uses {used} in its tests, which stands above it");
        }
    }
}

#[test]
fn each_foreign_world_has_one_door() {
    let all = dependencies(false);
    for (library, owner) in OWNERS {
        assert!(all[*owner].contains(*library), "{owner} does not use {library}: strike it out");
    }
    for (package, dependencies) in all {
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
    for path in crate::files("crates".as_ref(), "rs") {
        let name = path.display().to_string();
        let may_read = READ_ENVIRONMENT.iter().any(|reader| name.contains(&format!("/{reader}/")));
        let is_library = name.contains("/src/") && !may_read;
        if is_library {
            assert!(!crate::read(&path).contains("env::var"), "{name} reads the environment");
            checked += 1;
        }
    }
    assert!(checked > 100, "the crates' sources were not found");
}

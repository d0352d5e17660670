//! What a mount shows: the keys of a bucket, or those of several buckets in a folder each.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, bail, ensure};
use s3mount_crt::directory_bucket::is_directory_bucket;

use super::place;
use super::source::{self, Source};
use super::store::Store;
use crate::flags::mount::MountArgs;

/// The most buckets of a mount. Each has a client of its own, which keeps connections open.
const MOST_BUCKETS: usize = 64;

/// The longest name of a file.
const MOST_NAME_BYTES: usize = 255;

/// The name of the folder that each mount has for its own files.
const OWN_FOLDER: &str = ".s3mount";

/// What a mount shows.
#[derive(Clone, Debug)]
pub enum Shown {
    /// The keys of one bucket.
    Bucket(Subtree),
    /// The keys of several buckets, in folders of these names. Nothing of this can be changed.
    Folders(BTreeMap<String, Subtree>),
}

/// The keys of a bucket below a prefix.
#[derive(Clone, Debug)]
pub struct Subtree {
    /// The bucket, and how to reach it.
    pub store: Store,
    /// The prefix. It is empty or ends in `/`.
    pub prefix: String,
}

impl Shown {
    /// What the flags name.
    ///
    /// # Errors
    /// When they name nothing, too much, or what can't be.
    pub fn new(args: &MountArgs) -> anyhow::Result<Self> {
        let (bucket, _) = args.places();
        if args.buckets.is_empty() {
            let bucket = bucket.context("no bucket was given; see s3mount --help")?;
            let Source { bucket, prefix } = source::parse(bucket, args.prefix.as_deref())?;
            let store = Store::new(bucket, &args.access)?;
            return Ok(Self::Bucket(Subtree { store, prefix }));
        }
        if let Some(bucket) = bucket {
            bail!("both the bucket {bucket:?} and --buckets were given; give one of them");
        }
        Ok(Self::Folders(folders(args)?))
    }

    /// The only bucket, if there is one.
    pub fn bucket(&self) -> Option<&Subtree> {
        match self {
            Self::Bucket(subtree) => Some(subtree),
            Self::Folders(_) => None,
        }
    }

    /// All buckets, in the order of their folders.
    pub fn subtrees(&self) -> Vec<&Subtree> {
        match self {
            Self::Bucket(subtree) => vec![subtree],
            Self::Folders(folders) => folders.values().collect(),
        }
    }

    /// The prefix of all keys: that of the bucket. Folders have none.
    pub fn prefix(&self) -> &str {
        self.bucket().map_or("", |subtree| &subtree.prefix)
    }

    /// Under what a disk cache files the keys: see [`Store::identity`].
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Bucket(subtree) => subtree.store.identity(),
            Self::Folders(folders) => {
                let one = |(name, shown): (&String, &Subtree)| {
                    format!("{name}={}/{}", shown.store.identity(), shown.prefix)
                };
                folders.iter().map(one).collect::<Vec<_>>().join(",")
            }
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(subtree) => write!(f, "{subtree}"),
            Self::Folders(folders) => {
                let all: Vec<_> = folders.iter().map(|(name, shown)| format!("{name}={shown}")).collect();
                f.write_str(&all.join(","))
            }
        }
    }
}

impl fmt::Display for Subtree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.store.bucket, self.prefix)
    }
}

/// Reads `--buckets`.
fn folders(args: &MountArgs) -> anyhow::Result<BTreeMap<String, Subtree>> {
    let writing = &args.writing;
    let given = [
        ("--allow", writing.allows_writes()),
        ("--keep-attributes", writing.keep_attributes),
        ("--shared-cache", args.shared_cache.is_some()),
        ("--events-from", args.events_from.is_some()),
        ("--names-from", args.names_from.is_some()),
        ("--prefix", args.prefix.is_some()),
    ];
    if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        bail!("{flag} does not go with --buckets: it is for a mount of one bucket; leave one of them out");
    }
    let mut folders = BTreeMap::new();
    for text in &args.buckets {
        let (name, named) = text.split_once('=').unwrap_or_default();
        ensure!(
            !named.is_empty(),
            "--buckets: {text:?} names no folder and bucket; write NAME=[s3://]BUCKET[/PREFIX], such as train=s3://data/train/"
        );
        let is_name = !["", ".", "..", OWN_FOLDER].contains(&name) && !name.contains(['/', '\0']);
        ensure!(
            is_name && name.len() <= MOST_NAME_BYTES,
            "--buckets: {name:?} can't be the name of a folder of the mount; choose another name"
        );
        let Source { bucket, prefix } = source::parse(named, None)?;
        ensure!(
            !is_directory_bucket(&bucket),
            "--buckets: {bucket:?} is a directory bucket (S3 Express One Zone), which lists its keys in no order; mount it \
             by itself"
        );
        // Each may be in a region of its own.
        let region = place::region(&bucket).map(str::to_owned).or_else(|| args.access.region.clone());
        let store = Store::new(bucket, &args.access).with_context(|| format!("--buckets: {name:?}"))?;
        let store = store.of_another_bucket(region.as_deref());
        let before = folders.insert(name.to_owned(), Subtree { store, prefix });
        ensure!(before.is_none(), "--buckets: the name {name:?} is given twice; each folder has its own");
    }
    ensure!(
        folders.len() <= MOST_BUCKETS,
        "--buckets: {} are too many: a mount shows up to {MOST_BUCKETS} buckets",
        folders.len()
    );
    Ok(folders)
}

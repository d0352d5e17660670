//! The list that names are taken from, and where its index is kept.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow, ensure};
use s3mount_bucket::Bucket;
use s3mount_listed::{List, Names, Shelf};
use tokio::runtime::Handle;

use super::environment::variable;
use super::source;
use super::store::Store;
use crate::flags::mount::MountArgs;

/// Requests at once for a list in a bucket.
const CONNECTIONS: u32 = 16;

/// The share of the memory limit for rows that wait to be sorted. Nothing is read through the mount meanwhile.
const MEMORY_SHARE: u64 = 4;

/// More memory makes longer runs, and fewer of them: with this much, 100 million names are in some 50 runs.
const MOST_MEMORY: u64 = 128 << 20;

/// Files of a list that are read at a time, at most: each may have 16 MiB of it under way.
const MOST_THREADS: usize = 4;

/// Where a list is.
#[derive(Clone, Debug)]
enum ListPlace {
    File(PathBuf),
    Object { store: Store, key: String },
}

/// The list that names are taken from.
#[derive(Clone, Debug)]
pub struct NamesFrom {
    place: ListPlace,
    /// The folder of indexes.
    pub dir: PathBuf,
    memory_bytes: u64,
    threads: usize,
}

/// The folder of indexes for mounts without a disk cache.
fn own_dir() -> Option<PathBuf> {
    dir_of(variable, nix::unistd::geteuid().is_root())
}

/// A relative path counts as none, as XDG's specification has it.
fn dir_of(variable: impl Fn(&str) -> Option<String>, is_root: bool) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| is_root.then(|| PathBuf::from("/var/cache")));
    let cache = cache.or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("s3mount/names"))
}

impl NamesFrom {
    /// The list that `named` is, beside objects of `store`. Its index is kept in `dir`, or in the user's own folder.
    ///
    /// # Errors
    /// If it is no list, and if there is no folder.
    pub fn new(
        named: &str,
        store: &Store,
        dir: Option<&Path>,
        memory_limit_bytes: u64,
        threads: usize,
    ) -> anyhow::Result<Self> {
        let place = match named.strip_prefix("s3://") {
            Some(_) => {
                let (bucket, key) = source::object(named).context("--names-from")?;
                ListPlace::Object { store: store.of_lists(&bucket).context("--names-from")?, key }
            }
            None => ListPlace::File(std::path::absolute(named)?),
        };
        let dir = dir.map(Path::to_owned).or_else(own_dir);
        let dir =
            dir.ok_or_else(|| anyhow!("--names-from: there is no $HOME; name a folder with --cache DIR"))?;
        let memory_bytes = (memory_limit_bytes / MEMORY_SHARE).min(MOST_MEMORY);
        Ok(Self { place, dir, memory_bytes, threads: threads.min(MOST_THREADS) })
    }

    /// The list, for messages.
    pub fn shown(&self) -> String {
        match &self.place {
            ListPlace::File(path) => path.display().to_string(),
            ListPlace::Object { store, key } => format!("s3://{}/{key}", store.bucket),
        }
    }

    /// The means to find the index, or to build it. It is `now`. The bucket of the list is asked on `runtime`.
    ///
    /// # Errors
    /// If there is no client of that bucket, or no folder for indexes.
    pub fn names(&self, now: SystemTime, runtime: &Handle) -> anyhow::Result<Names> {
        let list = match &self.place {
            ListPlace::File(path) => List::File(path.clone()),
            ListPlace::Object { store, key } => {
                let client = runtime.block_on(store.connect_only(store.crt_config(CONNECTIONS)?))?;
                List::Object {
                    bucket: Bucket::new(Arc::new(client), CONNECTIONS as usize),
                    bucket_name: store.bucket.clone(),
                    key: key.clone(),
                    runtime: runtime.clone(),
                }
            }
        };
        Ok(Names {
            list,
            shelf: Shelf::new(&self.dir, now),
            memory_bytes: usize::try_from(self.memory_bytes)?,
            threads: NonZero::new(self.threads).unwrap_or(NonZero::<usize>::MIN),
            rows: Arc::new(AtomicU64::new(0)),
        })
    }
}

/// The list that the flags name, if they do.
pub(crate) fn names_from(
    args: &MountArgs,
    store: &Store,
    memory_limit_bytes: u64,
    threads: usize,
) -> anyhow::Result<Option<NamesFrom>> {
    let Some(named) = &args.names_from else { return Ok(None) };
    ensure!(
        !args.writing.allows_writes(),
        "--names-from is for mounts that only read: what a program writes would not be in the list; leave it out, or \
         --allow"
    );
    ensure!(
        !args.writing.keep_attributes,
        "--keep-attributes asks the store for each file, and --names-from is there so that it is not asked; leave one \
         of them out"
    );
    let dir = args.cache.first().map(std::path::absolute).transpose()?.map(|dir| dir.join("lists"));
    NamesFrom::new(named, store, dir.as_deref(), memory_limit_bytes, threads).map(Some)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser as _;

    use super::dir_of;
    use crate::for_tests::Args;
    use crate::resolved::Config;

    #[test]
    fn indexes_lie_in_the_users_own_folder() {
        let dir = |cache: &str, is_root| {
            let value = |name: &str| if name == "HOME" { "/h".to_owned() } else { cache.to_owned() };
            dir_of(|name| Some(value(name)), is_root)
        };
        assert_eq!(dir("/c", true), Some(PathBuf::from("/c/s3mount/names")));
        assert_eq!(dir("c", true), Some(PathBuf::from("/var/cache/s3mount/names")));
        assert_eq!(dir("c", false), Some(PathBuf::from("/h/.cache/s3mount/names")));
        assert_eq!(dir_of(|_| None, false), None);
    }

    #[test]
    fn a_mount_with_a_list_only_reads() {
        let [folder, elsewhere] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let dir = folder.path().display().to_string();
        let config = |flags: &[&str]| {
            let given = ["s3mount", "bucket", &dir, "--names-from"];
            let args = Args::parse_from([&given[..], flags].concat());
            Config::new(&args.mount).map_err(|error| format!("{error:#}"))
        };
        let named = |list: &str| config(&[list]).expect("settings").names_from.expect("a list").shown();
        assert_eq!(named("/list.csv"), "/list.csv");
        assert_eq!(named("s3://lists/a/manifest.json"), "s3://lists/a/manifest.json");
        let cache = elsewhere.path().join("cache");
        let with_cache = config(&["l.csv", "--cache", &cache.display().to_string()]).expect("settings");
        assert_eq!(with_cache.names_from.expect("a list").dir, cache.join("lists"));
        for (flags, said) in [
            (&["l.csv", "--allow=write"][..], "--names-from is for mounts that only read"),
            (&["l.csv", "--keep-attributes"], "--keep-attributes asks the store for each file"),
            (&["s3://lists"], "--names-from: \"s3://lists\" does not name an object"),
            (&["s3://Lists/k"], "--names-from: \"Lists\" is not the name of a bucket at AWS"),
        ] {
            let error = config(flags).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}

//! `s3mount names LIST INDEX`: makes the index of a list ahead of the mounts that use it.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, ensure};
use s3mount_settings::flags::access::AccessArgs;
use s3mount_settings::resolved::memory;
use s3mount_settings::resolved::names::NamesFrom;
use s3mount_settings::resolved::store::Store;
use s3mount_system::terminal;

use crate::bench::runtime;

/// The flags of `s3mount names`.
#[derive(Clone, Debug, clap::Args)]
pub struct NamesArgs {
    /// List of objects: a file, or s3://BUCKET/KEY, as --names-from takes it.
    #[arg(value_name = "LIST")]
    list: String,

    /// New file for the index, in a folder that is there. Mounts may use the former one, so it gets another name.
    #[arg(value_name = "INDEX")]
    index: PathBuf,

    #[command(flatten)]
    access: AccessArgs,
}

/// Makes the index, and prints what it has.
///
/// # Errors
/// For what is wrong with the list, with its place; those of files and of the store.
pub fn run(args: &NamesArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let index = std::path::absolute(&args.index)?;
    ensure!(!args.index.starts_with("s3:"), "an index goes to a file, and {:?} is none", args.index);
    ensure!(
        index.symlink_metadata().is_err(),
        "{index:?} is there, and mounts may use it; name a new file for the index"
    );
    let folder = index.parent().context("INDEX is no file; name one")?;
    ensure!(folder.is_dir(), "there is no folder {folder:?} for the index; make it, or name another file");
    // The store of a list on a disk is not asked.
    let bucket = args.list.strip_prefix("s3://").and_then(|rest| rest.split('/').next()).unwrap_or("none");
    let store = Store::new(bucket.to_owned(), &args.access)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let from = NamesFrom::new(&args.list, &store, Some(folder), memory::limit(None)?, threads)?;
    let runtime = runtime(threads)?;
    let (names, bytes) = from.names(SystemTime::now(), runtime.handle())?.export(&index)?;
    let each = bytes / names.max(1);
    let took = began.elapsed().as_secs_f64();
    terminal::result(&format!("{names} names in {bytes} bytes ({each} for each), in {took:.1} s"));
    Ok(())
}

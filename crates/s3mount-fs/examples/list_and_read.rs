//! Lists a folder of a bucket and reads a file of it, without FUSE and without S3.
//!
//! `cargo run -p s3mount-fs --example list_and_read`

#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::error::Error;
use std::sync::Arc;

use s3mount_fs::{DirOffset, FileKind, Filesystem, FsConfig, ROOT};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_testkit::MemoryClient;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A bucket in memory. `CrtClient` of s3mount-crt has the same trait, and reads from S3.
    let bucket = Arc::new(MemoryClient::new());
    for key in ["train/0001.txt", "train/0002.txt", "train/labels/all.csv"] {
        bucket.put(key, format!("the bytes of {key}"));
    }
    // Every byte that is read lies in a buffer of the pool, and the budget bounds the pool.
    let pool = BufferPool::new(MemoryBudget::new(64 << 20))?;
    let runtime = Handle::current();
    let prefetcher = Prefetcher::new(bucket.clone(), pool, PrefetchConfig::default(), &runtime);
    let fs = Arc::new(Filesystem::new(bucket.clone(), prefetcher, FsConfig::default(), &runtime));

    // LOOKUP and OPENDIR: the kernel goes from inode to inode, name by name.
    let folder = fs.lookup(ROOT, "train").await?.attr.ino;
    let handle = fs.opendir(folder)?;
    // READDIR: each page begins where the one before it ended.
    let mut offset = DirOffset::START;
    while let page = fs.readdir(handle, offset, 100).await?
        && let Some(last) = page.last()
    {
        offset = last.next;
        for entry in page {
            println!("{}{}", entry.name, if entry.kind == FileKind::Directory { "/" } else { "" });
        }
    }
    fs.releasedir(handle);

    // OPEN and READ: `read` never waits. It calls the closure in whichever thread has the bytes.
    let file = fs.lookup(folder, "0002.txt").await?.attr;
    let handle = fs.open(file.ino)?.handle;
    let (send, receive) = oneshot::channel();
    fs.read(handle, 0, usize::try_from(file.size)?, move |bytes| {
        let _ = send.send(bytes.map(<[u8]>::to_vec));
    });
    println!("{}", String::from_utf8(receive.await??)?);
    fs.release(handle);

    println!("{:?}", bucket.take_requests());
    Ok(())
}

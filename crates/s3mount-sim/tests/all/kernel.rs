//! The model of the kernel, over a filesystem with a client in memory: programs see what they would see on Linux.

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Filesystem, FsConfig, Rights, Writes};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::NewObject;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_sim::draw::Draw;
use s3mount_sim::kernel::{Kernel, KernelConfig, Listing, Process};
use s3mount_testkit::MemoryClient;
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;

const ALL: Rights = Rights { may_delete: true, may_overwrite: true, folder_rename_limit: 100 };

/// A mount of a bucket in memory, whose kernel takes its pauses from `seed`.
fn mount(seed: u64) -> (Arc<MemoryClient>, Arc<Kernel>) {
    let client = Arc::new(MemoryClient::new());
    let (runtime, pool) = (Handle::current(), BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool"));
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), PrefetchConfig::default(), &runtime);
    let config = WriteConfig { memory_bytes: 32 << 20, ..WriteConfig::default() };
    let writes = Writes {
        writer: Writer::new(client.clone(), pool, config, &runtime),
        rights: ALL,
        object: NewObject::default(),
        append_delay: Duration::ZERO,
        outbox: None,
        publishes_on_fsync: false,
    };
    let config = FsConfig { allows_writes: true, ..FsConfig::default() };
    let fs = Filesystem::new(client.clone(), prefetcher, config, &runtime).with_writes(writes);
    let config = KernelConfig::new(Arc::new(Draw::new(seed)));
    (client, Kernel::new(Arc::new(fs), config))
}

#[tokio::test(start_paused = true)]
async fn a_program_writes_a_file_and_reads_it_again() {
    for seed in 0..20 {
        let (client, kernel) = mount(seed);
        let program = Process::new(&kernel, 1);
        let fd = program.open("a", libc::O_CREAT | libc::O_RDWR).await.expect("a file");
        assert_eq!(program.write(fd, b"some text").await, Ok(9));
        assert_eq!(program.pread(fd, 5, 100).await.as_deref(), Ok(&b"text"[..]));
        assert_eq!(program.close(fd).await, Ok(()));
        assert_eq!(client.stored("a").0, b"some text");
        let fd = program.open("a", libc::O_RDONLY).await.expect("a file");
        assert_eq!(program.read(fd, 100).await.as_deref(), Ok(&b"some text"[..]));
        assert_eq!(program.stat("a").await.map(|stat| stat.size), Ok(9));
        assert_eq!(program.readdir("", Listing::default()).await, Ok(vec!["a".to_owned()]));
        assert_eq!(program.rename("a", "b").await, Ok(()));
        assert_eq!(program.stat("a").await.map(|stat| stat.size), Err(libc::ENOENT));
        assert_eq!(program.unlink("b").await, Ok(()));
        program.exit().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(kernel.open_handles(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn large_reads_and_writes_are_whole() {
    let (client, kernel) = mount(3);
    let content: Vec<u8> = (0..3_000_017_u32).map(|at| (at / 7) as u8).collect();
    client.put("old", content.clone());
    let program = Process::new(&kernel, 1);
    let old = program.open("old", libc::O_RDONLY).await.expect("a file");
    let mut read = Vec::new();
    loop {
        let piece = program.read(old, 100_000).await.expect("bytes");
        if piece.is_empty() {
            break;
        }
        read.extend(piece);
    }
    assert!(read == content);
    let new = program.open("new", libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC).await.expect("a file");
    for piece in content.chunks(300_001) {
        assert_eq!(program.write(new, piece).await, Ok(piece.len()));
    }
    assert_eq!(program.close(new).await, Ok(()));
    assert!(client.stored("new").0 == content);
}

#[tokio::test(start_paused = true)]
async fn maps_are_written_back_when_they_are_closed() {
    let (client, kernel) = mount(5);
    client.put("m", vec![b'.'; 5000]);
    let program = Process::new(&kernel, 1);
    let fd = program.open("m", libc::O_RDWR).await.expect("a file");
    let map = program.mmap(fd, true).await.expect("a map");
    assert_eq!(program.map_read(map, 4990, 10).await.as_deref(), Ok(&b".........."[..]));
    assert_eq!(program.map_write(map, 4094, b"1234").await, Ok(()));
    assert_eq!(program.map_read(map, 8192, 1).await, Err(libc::EFAULT));
    assert_eq!(program.munmap(map).await, Ok(()));
    assert_eq!(program.pread(fd, 4093, 6).await.as_deref(), Ok(&b".1234."[..]));
    assert_eq!(program.close(fd).await, Ok(()));
    let stored = client.stored("m").0;
    assert_eq!((stored.len(), &stored[4093..4099]), (5000, &b".1234."[..]));
}

#[tokio::test(start_paused = true)]
async fn locks_are_of_inodes() {
    let (client, kernel) = mount(7);
    client.put("l", "text");
    let (one, two) = (Process::new(&kernel, 1), Process::new(&kernel, 2));
    let [first, second] = [one.open("l", libc::O_RDONLY).await, two.open("l", libc::O_RDONLY).await]
        .map(|fd| fd.expect("a file"));
    assert_eq!(one.try_lock(first, true, true), Ok(()));
    assert_eq!(two.try_lock(second, true, false), Err(libc::EAGAIN));
    assert_eq!(two.try_lock(second, false, true), Ok(()), "the two kinds do not see each other");
    one.exit().await;
    tokio::time::timeout(Duration::from_secs(1), two.lock(second, true, true))
        .await
        .expect("a lock")
        .expect("a lock");
}

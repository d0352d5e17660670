//! Files that are read in the order of their names, more than once.

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Filesystem, InodeNo};
use tokio::time::Instant;

use crate::common::{bucket, mount, names, walk};

const FILES: usize = 400;
const BYTES: u64 = 100 << 10;

/// Opens, reads and closes a file. Without `reads`, the file is not read, because the kernel has its pages.
async fn read(fs: &Arc<Filesystem>, folder: InodeNo, index: usize, reads: bool) {
    let ino = fs.lookup(folder, &format!("{index:04}")).await.expect("a file").attr.ino;
    let handle = fs.open(ino).expect("a file").handle;
    if reads {
        let (send, receive) = tokio::sync::oneshot::channel();
        fs.read(handle, 0, 128 << 10, move |result| {
            let _ = send.send(result.map(<[u8]>::len));
        });
        assert_eq!(receive.await.expect("an answer").expect("bytes") as u64, BYTES);
    }
    fs.release(handle);
    // The reader works on the file for this time.
    tokio::time::sleep(Duration::from_micros(500)).await;
}

#[tokio::test(start_paused = true)]
async fn order_is_followed_in_each_epoch_that_reads() {
    let client = bucket::<&str>([]);
    (0..FILES).for_each(|index| drop(client.put_synthetic(&format!("d/{index:04}"), BYTES)));
    client.set_latency(Duration::from_millis(27));
    let fs = mount(&client, |_| {});
    let folder = walk(&fs, "d").await.expect("a folder");
    names(&fs, folder).await.expect("its names");
    for (epoch, reads) in [true, true, false, true].into_iter().enumerate() {
        client.take_requests();
        let start = Instant::now();
        for index in 0..FILES {
            read(&fs, folder, index, reads).await;
        }
        let (took, gets) = (start.elapsed(), client.take_requests().get);
        assert!(took <= Duration::from_secs(1), "{FILES} files in {took:?} in epoch {epoch}");
        let most = if reads { FILES + 8 } else { 64 };
        assert!(gets <= most, "{gets} GETs in epoch {epoch}");
        // In this time, files that were fetched by a guess and not read are dropped.
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
}

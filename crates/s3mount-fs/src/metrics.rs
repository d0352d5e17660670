//! What the filesystem counts and measures.

use s3mount_metrics::{Counter, Family, Gauge, Total, labels, metrics};

use crate::page_cache::direct::Reason;

labels! {
    /// The way of an open file's bytes to its readers.
    pub enum OpenedAs("mode") {
        /// From the daemon, through the page cache.
        Cached = "cached",
        /// From the daemon, around the page cache.
        Direct = "direct",
        /// From the disk: the kernel reads the cached file by itself.
        Passthrough = "passthrough",
    }
}

metrics! {
    /// Names, inodes, handles, hints, and how files are opened.
    pub struct FsMetrics {
        /// LISTs that succeeded.
        list_requests: Total = ("s3mount_list_requests_total", Count, Stable),
        /// Keys in listings that can't be shown, counting repeats.
        hidden_keys: Total = ("s3mount_hidden_keys_total", Count, Stable),
        /// Memory that known names take.
        metadata: Gauge = ("s3mount_metadata_bytes", Bytes, Stable),
        /// Hints that wait to be fetched.
        hints_queued: Gauge = ("s3mount_hints_queued", Count, Stable),
        /// Hints that are fetched ahead and not read yet.
        hints_ahead: Gauge = ("s3mount_hints_ahead", Count, Stable),
        /// Hints that named nothing that can be fetched, or were too many.
        hints_refused: Total = ("s3mount_hints_refused_total", Count, Stable),
        /// Files that were opened: served by the daemon through the page cache or around it, or read by the
        /// kernel from the disk.
        opens: Family<Counter, OpenedAs> = ("s3mount_opens_total", Count, Stable),
        /// Changes of shown objects of which the store has told.
        told_changes: Counter = ("s3mount_told_changes_total", Count, Experimental),
        /// Files that wait in `--write-behind` to be uploaded.
        outbox_files: Gauge = ("s3mount_outbox_files", Count, Experimental),
        /// Their bytes.
        outbox_bytes: Gauge = ("s3mount_outbox_bytes", Bytes, Experimental),
        /// Files in `--write-behind` that the store does not take.
        outbox_failed: Gauge = ("s3mount_outbox_failed_files", Count, Experimental),
        /// How much of the disk the files in `--write-behind` take, with room for more.
        outbox_disk: Gauge = ("s3mount_outbox_disk_bytes", Bytes, Experimental),
        /// Open files.
        open_files: Gauge = ("s3mount_open_files", Count, Stable),
        /// Open folders.
        open_folders: Gauge = ("s3mount_open_folders", Count, Stable),
        /// Inodes that the kernel knows.
        inodes: Gauge = ("s3mount_inodes", Count, Stable),
        /// Files that are known to be read at random through maps.
        random_map_files: Gauge = ("s3mount_random_map_files", Count, Stable),
        /// READs around faults that were refused, so that only the pages that are wanted are fetched.
        refused_readaheads: Total = ("s3mount_refused_readaheads_total", Count, Stable),
        /// Files that were opened around the page cache by `--direct-io auto`.
        direct_opens: Total = ("s3mount_direct_opens_total", Count, Stable),
        /// Kinds of files (a folder and an extension) that are all opened so now.
        direct_kinds: Gauge = ("s3mount_direct_kinds", Count, Stable),
        /// How often a kind went back to the page cache, by the reason: its readers asked for small pieces,
        /// it was mapped, several readers had the same file open at once, or files were read again that the
        /// page cache could hold.
        direct_given_up: Family<Total, Reason> = ("s3mount_direct_given_up_total", Count, Stable),
    }
}

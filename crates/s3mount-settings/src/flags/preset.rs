//! Settings for kinds of jobs. The page of the configuration shows this table.

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Preset {
    /// Large files or shards, each read whole once an epoch, in any order.
    Training,
    /// Records read at random out of large files, such as np.memmap of tokens.
    Random,
    /// One file a sample, such as images.
    SmallFiles,
    /// Few large files, each read once and at once, such as the weights of a model.
    ModelLoading,
    /// Little memory and few cores for the mount.
    LowMemory,
}

/// One setting of a preset: the flag's name, its value, and why.
pub(crate) type Setting = (&'static str, &'static str, &'static str);

/// Data that a job reads is not written meanwhile, so names may count as current for an hour.
const NAMES: Setting =
    ("metadata-ttl", "3600", "an epoch lists nothing again; it takes an hour until new files are seen");

impl Preset {
    /// What the preset sets.
    pub(crate) fn settings(self) -> &'static [Setting] {
        match self {
            Self::Training => &[
                NAMES,
                (
                    "direct-io",
                    "auto",
                    "a data set that the page cache can't hold leaves it out: 1.25 to 1.35 times the samples a \
                     second, for 0.7 of the processor time",
                ),
            ],
            Self::Random => &[
                NAMES,
                (
                    "random-read-size",
                    "64KiB",
                    "a random read of 4 KiB fetches 16 bytes for each byte, and not 32",
                ),
                (
                    "prefetch-initial",
                    "128KiB",
                    "the first read of a file fetches little besides what it asks for",
                ),
            ],
            Self::SmallFiles => &[
                NAMES,
                ("small-file-size", "4MiB", "one GET and one round trip for each file of up to 4 MiB"),
                ("prefetch-initial", "4MiB", "a file that is somewhat larger is asked for at once"),
            ],
            Self::ModelLoading => &[
                NAMES,
                (
                    "part-size",
                    "16MiB",
                    "a connection moves the more, the larger its parts are: 60 MB/s in parts of 5 MiB, 71 in parts of \
                     10 MiB",
                ),
                ("prefetch-initial", "32MiB", "the first read opens the window, which need not climb"),
            ],
            Self::LowMemory => &[
                (
                    "memory-limit",
                    "128MiB",
                    "a stream over 25 ms of latency has 1.3 GB/s from 256 MiB, and less from this",
                ),
                ("metadata-limit", "32MiB", "room for 300,000 names"),
                ("part-size", "4MiB", "smaller parts bring more speed for each byte of memory"),
                ("max-connections", "64", "more connections than parts that fit the memory are idle"),
                ("max-threads", "2", "the loaders have the other cores"),
            ],
        }
    }
}

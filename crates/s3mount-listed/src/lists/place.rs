//! Where a list is.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use futures::stream::TryStreamExt as _;
use s3mount_bucket::Bucket;
use s3mount_object::{ByteRange, ErrorKind, ObjectError, ObjectId, ObjectMeta};
use tokio::runtime::Handle;

use crate::error::ListedError;

/// How much is fetched at once, and by how many requests at a time: as much as one file of a list needs to come faster
/// than it is read, in 16 MiB of memory.
const PART_BYTES: u64 = 4 << 20;
const AT_ONCE: usize = 4;

/// Where a list is, or a file that belongs to it.
#[derive(Clone, Debug)]
pub enum List {
    /// In a file.
    File(PathBuf),
    /// In a bucket.
    Object {
        /// The bucket.
        bucket: Bucket,
        /// Its name.
        bucket_name: String,
        /// The key.
        key: String,
        /// Where its requests run. No thread of it may wait for the list.
        runtime: Handle,
    },
}

impl List {
    /// Its name, for messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Object { bucket_name, key, .. } => format!("s3://{bucket_name}/{key}"),
        }
    }

    /// A text that no other list has, and not this one after a change.
    ///
    /// # Errors
    /// Those of looking at the file, or the object.
    pub(crate) fn identity(&self) -> Result<String, ListedError> {
        match self {
            Self::File(path) => {
                let metadata = path.metadata().map_err(ListedError::of("read", path))?;
                if !metadata.is_file() {
                    let what = "it is no regular file, and a list is read more than once; write it to a file";
                    return Err(ListedError::wrong(self.shown(), what));
                }
                let (mtime, nanos) = (metadata.mtime(), metadata.mtime_nsec());
                let (size, dev, ino) = (metadata.len(), metadata.dev(), metadata.ino());
                let path = path.display();
                Ok(format!("{path}\nsize {size} mtime {mtime}.{nanos:09} dev {dev} ino {ino}"))
            }
            Self::Object { .. } => {
                let meta = self.head()?;
                Ok(format!("{}\nsize {} etag {}", self.shown(), meta.size, meta.etag))
            }
        }
    }

    fn failed(&self) -> impl FnOnce(ObjectError) -> ListedError {
        let place = self.shown();
        |source| ListedError::Store { place, source }
    }

    fn head(&self) -> Result<ObjectMeta, ListedError> {
        let Self::Object { bucket, key, runtime, .. } = self else {
            return Err(ListedError::Damaged("it is in no bucket"));
        };
        let found = runtime.block_on(bucket.head(key)).map_err(self.failed())?;
        found.ok_or_else(|| self.failed()(ObjectError::new(ErrorKind::NotFound, "HeadObject", key)))
    }

    /// The file, or a copy of the object in a file in `scratch` that has no name.
    ///
    /// # Errors
    /// Those of the file, or of the store.
    pub(crate) fn open(&self, scratch: &Path) -> Result<File, ListedError> {
        let (bucket, key, runtime) = match self {
            Self::File(path) => return File::open(path).map_err(ListedError::of("read", path)),
            Self::Object { bucket, key, runtime, .. } => (bucket, key, runtime),
        };
        let meta = self.head()?;
        let mut file = tempfile::tempfile_in(scratch).map_err(ListedError::of("make a file in", scratch))?;
        let object = ObjectId::new(key, meta.etag);
        let starts = (0..meta.size).step_by(PART_BYTES as usize);
        let parts = futures::stream::iter(starts.map(Ok)).try_for_each_concurrent(AT_ONCE, |start| {
            let range = ByteRange::new(start, meta.size.min(start + PART_BYTES));
            let (file, object) = (&file, &object);
            async move {
                let buffer = || async { Ok::<_, ObjectError>(vec![0; range.len() as usize]) };
                let bytes = bucket.get(object, range, buffer).await.map_err(self.failed())?;
                file.write_all_at(&bytes, start).map_err(ListedError::of("write to", scratch))
            }
        });
        runtime.block_on(parts)?;
        file.seek(SeekFrom::Start(0)).map_err(ListedError::of("read in", scratch))?;
        Ok(file)
    }

    /// All bytes of a short file.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and if it is longer than `most` bytes.
    pub(crate) fn read(&self, scratch: &Path, most: u64) -> Result<Vec<u8>, ListedError> {
        let mut bytes = Vec::new();
        let failed = |source| ListedError::File { action: format!("read {}", self.shown()), source };
        let read = self.open(scratch)?.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
        if read as u64 > most {
            return Err(ListedError::wrong(self.shown(), format!("it is longer than {most} bytes")));
        }
        Ok(bytes)
    }

    /// The file that the manifest of an inventory names by its `key`: in the same bucket; or of a manifest on a disk, below
    /// a folder that the manifest is in, as `aws s3 sync` puts it, or beside the manifest, or in `../data/`.
    ///
    /// # Errors
    /// If no such file is on the disk.
    pub(crate) fn of_manifest(&self, data_key: &str) -> Result<Self, ListedError> {
        let path = match self {
            Self::Object { bucket, bucket_name, runtime, .. } => {
                return Ok(Self::Object {
                    bucket: bucket.clone(),
                    bucket_name: bucket_name.clone(),
                    key: data_key.to_owned(),
                    runtime: runtime.clone(),
                });
            }
            Self::File(path) => path,
        };
        let name = data_key.rsplit('/').next().unwrap_or(data_key);
        let folder = path.parent().unwrap_or(Path::new("/"));
        let near = [folder.join(name), folder.join("../data").join(name)];
        // A key leads to nothing beside these folders.
        let is_plain = Path::new(data_key).components().all(|part| matches!(part, Component::Normal(_)));
        let above = path.ancestors().skip(1).filter(|_| is_plain).map(|above| above.join(data_key));
        let mut places = above.chain(near);
        places.find(|place| place.is_file()).map(Self::File).ok_or_else(|| {
            let what = format!(
                "its data file {name} is neither beside it nor in ../data; copy the folder of the inventory as a whole, \
                 by `aws s3 sync`, or name the manifest in the bucket: s3://BUCKET/.../manifest.json"
            );
            ListedError::wrong(path.display().to_string(), what)
        })
    }
}

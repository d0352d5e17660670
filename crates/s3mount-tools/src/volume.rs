//! `s3mount volume`: makes and deletes the volumes of the CSI driver. Each is a prefix of a bucket.
//!
//! A volume has a marker, an empty object at its prefix, whose metadata say how large the volume shall be. Nothing is
//! deleted below a prefix that has none: another program has made that.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::Subcommand;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use s3mount_bucket::WritableBucket;
use s3mount_object::{Body, Condition, ErrorKind, ListObjects, NewObject, ObjectError, UserMetadata};
use s3mount_settings::flags::access::AccessArgs;
use s3mount_settings::resolved::source::{self, Source};
use s3mount_settings::resolved::store::{Store, explain};
use s3mount_system::terminal;

use crate::bench::runtime;

/// The metadata of a marker: how many bytes the volume shall have.
const CAPACITY: &str = "s3mount-capacity";

/// How many objects are deleted at a time.
const DELETIONS: usize = 32;

/// Connections to the store.
const CONNECTIONS: u32 = 40;

/// The flags of `s3mount volume`.
#[derive(Clone, Debug, clap::Args)]
pub struct VolumeArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Make a volume, and print how many bytes it shall have. One that is there stays as it is.
    Create {
        #[command(flatten)]
        of: Of,
        /// How many bytes it shall have.
        #[arg(long, value_name = "BYTES", default_value_t = 0)]
        capacity: u64,
    },
    /// Delete a volume and all objects in it.
    Delete {
        #[command(flatten)]
        of: Of,
    },
    /// Print how many bytes a volume shall have, and nothing if there is none.
    Find {
        #[command(flatten)]
        of: Of,
    },
}

/// Which volume.
#[derive(Clone, Debug, clap::Args)]
struct Of {
    /// Prefix of the volume.
    #[arg(value_name = "s3://BUCKET/PREFIX/")]
    source: String,
    #[command(flatten)]
    access: AccessArgs,
}

/// A volume, and the way to it.
struct Volume {
    bucket: WritableBucket,
    store: Store,
    /// It ends in `/`.
    prefix: String,
}

/// Makes, deletes or finds a volume.
///
/// # Errors
/// Those of the store.
pub fn run(args: &VolumeArgs) -> anyhow::Result<()> {
    let (What::Create { of, .. } | What::Delete { of } | What::Find { of }) = &args.what;
    let Source { bucket, prefix } = source::parse(&of.source, None)?;
    ensure!(!prefix.is_empty(), "a volume is a prefix of a bucket, and {:?} has none", of.source);
    let store = Store::new(bucket, &of.access)?;
    let done = runtime(2)?.block_on(async {
        let (client, _) = store.connect(store.crt_config(CONNECTIONS)?, &prefix, 1).await?;
        let connections = CONNECTIONS as usize;
        let bucket = WritableBucket::new(Arc::new(client), connections);
        let volume = Volume { bucket, store, prefix };
        match args.what {
            What::Create { capacity, .. } => volume.create(capacity).await.map(Some),
            What::Delete { .. } => volume.delete().await.map(|()| None),
            What::Find { .. } => volume.capacity().await,
        }
    })?;
    if let Some(capacity) = done {
        terminal::result(&capacity.to_string());
    }
    Ok(())
}

impl Volume {
    fn explained(&self, error: ObjectError) -> anyhow::Error {
        explain(&self.store, error)
    }

    /// How many bytes the volume shall have, if it is there.
    async fn capacity(&self) -> anyhow::Result<Option<u64>> {
        let found = match self.bucket.describe(&self.prefix).await {
            Ok(found) => found,
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.explained(error)),
        };
        let capacity = found.object.metadata.get(CAPACITY);
        capacity
            .map(|capacity| capacity.parse())
            .transpose()
            .context("the volume's marker has another capacity")
    }

    /// Whether somebody has put an object below the prefix. A marker is none.
    async fn has_objects(&self) -> anyhow::Result<bool> {
        let mut request =
            ListObjects { prefix: self.prefix.clone(), max_keys: Some(2), ..ListObjects::default() };
        loop {
            let page = self.bucket.list(&request).await.map_err(|error| self.explained(error))?;
            if page.objects.iter().any(|object| object.key != self.prefix) {
                return Ok(true);
            }
            match page.next {
                Some(next) => request.continuation = Some(next),
                None => return Ok(false),
            }
        }
    }

    /// Makes the volume, unless it is there. Where there are objects and no marker, others have made them: they would be
    /// deleted with the volume.
    async fn create(&self, capacity: u64) -> anyhow::Result<u64> {
        if let Some(there) = self.capacity().await? {
            return Ok(there);
        }
        // Another call may have made it before, and a program may have written to it.
        if self.has_objects().await? && self.capacity().await?.is_none() {
            bail!(
                "{:?} has objects, and is no volume of the driver: they would be deleted with it; name another prefix, or \
                 move them away, or mount them as a volume that is there",
                self.prefix
            );
        }
        let metadata = UserMetadata::from([(CAPACITY.to_owned(), capacity.to_string())]);
        let object = NewObject { metadata, ..NewObject::default() };
        let put = self.bucket.put(&self.prefix, &Body::new([]), &object, Some(&Condition::Absent)).await;
        match put {
            Ok(_) => Ok(capacity),
            Err(error) if *error.kind() == ErrorKind::PreconditionFailed => {
                let there = self.capacity().await?;
                there.with_context(|| format!("{:?} is there, and is no volume of the driver", self.prefix))
            }
            Err(error) => Err(self.explained(error)),
        }
    }

    async fn delete(&self) -> anyhow::Result<()> {
        if self.capacity().await?.is_none() {
            // Deleted already, or made by somebody else.
            return Ok(());
        }
        let mut after = None;
        loop {
            let page = self.bucket.list_uploads(&self.prefix, after.as_ref()).await;
            let page = page.map_err(|error| self.explained(error))?;
            for listed in page.uploads {
                self.bucket.abort(&listed.upload).await.map_err(|error| self.explained(error))?;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut request = ListObjects { prefix: self.prefix.clone(), ..ListObjects::default() };
        loop {
            let page = self.bucket.list(&request).await.map_err(|error| self.explained(error))?;
            // The marker is the last, so that a deletion that ends before is done again.
            let keys = page.objects.iter().map(|object| &object.key).filter(|key| **key != self.prefix);
            let deletions = stream::iter(keys).map(|key| self.bucket.delete_whatever(key));
            let deleted: Result<Vec<()>, _> = deletions.buffer_unordered(DELETIONS).try_collect().await;
            deleted.map_err(|error| self.explained(error))?;
            match page.next {
                Some(next) => request.continuation = Some(next),
                None => break,
            }
        }
        self.bucket.delete_whatever(&self.prefix).await.map_err(|error| self.explained(error))
    }
}

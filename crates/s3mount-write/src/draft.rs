//! One file that is being written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use s3mount_object::{ByteRange, ErrorKind, GetObject, ObjectError, ObjectId, PutAnswer, PutObject};

use crate::writer::Shared;
use crate::{Guard, Properties, WriteError};

/// One file that is being written. All who have it open share it.
#[derive(Debug)]
pub struct Draft {
    shared: Arc<Shared>,
    properties: Properties,
    state: Mutex<State>,
    /// One publication at a time.
    publishing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    key: String,
    guard: Guard,
    /// The version whose bytes were not fetched yet.
    source: Option<(ObjectId, u64)>,
    bytes: Vec<u8>,
    modified: SystemTime,
    /// Changes so far.
    changes: u64,
    published: Option<(u64, Published)>,
}

/// What became of a draft.
#[derive(Clone, Debug)]
pub struct Published {
    /// The version that the store has now.
    pub object: ObjectId,
    /// Its length in bytes.
    pub size: u64,
    /// When it was published.
    pub modified: SystemTime,
}

impl Draft {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: &str,
        properties: Properties,
        source: Option<(ObjectId, u64)>,
    ) -> Arc<Self> {
        let modified = shared.now();
        let published = source.clone().map(|(object, size)| (0, Published { object, size, modified }));
        let guard = source.as_ref().map_or(Guard::Any, |(object, _)| Guard::Version(object.etag().clone()));
        let state =
            State { key: key.to_owned(), guard, source, bytes: Vec::new(), modified, changes: 0, published };
        let (state, publishing) = (Mutex::new(state), tokio::sync::Mutex::default());
        Arc::new(Self { shared, properties, state, publishing })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The length of the file, in bytes.
    pub fn size(&self) -> u64 {
        let state = self.state();
        state.source.as_ref().map_or(state.bytes.len() as u64, |(_, size)| *size)
    }

    /// When the file was changed last.
    pub fn modified(&self) -> SystemTime {
        self.state().modified
    }

    /// Whether the file has changed since it was published last. A new, empty file has.
    pub fn is_dirty(&self) -> bool {
        let state = self.state();
        state.published.as_ref().is_none_or(|(changes, _)| *changes != state.changes)
    }

    /// Gives the file the key under which it is to show from now on. `guard` says what may be replaced there.
    pub fn rename(&self, key: &str, guard: Guard) {
        let mut state = self.state();
        (state.key, state.guard) = (key.to_owned(), guard);
        state.changes += 1;
    }

    /// Says what the first publication may replace. Each later one replaces only what the one before wrote.
    pub fn set_guard(&self, guard: Guard) {
        self.state().guard = guard;
    }

    /// Writes at once if memory is free, and nothing has to be fetched. `None`: call [`write`](Self::write).
    /// Never waits.
    pub fn try_write(&self, offset: u64, data: &[u8]) -> Option<Result<(), WriteError>> {
        let now = self.shared.now();
        let mut state = self.state();
        if state.source.is_some() {
            return None;
        }
        let start = offset as usize;
        if state.bytes.len() < start + data.len() {
            state.bytes.resize(start + data.len(), 0);
        }
        state.bytes[start..start + data.len()].copy_from_slice(data);
        state.changes += 1;
        state.modified = now;
        Some(Ok(()))
    }

    /// Writes `data` at `offset`. Waits for memory, and for the bytes around a change.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), WriteError> {
        self.fetch().await?;
        self.try_write(offset, &data).expect("all is here")
    }

    /// Up to `len` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes, WriteError> {
        self.fetch().await?;
        let state = self.state();
        let start = state.bytes.len().min(offset as usize);
        let end = state.bytes.len().min(start + len);
        Ok(Bytes::copy_from_slice(&state.bytes[start..end]))
    }

    /// Cuts the file to `size` bytes, or makes it that long by zeros.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn truncate(&self, size: u64) -> Result<(), WriteError> {
        self.fetch().await?;
        let now = self.shared.now();
        let mut state = self.state();
        state.bytes.resize(size as usize, 0);
        state.changes += 1;
        state.modified = now;
        Ok(())
    }

    /// Waits until the store has all bytes, so that they survive the mount.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn sync(&self) -> Result<(), WriteError> {
        self.publish().await.map(|_| ())
    }

    /// Waits until the object shows all bytes. Returns the version that is published now; nothing is written
    /// if it is the one that was published last.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn publish(&self) -> Result<Published, WriteError> {
        let _one = self.publishing.lock().await;
        let (changes, request, size) = {
            let state = self.state();
            if let Some((changes, published)) = &state.published
                && *changes == state.changes
            {
                return Ok(published.clone());
            }
            let request = PutObject {
                key: state.key.clone(),
                bytes: Bytes::copy_from_slice(&state.bytes),
                metadata: self.properties.metadata.clone(),
                only_new: state.guard == Guard::Absent,
            };
            (state.changes, request, state.bytes.len() as u64)
        };
        let key = request.key.clone();
        if self.shared.client.put_object(request).await? == PutAnswer::Exists {
            return Err(ObjectError::new(ErrorKind::PreconditionFailed, "PutObject", &key).into());
        }
        let meta = self.shared.client.head_object(&key).await?;
        let object = ObjectId::new(&key, meta.etag);
        let published = Published { object: object.clone(), size, modified: meta.last_modified };
        let mut state = self.state();
        state.guard = Guard::Version(object.etag().clone());
        state.published = Some((changes, published.clone()));
        Ok(published)
    }

    /// Gives everything up: memory, spool, and the upload at the store, which is aborted in the background.
    pub async fn discard(&self) {
        let mut state = self.state();
        (state.bytes, state.source) = (Vec::new(), None);
    }

    async fn fetch(&self) -> Result<(), WriteError> {
        let Some((object, size)) = self.state().source.clone() else { return Ok(()) };
        let mut bytes = Vec::new();
        if size > 0 {
            let into = Box::new(vec![0; size as usize]);
            let request = GetObject { object, range: ByteRange::new(0, size) };
            bytes = self.shared.client.get_object(request, into).await?.bytes.to_vec();
        }
        let mut state = self.state();
        if state.source.take().is_some() {
            state.bytes = bytes;
        }
        Ok(())
    }
}

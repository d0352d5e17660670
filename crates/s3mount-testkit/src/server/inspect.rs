//! What tests see of the objects and uploads of a server, without a request.

use s3mount_object::NewObject;

use crate::TestS3;
use crate::object::Object;

/// An object that the server has.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The ETag with its quotes.
    pub etag: String,
    /// The size in bytes.
    pub size: u64,
    /// What the object has beside its bytes, with its tags.
    pub beside: NewObject,
    /// The checksum that its upload brought, as S3 writes it. An object that was uploaded in parts always has
    /// one.
    pub checksum: Option<String>,
    object: Object,
}

impl Stored {
    /// All bytes.
    ///
    /// # Panics
    /// When the server has dropped them.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < self.size {
            bytes.extend_from_slice(
                &self.object.read(bytes.len() as u64, 1 << 20).expect("bytes that are kept"),
            );
        }
        bytes
    }
}

/// An upload in parts that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenUpload {
    /// The key that the object will have.
    pub key: String,
    /// The upload's id.
    pub id: String,
    /// The number and the length of each part that the server has, in order.
    pub parts: Vec<(u32, u64)>,
}

impl TestS3 {
    /// How many requests faults have struck since the server began.
    pub fn struck(&self) -> u64 {
        self.shared.faults.struck()
    }

    /// The object at `key`, if there is one.
    pub fn stored(&self, bucket: &str, key: &str) -> Option<Stored> {
        let object = self.shared.read().get(bucket)?.get(key)?.clone();
        Some(Stored {
            etag: object.etag.clone(),
            size: object.size,
            beside: object.beside.clone(),
            checksum: object.kept.as_ref().map(|kept| kept.text.clone()),
            object,
        })
    }

    /// The uploads in parts that are neither complete nor aborted, in the order of their keys.
    pub fn open_uploads(&self, bucket: &str) -> Vec<OpenUpload> {
        let mut uploads = self.shared.uploads();
        let (all, _) = uploads.entry(bucket.to_owned()).or_default().list("", None, usize::MAX);
        all.into_iter()
            .map(|(key, id, upload)| OpenUpload {
                key: key.to_owned(),
                id: id.to_owned(),
                parts: upload.parts.iter().map(|(number, part)| (*number, part.len)).collect(),
            })
            .collect()
    }
}

//! The objects below a prefix, in the order of their keys, page by page. Of a store that lists in no order, all
//! objects are listed at once and sorted.

use std::collections::VecDeque;

use s3mount_bucket::Bucket;
use s3mount_object::{ListObjects, ListedObject, ObjectError};

/// A listing that goes on as its objects are taken.
pub(super) struct Listing {
    bucket: Bucket,
    prefix: String,
    objects: VecDeque<ListedObject>,
    next: Option<String>,
    is_complete: bool,
}

impl Listing {
    pub(super) fn new(bucket: Bucket, prefix: String) -> Self {
        Self { bucket, prefix, objects: VecDeque::new(), next: None, is_complete: false }
    }

    /// The key of an object, from the end of the prefix on.
    pub(super) fn rest<'a>(&self, object: &'a ListedObject) -> &'a str {
        object.key.strip_prefix(&self.prefix).unwrap_or(&object.key)
    }

    /// The next object, which stays.
    pub(super) async fn peek(&mut self) -> Result<Option<&ListedObject>, ObjectError> {
        while self.objects.is_empty() && !self.is_complete {
            self.fetch().await?;
            if !self.bucket.lists_in_order() {
                while !self.is_complete {
                    self.fetch().await?;
                }
                self.objects.make_contiguous().sort_unstable_by(|a, b| a.key.cmp(&b.key));
            }
        }
        Ok(self.objects.front())
    }

    /// Takes the next object.
    pub(super) async fn next(&mut self) -> Result<Option<ListedObject>, ObjectError> {
        self.peek().await?;
        Ok(self.objects.pop_front())
    }

    async fn fetch(&mut self) -> Result<(), ObjectError> {
        let request = ListObjects {
            prefix: self.prefix.clone(),
            continuation: self.next.take(),
            ..ListObjects::default()
        };
        let page = self.bucket.list(&request).await?;
        self.objects.extend(page.objects);
        self.next = page.next;
        self.is_complete = self.next.is_none();
        Ok(())
    }
}

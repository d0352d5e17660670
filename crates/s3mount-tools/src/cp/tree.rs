//! Copies all objects below a prefix, except those that are at the target already.

use anyhow::{Context as _, ensure};
use futures::stream::{self, TryStreamExt as _};
use s3mount_object::{ListedObject, ObjectMeta};
use s3mount_write::{CopyError, CopyOrder, Source};

use super::Copying;
use super::explain::explain;
use super::listing::Listing;

/// An object, and what is at the place of its copy.
struct Pair {
    source: ListedObject,
    key: String,
    there: Option<ObjectMeta>,
}

impl Copying {
    /// Copies all objects below the source.
    pub(super) async fn copy_tree(&self) -> anyhow::Result<()> {
        let mut from = Listing::new(self.source.reader(), self.from.folder());
        let to = Listing::new(self.target.reader(), self.to.folder());
        let first = from.peek().await.with_context(|| format!("cannot list {}", self.from))?;
        ensure!(
            first.is_some(),
            "there is no object below {}; check its name",
            self.from.with(&self.from.folder())
        );
        let pairs = stream::try_unfold((from, to), |(mut from, mut to)| async move {
            let pair = self.next_pair(&mut from, &mut to).await?;
            anyhow::Ok(pair.map(|pair| (pair, (from, to))))
        });
        pairs
            .map_ok(|pair| async move {
                if let Err(error) = self.copy_pair(&pair).await {
                    let from = self.from.with(&pair.source.key);
                    self.bar.fail(&explain(&from, &self.to.with(&pair.key), error));
                }
                anyhow::Ok(())
            })
            // While some objects are compared, others are copied.
            .try_buffer_unordered(self.at_once * 2)
            .try_for_each(|()| async { Ok(()) })
            .await
    }

    /// The next object of the source. Both listings are in the order of the keys.
    async fn next_pair(&self, from: &mut Listing, to: &mut Listing) -> anyhow::Result<Option<Pair>> {
        let listed = from.next().await.with_context(|| format!("cannot list {}", self.from))?;
        let Some(source) = listed else { return Ok(None) };
        let rest = from.rest(&source).to_owned();
        let key = format!("{}{rest}", self.to.folder());
        let there = loop {
            let next = to.peek().await.with_context(|| format!("cannot list {}", self.to))?;
            match next.map(|object| object.key.cmp(&key)) {
                Some(std::cmp::Ordering::Less) => to.next().await?,
                Some(std::cmp::Ordering::Equal) => break to.next().await?.map(|object| object.meta),
                Some(std::cmp::Ordering::Greater) | None => break None,
            };
        };
        Ok(Some(Pair { source, key, there }))
    }

    async fn copy_pair(&self, pair: &Pair) -> Result<(), CopyError> {
        let size = pair.source.meta.size;
        if pair.there.is_some() && self.keeps {
            self.bar.count(|sum| sum.kept += 1);
            return Ok(());
        }
        let source = self.copier.describe(&pair.source.key).await?;
        if let Some(there) = &pair.there
            && self.is_equal(&source, &pair.key, there).await?
        {
            self.bar.count(|sum| sum.kept += 1);
            return Ok(());
        }
        if self.is_dry {
            let (from, to) = (self.from.with(&pair.source.key), self.to.with(&pair.key));
            self.bar.say(&format!("{from} -> {to}"));
            self.bar.count(|sum| sum.add(size, None));
            return Ok(());
        }
        self.bar.plan(source.description.meta.size);
        let order = CopyOrder { key: pair.key.clone(), ..self.order.clone() };
        match self.copier.copy(&source, &order, &|bytes| self.bar.advance(bytes)).await {
            Ok(copied) => self.note(&copied),
            Err(CopyError::Taken { .. }) if self.keeps => self.bar.count(|sum| sum.kept += 1),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether what is at `key` has the source's bytes: by its ETag, by its checksum, or, where neither tells,
    /// by its length and its time.
    async fn is_equal(&self, source: &Source, key: &str, there: &ObjectMeta) -> Result<bool, CopyError> {
        let meta = &source.description.meta;
        if there.size != meta.size || there.etag == meta.etag {
            return Ok(there.size == meta.size);
        }
        let copy = self.there.describe(key).await?;
        Ok(match (source.description.checksum, copy.description.checksum) {
            (Some(one), Some(other)) if one.algorithm == other.algorithm => one == other,
            _ => there.last_modified >= meta.last_modified,
        })
    }
}

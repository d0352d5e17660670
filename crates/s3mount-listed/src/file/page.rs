//! A page of a listing.

use s3mount_object::{ListObjects, ListPage, ListedObject};

use crate::error::ListedError;
use crate::file::blocks::Blocks;
use crate::file::cursor::Cursor;
use crate::file::version;

/// The most keys and prefixes on a page, as at S3.
const MOST_NAMES: u32 = 1000;

/// The first text after all that begin with a rolled-up prefix: `0` comes after `/`.
fn behind(prefix: &str) -> String {
    format!("{}0", &prefix[..prefix.len() - 1])
}

/// The first text after a key.
fn after(key: &str) -> String {
    format!("{key}\0")
}

/// The page that `request` asks for. A continuation is the first text that the page may have.
pub(super) fn list(blocks: &Blocks, request: &ListObjects) -> Result<ListPage, ListedError> {
    let most = request.max_keys.unwrap_or(MOST_NAMES).min(MOST_NAMES) as usize;
    let start_after = request.start_after.as_deref().filter(|_| request.continuation.is_none());
    let start = request.continuation.clone().or_else(|| start_after.map(after)).unwrap_or_default();
    let mut from = start.max(request.prefix.clone());
    let (mut page, mut count) = (ListPage::default(), 0);
    if most == 0 {
        return Ok(page);
    }
    let mut cursor = Cursor::at(blocks, from.as_bytes())?;
    while let Some((key, version)) = cursor.entry() {
        let key = std::str::from_utf8(key).map_err(|_| ListedError::Damaged("a key is no text"))?;
        let Some(rest) = key.strip_prefix(&request.prefix) else { break };
        if count == most {
            page.next = Some(from);
            break;
        }
        match rest.find('/').filter(|_| request.delimiter) {
            Some(slash) => {
                let prefix = &key[..=request.prefix.len() + slash];
                from = behind(prefix);
                if start_after.is_none_or(|start| prefix > start) {
                    page.common_prefixes.push(prefix.to_owned());
                    count += 1;
                }
                cursor.seek(from.as_bytes())?;
            }
            None => {
                let meta = version::meta(version).ok_or(ListedError::Damaged("a version is not readable"))?;
                from = after(key);
                page.objects.push(ListedObject { key: key.to_owned(), meta });
                count += 1;
                cursor.advance()?;
            }
        }
    }
    Ok(page)
}

//! Sorts the pages of a listing in no order.

use super::page::Page;
use crate::fact::Asked;

/// How many names a page gets: as many as a page of S3 has.
const NAMES: usize = 1000;

/// The names of pages in no order, in the order of their keys.
#[derive(Debug)]
pub(crate) struct Sorted {
    pages: Vec<Page>,
    /// The numbers of each name: of its page, and in the page.
    order: Vec<(u32, u32)>,
    /// How many of the names were returned.
    returned: usize,
    is_complete: bool,
    asked: Asked,
}

impl Sorted {
    /// Sorts the names of all `pages`, which were `asked` for one after another. If a name is on two pages, the later
    /// page is right: the name has changed in between.
    pub(crate) fn new(pages: Vec<Page>, asked: Asked) -> Self {
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let names =
            |(index, page): (usize, &Page)| (0..page.len()).map(move |entry| (number(index), number(entry)));
        let mut order: Vec<(u32, u32)> = pages.iter().enumerate().flat_map(names).collect();
        let key = |(page, entry): (u32, u32)| pages[page as usize].key(entry as usize);
        // Each page is sorted already, which makes this sort fast.
        order.sort_by(|a, b| key(*a).cmp(key(*b)));
        order.dedup_by(|later, earlier| {
            let is_same = key(*later) == key(*earlier);
            if is_same {
                *earlier = *later;
            }
            is_same
        });
        Self { pages, order, returned: 0, is_complete: false, asked }
    }

    /// Whether all pages were returned.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The next page. There is at least one, even without names.
    pub(crate) fn next(&mut self) -> Option<Page> {
        if self.is_complete {
            return None;
        }
        let end = self.order.len().min(self.returned + NAMES);
        let texts = |index: usize| {
            let (page, entry) = self.order[index];
            self.pages[page as usize].packed(entry as usize)
        };
        let last = |index: usize| index.checked_sub(1).map_or("", |index| texts(index).0);
        let upto = (end < self.order.len()).then(|| last(end));
        let page = Page::pack(last(self.returned), upto, self.asked, (self.returned..end).map(texts));
        self.returned = end;
        if end == self.order.len() {
            self.is_complete = true;
            (self.pages, self.order) = (Vec::new(), Vec::new());
        }
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{Asked, Page, Sorted};

    fn page(keys: &[&str], folders: &[&str], etag: &str) -> Page {
        Page::of_names(keys, folders, etag, Instant::now())
    }

    #[test]
    fn pages_come_in_order_and_cover_the_directory_without_a_gap() {
        let names: Vec<String> = (0..2500).map(|name| format!("{:04}", (name * 7) % 2500)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let pages = names.chunks(600).map(|keys| page(keys, &[], "e")).collect();
        let mut sorted = Sorted::new(pages, Asked::at(Instant::now()));
        let (mut after, mut keys) = (String::new(), Vec::new());
        while let Some(page) = sorted.next() {
            assert_eq!(*page.after, *after);
            after = page.upto().unwrap_or_default().to_owned();
            keys.extend(page.keys().map(str::to_owned));
            assert_eq!(page.upto().is_none(), sorted.is_complete());
        }
        assert!(keys.is_sorted() && keys.len() == 2500 && sorted.next().is_none());
    }

    #[test]
    fn a_name_on_two_pages_is_there_once_and_nothing_is_a_page_too() {
        let pages = vec![page(&["b", "a"], &["f"], "old"), page(&["a"], &["f"], "new")];
        let mut sorted = Sorted::new(pages, Asked::at(Instant::now()));
        let only = sorted.next().expect("a page");
        let texts: Vec<_> =
            (0..only.len()).map(|index| only.packed(index)).map(|(key, etag, ..)| (key, etag)).collect();
        assert_eq!(texts, [("a", "new"), ("b", "old"), ("f/", "")]);
        assert!(sorted.is_complete());
        let empty = Sorted::new(Vec::new(), Asked::at(Instant::now())).next().expect("a page");
        assert!(empty.len() == 0 && empty.covers("any"));
    }
}

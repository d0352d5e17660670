//! The pages for users name what there is.

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn pages_point_to_what_is_there() {
    let pages = crate::files(Path::new("docs"), "md")
        .into_iter()
        .chain(["README.md".into(), "CONTRIBUTING.md".into()]);
    let mut checked = 0;
    for page in pages {
        let text = crate::read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().expect("a folder").join(target);
            assert!(path.exists(), "{page:?} points to {target}, which is not there");
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} links");
}

#[test]
fn the_site_has_each_page() {
    let summary = crate::read("book/SUMMARY.md");
    let named: BTreeSet<_> = summary
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(page, _)| page.to_owned())
        .collect();
    let pages = std::fs::read_dir("docs").expect("the pages").map(|entry| entry.expect("a page").path());
    let pages: BTreeSet<_> = pages
        .filter(|page| page.is_file())
        .map(|page| page.display().to_string())
        .chain(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned))
        .collect();
    assert_eq!(named, pages, "the pages that the site shows, and those that there are");
}

#[test]
fn the_index_of_decisions_has_each() {
    let index = crate::read("docs/decisions/README.md");
    let listed: Vec<_> =
        index.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(page, _)| page).collect();
    let mut pages = crate::files(Path::new("docs/decisions"), "md");
    pages.retain(|page| !page.ends_with("README.md"));
    assert!(pages.len() > 40, "{pages:?}");
    for page in &pages {
        let name = page.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(
            listed.iter().filter(|listed| **listed == name).count(),
            1,
            "{name} in the index of decisions"
        );
    }
    assert_eq!(listed.len(), pages.len(), "the index of decisions names pages that are not there");
}

"""Checks that the links of a site lead to files and anchors of the site. Argument: the site's folder. Links to other
sites are counted, and not followed: a build must not depend on them."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.add(found.get("id"))
        self.links += [found[name] for name in ("href", "src") if found.get(name)]


def main(site):
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "print.html"}
    broken, outside, checked = [], 0, 0
    for path, page in pages.items():
        if path.name in ("404.html", "toc.html"):
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                outside += 1
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            checked += 1
            if not target.exists():
                broken.append(f"{path.relative_to(site)}: {link} is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {link} has no such anchor")
    print("\n".join(broken) or f"{len(pages)} pages, {checked} links lead somewhere, {outside} lead to other sites")
    return 1 if broken or checked < 100 else 0


sys.exit(main(Path(sys.argv[1]).resolve()))

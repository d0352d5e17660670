//! What programs do with folders.

use super::{Act, Role, Theme};
use crate::draw::Draw;
use crate::kernel::Listing;

impl Theme {
    fn folder(&self, draw: &Draw) -> String {
        draw.one(&self.folders).clone()
    }

    /// A file in a folder.
    fn leaf(&self, draw: &Draw, folder: &str) -> String {
        format!("{folder}/{}", draw.one(&self.leaves))
    }

    /// Writes a file of a folder anew.
    fn fill(&self, draw: &Draw, path: String, acts: &mut Vec<Act>) {
        acts.push(Act::Open(0, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC));
        self.write_all(draw, 0, acts);
        if draw.happens(200) {
            acts.push(Act::Sync(0));
        }
        acts.push(Act::Close(0));
    }

    /// `rm -r`.
    fn clear(&self, folder: &str, acts: &mut Vec<Act>) {
        acts.extend(self.leaves.iter().map(|leaf| Act::Unlink(format!("{folder}/{leaf}"))));
        acts.push(Act::RemoveFolder(folder.to_owned()));
    }

    /// What a program does that uses folders.
    pub(super) fn folder_round(&self, draw: &Draw, kind: Role, number: u16, acts: &mut Vec<Act>) {
        let folder = self.folder(draw);
        match kind {
            Role::Trainer => {
                let beside = format!("new{number}");
                acts.push(Act::MakeFolder(beside.clone()));
                for _ in 0..=draw.below(3) {
                    let path = self.leaf(draw, &beside);
                    self.fill(draw, path, acts);
                }
                // A file that is still open moves, too.
                let stays_open = draw.happens(250);
                if stays_open {
                    let path = self.leaf(draw, &beside);
                    acts.push(Act::Open(1, path, libc::O_RDWR | libc::O_CREAT));
                    acts.push(Act::Write(1, draw.below(8), 1 + draw.below(8)));
                }
                if draw.happens(600) {
                    self.clear(&folder, acts);
                }
                acts.push(Act::RenameFolder(beside.clone(), folder));
                if stays_open {
                    acts.push(Act::Write(1, draw.below(8), 1 + draw.below(8)));
                    acts.push(Act::Close(1));
                }
                if draw.happens(500) {
                    self.clear(&beside, acts);
                }
            }
            Role::Maker => {
                acts.push(Act::MakeFolder(folder.clone()));
                for _ in 0..draw.below(3) {
                    let path = self.leaf(draw, &folder);
                    self.fill(draw, path, acts);
                }
            }
            Role::Walker => {
                acts.push(Act::List(folder.clone(), Listing::default()));
                for _ in 0..draw.below(3) {
                    let path = self.leaf(draw, &folder);
                    if draw.happens(400) {
                        acts.push(Act::Stat(path));
                        continue;
                    }
                    acts.push(Act::Open(0, path, libc::O_RDONLY));
                    acts.push(Act::ReadAll(0, self.call_cells));
                    acts.push(Act::Close(0));
                }
                if draw.happens(300) {
                    acts.push(self.scan(draw, folder));
                }
            }
            Role::Clearer => self.clear(&folder, acts),
            _ => acts.push(Act::RenameFolder(folder, self.folder(draw))),
        }
    }
}

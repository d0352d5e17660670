//! The modes against a model of the kernel's rules (`fs/fuse/iomode.c` of Linux 6.18).

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use proptest::prelude::*;

use super::{Grant, Modes};

type Inode = u8;
type BackingNumber = u32;

/// The backing files that the kernel has.
type Backings = Rc<RefCell<BTreeSet<BackingNumber>>>;

/// A backing file. The kernel loses it when it is dropped.
#[derive(Debug)]
struct Backing(BackingNumber, Backings);

impl Drop for Backing {
    fn drop(&mut self) {
        assert!(self.1.borrow_mut().remove(&self.0), "it is closed once");
    }
}

/// What the answer to an OPEN says.
#[derive(Clone, Debug)]
struct Answer {
    ino: Inode,
    backing: Option<BackingNumber>,
    is_direct: bool,
}

/// What one open file counts for in the mode of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    No,
    Cached,
    Uncached,
}

#[derive(Debug)]
struct OpenFile {
    answer: Answer,
    counted: Counted,
}

/// The kernel's `iocachectr` and backing file of an inode.
#[derive(Debug, Default)]
struct Inodes(HashMap<Inode, (i32, Option<BackingNumber>)>);

impl Inodes {
    /// `fuse_file_io_open`: what the file counts for, or the reason of EIO.
    fn open(&mut self, answer: &Answer, backings: &Backings) -> Result<Counted, &'static str> {
        let (cached, backing) = self.0.entry(answer.ino).or_default();
        let Some(id) = answer.backing else {
            return match (*backing, answer.is_direct) {
                (Some(_), _) => Err("the inode is open for passthrough"),
                (None, true) => Ok(Counted::No),
                (None, false) => {
                    *cached += 1;
                    Ok(Counted::Cached)
                }
            };
        };
        if !backings.borrow().contains(&id) {
            return Err("there is no such backing file");
        }
        if backing.is_some_and(|other| other != id) {
            return Err("the inode has another backing file");
        }
        if *cached > 0 {
            return Err("the inode is open through the page cache");
        }
        *cached -= 1;
        *backing = Some(id);
        Ok(Counted::Uncached)
    }

    /// `fuse_file_mmap`: fails with ENODEV.
    fn map(&mut self, file: &mut OpenFile) -> Result<(), &'static str> {
        let (cached, backing) = self.0.entry(file.answer.ino).or_default();
        if file.answer.backing.is_some() {
            return Ok(());
        }
        if backing.is_some() {
            return Err("the inode is open for passthrough");
        }
        if file.counted == Counted::No {
            *cached += 1;
            file.counted = Counted::Cached;
        }
        Ok(())
    }

    /// `fuse_file_io_release`.
    fn release(&mut self, file: &OpenFile) {
        let (cached, backing) = self.0.entry(file.answer.ino).or_default();
        match file.counted {
            Counted::No => {}
            Counted::Cached => *cached -= 1,
            Counted::Uncached => {
                *cached += 1;
                if *cached == 0 {
                    *backing = None;
                }
            }
        }
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The daemon answers an OPEN. The version is wholly on the disk, and the kernel takes its file.
    Open { ino: Inode, is_whole: bool, is_direct: bool },
    /// The kernel gets an answer. Later answers may come first.
    Opened(usize),
    /// A program maps an open file.
    Map(usize),
    /// A program closes an open file, and the kernel sends the RELEASE.
    Close(usize),
    /// The daemon gets a RELEASE. Later ones may come first.
    Release(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let index = any::<usize>;
    prop_oneof![
        3 => (0..2_u8, any::<bool>(), any::<bool>())
            .prop_map(|(ino, is_whole, is_direct)| Event::Open { ino, is_whole, is_direct }),
        3 => index().prop_map(Event::Opened),
        1 => index().prop_map(Event::Map),
        3 => index().prop_map(Event::Close),
        3 => index().prop_map(Event::Release),
    ]
}

/// The daemon, the kernel, and what is on its way between them.
#[derive(Default)]
struct World {
    modes: Modes<Inode, Backing>,
    kernel: Inodes,
    backings: Backings,
    next: BackingNumber,
    answers: Vec<Answer>,
    open: Vec<OpenFile>,
    releases: Vec<Inode>,
}

fn take<T>(list: &mut Vec<T>, index: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.remove(index % list.len()))
}

impl World {
    fn answer(&mut self, ino: Inode, is_whole: bool, is_direct: bool) {
        let back = || {
            self.next += 1;
            self.backings.borrow_mut().insert(self.next);
            Backing(self.next, self.backings.clone())
        };
        let backing = match self.modes.open(ino, || is_whole.then(back)) {
            Grant::Daemon => None,
            Grant::Passthrough(backing) => Some(backing.0),
        };
        self.answers.push(Answer { ino, backing, is_direct });
    }

    fn run(&mut self, event: Event) -> Result<(), &'static str> {
        match event {
            Event::Open { ino, is_whole, is_direct } => self.answer(ino, is_whole, is_direct),
            Event::Opened(index) => {
                if let Some(answer) = take(&mut self.answers, index) {
                    let counted = self.kernel.open(&answer, &self.backings)?;
                    self.open.push(OpenFile { answer, counted });
                }
            }
            Event::Map(index) if !self.open.is_empty() => {
                let index = index % self.open.len();
                self.kernel.map(&mut self.open[index])?;
            }
            Event::Map(_) => {}
            Event::Close(index) => {
                if let Some(file) = take(&mut self.open, index) {
                    self.kernel.release(&file);
                    self.releases.push(file.answer.ino);
                }
            }
            Event::Release(index) => {
                if let Some(ino) = take(&mut self.releases, index) {
                    drop(self.modes.release(ino));
                }
            }
        }
        Ok(())
    }

    /// Brings everything to its end that is on its way, and closes all files.
    fn end(&mut self) -> Result<(), &'static str> {
        while !(self.answers.is_empty() && self.open.is_empty() && self.releases.is_empty()) {
            for event in [Event::Opened(0), Event::Map(0), Event::Close(0), Event::Release(0)] {
                self.run(event)?;
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_kernel_takes_every_answer(events in prop::collection::vec(event(), 0..120)) {
        let mut world = World::default();
        for event in events {
            prop_assert_eq!(world.run(event), Ok(()), "{:?}", event);
        }
        prop_assert_eq!(world.end(), Ok(()));
        prop_assert!(world.modes.lock().is_empty() && world.backings.borrow().is_empty());
        // After the last close, the next open chooses anew.
        world.answer(0, true, false);
        prop_assert!(world.answers[0].backing.is_some());
    }
}

#[test]
fn a_file_stays_with_the_daemon_until_it_is_closed_and_by_passthrough_as_well() {
    let modes = Modes::default();
    let is_passthrough = |is_whole: bool| match modes.open(7, || is_whole.then_some("file")) {
        Grant::Daemon => false,
        Grant::Passthrough(_) => true,
    };
    assert_eq!([false, true, true].map(is_passthrough), [false; 3]);
    assert!((0..3).all(|_| modes.release(7).is_none()));
    assert_eq!([true, false].map(is_passthrough), [true; 2], "also when the cache has evicted the file");
    assert!(modes.release(7).is_none());
    assert_eq!(modes.release(7).as_deref(), Some(&"file"));
    assert!(modes.release(7).is_none(), "a file that was never counted");
}

//! Runs one scenario, and judges it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::content::{CELL, Tag, appended, fill};
use crate::draw::Draw;
use crate::history::{Edit, Value};
use crate::judge::Judge;
use crate::kernel::{Fd, Process};
use crate::opened::Opened;
use crate::programs::{Act, Program, Slot};
use crate::promise::{Broken, Check, Rule};
use crate::scenario::Scenario;
use crate::store::SimStore;
use crate::ticks::Ticks;
use crate::world::Place;

/// No call takes longer: some take several requests, and each of these may take a minute.
const LONGEST_CALL: Duration = Duration::from_secs(300);

/// How long all that goes on after the last call may take.
const AFTER: Duration = Duration::from_secs(300);

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first promise that was broken.
    pub broken: Option<Broken>,
    /// All that happened, if that was asked for.
    pub trace: Vec<String>,
    /// How many requests of each operation the store had.
    pub requests: BTreeMap<&'static str, u64>,
}

struct World {
    store: Arc<SimStore>,
    judge: Mutex<Judge>,
    ticks: Arc<Ticks>,
    broken: Mutex<Option<Broken>>,
}

impl World {
    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, check: Check) {
        if let Err(broken) = check {
            self.ticks.note(|| format!("BROKEN {:?}: {}", broken.rule, broken.what));
            self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(broken);
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Runs a scenario in a runtime of its own. With `is_traced`, all that happens is noted.
///
/// # Panics
/// When the machine has no memory.
pub fn run(scenario: &Scenario, is_traced: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let played = AssertUnwindSafe(|| runtime.block_on(play(scenario, is_traced)));
    let outcome = std::panic::catch_unwind(played).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let broken = Broken { rule: Rule::Panic, what: text.unwrap_or_default() };
        Outcome { broken: Some(broken), trace: Vec::new(), requests: BTreeMap::new() }
    });
    runtime.shutdown_background();
    outcome
}

async fn play(scenario: &Scenario, is_traced: bool) -> Outcome {
    let ticks = Arc::new(Ticks::new(is_traced));
    let store = SimStore::new(scenario.seed, scenario.faults, scenario.page, ticks.clone());
    for (at, (key, cells)) in scenario.objects.iter().enumerate() {
        store.put(key, Bytes::from(fill(Tag { writer: 0, call: at as u16 }, 0..*cells)));
    }
    let judge =
        Mutex::new(Judge::new(&scenario.objects, scenario.is_shared().then(|| store.clone()), ticks.clone()));
    let world =
        Arc::new(World { store: store.clone(), judge, ticks: ticks.clone(), broken: Mutex::new(None) });
    let places: Vec<Arc<Place>> = scenario
        .mounts
        .iter()
        .enumerate()
        .map(|(number, plan)| {
            let draw = Arc::new(Draw::new(scenario.seed ^ (number as u64 + 1) << 32));
            Arc::new(Place::new(&store, number, plan, draw, scenario.kills()))
        })
        .collect();
    let players: Vec<_> = scenario
        .programs
        .iter()
        .map(|program| {
            let draw = Draw::new(scenario.seed ^ u64::from(program.number) << 40);
            let mut player = Player {
                world: world.clone(),
                place: program.mount.map(|mount| places[mount].clone()),
                life: 0,
                process: None,
                program: program.clone(),
                draw,
                open: BTreeMap::new(),
                maps: BTreeMap::new(),
            };
            player.start();
            tokio::spawn(player.play())
        })
        .collect();
    for player in join_all(players).await {
        if let Err(error) = player {
            world.tell(Err(Broken { rule: Rule::Panic, what: error.to_string() }));
        }
    }
    if !world.is_broken() {
        let ended = timeout(AFTER, end(&world, &places, scenario)).await;
        let late =
            |_| Err(Broken { rule: Rule::Waits, what: "the end of the mounts takes too long".to_owned() });
        world.tell(ended.unwrap_or_else(late));
    }
    let broken = world.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
    Outcome { broken, trace: ticks.trace(), requests: store.requests() }
}

/// What has to be true once nobody does anything any more.
async fn end(world: &World, places: &[Arc<Place>], scenario: &Scenario) -> Check {
    let mounts: Vec<_> = places.iter().map(|place| place.mount()).collect();
    for (number, mount) in mounts.iter().enumerate() {
        while mount.kernel.open_handles() > 0 {
            sleep(Duration::from_millis(50)).await;
        }
        let lost = mount.fs.end_writes().await;
        if lost > 0 && !scenario.is_shared() {
            let what = format!("{lost} files were lost at the end of mount {number}");
            return Err(Broken { rule: Rule::Stored, what });
        }
    }
    // Requests that their clients have given up may still be under way, and the last bytes of logs are kept for a while.
    sleep(Duration::from_secs(200)).await;
    world.judge().finally(&world.store)?;
    let uploads = world.store.open_uploads();
    if uploads > 0 && scenario.faults.most == 0 {
        return Err(Broken { rule: Rule::Rest, what: format!("{uploads} uploads are left") });
    }
    let sent: u64 = world.store.requests().values().sum();
    if world.store.has_no_faults() && sent > scenario.most_requests() {
        return Err(Broken { rule: Rule::Requests, what: format!("{sent} requests were sent") });
    }
    for mount in &mounts {
        mount.kernel.drop_caches();
    }
    sleep(Duration::from_secs(10)).await;
    for mount in &mounts {
        mount.is_at_rest().map_err(|what| Broken { rule: Rule::Rest, what })?;
    }
    Ok(())
}

/// A program that runs.
struct Player {
    world: Arc<World>,
    /// The folder that it uses; a stranger uses none.
    place: Option<Arc<Place>>,
    /// How many daemons had been killed there when it was started.
    life: u64,
    process: Option<Process>,
    program: Program,
    draw: Draw,
    open: BTreeMap<Slot, (Fd, Opened)>,
    maps: BTreeMap<Slot, Fd>,
}

impl Player {
    /// The program is started on the mount that is there now.
    fn start(&mut self) {
        let Some(place) = &self.place else { return };
        self.life = place.life().0;
        self.process = Some(Process::new(&place.mount().kernel, u32::from(self.program.number) + 100));
        self.open.clear();
        self.maps.clear();
    }

    /// Whether the daemon that it uses was killed.
    fn is_cut_off(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.life() != (self.life, true))
    }

    /// Where the daemon was killed, the program is started anew once there is another.
    async fn go_on(&mut self) {
        while self.is_cut_off() {
            if let Some(place) = &self.place {
                place.is_alive().await;
            }
            self.start();
        }
    }

    async fn play(mut self) {
        let acts = std::mem::take(&mut self.program.acts);
        for (call, act) in acts {
            if self.world.is_broken() {
                return;
            }
            self.go_on().await;
            self.draw.pause().await;
            self.go_on().await;
            let number = self.program.number;
            self.world.ticks.note(|| format!("{number}.{call} {act}"));
            let done = timeout(LONGEST_CALL, AssertUnwindSafe(self.act(call, &act)).catch_unwind()).await;
            let check = match done {
                Ok(Ok(check)) => check,
                Ok(Err(_)) => Err(Broken { rule: Rule::Panic, what: format!("{number}.{call} {act}") }),
                Err(_) => {
                    Err(Broken { rule: Rule::Waits, what: format!("{number}.{call} {act} has no answer") })
                }
            };
            let check = check.or_else(|broken| self.unless_cut_off(broken));
            self.world.tell(check.map_err(|broken| Broken {
                what: format!("{number}.{call} {act}: {}", broken.what),
                ..broken
            }));
        }
        if self.is_cut_off() {
            return;
        }
        for slot in self.open.keys().copied().collect::<Vec<_>>() {
            let check = self.close(slot).await;
            self.world.tell(check.or_else(|broken| self.unless_cut_off(broken)));
            if self.is_cut_off() {
                return;
            }
        }
    }

    /// Who uses a mount whose daemon is killed gets errors.
    fn unless_cut_off(&self, broken: Broken) -> Check {
        if broken.rule == Rule::Errno && self.is_cut_off() { Ok(()) } else { Err(broken) }
    }

    /// Kills the daemon. Another takes its place, and finds what the store holds.
    async fn kill(&self) -> Check {
        let Some(place) = &self.place else { return Ok(()) };
        if self.is_cut_off() {
            return Ok(());
        }
        place.kill().await;
        let world = &self.world;
        let recovered = place.recover().await;
        let uploads = world.store.open_uploads();
        if world.store.has_no_faults() && !world.judge().is_shared() {
            recovered.map_err(|what| Broken { rule: Rule::Rest, what })?;
            if uploads > 0 {
                let what = format!("{uploads} uploads are left by the daemon that was killed");
                return Err(Broken { rule: Rule::Rest, what });
            }
        }
        let check = world.judge().killed(&world.store, self.program.mount.unwrap_or_default());
        place.revive();
        check
    }

    fn note<T: std::fmt::Debug>(&self, call: u16, answer: &T) {
        let number = self.program.number;
        self.world.ticks.note(|| format!("    {number}.{call} answers {answer:?}"));
    }

    async fn act(&mut self, call: u16, act: &Act) -> Check {
        let world = self.world.clone();
        let tag = Tag { writer: self.program.number, call };
        if let Act::Pause(milliseconds) = act {
            sleep(Duration::from_millis(*milliseconds)).await;
            return Ok(());
        }
        if *act == Act::Kill {
            return self.kill().await;
        }
        let mount = self.program.mount.unwrap_or_default();
        let Some(process) = self.process.as_ref() else {
            match act {
                Act::Put(key, cells) => world.store.put(key, Bytes::from(fill(tag, 0..*cells))),
                Act::Delete(key) => world.store.delete(key),
                _ => {}
            }
            return Ok(());
        };
        match act {
            Act::Open(slot, path, flags) => {
                if self.open.contains_key(slot) {
                    return Ok(());
                }
                let opening = world.judge().open(mount, path, *flags);
                let answer = process.open(path, *flags).await;
                self.note(call, &answer);
                let opened = world.judge().opened(opening, answer.map(drop))?;
                if let (Some(opened), Ok(fd)) = (opened, answer) {
                    self.open.insert(*slot, (fd, opened));
                }
                Ok(())
            }
            Act::Read(slot, at, cells) => self.read(call, *slot, *at, *cells).await.map(drop),
            Act::ReadAll(slot, piece) => {
                let mut at = 0;
                loop {
                    match self.read(call, *slot, at, *piece).await? {
                        0 => return Ok(()),
                        got => at += got,
                    }
                }
            }
            Act::Write(slot, at, cells) => self.write(call, *slot, *at, *cells).await,
            Act::Map(slot, at, cells) => self.write_to_map(call, *slot, *at..*at + *cells).await,
            Act::Unappend(slot) => {
                let Some((fd, opened)) = self.open.get_mut(slot) else { return Ok(()) };
                opened.flags &= !libc::O_APPEND;
                let answer = process.set_append(*fd, false);
                self.done(&self.open[slot].1, answer)
            }
            Act::Cut(slot, cells) => {
                let Some((fd, opened)) = self.writable(*slot) else { return Ok(()) };
                opened.wrote = true;
                let (fd, opened) = (*fd, opened.clone());
                let edit = world.judge().edit(&opened, Edit::Cut(*cells));
                let answer = self.own().ftruncate(fd, cells * CELL).await;
                self.note(call, &answer);
                self.done(&opened, answer)?;
                world.judge().edited(edit);
                Ok(())
            }
            Act::Sync(slot) => {
                let Some((fd, opened)) = self.open.get(slot) else { return Ok(()) };
                world.judge().sync(opened);
                let answer = process.fsync(*fd).await;
                self.note(call, &answer);
                self.done(&opened.clone(), answer)
            }
            Act::Close(slot) => self.close(*slot).await,
            Act::Copy(from, to, cells) => self.copy(call, *from, *to, *cells).await,
            Act::Stat(path) => {
                let asked = world.ticks.next();
                let answer = process.stat(path).await;
                self.note(call, &answer.as_ref().map(|stat| stat.size));
                match answer {
                    Ok(stat) => world.judge().stat(mount, path, asked, Some(stat.size)),
                    Err(libc::ENOENT) => world.judge().stat(mount, path, asked, None),
                    Err(errno) => Err(Broken { rule: Rule::Errno, what: format!("errno {errno}") }),
                }
            }
            Act::List => {
                let asked = world.ticks.next();
                let answer = process.readdir("").await;
                self.note(call, &answer);
                let names =
                    answer.map_err(|errno| Broken { rule: Rule::Errno, what: format!("errno {errno}") })?;
                let judge = world.judge();
                judge
                    .paths()
                    .iter()
                    .try_for_each(|path| judge.shown("list", path, asked, names.contains(path)))
            }
            Act::Rename(from, to) => {
                let change = world.judge().rename(mount, from, to);
                let answer = process.rename(from, to).await;
                self.note(call, &answer);
                world.judge().named("rename", from, change, answer)?;
                if answer.is_ok() && from != to { world.judge().gone(&world.store, from) } else { Ok(()) }
            }
            Act::Unlink(path) => {
                let change = world.judge().unlink(mount, path);
                let answer = process.unlink(path).await;
                self.note(call, &answer);
                world.judge().named("unlink", path, change, answer)?;
                if answer.is_ok() { world.judge().gone(&world.store, path) } else { Ok(()) }
            }
            Act::Pause(_) | Act::Put(..) | Act::Delete(_) | Act::Kill => Ok(()),
        }
    }

    /// The program's own process; a stranger has no open file.
    fn own(&self) -> &Process {
        self.process.as_ref().expect("who opens a file uses a mount")
    }

    fn writable(&mut self, slot: Slot) -> Option<&mut (Fd, Opened)> {
        self.open.get_mut(&slot).filter(|(_, opened)| opened.writes())
    }

    /// A call on an open file has failed, or not.
    fn done(&self, opened: &Opened, answer: Result<(), i32>) -> Check {
        let Err(errno) = answer else { return Ok(()) };
        let judge = self.world.judge();
        // Who writes a file that was removed may need bytes of the object that is gone.
        let is_gone =
            if opened.writes() { judge.may_be_gone(opened) } else { judge.may_have_changed(opened) };
        let is_stale = errno == libc::ESTALE && is_gone;
        if is_stale || (judge.is_shared() && matches!(errno, libc::ESTALE | libc::ENOENT)) {
            return Ok(());
        }
        Err(Broken { rule: Rule::Errno, what: format!("errno {errno}") })
    }

    async fn read(&self, call: u16, slot: Slot, at: u64, cells: u64) -> Result<u64, Broken> {
        let Some((fd, opened)) = self.open.get(&slot) else { return Ok(0) };
        if opened.flags & libc::O_ACCMODE == libc::O_WRONLY {
            return Ok(0);
        }
        let asked = self.world.ticks.next();
        let answer = self.own().pread(*fd, at * CELL, (cells * CELL) as usize).await;
        self.note(
            call,
            &answer.as_ref().map(|bytes| crate::content::shown(&crate::content::decode(bytes, at))),
        );
        match answer {
            Ok(bytes) => {
                let got = bytes.len() as u64 / CELL;
                // A read that the daemon's death cuts off has the bytes that came before.
                let cells = if self.is_cut_off() { got } else { cells };
                self.world.judge().read(opened, asked, at..at + cells, &bytes)?;
                Ok(got)
            }
            Err(errno) => self.done(opened, Err(errno)).map(|()| 0),
        }
    }

    async fn write(&mut self, call: u16, slot: Slot, at: u64, cells: u64) -> Check {
        let tag = Tag { writer: self.program.number, call };
        let Some((fd, opened)) = self.writable(slot) else { return Ok(()) };
        opened.wrote = true;
        let (fd, opened) = (*fd, opened.clone());
        let appends = opened.flags & libc::O_APPEND != 0;
        let (edit, bytes) = if appends {
            (self.world.judge().append(&opened, tag, cells), appended(tag, cells))
        } else {
            let value = Value::Written(tag);
            (self.world.judge().edit(&opened, Edit::Write(at..at + cells, value)), fill(tag, at..at + cells))
        };
        let answer = if appends {
            self.own().write(fd, &bytes).await
        } else {
            self.own().pwrite(fd, at * CELL, &bytes).await
        };
        self.note(call, &answer);
        match answer {
            Ok(written) if written == bytes.len() => {
                self.world.judge().edited(edit);
                Ok(())
            }
            // A write that the daemon's death cuts off has written the bytes that went before.
            Ok(_) if self.is_cut_off() => Ok(()),
            Ok(written) => Err(Broken { rule: Rule::Posix, what: format!("{written} bytes were written") }),
            Err(errno) => self.done(&opened, Err(errno)),
        }
    }

    /// Stores bytes to a shared map.
    async fn write_to_map(&mut self, call: u16, slot: Slot, cells: Range<u64>) -> Check {
        let Some((fd, opened)) = self.writable(slot) else { return Ok(()) };
        opened.wrote = true;
        let (fd, opened) = (*fd, opened.clone());
        let map = match self.maps.get(&slot) {
            Some(map) => *map,
            None => match self.own().mmap(fd, true).await {
                Ok(map) => *self.maps.entry(slot).or_insert(map),
                Err(errno) => return self.done(&opened, Err(errno)),
            },
        };
        let value = Value::Written(Tag { writer: self.program.number, call });
        let edit = self.world.judge().edit(&opened, Edit::Store(cells.start..cells.start, value));
        let size = match self.own().fstat(fd).await {
            Ok(stat) => stat.size / CELL,
            Err(errno) => return self.done(&opened, Err(errno)),
        };
        let cells = cells.start.min(size)..cells.end.min(size);
        self.world.judge().turn(edit, Edit::Store(cells.clone(), value));
        let bytes = fill(Tag { writer: self.program.number, call }, cells.clone());
        let answer = self.own().map_write(map, cells.start * CELL, &bytes).await;
        self.note(call, &answer);
        match answer {
            Ok(()) => {
                self.world.judge().edited(edit);
                Ok(())
            }
            // SIGBUS: the file was cut, or the bytes around are gone.
            Err(libc::EFAULT) if self.world.judge().may_lack(&opened, cells) => Ok(()),
            Err(errno) => self.done(&opened, Err(errno)),
        }
    }

    async fn copy(&mut self, call: u16, from: Slot, to: Slot, cells: u64) -> Check {
        let Some((source, from)) = self.open.get(&from).cloned() else { return Ok(()) };
        let Some((fd, opened)) = self.writable(to) else { return Ok(()) };
        if from.flags & libc::O_ACCMODE == libc::O_WRONLY || from.path == opened.path {
            return Ok(());
        }
        opened.wrote = true;
        let (fd, opened) = (*fd, opened.clone());
        let asked = self.world.ticks.next();
        let edit = self.world.judge().edit(&opened, Edit::Write(0..cells, Value::Any));
        let answer = self.own().copy_file_range(source, 0, fd, 0, (cells * CELL) as usize).await;
        self.note(call, &answer);
        match answer {
            Ok(_) | Err(libc::EOPNOTSUPP | libc::EXDEV | libc::EINVAL) => {
                // Programs that are refused then copy by themselves.
                let cells = answer.unwrap_or(0) as u64 / CELL;
                self.world.judge().copied((&from, asked), edit, cells);
                Ok(())
            }
            Err(errno) => self.done(&from, Err(errno)),
        }
    }

    async fn close(&mut self, slot: Slot) -> Check {
        let Some((fd, opened)) = self.open.remove(&slot) else { return Ok(()) };
        let world = self.world.clone();
        let asked = world.ticks.next();
        if let Some(map) = self.maps.remove(&slot) {
            // What can't be written back is told to who closes the file.
            let _told_later = self.own().munmap(map).await;
        }
        let answer = self.own().close(fd).await;
        self.note(0, &(slot, &answer));
        let was_last = world.judge().closed(&opened, asked);
        self.done(&opened, answer)?;
        // Who has only made or emptied a file says so by closing his last descriptor of it (promise 25).
        let has_another = self.open.values().any(|(_, other)| world.judge().may_be_same(&opened, other));
        let is_said = opened.wrote || (opened.has_emptied && !has_another);
        let is_delayed = self.place.as_ref().is_some_and(|place| place.delays(opened.flags));
        let is_stored = is_said && was_last && !is_delayed;
        match answer {
            Ok(()) if is_stored => world.judge().stored(&world.store, &opened, asked),
            Ok(()) => world.judge().kept(&opened),
            Err(_) => Ok(()),
        }
    }
}

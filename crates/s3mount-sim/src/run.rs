//! Runs one scenario, and judges it.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::content::{Tag, fill};
use crate::disk::{CacheFolder, DiskCounts};
use crate::draw::Draw;
use crate::hearing;
use crate::judge::{GoesOn, Judge};
use crate::kernel::{Fd, Process};
use crate::opened::Opened;
use crate::programs::{Program, Slot};
use crate::promise::{Broken, Check, Rule};
use crate::scenario::Scenario;
use crate::store::SimStore;
use crate::ticks::Ticks;
use crate::world::Place;

mod calls;

/// No call takes longer: some take several requests, and each of these may take a minute.
const LONGEST_CALL: Duration = Duration::from_secs(300);

/// How long a daemon that is to die waits for requests.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

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
    /// What became of the disk cache.
    pub disk: DiskCounts,
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
        Outcome {
            broken: Some(broken),
            trace: Vec::new(),
            requests: BTreeMap::new(),
            disk: DiskCounts::default(),
        }
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
    if let Some(shortest) = scenario.mounts.iter().map(|plan| plan.part_bytes).min() {
        store.take_parts_of(shortest);
    }
    let mut judge = Judge::new(&scenario.objects, store.clone(), scenario.is_shared(), ticks.clone());
    if scenario.mounts.iter().all(|plan| plan.has_spool) {
        judge.go_on(GoesOn::All);
    } else if !scenario.mounts.iter().any(|plan| plan.keeps_attributes) {
        judge.go_on(GoesOn::Stored);
    }
    if scenario.mounts.iter().any(|plan| plan.is_behind) {
        judge.store_later();
    }
    let judge = Mutex::new(judge);
    let world =
        Arc::new(World { store: store.clone(), judge, ticks: ticks.clone(), broken: Mutex::new(None) });
    let cache = scenario.disk.as_ref().map(|plan| Arc::new(CacheFolder::new(plan)));
    let mut places = Vec::new();
    for (number, plan) in scenario.mounts.iter().enumerate() {
        let draw = Arc::new(Draw::new(scenario.seed ^ (number as u64 + 1) << 32));
        let place = Place::new(&store, number, plan, draw, scenario.ends(), cache.clone()).await;
        places.push(Arc::new(place));
    }
    for (number, place) in places.iter().enumerate().filter(|(_, place)| place.is_told()) {
        let draw = Draw::new(scenario.seed ^ (number as u64 + 1) << 48);
        tokio::spawn(hearing::hear(place.clone(), store.hear(), draw));
    }
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
                unsaid: Vec::new(),
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
    let passed = places.iter().map(|place| place.mount().kernel.passed_files()).sum();
    let disk = cache.map(|cache| DiskCounts { passed, ..cache.counts() }).unwrap_or_default();
    Outcome { broken, trace: ticks.trace(), requests: store.requests(), disk }
}

/// What has to be true once nobody does anything any more.
async fn end(world: &World, places: &[Arc<Place>], scenario: &Scenario) -> Check {
    let mounts: Vec<_> = places.iter().map(|place| place.mount()).collect();
    for (number, mount) in mounts.iter().enumerate() {
        while mount.kernel.open_handles() > 0 {
            sleep(Duration::from_millis(50)).await;
        }
        mount.fs.flush_outbox().await;
        let lost = mount.fs.end_writes().await;
        if lost > 0 && !scenario.is_shared() {
            let what = format!("{lost} files were lost at the end of mount {number}");
            return Err(Broken { rule: Rule::Stored, what });
        }
    }
    // Requests that their clients have given up may still be under way, and the last bytes of logs are kept for a while.
    sleep(Duration::from_secs(200)).await;
    for place in places.iter().filter(|place| place.is_kept()) {
        let recovered = place.recover_uploads().await;
        if world.store.has_no_faults() {
            recovered.map_err(|what| Broken { rule: Rule::Rest, what })?;
        }
    }
    world.judge().finally(&world.store)?;
    for place in places.iter().filter(|place| place.is_told()) {
        hearing::finally(place, &world.store).await?;
    }
    if scenario.mounts.iter().all(|plan| plan.keeps_attributes) {
        world.judge().finally_attributes(&world.store)?;
    }
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
    /// Closed files that it has made or emptied, and that it has open otherwise.
    unsaid: Vec<Opened>,
}

impl Player {
    /// The program is started on the mount that is there now.
    fn start(&mut self) {
        let Some(place) = &self.place else { return };
        self.life = place.life().0;
        self.process = Some(Process::new(&place.mount().kernel, u32::from(self.program.number) + 100));
        self.open.clear();
        self.maps.clear();
        self.unsaid.clear();
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

    /// Kills the daemon, after so many requests. Another takes over after a while, and finds what the kernel has open.
    async fn take_over(&self, requests: u64, milliseconds: u64) -> Check {
        let Some(place) = self.place.as_ref().filter(|place| place.is_kept()) else { return Ok(()) };
        let world = &self.world;
        // Where programs send no more, it dies while they rest.
        let waits = place.mount();
        let _sent = timeout(LONGEST_WAIT, waits.kernel.wait_for_requests(requests)).await;
        self.draw.pause().await;
        place.lose();
        world.ticks.note(|| "    the daemon is dead".to_owned());
        let death = world.judge().died(&world.store)?;
        sleep(Duration::from_millis(milliseconds)).await;
        let recovered = place.take_over().await;
        world.ticks.note(|| format!("    another daemon takes over: {recovered:?}"));
        if world.store.has_no_faults() {
            recovered.map_err(|what| Broken { rule: Rule::Rest, what })?;
        }
        place.is_settled().await;
        // What was done late is believed otherwise for a while.
        sleep(place.longest_belief()).await;
        world.judge().settled(death, &world.store)
    }

    /// Kills the daemon. Another takes its place, and finds what the store holds.
    async fn kill(&self) -> Check {
        let Some(place) = &self.place else { return Ok(()) };
        if self.is_cut_off() {
            return Ok(());
        }
        place.kill().await;
        let recovered = place.recover().await;
        let refused = place.upload_left().await;
        let check = self.is_in_order(recovered, refused);
        // The other programs wait for it.
        place.revive().await;
        check
    }

    /// Whether a daemon that was killed has left what the next one could put in order.
    fn is_in_order(&self, recovered: Result<(), String>, refused: u64) -> Check {
        let world = &self.world;
        let is_recovered = recovered.is_ok();
        if refused > 0 && !world.judge().is_shared() {
            let what = format!("the store refuses {refused} files that the daemon that was killed has left");
            return Err(Broken { rule: Rule::Stored, what });
        }
        if world.store.has_no_faults() && !world.judge().is_shared() {
            recovered.map_err(|what| Broken { rule: Rule::Rest, what })?;
            let uploads = world.store.open_uploads();
            if uploads > 0 {
                let what = format!("{uploads} uploads are left by the daemon that was killed");
                return Err(Broken { rule: Rule::Rest, what });
            }
        }
        let mount = self.program.mount.unwrap_or_default();
        world.judge().killed(&world.store, mount, is_recovered)
    }
}

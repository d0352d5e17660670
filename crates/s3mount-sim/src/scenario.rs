//! What one seed stands for: the mounts, the programs, and what goes wrong.

mod mixes;

use std::time::Duration;

use s3mount_bucket::Rates;

use self::mixes::ONE;
pub use self::mixes::{MIXES, Mix};
use crate::content::CELL;
use crate::disk::DiskPlan;
use crate::draw::Draw;
use crate::programs::{Act, Program, Role, Theme};
use crate::store::Faults;
use crate::world::{Ends, MountPlan, PART_BYTES};

/// One run, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Decides every order in the run.
    pub seed: u64,
    /// The mix that it was drawn from.
    pub mix: &'static str,
    /// The mounts.
    pub mounts: Vec<MountPlan>,
    /// The disk cache that they share, if they have one.
    pub disk: Option<DiskPlan>,
    /// The programs.
    pub programs: Vec<Program>,
    /// What goes wrong between mounts and store.
    pub faults: Faults,
    /// The most entries of a page of a listing.
    pub page: u32,
    /// Objects that are there before the mounts are, and how many cells each has.
    pub objects: Vec<(String, u64)>,
}

/// The least memory of a mount whose limit changes. A quarter of what drafts may take of it is no less than a part.
const FLOOR_BYTES: u64 = 48 << 20;

/// How long appends may be left unpublished.
const DELAYS: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(5)];

/// The most requests for each call beside these, where modes and times are kept: a HEAD for each name that is shown.
const PER_LOOK: u64 = 8;

/// The length of short parts. No store takes them, but whoever cuts files so does all that he does with long ones.
const SHORT_PART: u64 = 64 << 10;

/// So many short parts may a file have.
const MOST_PARTS: u64 = 12;

/// The most requests for each call of a program, over a whole run: most calls take one, and who opens a name that others
/// change looks it up again.
const PER_CALL: u64 = 4;

/// The most requests beside these, such as those for parts of long files.
const PER_RUN: u64 = 60;

/// The most requests for a folder that gets another name, beside those for any call.
const PER_FOLDER: u64 = 20;

/// The most requests for a daemon that takes over: those that the one before has sent, once more.
const PER_TAKEOVER: u64 = 40;

fn faults(draw: &Draw) -> Faults {
    let most = 1 + draw.below(12);
    let of = |most: u64| if draw.happens(400) { draw.below(most) } else { 0 };
    Faults {
        refused: of(150),
        failed: of(100),
        lost: of(100),
        late: of(100),
        truncated: of(60),
        slow: of(60),
        most,
        ..Faults::default()
    }
}

/// Rates at which files of a run take seconds.
fn rates(draw: &Draw) -> Rates {
    let bytes = || Some(1 << 20 << draw.below(4)).filter(|_| draw.happens(700));
    let (read_bytes, write_bytes) = (bytes(), bytes());
    Rates { read_bytes, write_bytes, requests: Some(5 + draw.below(50)).filter(|_| draw.happens(700)) }
}

/// Connections break often, and what was sent on them is done late.
fn late_faults(draw: &Draw) -> Faults {
    Faults {
        lost: draw.below(100),
        late: 100 + draw.below(200),
        most: 4 + draw.below(12),
        comes_back: true,
        ..Faults::default()
    }
}

/// How long names are believed where the store tells of changes: longer than any run.
const LONG: Duration = Duration::from_secs(1_000_000);

impl Scenario {
    /// The run of a seed, from one of the mixes.
    pub fn draw(seed: u64, mixes: &[Mix]) -> Self {
        let draw = Draw::new(seed);
        let weights: u64 = mixes.iter().map(|mix| mix.weight).sum();
        let mut at = draw.below(weights.max(1));
        let mix = mixes.iter().find(|mix| match at.checked_sub(mix.weight) {
            Some(left) => {
                at = left;
                false
            }
            None => true,
        });
        Self::of(seed, mix.unwrap_or(&ONE), &draw)
    }

    fn of(seed: u64, mix: &Mix, draw: &Draw) -> Self {
        let mut names: Vec<String> =
            ["a", "b", "c", "e"].into_iter().take(1 + draw.below(3) as usize).map(str::to_owned).collect();
        if mix.has_many_names {
            names.extend((0..4 + draw.below(40)).map(|at| format!("n{at}")));
        }
        let (mut folders, mut leaves) = (Vec::new(), Vec::new());
        if mix.has_folders {
            folders = ["d", "ck"].into_iter().take(1 + draw.below(2) as usize).map(str::to_owned).collect();
            leaves = std::mem::take(&mut names);
            for folder in &folders {
                names.extend(leaves.iter().map(|leaf| format!("{folder}/{leaf}")));
            }
            names.push("a".to_owned());
        }
        let theme = match (mix.is_long, draw.below(4)) {
            (true, _) => Theme { names, folders, leaves, most_cells: 12 << 14, call_cells: 2 << 14 },
            _ if mix.has_short_parts => Theme {
                names,
                folders,
                leaves,
                most_cells: MOST_PARTS * SHORT_PART / CELL,
                call_cells: 2 << 10,
            },
            (_, 0) => Theme { names, folders, leaves, most_cells: 3 << 13, call_cells: 1 << 12 },
            (_, 1) => Theme { names, folders, leaves, most_cells: 400, call_cells: 100 },
            _ => Theme { names, folders, leaves, most_cells: 20, call_cells: 8 },
        };
        let mounts = mix.mounts.min(2) + draw.below(mix.mounts.max(2) - 1);
        let plan = |_| {
            let memory_bytes = *draw.one(&[64 << 20, 96 << 20]);
            MountPlan {
                memory_bytes,
                memory_floor_bytes: memory_bytes,
                is_told: mix.is_told,
                metadata_ttl: match mix.is_told {
                    true => Some(LONG),
                    false => *draw.one(&[None, Some(Duration::from_secs(1)), Some(Duration::from_secs(60))]),
                },
                publishes_on_fsync: draw.happens(300),
                append_delay: if mix.delays_appends { *draw.one(&DELAYS) } else { Duration::ZERO },
                folder_markers: mix.has_folders && draw.happens(400),
                folder_rename_limit: if mix.has_folders && draw.happens(200) { 2 } else { 1000 },
                keeps_attributes: mix.keeps_attributes,
                has_spool: mix.has_spool,
                is_behind: mix.is_behind,
                loses_power: mix.loses_power,
                rates: if mix.has_rates { rates(draw) } else { Rates::default() },
                part_bytes: if mix.has_short_parts { SHORT_PART } else { PART_BYTES },
            }
        };
        let floor = |plan: MountPlan| match mix.divides_memory {
            true => MountPlan { memory_floor_bytes: FLOOR_BYTES, ..plan },
            false => plan,
        };
        let plans: Vec<MountPlan> = (0..mounts).map(plan).map(floor).collect();
        let mut programs = Vec::new();
        for mount in 0..mounts as usize {
            for _ in 0..=draw.below(4) {
                let number = programs.len() as u16 + 1;
                programs.push(theme.program(draw, *draw.one(mix.kinds), number, Some(mount)));
            }
        }
        if mix.has_stranger {
            let number = programs.len() as u16 + 1;
            programs.push(theme.program(draw, Role::Stranger, number, None));
        }
        if mix.divides_memory {
            let number = programs.len() as u16 + 1;
            programs.push(theme.program(draw, Role::Divider, number, Some(draw.below(mounts) as usize)));
        }
        if mix.has_kills {
            let number = programs.len() as u16 + 1;
            programs.push(theme.program(draw, Role::Killer, number, Some(draw.below(mounts) as usize)));
        }
        if mix.has_takeovers {
            let number = programs.len() as u16 + 1;
            programs.push(theme.program(draw, Role::Successor, number, Some(draw.below(mounts) as usize)));
        }
        let mut objects = Vec::new();
        for name in &theme.names {
            if draw.happens(500) {
                let most_cells = if mix.has_many_names { 20 } else { theme.most_cells };
                objects.push((name.clone(), draw.below(most_cells)));
            }
        }
        let faults = match (mix.has_late_writes, mix.has_faults) {
            (true, _) => late_faults(draw),
            (_, true) => faults(draw),
            _ => Faults::default(),
        };
        let slow_lists = if mix.has_slow_lists { 300 } else { 0 };
        let faults = Faults { slow_lists, has_opaque_etags: mix.has_opaque_etags, ..faults };
        let page = 2 + draw.below(30) as u32;
        let disk = mix.is_cached.then(|| DiskPlan::draw(draw, mix.has_kills && mounts == 1));
        Self { seed, mix: mix.name, mounts: plans, disk, programs, faults, page, objects }
    }

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.programs.iter().map(|program| program.acts.len()).sum()
    }

    /// The most requests that all of it takes if none fails.
    pub fn most_requests(&self) -> u64 {
        let acts = self.programs.iter().flat_map(|program| &program.acts);
        let folders = acts.filter(|(_, act)| matches!(act, Act::RenameFolder(..))).count();
        let has_short_parts = self.mounts.iter().any(|plan| plan.part_bytes < PART_BYTES);
        let looks = if self.mounts.iter().any(|plan| plan.keeps_attributes) { PER_LOOK } else { 0 };
        let per_call = looks + if has_short_parts { PER_CALL + MOST_PARTS } else { PER_CALL };
        let is_takeover = |(_, act): &&(u16, Act)| matches!(act, Act::TakeOver(..));
        let takeovers = self.programs.iter().flat_map(|program| &program.acts).filter(is_takeover).count();
        let beside = PER_FOLDER * folders as u64 + PER_TAKEOVER * takeovers as u64;
        PER_RUN + per_call * self.len() as u64 + beside
    }

    /// Whether nobody does anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether several mounts, or a stranger, change this name.
    pub fn is_shared(&self) -> bool {
        self.mounts.len() > 1 || self.programs.iter().any(|program| program.mount.is_none())
    }

    /// How daemons end.
    pub fn ends(&self) -> Ends {
        let mut acts = self.programs.iter().flat_map(|program| &program.acts);
        let ends = |(_, act): &(u16, Act)| match act {
            Act::Kill => Some(Ends::Killed),
            Act::TakeOver(..) => Some(Ends::TakenOver),
            _ => None,
        };
        acts.find_map(ends).unwrap_or(Ends::Never)
    }

    /// The run as a text of a few lines.
    pub fn script(&self) -> String {
        let mut text = format!("seed {} ({}), {:?}\n", self.seed, self.mix, self.faults);
        for (key, cells) in &self.objects {
            text.push_str(&format!("  there is {key}, {cells} cells\n"));
        }
        if let Some(disk) = &self.disk {
            text.push_str(&format!("  {disk:?}\n"));
        }
        for plan in &self.mounts {
            text.push_str(&format!("  {plan:?}\n"));
        }
        for Program { number, mount, kind, acts } in &self.programs {
            let mount = mount.map_or(String::new(), |mount| format!(" of mount {mount}"));
            text.push_str(&format!("  program {number} ({kind:?}){mount}\n"));
            for (at, act) in acts {
                text.push_str(&format!("    {number}.{at}: {act}\n"));
            }
        }
        text
    }
}

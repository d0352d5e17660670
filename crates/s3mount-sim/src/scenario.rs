//! What one seed stands for: the mounts, the programs, and what goes wrong.

use std::time::Duration;

use crate::content::CELL;
use crate::disk::DiskPlan;
use crate::draw::Draw;
use crate::programs::{Act, Program, Role, Theme};
use crate::store::Faults;
use crate::world::{MountPlan, PART_BYTES};

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

/// A kind of runs.
#[derive(Clone, Debug)]
pub struct Mix {
    /// What it is called.
    pub name: &'static str,
    /// How often it is drawn, compared with the others.
    pub weight: u64,
    /// The programs that are drawn.
    pub kinds: &'static [Role],
    /// One mount, or two and up to this many.
    pub mounts: u64,
    /// Whether a stranger changes the bucket.
    pub has_stranger: bool,
    /// Whether requests fail.
    pub has_faults: bool,
    /// Whether files are long.
    pub is_long: bool,
    /// Whether daemons are killed.
    pub has_kills: bool,
    /// Whether names lie in folders.
    pub has_folders: bool,
    /// Whether a `close` after appending leaves the file unpublished for a while.
    pub delays_appends: bool,
    /// Whether what was read is kept on a disk.
    pub is_cached: bool,
    /// Whether modes and times are kept.
    pub keeps_attributes: bool,
    /// Whether the root has many names.
    pub has_many_names: bool,
    /// Whether files of few bytes have many parts.
    pub has_short_parts: bool,
    /// Whether the store does late what no condition stops (promise 27).
    pub has_late_writes: bool,
    /// Whether many LISTs are slow.
    pub has_slow_lists: bool,
    /// Why the mix is not drawn by itself: a fault that is known and not mended yet.
    pub off: Option<&'static str>,
}

const ONE: Mix = Mix {
    name: "",
    weight: 1,
    kinds: &Role::PROGRAMS,
    mounts: 1,
    has_stranger: false,
    has_faults: false,
    is_long: false,
    has_kills: false,
    has_folders: false,
    delays_appends: false,
    is_cached: false,
    keeps_attributes: false,
    has_many_names: false,
    has_short_parts: false,
    has_late_writes: false,
    has_slow_lists: false,
    off: None,
};

const IN_FOLDERS: Mix = Mix { kinds: FOLDERS, has_folders: true, ..ONE };

const LISTED: Mix =
    Mix { kinds: LISTING, has_stranger: true, has_many_names: true, has_slow_lists: true, ..ONE };

const SAVING: &[Role] = &[Role::Saver, Role::Reader, Role::Lister, Role::Poller];
const LOGGING: &[Role] = &[Role::Appender, Role::Reader, Role::Renamer, Role::Poller];
const PLAIN: &[Role] = &[Role::Overwriter, Role::Reader, Role::Remover, Role::Lister, Role::Locker];
const NAMING: &[Role] = &[Role::Lister, Role::Renamer, Role::Lister, Role::Reader];
const LISTING: &[Role] = &[Role::Lister, Role::Scanner, Role::Reader, Role::Poller, Role::Lister];
const STAMPING: &[Role] = &[
    Role::Stamper,
    Role::Stamper,
    Role::Stamper,
    Role::Reader,
    Role::Saver,
    Role::Overwriter,
    Role::Patcher,
    Role::Lister,
    Role::Appender,
    Role::Remover,
    Role::Poller,
];
const SCANNING: &[Role] = &[
    Role::Scanner,
    Role::Scanner,
    Role::Remover,
    Role::Renamer,
    Role::Saver,
    Role::Overwriter,
    Role::Locker,
];
const PATCHING: &[Role] = &[Role::Patcher, Role::Reader, Role::Poller, Role::Patcher];

const MAPPING: &[Role] = &[Role::Mapper, Role::Reader, Role::Appender, Role::Patcher, Role::Mapper];

const ROTATING: &[Role] = &[Role::Rotator, Role::Reader, Role::Rotator, Role::Poller];
const LATE: &[Role] = &[
    Role::Switcher,
    Role::Switcher,
    Role::Overwriter,
    Role::Remover,
    Role::Rotator,
    Role::Saver,
    Role::Lister,
];
const SWITCHING: &[Role] = &[Role::Switcher, Role::Switcher, Role::Stamper, Role::Reader, Role::Remover];
const COPYING: &[Role] = &[Role::Copier, Role::Overwriter, Role::Reader, Role::Copier];
const FOLDERS: &[Role] = &[
    Role::Trainer,
    Role::Trainer,
    Role::Maker,
    Role::Walker,
    Role::Walker,
    Role::Clearer,
    Role::FolderRenamer,
    Role::Renamer,
    Role::Reader,
    Role::Poller,
    Role::Saver,
    Role::Overwriter,
    Role::Patcher,
    Role::Remover,
    Role::Lister,
];
const READING: &[Role] =
    &[Role::Reader, Role::Poller, Role::Saver, Role::Reader, Role::Patcher, Role::Lister];
const CACHING: &[Role] = &[Role::Saver, Role::Reader, Role::Reader, Role::Poller];

const HINTING: &[Role] =
    &[Role::Hinter, Role::Reader, Role::Saver, Role::Poller, Role::Hinter, Role::Overwriter, Role::Patcher];

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

/// What the store does late finds the ETag again that it waits for.
const LATE_AGAIN: Option<&str> = Some(
    "where several changes of a key are late, one may wait for each ETag that the same bytes can have (promise 27)",
);

/// What was set of an object at rest.
const SET_LATE: Option<&str> = Some(
    "a copy of an object onto itself keeps its ETag, so one that is done late undoes what was set since (promise 27)",
);

/// All mixes.
pub const MIXES: &[Mix] = &[
    Mix { name: "saving", weight: 8, kinds: SAVING, ..ONE },
    Mix { name: "saving, faults", weight: 4, kinds: SAVING, has_faults: true, ..ONE },
    Mix { name: "plain", weight: 3, kinds: PLAIN, ..ONE },
    Mix { name: "plain, faults", weight: 3, kinds: PLAIN, has_faults: true, ..ONE },
    Mix { name: "logging", weight: 3, kinds: LOGGING, ..ONE },
    Mix { name: "logging, faults", weight: 3, kinds: LOGGING, has_faults: true, ..ONE },
    Mix { name: "logging, delayed", weight: 2, kinds: LOGGING, delays_appends: true, ..ONE },
    Mix {
        name: "logging, delayed, kills",
        weight: 1,
        kinds: LOGGING,
        delays_appends: true,
        has_kills: true,
        ..ONE
    },
    Mix { name: "all, delayed, faults", weight: 2, delays_appends: true, has_faults: true, ..ONE },
    Mix { name: "patching", weight: 3, kinds: PATCHING, ..ONE },
    Mix { name: "patching, faults", weight: 3, kinds: PATCHING, has_faults: true, ..ONE },
    Mix { name: "patching, long", weight: 1, kinds: PATCHING, is_long: true, ..ONE },
    Mix { name: "mapping", weight: 3, kinds: MAPPING, ..ONE },
    Mix { name: "mapping, faults", weight: 2, kinds: MAPPING, has_faults: true, ..ONE },
    Mix { name: "rotating, long", weight: 1, kinds: ROTATING, is_long: true, ..ONE },
    Mix { name: "rotating", weight: 2, kinds: ROTATING, ..ONE },
    Mix { name: "stamping", weight: 3, kinds: STAMPING, keeps_attributes: true, ..ONE },
    Mix {
        name: "stamping, faults",
        weight: 2,
        kinds: STAMPING,
        keeps_attributes: true,
        has_faults: true,
        off: SET_LATE,
        ..ONE
    },
    Mix {
        name: "stamping, kills",
        weight: 1,
        kinds: STAMPING,
        keeps_attributes: true,
        has_kills: true,
        ..ONE
    },
    Mix {
        name: "stamping, stranger",
        weight: 1,
        kinds: STAMPING,
        keeps_attributes: true,
        has_stranger: true,
        ..ONE
    },
    Mix {
        name: "stamping, parts",
        weight: 1,
        kinds: STAMPING,
        keeps_attributes: true,
        has_short_parts: true,
        ..ONE
    },
    Mix {
        name: "stamping, all, faults",
        weight: 2,
        keeps_attributes: true,
        has_faults: true,
        off: SET_LATE,
        ..ONE
    },
    Mix { name: "scanning", weight: 3, kinds: SCANNING, has_many_names: true, ..ONE },
    Mix {
        name: "scanning, faults",
        weight: 2,
        kinds: SCANNING,
        has_many_names: true,
        has_faults: true,
        ..ONE
    },
    Mix { name: "copying", weight: 2, kinds: COPYING, ..ONE },
    Mix { name: "copying, long", weight: 1, kinds: COPYING, is_long: true, ..ONE },
    Mix { name: "copying, parts", weight: 2, kinds: COPYING, has_short_parts: true, ..ONE },
    Mix { name: "patching, parts", weight: 2, kinds: PATCHING, has_short_parts: true, ..ONE },
    Mix { name: "rotating, parts", weight: 2, kinds: ROTATING, has_short_parts: true, ..ONE },
    Mix { name: "all, parts, faults", weight: 2, has_short_parts: true, has_faults: true, ..ONE },
    Mix {
        name: "late",
        weight: 2,
        kinds: LATE,
        has_faults: true,
        has_late_writes: true,
        off: LATE_AGAIN,
        ..ONE
    },
    Mix {
        name: "late, stamping",
        kinds: SWITCHING,
        has_faults: true,
        has_late_writes: true,
        keeps_attributes: true,
        off: LATE_AGAIN,
        ..ONE
    },
    Mix { name: "saving, long", weight: 1, kinds: SAVING, is_long: true, ..ONE },
    Mix { name: "all", weight: 6, ..ONE },
    Mix { name: "all, faults", weight: 6, has_faults: true, ..ONE },
    Mix { name: "all, long", weight: 1, is_long: true, ..ONE },
    Mix { name: "all, long, faults", weight: 1, is_long: true, has_faults: true, ..ONE },
    Mix { name: "stranger", weight: 4, has_stranger: true, ..ONE },
    Mix { name: "stranger, names", weight: 2, kinds: NAMING, has_stranger: true, ..ONE },
    Mix { name: "stranger, listing", ..LISTED },
    Mix { name: "stranger, faults", weight: 4, has_stranger: true, has_faults: true, ..ONE },
    Mix { name: "kills", weight: 6, kinds: SAVING, has_kills: true, ..ONE },
    Mix { name: "kills, long", weight: 1, kinds: SAVING, has_kills: true, is_long: true, ..ONE },
    Mix { name: "kills, parts", weight: 1, kinds: SAVING, has_kills: true, has_short_parts: true, ..ONE },
    Mix { name: "kills, faults", weight: 3, kinds: SAVING, has_kills: true, has_faults: true, ..ONE },
    Mix { name: "kills, mounts", weight: 2, kinds: SAVING, has_kills: true, mounts: 2, ..ONE },
    Mix { name: "mounts", weight: 3, mounts: 3, ..ONE },
    Mix { name: "mounts, faults", weight: 3, mounts: 3, has_faults: true, ..ONE },
    Mix { name: "cached", weight: 2, is_cached: true, ..ONE },
    Mix { name: "cached, faults", weight: 1, kinds: READING, is_cached: true, has_faults: true, ..ONE },
    Mix { name: "cached, all, faults", weight: 1, is_cached: true, has_faults: true, ..ONE },
    Mix { name: "cached, long", weight: 1, kinds: READING, is_cached: true, is_long: true, ..ONE },
    Mix { name: "cached, stranger", weight: 2, kinds: READING, is_cached: true, has_stranger: true, ..ONE },
    Mix { name: "cached, mounts", weight: 1, is_cached: true, mounts: 3, ..ONE },
    Mix { name: "cached, kills", weight: 2, kinds: CACHING, is_cached: true, has_kills: true, ..ONE },
    Mix { name: "hinted", weight: 2, kinds: HINTING, ..ONE },
    Mix { name: "hinted, faults", weight: 1, kinds: HINTING, has_faults: true, ..ONE },
    Mix { name: "hinted, stranger", weight: 1, kinds: HINTING, has_stranger: true, ..ONE },
    Mix { name: "cached, hinted", weight: 2, kinds: HINTING, is_cached: true, ..ONE },
    Mix { name: "mounts, logging", weight: 2, kinds: LOGGING, mounts: 2, ..ONE },
    Mix { name: "folders", weight: 3, ..IN_FOLDERS },
    Mix { name: "folders, faults", weight: 2, has_faults: true, ..IN_FOLDERS },
    Mix { name: "folders, kills", weight: 2, has_kills: true, ..IN_FOLDERS },
    Mix { name: "folders, kills, faults", weight: 1, has_kills: true, has_faults: true, ..IN_FOLDERS },
    Mix { name: "folders, stranger", weight: 1, has_stranger: true, ..IN_FOLDERS },
    Mix { name: "folders, mounts", weight: 1, mounts: 2, ..IN_FOLDERS },
];

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
        let plan = |_| MountPlan {
            memory_bytes: *draw.one(&[64 << 20, 96 << 20]),
            metadata_ttl: *draw.one(&[None, Some(Duration::from_secs(1)), Some(Duration::from_secs(60))]),
            publishes_on_fsync: draw.happens(300),
            append_delay: if mix.delays_appends { *draw.one(&DELAYS) } else { Duration::ZERO },
            folder_markers: mix.has_folders && draw.happens(400),
            folder_rename_limit: if mix.has_folders && draw.happens(200) { 2 } else { 1000 },
            keeps_attributes: mix.keeps_attributes,
            part_bytes: if mix.has_short_parts { SHORT_PART } else { PART_BYTES },
        };
        let plans: Vec<MountPlan> = (0..mounts).map(plan).collect();
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
        if mix.has_kills {
            let number = programs.len() as u16 + 1;
            programs.push(theme.program(draw, Role::Killer, number, Some(draw.below(mounts) as usize)));
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
        let faults = Faults { slow_lists, ..faults };
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
        PER_RUN + per_call * self.len() as u64 + PER_FOLDER * folders as u64
    }

    /// Whether nobody does anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether several mounts, or a stranger, change this name.
    pub fn is_shared(&self) -> bool {
        self.mounts.len() > 1 || self.programs.iter().any(|program| program.mount.is_none())
    }

    /// Whether a daemon is killed.
    pub fn kills(&self) -> bool {
        self.programs.iter().flat_map(|program| &program.acts).any(|(_, act)| *act == Act::Kill)
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

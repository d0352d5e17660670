//! The kinds of runs, and which programs each has.

use crate::programs::Role;

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
    /// Whether daemons are killed, and others take over.
    pub has_takeovers: bool,
    /// Whether those go on with what was being written, which lies in a spool.
    pub has_spool: bool,
    /// Whether names lie in folders.
    pub has_folders: bool,
    /// Whether closed files wait in an outbox.
    pub is_behind: bool,
    /// Whether the machine dies with a daemon that is killed.
    pub loses_power: bool,
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
    /// Whether each object that is written has an ETag that no other has.
    pub has_opaque_etags: bool,
    /// Whether mounts keep to rates.
    pub has_rates: bool,
    /// Whether the limit of a mount's memory changes.
    pub divides_memory: bool,
    /// Whether the store tells the mounts of changes, and they believe names for ever.
    pub is_told: bool,
    /// Why the mix is not drawn by itself: a fault that is known and not mended yet.
    pub off: Option<&'static str>,
}

pub(super) const ONE: Mix = Mix {
    name: "",
    weight: 1,
    kinds: &Role::PROGRAMS,
    mounts: 1,
    has_stranger: false,
    has_faults: false,
    is_long: false,
    has_kills: false,
    has_takeovers: false,
    has_spool: false,
    has_folders: false,
    delays_appends: false,
    is_behind: false,
    loses_power: false,
    is_cached: false,
    keeps_attributes: false,
    has_many_names: false,
    has_short_parts: false,
    has_late_writes: false,
    has_slow_lists: false,
    has_opaque_etags: false,
    has_rates: false,
    divides_memory: false,
    is_told: false,
    off: None,
};

const TAKEN_OVER: Mix = Mix { has_takeovers: true, ..ONE };

const SPOOLED: Mix = Mix { has_spool: true, kinds: GOING_ON, ..TAKEN_OVER };

const IN_FOLDERS: Mix = Mix { kinds: FOLDERS, has_folders: true, ..ONE };

const DIVIDED: Mix = Mix { divides_memory: true, is_long: true, ..ONE };

const TOLD: Mix = Mix { is_told: true, has_stranger: true, ..ONE };

const LISTED: Mix =
    Mix { kinds: LISTING, has_stranger: true, has_many_names: true, has_slow_lists: true, ..ONE };

const SAVING: &[Role] = &[Role::Saver, Role::Reader, Role::Lister, Role::Poller];
/// They change no names: a power cut may undo that, and nothing else.
const STEADY: &[Role] = &[Role::Overwriter, Role::Downloader, Role::Appender, Role::Reader, Role::Poller];
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
const GOING_ON: &[Role] = &[
    Role::Patcher,
    Role::Appender,
    Role::Overwriter,
    Role::Reader,
    Role::Poller,
    Role::Mapper,
    Role::Patcher,
    Role::Lister,
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

/// What the store does late finds the ETag again that it waits for.
const LATE_AGAIN: Option<&str> = Some(
    "where several changes of a key are late, one may wait for each ETag that the same bytes can have (promise 27)",
);

/// What was set of an object at rest.
const SET_LATE: Option<&str> = Some(
    "a copy of an object onto itself keeps its ETag, so one that is done late undoes what was set since (promise 27)",
);

/// Closed files wait in an outbox.
const BEHIND: Mix = Mix { is_behind: true, ..ONE };

/// A mode or a time that is not stored yet makes a file one that is being written.
const SET_AND_READ: Option<&str> = Some(
    "who reads a file whose mode or time was set just now gets EIO once the daemon has died, though its bytes are stored",
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
    Mix { name: "behind", weight: 3, ..BEHIND },
    Mix { name: "behind, faults", weight: 3, has_faults: true, ..BEHIND },
    Mix { name: "behind, saving", weight: 2, kinds: SAVING, ..BEHIND },
    Mix { name: "behind, logging", weight: 1, kinds: LOGGING, ..BEHIND },
    Mix { name: "behind, kills", weight: 4, kinds: SAVING, has_kills: true, ..BEHIND },
    Mix {
        name: "behind, kills, faults",
        weight: 2,
        kinds: SAVING,
        has_kills: true,
        has_faults: true,
        ..BEHIND
    },
    Mix { name: "behind, power", weight: 2, kinds: STEADY, has_kills: true, loses_power: true, ..BEHIND },
    Mix {
        name: "behind, power, faults",
        weight: 1,
        kinds: STEADY,
        has_kills: true,
        loses_power: true,
        has_faults: true,
        ..BEHIND
    },
    Mix { name: "behind, folders", weight: 2, is_behind: true, ..IN_FOLDERS },
    Mix { name: "behind, folders, kills", weight: 1, is_behind: true, has_kills: true, ..IN_FOLDERS },
    Mix { name: "takeovers", weight: 4, ..TAKEN_OVER },
    Mix { name: "takeovers, plain", weight: 2, kinds: PLAIN, ..TAKEN_OVER },
    Mix { name: "takeovers, scanning", weight: 2, kinds: SCANNING, has_many_names: true, ..TAKEN_OVER },
    Mix { name: "takeovers, faults", weight: 2, has_faults: true, ..TAKEN_OVER },
    Mix { name: "takeovers, cached", weight: 3, is_cached: true, ..TAKEN_OVER },
    Mix { name: "takeovers, reading", weight: 2, kinds: READING, is_cached: true, ..TAKEN_OVER },
    Mix { name: "takeovers, hinted", weight: 1, kinds: HINTING, is_cached: true, ..TAKEN_OVER },
    Mix { name: "takeovers, long", weight: 1, is_long: true, ..TAKEN_OVER },
    Mix { name: "takeovers, parts", weight: 1, has_short_parts: true, ..TAKEN_OVER },
    Mix {
        name: "takeovers, stamping",
        weight: 2,
        kinds: STAMPING,
        keeps_attributes: true,
        off: SET_AND_READ,
        ..TAKEN_OVER
    },
    Mix { name: "takeovers, saving, attributes", kinds: SAVING, keeps_attributes: true, ..TAKEN_OVER },
    Mix { name: "takeovers, spooled", weight: 3, ..SPOOLED },
    Mix { name: "takeovers, spooled, all", weight: 3, kinds: &Role::PROGRAMS, ..SPOOLED },
    Mix { name: "takeovers, spooled, faults", weight: 2, has_faults: true, ..SPOOLED },
    Mix { name: "takeovers, spooled, logging", weight: 2, kinds: LOGGING, delays_appends: true, ..SPOOLED },
    Mix { name: "takeovers, spooled, parts", weight: 2, has_short_parts: true, ..SPOOLED },
    Mix { name: "takeovers, spooled, long", weight: 1, is_long: true, ..SPOOLED },
    Mix { name: "takeovers, folders", weight: 3, has_takeovers: true, ..IN_FOLDERS },
    Mix {
        name: "takeovers, folders, parts",
        weight: 1,
        has_takeovers: true,
        has_short_parts: true,
        ..IN_FOLDERS
    },
    Mix { name: "opaque", weight: 1, has_opaque_etags: true, ..ONE },
    Mix {
        name: "opaque, parts, faults",
        weight: 1,
        has_opaque_etags: true,
        has_short_parts: true,
        has_faults: true,
        ..ONE
    },
    Mix { name: "opaque, stranger", weight: 1, has_opaque_etags: true, has_stranger: true, ..ONE },
    Mix { name: "opaque, folders", weight: 2, has_opaque_etags: true, ..IN_FOLDERS },
    Mix {
        name: "opaque, folders, faults",
        weight: 1,
        has_opaque_etags: true,
        has_faults: true,
        ..IN_FOLDERS
    },
    Mix { name: "opaque, takeovers", weight: 1, has_opaque_etags: true, ..TAKEN_OVER },
    Mix {
        name: "opaque, takeovers, folders",
        weight: 1,
        has_opaque_etags: true,
        has_takeovers: true,
        ..IN_FOLDERS
    },
    Mix { name: "rates", weight: 1, has_rates: true, ..ONE },
    Mix { name: "rates, faults", weight: 1, has_rates: true, has_faults: true, ..ONE },
    Mix { name: "rates, folders, kills", weight: 1, has_rates: true, has_kills: true, ..IN_FOLDERS },
    Mix { name: "takeovers, spooled, folders", weight: 1, kinds: FOLDERS, has_folders: true, ..SPOOLED },
    Mix { name: "divided", weight: 2, ..DIVIDED },
    Mix { name: "divided, faults", weight: 1, has_faults: true, ..DIVIDED },
    Mix { name: "divided, cached", weight: 1, kinds: READING, is_cached: true, ..DIVIDED },
    Mix { name: "divided, takeovers", weight: 1, has_takeovers: true, ..DIVIDED },
    Mix { name: "told", weight: 2, ..TOLD },
    Mix { name: "told, faults", weight: 1, has_faults: true, ..TOLD },
    Mix { name: "told, mounts", weight: 1, mounts: 3, has_stranger: false, ..TOLD },
    Mix { name: "told, folders", weight: 2, is_told: true, has_stranger: true, ..IN_FOLDERS },
    Mix { name: "told, listing", weight: 1, is_told: true, ..LISTED },
    Mix { name: "told, stamping", weight: 1, kinds: STAMPING, keeps_attributes: true, ..TOLD },
    Mix { name: "told, takeovers", weight: 1, has_takeovers: true, ..TOLD },
];

//! How far ahead of one stream to fetch, and in parts of which size.
//!
//! By Little's law, a stream needs as many bytes ahead of it as its rate times the duration of a GET. Its rate shows
//! only when the window does not limit it, so the window grows until it fits. It grows up to fourfold when the reader
//! had to wait, once for each window that was read, as in TCP's slow start. But a reader also waits where the network,
//! the store or the processor is the limit. There a larger window only holds more memory, and pushes data out of the
//! processor's caches before it is read. So the window stops growing at [`SLACK`] times what Little's law asks for.
//!
//! Far from the store a round trip is expensive. So a single stream climbs faster there: its window grows with each
//! read.
//!
//! A stream at the beginning of a file of a known kind begins with the window that the last ones reached. Its first
//! parts are small. Each further part is as large as possible while still arriving before its reader needs it.
//!
//! Larger parts mean fewer requests, but they take longer and so need a larger window. The parts are the largest for
//! which the window is enough. So they grow with the window, and stay small if memory keeps it small.
//!
//! Pure: the caller passes times and latencies.

use std::time::Duration;

use crate::PrefetchConfig;
use crate::learn::Beginning;
use crate::limits::link::LONG_QUEUE;

/// A rate measured over less time means little: a scheduler's time slice takes some milliseconds.
const MIN_ROUND: Duration = Duration::from_millis(10);

/// A slow reader's rate is measured after this time at the latest.
const MAX_ROUND: Duration = Duration::from_secs(1);

/// The factor on the rate × the time of the fastest GETs that is fetched ahead. Most GETs take longer than the fastest
/// do (S3's first byte: 25 ms in the median, 10 ms at best), and they arrive out of order.
const SLACK: f64 = 2.0;

/// A window of this size is always granted, memory permitting. With less, a stream on a fast network waits for each
/// part in turn.
const FLOOR_BYTES: u64 = 32 << 20;

/// The same for a single stream. With 64 MiB, `O_DIRECT` reads of 8 MiB are a tenth faster. But four streams with as
/// much each are a tenth slower, because the bytes ahead leave the processor's caches before they are read.
const LONE_FLOOR_BYTES: u64 = 64 << 20;

/// The largest window, in time, if GETs wait longer than this at the link. Behind a slow link a larger window would be
/// a queue of many seconds, in which other files and listings wait.
const QUEUE_SECONDS: f64 = LONG_QUEUE.as_millis() as f64 / 1e3;

/// A store is near if a GET takes less than this. There a reader waits only briefly when its window is too small. So it
/// is granted at most half of what it has read: a reader that stops in the middle of a file leaves less unread.
const NEAR: Duration = Duration::from_millis(10);

/// A window that is far too small grows by this factor at once. Then it is at most three times as large as
/// what its stream has read so far.
const RAMP: u64 = 4;

/// A store is far if a GET takes more than this: there a reader waits long when its window is too small. A single
/// stream that reads its object from the beginning climbs there: its window grows with each read, and not only when all
/// of the window was read. (If GETs differ, that is as late as the slowest of them.)
const FAR: Duration = Duration::from_millis(15);

/// A climbing stream has this many times the bytes ahead that it has read within the last one or two round trips.
const CLIMB: u64 = 7;

/// A stream climbs when this many bytes came within the last round trips. Behind a slow link, where a GET
/// takes long because of its length, it never does.
const CLIMB_AFTER_BYTES: u64 = 4 << 20;

/// The rate of the fastest reader that the kernel allows, in bytes a second.
const FASTEST_READER: f64 = 4e9;

/// While each round is faster than the one before by this factor, the rate lags behind the window, and twice as much is
/// granted. Any excess is given back at the end of the ramp.
const FASTER: f64 = 1.1;

/// If a round is faster than the one before by this factor, only the window limited it. Then the window grows by
/// [`RAMP`] regardless of Little's law. Far from the store, GETs differ by hundreds of milliseconds. There a reader
/// waits for the slowest of them, and the fastest tell too little.
const IN_PROPORTION: f64 = 2.0;

/// A reading of this many bytes shows its reader's rate, regardless of its window.
const ENOUGH_BYTES: u64 = 4 << 20;

/// The least number of parts in a window, so that they come in parallel.
const MIN_PARTS: u64 = 4;

/// The memory that a stream may use, and measurements of the store.
pub(crate) struct WindowLimits<'a> {
    /// The least length of a part.
    pub(crate) edge_bytes: u64,
    /// Memory that the stream may fill, in bytes.
    pub(crate) share_bytes: u64,
    /// How many streams there are.
    pub(crate) streams: u64,
    /// The number of GETs at once that the part size is chosen for.
    pub(crate) requests: u64,
    /// The least time that a GET of this many bytes takes.
    pub(crate) latency: &'a dyn Fn(u64) -> Duration,
    /// The usual time of a GET of this many bytes.
    pub(crate) mean: &'a dyn Fn(u64) -> Duration,
    /// The time that the link takes to bring the bytes in flight.
    pub(crate) queue: Duration,
    /// The bytes a second that the link carries, if it is slow.
    pub(crate) slow_link: Option<u64>,
    /// The same, if GETs have waited long at the link, now or before.
    pub(crate) full_link: Option<u64>,
    pub(crate) config: &'a PrefetchConfig,
}

impl WindowLimits<'_> {
    /// How many bytes a stream of `rate` bytes a second needs ahead of it, in parts of `part` bytes.
    fn needed_bytes(&self, rate: f64, part: u64) -> u64 {
        let rate = self.fitting(rate);
        let latency = (self.latency)(part).as_secs_f64();
        let slack = latency * SLACK;
        (rate * if self.is_queue() { slack.min(QUEUE_SECONDS).max(latency) } else { slack }) as u64
    }

    /// How many bytes a stream of `rate` bytes a second is granted, in parts of `part` bytes. A single stream far from
    /// the store that the link does not limit is granted what it needs for GETs of mean duration: if GETs differ much,
    /// the fastest tell too little.
    fn granted_bytes(&self, rate: f64, part: u64) -> u64 {
        let needed = self.needed_bytes(rate, part).max(self.floor_bytes(rate));
        if self.streams > 1 || self.is_near() || self.is_queue() {
            return needed;
        }
        let (least, mean) = ((self.latency)(part), (self.mean)(part));
        if mean < least * 3 / 2 {
            return needed;
        }
        // Longer mean durations include waiting.
        needed.max((rate * SLACK * mean.min(least * 2).as_secs_f64()) as u64)
    }

    /// Whether the bytes in flight make GETs wait at the link.
    fn is_queue(&self) -> bool {
        self.queue > LONG_QUEUE
    }

    /// The bytes that a stream of `rate` bytes a second is always granted.
    fn floor_bytes(&self, rate: f64) -> u64 {
        let floor = if self.streams == 1 { LONE_FLOOR_BYTES } else { FLOOR_BYTES };
        if self.is_queue() { floor.min((self.fitting(rate) * QUEUE_SECONDS) as u64) } else { floor }
    }

    /// The rate, or what the link carries if that is less. Behind a slow link, many parts end at once, and the reader
    /// takes them faster than the link brings the next.
    fn fitting(&self, rate: f64) -> f64 {
        let link = self.slow_link.filter(|_| self.is_queue());
        link.map_or(rate, |link| rate.min(link as f64))
    }

    fn is_near(&self) -> bool {
        (self.latency)(self.edge_bytes) < NEAR
    }

    /// Whether a stream may climb.
    fn may_climb(&self) -> bool {
        self.streams == 1 && (self.latency)(self.edge_bytes) > FAR && !self.is_queue()
    }

    /// The largest window that fits the memory.
    fn available_bytes(&self) -> u64 {
        self.share_bytes.min(self.config.max_window_bytes)
    }

    /// The largest parts of which `requests` fit into the memory.
    fn most_part_bytes(&self) -> u64 {
        (self.available_bytes() / self.requests.max(1)).max(self.edge_bytes)
    }

    /// The most bytes that a stream is granted when it has read `trusted` bytes or is sure to read them.
    fn most_bytes(&self, trusted: u64) -> u64 {
        if self.is_near() { (trusted / 2).max(MIN_PARTS * 2 * self.edge_bytes) } else { u64::MAX }
    }

    /// The largest parts with which a window of `bytes` carries `rate` bytes a second.
    fn part_bytes(&self, rate: f64, bytes: u64) -> u64 {
        let requests = self.requests.max(1);
        let queued = if self.is_queue() { (self.fitting(rate) * QUEUE_SECONDS) as u64 } else { bytes };
        let bytes = bytes.min(queued.max(MIN_PARTS * self.edge_bytes));
        // Smaller parts would need more GETs, over all streams, than may be in flight.
        let smallest = (bytes * self.streams / requests).max(self.edge_bytes);
        let quota = (bytes / MIN_PARTS).max(smallest.min(bytes / 2)).max(1);
        let mut part = (1 << quota.ilog2()).min(self.config.part_bytes).max(self.edge_bytes);
        while part / 2 >= smallest && self.needed_bytes(rate, part) > bytes {
            part /= 2;
        }
        part
    }
}

/// The stretch of reading over which the rate is measured.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Where the round began.
    start: u64,
    /// When the round began.
    began: Duration,
    /// After how many bytes the round ends.
    bytes: u64,
}

/// The window of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    bytes: u64,
    /// The rate in bytes a second, measured or learnt from other files.
    rate: f64,
    is_measured: bool,
    /// Whether nothing was read yet.
    is_new: bool,
    round: Option<Round>,
    /// Where and when the last two round trips began, if the stream may climb.
    trips: Option<[(u64, Duration); 2]>,
    /// Whether the reader waited in this round.
    waited: bool,
    /// Whether each round was faster than the one before, so far.
    is_ramping: bool,
    /// Whether the last round was faster than the one before in proportion to the window.
    is_in_proportion: bool,
    /// Nothing is fetched beyond this offset before the reader has passed it, because no earlier reader passed it.
    held: Option<u64>,
    /// How many bytes the stream has read or is sure to read.
    trusted: u64,
}

impl Window {
    /// A window of `bytes`.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            rate: 0.0,
            is_measured: false,
            is_new: true,
            round: None,
            trips: None,
            waited: false,
            is_ramping: true,
            is_in_proportion: true,
            held: None,
            trusted: 0,
        }
    }

    /// The window of a stream at the beginning of a file of `size` bytes. `beginning` tells how files of its kind were
    /// read so far.
    pub(crate) fn at_beginning(beginning: Beginning, size: u64, limits: &WindowLimits<'_>) -> Self {
        let config = limits.config;
        let usual = Self::new(config.initial_window_bytes);
        match beginning {
            Beginning::Usual => Self { trips: Some([(0, Duration::ZERO); 2]), ..usual },
            Beginning::Header { bytes } => {
                Self { held: Some(bytes.next_multiple_of(config.random_read_bytes)), ..usual }
            }
            // Near a store a stream ramps within milliseconds. Its reader would wait longer than that for the
            // first part if all the others came with it (on loopback: 2 ms, and 17).
            Beginning::Stream { bytes, .. } if limits.is_near() => Self { trusted: bytes.min(size), ..usual },
            Beginning::Stream { bytes, rate } => {
                // The window of a file that is read to its end may reach into the files that follow.
                let is_whole = bytes >= size;
                let most = limits.available_bytes().min(if is_whole { u64::MAX } else { bytes });
                // Nothing is in flight now. A whole usual window at once would fill a slow link for many seconds.
                let most =
                    most.min(limits.full_link.map_or(u64::MAX, |link| (link as f64 * QUEUE_SECONDS) as u64));
                let part = limits.part_bytes(rate, most);
                let needed = limits.needed_bytes(rate, part).max(limits.floor_bytes(rate));
                Self { bytes: needed.min(most).max(usual.bytes), rate, trusted: bytes.min(size), ..usual }
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing was read yet.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// The offset up to which to fetch ahead of a reader at `position`, if it is not the end of its window.
    pub(crate) fn limit(&self, position: u64) -> Option<u64> {
        self.held.filter(|held| position <= *held)
    }

    /// The length of a GET that starts `ahead` bytes ahead of the reader: the edge's length, doubled some
    /// times, up to the largest part.
    pub(crate) fn part_bytes(&self, ahead: u64, limits: &WindowLimits<'_>) -> u64 {
        // While it ramps, its rate is about to double.
        let rate = if self.is_ramping { self.rate * 2.0 } else { self.rate };
        let mut part = limits.part_bytes(rate, self.bytes.min(limits.share_bytes));
        if self.may_climb(limits) {
            // The rate of a stream that climbs lags far behind.
            while part / 2 >= limits.edge_bytes && part > limits.most_part_bytes() {
                part /= 2;
            }
        }
        if !self.is_measured && self.rate > 0.0 {
            // The reader of a known kind waits for the first part, and reaches the others at its rate. Each part must
            // have arrived by then.
            let due = (limits.latency)(limits.edge_bytes).as_secs_f64() + ahead as f64 / self.rate;
            while part / 2 >= limits.edge_bytes && (limits.latency)(part).as_secs_f64() > due {
                part /= 2;
            }
        }
        part
    }

    /// Notes that the reader has reached `position` at the time `now`. `waits` tells whether it had to wait.
    pub(crate) fn on_read(&mut self, position: u64, now: Duration, waits: bool, limits: &WindowLimits<'_>) {
        // A learnt rate is compared with the reader's rate without the wait for the first byte.
        let is_first = std::mem::replace(&mut self.is_new, false);
        if is_first && self.rate > 0.0 {
            return;
        }
        self.waited |= waits;
        let is_climbing = self.climb(position, now, limits);
        let Some(Round { start, began, bytes }) = self.round else {
            return self.begin_round(position, now);
        };
        let (read, took) = (position.saturating_sub(start), now.saturating_sub(began));
        if (read < bytes.min(limits.share_bytes) && took < MAX_ROUND) || took < MIN_ROUND {
            return;
        }
        let rate = read as f64 / took.as_secs_f64();
        let is_faster = rate > self.rate * FASTER;
        self.is_in_proportion = rate > self.rate * IN_PROPORTION;
        // A reader that never waits is as slow as it seems. One that waits may have been held up.
        let is_sure = rate > self.rate || !self.waited;
        self.rate = if is_sure { rate } else { f64::midpoint(rate, self.rate) };
        self.is_measured = true;
        self.trusted = self.trusted.saturating_add(read);
        let available = limits.available_bytes();
        let part = limits.part_bytes(self.rate, available);
        let is_over = self.is_ramping && !is_faster;
        self.is_ramping &= is_faster;
        let needed = limits.granted_bytes(self.rate, part);
        if is_over {
            // A single stream keeps twice as much: no other stream needs it.
            self.bytes = self.bytes.min(if limits.streams == 1 { needed * 2 } else { needed });
        }
        let goal = if self.is_ramping && self.is_in_proportion && limits.streams == 1 {
            u64::MAX
        } else if self.is_ramping {
            needed * 2
        } else {
            needed
        };
        let goal = goal.min(limits.most_bytes(self.trusted));
        // A window that is large enough only for small parts costs requests.
        let is_too_small = self.waited || self.part_bytes(self.bytes, limits) < part;
        if is_climbing && self.may_climb(limits) {
            // It has grown already.
        } else if is_too_small && self.bytes < goal {
            let most = (self.bytes * RAMP).min(goal);
            self.bytes = most.min(available.max(self.bytes));
        } else if self.bytes / 2 > needed {
            self.bytes /= 2;
        }
        self.begin_round(position, now);
    }

    fn begin_round(&mut self, position: u64, now: Duration) {
        self.round = Some(Round { start: position, began: now, bytes: self.bytes });
        self.waited = false;
    }

    /// Whether the window may grow with each read.
    fn may_climb(&self, limits: &WindowLimits<'_>) -> bool {
        self.trips.is_some() && self.is_ramping && self.is_in_proportion && limits.may_climb()
    }

    /// Grows the window with this read, if allowed. Returns whether it may grow with the next read, too.
    fn climb(&mut self, position: u64, now: Duration, limits: &WindowLimits<'_>) -> bool {
        if !self.may_climb(limits) {
            return false;
        }
        let Some(trips) = &mut self.trips else { return false };
        if now.saturating_sub(trips[1].1) >= (limits.latency)(limits.edge_bytes) {
            *trips = [trips[1], (position, now)];
        }
        let read = position.saturating_sub(trips[0].0);
        if read < CLIMB_AFTER_BYTES {
            return false;
        }
        // No reader needs more. A quarter of the memory is left for another stream that begins.
        let most = limits.needed_bytes(FASTEST_READER, limits.edge_bytes).max(position);
        let summit = most.min(limits.available_bytes() / 4 * 3);
        self.bytes = self.bytes.max((read * CLIMB).min(summit));
        self.bytes < summit
    }

    /// The rate, in bytes a second, of a reader that has reached `position` at the time `now`, if it has read enough to
    /// tell.
    pub(crate) fn rate_at(&self, position: u64, now: Duration) -> Option<f64> {
        let measured = self.is_measured.then_some(self.rate);
        let round =
            self.round.map(|round| (position.saturating_sub(round.start), now.saturating_sub(round.began)));
        // For a short object, half of it is enough.
        let enough = (self.bytes / 2).min((position / 2).max(ENOUGH_BYTES));
        let last = round.filter(|(read, took)| *read >= enough && *took >= MIN_ROUND);
        let last = last.map(|(read, took)| read as f64 / took.as_secs_f64());
        measured.into_iter().chain(last).reduce(f64::max).filter(|rate| *rate > 0.0)
    }

    /// Shrinks the window, because fetched bytes were dropped unread.
    pub(crate) fn on_waste(&mut self, config: &PrefetchConfig) {
        self.bytes = (self.bytes / 2).max(config.initial_window_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LONE_FLOOR_BYTES, Window, WindowLimits};
    use crate::PrefetchConfig;
    use crate::learn::Beginning;

    const MIB: u64 = 1 << 20;

    /// A store: time to the first byte, and bytes a second of one connection.
    #[derive(Clone, Copy)]
    struct Store(f64, f64);

    impl Store {
        fn latency(self, bytes: u64) -> Duration {
            Duration::from_secs_f64(self.0 + bytes as f64 / self.1)
        }
    }

    const S3: Store = Store(0.025, 9e7);
    const LOOPBACK: Store = Store(0.001, 3e9);

    /// Reads for so many seconds as fast as the window and `most` bytes a second allow.
    fn run(window: &mut Window, store: Store, memory: u64, seconds: f64, most: f64) -> (u64, u64) {
        let (mut position, mut now) = (0, 0.0);
        window.round = None;
        with_limits(store, memory, |limits| {
            while now < seconds {
                let part = window.part_bytes(window.bytes(), limits);
                let in_flight = window.bytes().min(memory).min(64 * part);
                let by_window = in_flight as f64 / store.latency(part).as_secs_f64();
                position += MIB;
                now += MIB as f64 / by_window.min(most);
                window.on_read(position, Duration::from_secs_f64(now), by_window < 1.2 * most, limits);
            }
            (window.bytes() / MIB, window.part_bytes(window.bytes(), limits) / MIB)
        })
    }

    #[test]
    fn holds_what_the_rate_and_the_store_ask_for() {
        let new = || Window::new(PrefetchConfig::default().initial_window_bytes);
        // 1 GB/s at 118 ms for 8 MiB: 113 MiB in flight.
        let (window, part) = run(&mut new(), S3, 1 << 30, 3.0, 1e9);
        assert!((140..=290).contains(&window) && part == 8, "{window} {part}");
        // The same in 128 MiB takes smaller parts: 2 MiB take 48 ms, and so 46 MiB.
        let (window, part) = run(&mut new(), S3, 128 * MIB, 3.0, 1e9);
        assert!(window <= 128 && part == 2, "{window} {part}");
        // Where a GET takes 4 ms, more than the floor is never needed.
        let (window, _) = run(&mut new(), LOOPBACK, 1 << 30, 3.0, 6e9);
        assert!(window <= 64, "{window}");
    }

    #[test]
    fn ramps_within_a_second() {
        let mut window = Window::new(PrefetchConfig::default().initial_window_bytes);
        let (bytes, _) = run(&mut window, S3, 1 << 30, 1.0, 2.5e9);
        assert!(bytes >= 250, "{bytes}");
    }

    #[test]
    fn follows_its_reader_down_and_up() {
        let mut window = Window::new(PrefetchConfig::default().initial_window_bytes);
        let (fast, _) = run(&mut window, S3, 1 << 30, 3.0, 2e9);
        let (slow, _) = run(&mut window, S3, 1 << 30, 10.0, 1e8);
        let (again, _) = run(&mut window, S3, 1 << 30, 3.0, 2e9);
        assert!(slow <= 128 && fast > 200 && again > 200, "{fast} {slow} {again}");
    }

    /// The limits of a stream that is alone.
    fn with_limits<R>(store: Store, memory: u64, show: impl FnOnce(&WindowLimits<'_>) -> R) -> R {
        let config = PrefetchConfig::default();
        let latency = |bytes| store.latency(bytes);
        show(&WindowLimits {
            edge_bytes: MIB,
            share_bytes: memory,
            streams: 1,
            requests: 64,
            latency: &latency,
            mean: &latency,
            queue: Duration::ZERO,
            slow_link: None,
            full_link: None,
            config: &config,
        })
    }

    #[test]
    fn begins_where_others_got_to() {
        let begin = |beginning, size, memory| {
            with_limits(S3, memory, |limits| {
                let window = Window::at_beginning(beginning, size, limits);
                let parts = [0, 8, 32, 128].map(|ahead| window.part_bytes(ahead * MIB, limits) / MIB);
                (window.bytes() / MIB, parts)
            })
        };
        let stream = |bytes| Beginning::Stream { bytes, rate: 1e9 };
        // 1 GB/s for 118 ms, twice; small parts come first.
        assert_eq!(begin(stream(1 << 40), 1 << 40, 1 << 30), (225, [1, 1, 2, 4]));
        assert_eq!(begin(stream(1 << 40), 1 << 40, 64 * MIB).0, 64, "its share of the memory");
        assert_eq!(begin(stream(20 * MIB), 1 << 40, 1 << 30).0, 20, "no more than others have read");
        assert_eq!(begin(stream(1 << 40), 30 * MIB, 1 << 30).0, 225, "it reaches into what follows");
        assert_eq!(begin(Beginning::Usual, 1 << 40, 1 << 30).0, 1);
        let near =
            with_limits(LOOPBACK, 1 << 30, |limits| Window::at_beginning(stream(1 << 40), 1 << 40, limits));
        assert_eq!(near.bytes(), MIB, "a near store is not worth it");
        let slow = with_limits(S3, 1 << 30, |limits| {
            let limits = WindowLimits { full_link: Some(50_000_000 / 8), ..*limits };
            Window::at_beginning(stream(1 << 40), 1 << 40, &limits)
        });
        assert_eq!(slow.bytes(), 50_000_000 / 8 / 2, "half a second of 50 Mbit/s");
    }

    #[test]
    fn climbs_with_each_read_where_the_store_is_far() {
        let climb = |store, memory, size: u64| {
            with_limits(store, memory, |limits| {
                let mut window = Window::at_beginning(Beginning::Usual, 1 << 40, limits);
                // All that is read arrives within the first two round trips.
                for position in 1..=size {
                    window.on_read(position * MIB, Duration::from_millis(3 * position), true, limits);
                }
                window.bytes() / MIB
            })
        };
        let far = Store(0.2, 9e7);
        assert_eq!(climb(far, 1 << 30, 3), 1, "it may be a header");
        assert_eq!([4, 8].map(|size| climb(far, 1 << 30, size)), [28, 56]);
        assert_eq!(climb(far, 64 * MIB, 8), 48, "three quarters of the memory");
        assert_eq!(climb(far, 1 << 30, 16), 112);
        assert!(climb(LOOPBACK, 1 << 30, 8) < 56);
        with_limits(far, 1 << 30, |limits| {
            let mut window = Window::at_beginning(Beginning::Usual, 1 << 40, limits);
            for second in 1..=20 {
                window.on_read((4 + second) * MIB, Duration::from_secs(1000 + second), true, limits);
            }
            assert!(window.bytes() <= 2 * LONE_FLOOR_BYTES, "a slow reader: {}", window.bytes());
        });
    }

    #[test]
    fn withholds_what_lies_behind_a_header_until_it_was_read() {
        let header = Beginning::Header { bytes: 100 << 10 };
        let window = with_limits(S3, 1 << 30, |limits| Window::at_beginning(header, 1 << 30, limits));
        assert_eq!([0, 128 << 10].map(|position| window.limit(position)), [Some(128 << 10); 2]);
        assert_eq!(window.limit((128 << 10) + 1), None);
    }

    #[test]
    fn tells_the_rate_of_its_reader_and_not_what_was_learnt() {
        with_limits(S3, 1 << 30, |limits| {
            let stream = Beginning::Stream { bytes: 1 << 30, rate: 1e9 };
            let mut window = Window::at_beginning(stream, 64 * MIB, limits);
            let at = Duration::from_millis;
            window.on_read(MIB, at(0), true, limits);
            assert_eq!(window.rate_at(MIB, at(0)), None);
            window.on_read(2 * MIB, at(40), false, limits);
            // The rate leaves out the wait for the first byte.
            let rate = window.rate_at(52 * MIB, at(140)).expect("it has read enough");
            assert!((rate - 50.0 * MIB as f64 / 0.1).abs() < 1.0, "{rate}");
        });
    }

    #[test]
    fn waste_halves_it() {
        let config = PrefetchConfig::default();
        let mut window = Window::new(8 * MIB);
        window.on_waste(&config);
        assert_eq!(window.bytes(), 4 * MIB);
        for _ in 0..9 {
            window.on_waste(&config);
        }
        assert_eq!(window.bytes(), config.initial_window_bytes);
    }
}

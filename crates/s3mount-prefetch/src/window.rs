//! How far ahead of one stream to fetch, and in how large parts.
//!
//! What a stream needs ahead of it follows from Little's law: its rate times the time that a GET
//! takes. Its rate is only seen when the window does not limit it, so the window is found by growth:
//! up to fourfold when the reader had to wait, once for each window that was read, as in TCP's slow
//! start. But a reader also waits where the network, the store or the processor is the limit, and
//! there a larger window only holds more memory, and pushes data out of the processor's caches
//! before it is read. So it stops growing at [`SLACK`] times what Little's law asks for.
//!
//! Far away a round trip is dear, and so a stream that is alone climbs faster: its window follows each read.
//!
//! A stream at the beginning of a file whose kind is known begins where the last ones got to. Its first
//! parts are small, and each further one as large as it can be and still arrive when its reader does.
//!
//! Larger parts mean fewer requests; they also take longer, so they need a larger window. The parts
//! are the largest for which the window is enough, so they grow with it, and stay small where
//! memory keeps it small.
//!
//! Pure: time and latencies are told to it.

use std::time::Duration;

use crate::PrefetchConfig;
use crate::learn::Beginning;

/// Rates over less time than this say little: a scheduler's time slice is some milliseconds.
const MIN_ROUND: Duration = Duration::from_millis(10);

/// A slow reader is not watched for longer than this before its rate is taken.
const MAX_ROUND: Duration = Duration::from_secs(1);

/// How much more than rate × time of the fastest GETs is ahead: GETs take longer than the fastest
/// do (S3's first byte: 25 ms in the median, 10 ms at best), and arrive out of order.
const SLACK: f64 = 2.0;

/// A window that is always granted, memory permitting: below it a stream on a fast network waits
/// for each part by itself.
const FLOOR_BYTES: u64 = 32 << 20;

/// The same for a stream that is the only one. With 64 MiB reads of 8 MiB by `O_DIRECT` are a tenth
/// faster; but four streams with as much each are a tenth slower, because what is ahead leaves the
/// processor's caches before it is read.
const LONE_FLOOR_BYTES: u64 = 64 << 20;

/// What a window is at most, in time, where GETs wait longer than that at the link: behind a slow one it
/// would be a queue of many seconds, in which other files and listings wait.
const QUEUE_SECONDS: f64 = 0.5;

/// A store is near where a GET takes less than this. A reader there waits for little when its window is
/// too small, so it is granted no more than half of what it has read: who stops in the middle of a file
/// leaves less unread.
const NEAR: Duration = Duration::from_millis(10);

/// A window that is far too small grows by this factor at once. It is then at most three times what
/// its stream has read so far.
const RAMP: u64 = 4;

/// A store is far where a GET takes more than this: a reader there waits for long when its window is too
/// small. A stream that is alone, and reads its object from the beginning, climbs there: its window grows
/// with each read, and not only when all of the window was read. (Where GETs differ, that is as late as the
/// slowest of them.)
const FAR: Duration = Duration::from_millis(15);

/// A stream that climbs has so many times ahead what it has read within the last round trips, one or two.
const CLIMB: u64 = 7;

/// A stream climbs once so much came within the last round trips. Behind a slow link, where a GET takes long
/// because of its length, it never does.
const CLIMB_AFTER_BYTES: u64 = 4 << 20;

/// Bytes a second of the fastest reader that the kernel lets through.
const FASTEST_READER: f64 = 4e9;

/// While each round is faster than the one before by this factor, the rate lags behind the window,
/// and twice as much is granted; what turns out to be too much is given back at the end of the ramp.
const FASTER: f64 = 1.1;

/// A round that is faster than the one before by this factor was held up by nothing but the window: it
/// grows by [`RAMP`] whatever Little's law says. Far away, where GETs differ by hundreds of milliseconds,
/// a reader waits for the slowest of them, and the fastest tell too little.
const IN_PROPORTION: f64 = 2.0;

/// What is read of an object within so many bytes tells the rate of its reader, however large its window.
const ENOUGH_BYTES: u64 = 4 << 20;

/// Parts that share a window at least, so that they run in parallel.
const MIN_PARTS: u64 = 4;

/// What a stream may use, and what is known of the store.
pub(crate) struct WindowLimits<'a> {
    /// The least length of a part.
    pub(crate) edge_bytes: u64,
    /// Memory that the stream may fill, in bytes.
    pub(crate) share_bytes: u64,
    /// How many streams there are.
    pub(crate) streams: u64,
    /// So many GETs at once are reckoned with when the size of parts is chosen.
    pub(crate) requests: u64,
    /// The time that a GET of so many bytes takes at least.
    pub(crate) latency: &'a dyn Fn(u64) -> Duration,
    /// The time that a GET of so many bytes mostly takes.
    pub(crate) mean: &'a dyn Fn(u64) -> Duration,
    /// The time that the link takes to bring what is in flight.
    pub(crate) queue: Duration,
    pub(crate) config: &'a PrefetchConfig,
}

impl WindowLimits<'_> {
    /// What a stream of `rate` bytes a second needs ahead of it in parts of `part` bytes.
    fn needed_bytes(&self, rate: f64, part: u64) -> u64 {
        let latency = (self.latency)(part).as_secs_f64();
        let slack = latency * SLACK;
        (rate * if self.is_queue() { slack.min(QUEUE_SECONDS).max(latency) } else { slack }) as u64
    }

    /// What a stream of `rate` bytes a second, in parts of `part` bytes, is granted. One that is alone, far
    /// away, and not held up by the link, is granted what it needs for GETs that take as long as they mostly
    /// do: the fastest tell too little where they differ much.
    fn granted_bytes(&self, rate: f64, part: u64) -> u64 {
        let needed = self.needed_bytes(rate, part).max(self.floor_bytes(rate));
        if self.streams > 1 || self.is_near() || self.is_queue() {
            return needed;
        }
        let (least, mean) = ((self.latency)(part), (self.mean)(part));
        if mean < least * 3 / 2 {
            return needed;
        }
        // Means that are longer than this have waiting in them.
        needed.max((rate * SLACK * mean.min(least * 2).as_secs_f64()) as u64)
    }

    /// Whether what is in flight makes GETs wait at the link.
    fn is_queue(&self) -> bool {
        self.queue.as_secs_f64() > QUEUE_SECONDS
    }

    /// What a stream of `rate` bytes a second is granted in any case.
    fn floor_bytes(&self, rate: f64) -> u64 {
        let floor = if self.streams == 1 { LONE_FLOOR_BYTES } else { FLOOR_BYTES };
        if self.is_queue() { floor.min((rate * QUEUE_SECONDS) as u64) } else { floor }
    }

    fn is_near(&self) -> bool {
        (self.latency)(self.edge_bytes) < NEAR
    }

    /// Whether a stream may climb.
    fn may_climb(&self) -> bool {
        self.streams == 1 && (self.latency)(self.edge_bytes) > FAR && !self.is_queue()
    }

    /// The largest window that there is memory for.
    fn available_bytes(&self) -> u64 {
        self.share_bytes.min(self.config.max_window_bytes)
    }

    /// The largest parts of which as many as may be in flight fit into the memory.
    fn most_part_bytes(&self) -> u64 {
        (self.available_bytes() / self.requests.max(1)).max(self.edge_bytes)
    }

    /// The most that a stream is granted of which `trusted` bytes are read or sure to be.
    fn most_bytes(&self, trusted: u64) -> u64 {
        if self.is_near() { (trusted / 2).max(MIN_PARTS * 2 * self.edge_bytes) } else { u64::MAX }
    }

    /// The largest parts with which a window of `bytes` carries `rate` bytes a second.
    fn part_bytes(&self, rate: f64, bytes: u64) -> u64 {
        let requests = self.requests.max(1);
        let queued = if self.is_queue() { (rate * QUEUE_SECONDS) as u64 } else { bytes };
        let bytes = bytes.min(queued.max(MIN_PARTS * self.edge_bytes));
        // Smaller ones than this would be more than may be in flight, over all streams.
        let smallest = (bytes * self.streams / requests).max(self.edge_bytes);
        let quota = (bytes / MIN_PARTS).max(smallest.min(bytes / 2)).max(1);
        let mut part = (1 << quota.ilog2()).min(self.config.part_bytes).max(self.edge_bytes);
        while part / 2 >= smallest && self.needed_bytes(rate, part) > bytes {
            part /= 2;
        }
        part
    }
}

/// The reading over which the rate is measured.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Where it began.
    start: u64,
    /// When it began.
    began: Duration,
    /// After how many bytes it ends.
    bytes: u64,
}

/// The window of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    bytes: u64,
    /// Bytes a second: what was measured, or learnt of other files.
    rate: f64,
    is_measured: bool,
    /// Whether nothing was read yet.
    is_new: bool,
    round: Option<Round>,
    /// Where and when the last two round trips began, of a stream that may climb.
    trips: Option<[(u64, Duration); 2]>,
    /// Whether the reader waited in this round.
    waited: bool,
    /// Whether each round was faster than the one before, so far.
    is_ramping: bool,
    /// Whether the last round was faster than the one before in proportion to the window.
    is_in_proportion: bool,
    /// Nothing is fetched ahead of this before the reader has passed it: no other went on.
    held: Option<u64>,
    /// What the stream has read, or is sure to read.
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

    /// The window of a stream at the beginning of a file of `size` bytes, of a kind that was read so far
    /// as `beginning` tells.
    pub(crate) fn at_beginning(beginning: Beginning, size: u64, limits: &WindowLimits<'_>) -> Self {
        let config = limits.config;
        let usual = Self::new(config.initial_window_bytes);
        match beginning {
            Beginning::Usual => Self { trips: Some([(0, Duration::ZERO); 2]), ..usual },
            Beginning::Header { bytes } => {
                Self { held: Some(bytes.next_multiple_of(config.random_read_bytes)), ..usual }
            }
            // Near a store a stream ramps within milliseconds, and its reader waits for the first part
            // longer than that when all the others are on their way with it (on loopback: 2 ms, and 17).
            Beginning::Stream { bytes, .. } if limits.is_near() => Self { trusted: bytes.min(size), ..usual },
            Beginning::Stream { bytes, rate } => {
                // Of one that is read to its end it reaches into those that follow.
                let is_whole = bytes >= size;
                let most = limits.available_bytes().min(if is_whole { u64::MAX } else { bytes });
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

    /// How far a reader at `position` may be read ahead of, if not to the end of its window.
    pub(crate) fn limit(&self, position: u64) -> Option<u64> {
        self.held.filter(|held| position <= *held)
    }

    /// Length of the GET that starts `ahead` bytes ahead of the reader: the edge's, or that doubled
    /// some times, up to the largest part.
    pub(crate) fn part_bytes(&self, ahead: u64, limits: &WindowLimits<'_>) -> u64 {
        // While it ramps, its rate is about to double.
        let rate = if self.is_ramping { self.rate * 2.0 } else { self.rate };
        let mut part = limits.part_bytes(rate, self.bytes.min(limits.share_bytes));
        if self.may_climb(limits) {
            // Its rate lags far behind.
            while part / 2 >= limits.edge_bytes && part > limits.most_part_bytes() {
                part /= 2;
            }
        }
        if !self.is_measured && self.rate > 0.0 {
            // The reader of a kind that is known waits for the first part, and comes to the others at
            // its rate: each shall be there by then.
            let due = (limits.latency)(limits.edge_bytes).as_secs_f64() + ahead as f64 / self.rate;
            while part / 2 >= limits.edge_bytes && (limits.latency)(part).as_secs_f64() > due {
                part /= 2;
            }
        }
        part
    }

    /// The reader has come to `position` at the time `now`, and had to wait or not.
    pub(crate) fn on_read(&mut self, position: u64, now: Duration, waits: bool, limits: &WindowLimits<'_>) {
        // A learnt rate is compared with that of the reader, without the wait for the first byte.
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
        // A reader that never waits is as slow as it looks. One that does may have been held up.
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
            // A lone stream keeps what it may have: nobody else needs it.
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
        // A window that is large enough for small parts only costs requests.
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

    /// Whether it may grow with each read.
    fn may_climb(&self, limits: &WindowLimits<'_>) -> bool {
        self.trips.is_some() && self.is_ramping && self.is_in_proportion && limits.may_climb()
    }

    /// Grows with this read, if it may. Whether it will with the next.
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
        // No reader needs more; and a quarter is for another stream that begins.
        let most = limits.needed_bytes(FASTEST_READER, limits.edge_bytes).max(position);
        let summit = most.min(limits.available_bytes() / 4 * 3);
        self.bytes = self.bytes.max((read * CLIMB).min(summit));
        self.bytes < summit
    }

    /// Bytes a second of a reader that has come to `position` at the time `now`, if it has read enough to
    /// tell.
    pub(crate) fn rate_at(&self, position: u64, now: Duration) -> Option<f64> {
        let measured = self.is_measured.then_some(self.rate);
        let round =
            self.round.map(|round| (position.saturating_sub(round.start), now.saturating_sub(round.began)));
        // Of a short object, most of it.
        let enough = (self.bytes / 2).min((position / 2).max(ENOUGH_BYTES));
        let last = round.filter(|(read, took)| *read >= enough && *took >= MIN_ROUND);
        let last = last.map(|(read, took)| read as f64 / took.as_secs_f64());
        measured.into_iter().chain(last).reduce(f64::max).filter(|rate| *rate > 0.0)
    }

    /// What it had fetched was thrown away unread: it was too large.
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

    /// WindowLimits of a lone stream.
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
            // The wait for the first byte is left out.
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

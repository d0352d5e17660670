//! What goes wrong between a mount and the store.

use std::time::Duration;

use s3mount_object::ErrorKind;

use crate::draw::Draw;

/// How often what goes wrong, in requests of a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Answered 500 or 503, and not done.
    pub refused: u64,
    /// Done, and answered 500.
    pub failed: u64,
    /// Done, and not answered: the connection breaks.
    pub lost: u64,
    /// The connection breaks, and the request is done later.
    pub late: u64,
    /// Answered with a part of the body (GET), or with a body that says nothing.
    pub truncated: u64,
    /// Done after some seconds.
    pub slow: u64,
    /// LISTs that are done or answered after some seconds, in LISTs of a thousand. They do not count as gone wrong.
    pub slow_lists: u64,
    /// No more than this many requests go wrong.
    pub most: u64,
    /// Whether the store answers 501 to conditions.
    pub refuses_conditions: bool,
    /// Whether each object that is written gets an ETag that no other has.
    pub has_opaque_etags: bool,
    /// Whether what is done late may make a name anew that was removed meanwhile, or delete a version that has the same
    /// bytes as one before: no condition of S3 stops that.
    pub comes_back: bool,
}

/// What becomes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is done and answered.
    Answered,
    /// It is not done.
    Refused(ErrorKind),
    /// It is done, and the answer is this error.
    Done(ErrorKind),
    /// The answer is this error. It is done after this time.
    Late(ErrorKind, Duration),
}

/// The times and the fate of one request.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) before: Duration,
    pub(super) fate: Fate,
    pub(super) after: Duration,
    /// Whether it is done although its client has given it up.
    pub(super) goes_on: bool,
}

fn latency(draw: &Draw) -> Duration {
    match draw.below(10) {
        0 => Duration::ZERO,
        1..=6 => Duration::from_micros(500 + draw.below(10_000)),
        7 | 8 => Duration::from_millis(5 + draw.below(100)),
        _ => Duration::from_millis(100 + draw.below(900)),
    }
}

impl Faults {
    /// Draws a plan. `failed` requests have gone wrong so far.
    pub(super) fn plan(&self, draw: &Draw, failed: u64, is_list: bool) -> Plan {
        let (before, after, goes_on) = (latency(draw), latency(draw), draw.happens(500));
        let at = draw.below(1000);
        let broken = if draw.happens(500) { ErrorKind::Network } else { ErrorKind::TimedOut };
        let server = if draw.happens(500) { ErrorKind::Server } else { ErrorKind::Throttled };
        let later = Duration::from_millis(draw.below(4_000));
        let mut plan = Plan { before, fate: Fate::Answered, after, goes_on };
        if is_list && self.slow_lists > 0 && draw.happens(self.slow_lists) {
            let slow = Duration::from_millis(100 + draw.below(3_000));
            *(if draw.happens(300) { &mut plan.before } else { &mut plan.after }) = slow;
        }
        if failed >= self.most {
            return plan;
        }
        let mut end = 0;
        let mut is = |of_thousand: u64| {
            end += of_thousand;
            at < end
        };
        if is(self.refused) {
            plan.fate = Fate::Refused(server);
        } else if is(self.failed) {
            plan.fate = Fate::Done(ErrorKind::Server);
        } else if is(self.lost) {
            plan.fate = Fate::Done(broken);
        } else if is(self.late) {
            plan.fate = Fate::Late(broken, later);
        } else if is(self.truncated) {
            plan.fate = Fate::Done(ErrorKind::Integrity);
        } else if is(self.slow) {
            plan.before = Duration::from_millis(1000 + draw.below(4_000));
        }
        plan
    }
}

//! The bodies of answers. A body is made of slices of memory, and is sent slowly where the server has to be
//! slow.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::object::Object;
use crate::server::stats::UnderWay;

/// The most bytes that are handed to the socket at once.
const PIECE: usize = 1 << 20;
/// The same for a paced body. It is less, so that the bytes flow evenly.
const PACED_PIECE: usize = 128 << 10;

/// How far a paced body may fall behind its schedule and still catch up. Timers are late by a few
/// milliseconds, and the next pieces make up for this time. A reader that paused gets no burst afterwards.
const MOST_LAG: Duration = Duration::from_millis(20);

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    source: Source,
    at: u64,
    end: u64,
    /// The offset at which the connection breaks.
    break_at: Option<u64>,
    flip_bit: bool,
    /// The offset at which the body stops for a while, and how long it stops.
    stall: Option<(u64, Duration)>,
    stalling: Option<Pin<Box<Sleep>>>,
    throttle: Option<Throttle>,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
enum Source {
    Bytes(Bytes),
    Object(Box<Object>),
}

#[derive(Debug)]
struct Throttle {
    bytes_per_second: u64,
    started: Option<Instant>,
    sent: u64,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Reply {
    /// A body that consists of these bytes.
    pub(crate) fn bytes(bytes: impl Into<Bytes>, under_way: Option<UnderWay>) -> Self {
        let bytes = bytes.into();
        let end = bytes.len() as u64;
        let source = Source::Bytes(bytes);
        Self::new(source, 0, end, 0, under_way)
    }

    /// A body that consists of an object's bytes `start..end`.
    pub(crate) fn object(object: Object, start: u64, end: u64, rate: u64, under_way: UnderWay) -> Self {
        Self::new(Source::Object(Box::new(object)), start, end, rate, Some(under_way))
    }

    fn new(source: Source, at: u64, end: u64, rate: u64, under_way: Option<UnderWay>) -> Self {
        let (break_at, flip_bit, stall, stalling) = (None, false, None, None);
        let mut reply =
            Self { source, at, end, break_at, flip_bit, stall, stalling, throttle: None, under_way };
        if rate > 0 {
            reply.trickle(rate);
        }
        reply
    }

    fn half(&self) -> u64 {
        self.at + (self.end - self.at) / 2
    }

    /// Sends the body at this many bytes a second.
    pub(crate) fn trickle(&mut self, bytes_per_second: u64) {
        self.throttle = Some(Throttle { bytes_per_second, started: None, sent: 0, sleep: None });
    }

    /// Stops the body half-way for this long.
    pub(crate) fn stall_half_way(&mut self, span: Duration) {
        self.stall = Some((self.half(), span));
    }

    /// Ends the body half-way. Content-Length says so.
    pub(crate) fn halve(&mut self) {
        self.end = self.half();
    }

    /// Breaks the connection half-way.
    pub(crate) fn break_half_way(&mut self) {
        self.break_at = Some(self.half());
    }

    /// Flips a bit of the first piece.
    pub(crate) fn flip_bit(&mut self) {
        self.flip_bit = true;
    }

    fn piece(&mut self) -> io::Result<Bytes> {
        let end = self.break_at.unwrap_or(self.end);
        let end = self.stall.map_or(end, |(at, _)| at.min(end));
        if self.at >= end {
            return Err(io::Error::other("a fault breaks the connection"));
        }
        let most = self.throttle.as_ref().map_or(PIECE, Throttle::piece);
        let most = usize::try_from(end - self.at).unwrap_or(most).min(most);
        let mut piece = match &self.source {
            Source::Bytes(bytes) => {
                let at = usize::try_from(self.at).map_err(io::Error::other)?;
                bytes.slice(at..at + most)
            }
            Source::Object(object) => object.read(self.at, most)?,
        };
        if std::mem::take(&mut self.flip_bit) {
            let mut bytes = piece.to_vec();
            bytes[piece.len() / 2] ^= 1;
            piece = bytes.into();
        }
        self.at += piece.len() as u64;
        Ok(piece)
    }
}

impl Throttle {
    /// The most bytes that are sent at once: as many as a tenth of a second carries, and at most
    /// [`PACED_PIECE`].
    fn piece(&self) -> usize {
        usize::try_from(self.bytes_per_second / 10).unwrap_or(PACED_PIECE).clamp(1, PACED_PIECE)
    }

    /// Becomes ready when a connection of this rate would have carried the next piece of `len` bytes.
    fn poll(&mut self, len: u64, context: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let started = self.started.get_or_insert(now);
        let takes = Duration::from_secs_f64((self.sent + len) as f64 / self.bytes_per_second as f64);
        let due = *started + takes;
        if due <= now {
            *started += (now - due).saturating_sub(MOST_LAG);
            return Poll::Ready(());
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        sleep.as_mut().reset(due);
        sleep.as_mut().poll(context)
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.at >= this.end {
            return Poll::Ready(None);
        }
        if let Some((_, span)) = this.stall.take_if(|(at, _)| this.at >= *at) {
            this.stalling = Some(Box::pin(sleep_until(Instant::now() + span)));
        }
        if let Some(stalling) = &mut this.stalling {
            std::task::ready!(stalling.as_mut().poll(context));
            this.stalling = None;
        }
        if let Some(throttle) = &mut this.throttle {
            let next = (this.end - this.at).min(throttle.piece() as u64);
            std::task::ready!(throttle.poll(next, context));
        }
        let piece = this.piece();
        if let Ok(piece) = &piece {
            let len = piece.len() as u64;
            this.throttle.iter_mut().for_each(|throttle| throttle.sent += len);
            this.under_way.iter().for_each(|counter| counter.sent(len));
        }
        Poll::Ready(Some(piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.at >= self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.at)
    }
}

//! Bodies: slices of what is there already, paced where the server is to be slow.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::object::Object;
use crate::server::stats::UnderWay;

/// Bytes handed to the socket at once; small enough, when paced, for an even flow.
const PIECE: usize = 1 << 20;
const PACED_PIECE: usize = 128 << 10;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    source: Source,
    at: u64,
    end: u64,
    /// Where the connection breaks.
    break_at: Option<u64>,
    flip_bit: bool,
    pace: Option<Pace>,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
enum Source {
    Bytes(Bytes),
    Object(Object),
}

#[derive(Debug)]
struct Pace {
    bytes_per_second: u64,
    started: Option<Instant>,
    sent: u64,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Reply {
    /// A body of these bytes.
    pub(crate) fn bytes(bytes: impl Into<Bytes>, under_way: Option<UnderWay>) -> Self {
        let bytes = bytes.into();
        let end = bytes.len() as u64;
        let source = Source::Bytes(bytes);
        Self { source, at: 0, end, break_at: None, flip_bit: false, pace: None, under_way }
    }

    /// A body of an object's bytes `start..end`.
    pub(crate) fn object(object: Object, start: u64, end: u64, rate: u64, under_way: UnderWay) -> Self {
        let pace = (rate > 0).then_some(Pace { bytes_per_second: rate, started: None, sent: 0, sleep: None });
        let (source, under_way) = (Source::Object(object), Some(under_way));
        Self { source, at: start, end, break_at: None, flip_bit: false, pace, under_way }
    }

    /// Breaks the connection half-way.
    pub(crate) fn break_half_way(&mut self) {
        self.break_at = Some(self.at + (self.end - self.at) / 2);
    }

    /// Flips a bit of the first piece.
    pub(crate) fn flip_bit(&mut self) {
        self.flip_bit = true;
    }

    fn piece(&mut self) -> io::Result<Bytes> {
        let end = self.break_at.unwrap_or(self.end);
        if self.at >= end {
            return Err(io::Error::other("a fault breaks the connection"));
        }
        let most = if self.pace.is_some() { PACED_PIECE } else { PIECE };
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

impl Pace {
    /// Ready when the next piece may leave.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let started = *self.started.get_or_insert_with(Instant::now);
        let due = started + Duration::from_secs_f64(self.sent as f64 / self.bytes_per_second as f64);
        if due <= Instant::now() {
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
        if let Some(pace) = &mut this.pace
            && pace.poll(context).is_pending()
        {
            return Poll::Pending;
        }
        let piece = this.piece();
        if let Ok(piece) = &piece {
            let len = piece.len() as u64;
            this.pace.iter_mut().for_each(|pace| pace.sent += len);
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

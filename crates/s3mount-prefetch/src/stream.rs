//! Streams: who reads sequentially, and how far ahead of it to fetch.
//!
//! Pure: it sees reads, and answers with ranges to fetch. It owns no clock and does no I/O.
//!
//! A stream is a cursor over the object, recognised by offset, because that is what all the
//! handles, processes and mapped pages that read one file have in common. The cursor has a
//! tolerance: the kernel sends its readahead from several threads, so requests arrive out of
//! order, and loaders skip short stretches. For a young stream, and where too much of what is fetched is
//! not read ([`history`]), the tolerance is a credit: a stream earns the bytes that it reads, and pays those
//! that it skips. So a reader that skips more than it reads has a stream for each piece.
//!
//! A read at offset 0 starts a stream. A read elsewhere is a *candidate* ([`candidates`]), and fetches
//! nothing ahead, until a second read goes on where it ended. Candidates never take the place of a
//! stream, and a stream takes the place of another only if nobody reads that one any more.
//!
//! A reader that turns elsewhere leaves a stream behind. How far such streams went is remembered
//! ([`history`]): the next ones begin with a window of the shortest. Where too much is not read, they are
//! fetched as far as the longest went, and further only once they are read further.
//!
//! A stream may also run backwards, from the end of the object or from anywhere in it. It is the
//! same in a mirror: its cursor counts from the object's end. And it may run over the pieces of a
//! [stride](strides) alone, as if they lay end to end.

mod candidates;
mod cursor;
mod direction;
mod history;
mod offset_order;
mod reach;
mod strided;
mod strides;
mod table;

pub(crate) use self::cursor::{LEFT_TICKS, Stream};
pub(crate) use self::direction::Direction;
pub(crate) use self::reach::BEHIND_BYTES;
pub(crate) use self::strides::Stride;
pub(crate) use self::table::{Access, StreamTable};

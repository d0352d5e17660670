//! Streams: the sequential readers, and how far ahead of each to fetch.
//!
//! Pure: reads go in, and ranges to fetch come out. It owns no clock and does no I/O.
//!
//! A stream is a cursor over the object. A read belongs to a stream by its offset, because the handles, processes and
//! mapped pages that read one file have nothing else in common. The cursor has a tolerance: the kernel sends its
//! readahead from several threads, so requests arrive out of order, and loaders skip short stretches. For a young
//! stream, and where too many of the fetched bytes are not read ([`history`]), the tolerance is a credit. A stream
//! earns credit for each byte that it reads, and pays for each byte that it skips. So a reader that skips more than it
//! reads has a stream for each piece.
//!
//! A read at offset 0 starts a stream. A read elsewhere is a *candidate* ([`candidates`]), and fetches nothing ahead
//! until a second read goes on where it ended. Candidates never take the slot of a stream. A stream takes the slot of
//! another stream only if that one is no longer read.
//!
//! A reader that moves elsewhere leaves a stream behind. The lengths of such streams are remembered ([`history`]), and
//! the next streams begin with a window of the shortest length. If too many bytes stay unread, the next streams are
//! fetched as far as the longest one went, and further only when they are read further.
//!
//! A stream may also go down, from the end of the object or from anywhere in it. It is the mirror of one that goes up:
//! its cursor counts from the object's end. And a stream may go over only the pieces of a [stride](strides), as if they
//! lay end to end.

mod candidates;
mod cursor;
mod direction;
mod history;
mod left;
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

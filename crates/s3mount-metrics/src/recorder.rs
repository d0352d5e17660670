//! Single events of a mount, for as long as somebody listens: requests to the store, and calls of programs.
//!
//! Metrics count all the time. Events are noted only while there is a [`Listener`], and each listener has a
//! bounded buffer. While there is none, code asks [`Recorder::is_on`], which is one relaxed load.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::show::json_string;

/// The most events that wait for a listener. It takes some 100 bytes for each, so less than 2 MiB. A listener
/// that takes them ten times a second misses none below 160,000 events a second.
const MAX_WAITING: usize = 16 << 10;

/// The most listeners at a time.
const MAX_LISTENERS: usize = 8;

/// One request to the store that has ended.
#[derive(Clone, Debug)]
pub struct RequestEvent {
    /// The operation, as the label of the metrics has it.
    pub operation: &'static str,
    /// How it ended, as the label of the metrics has it.
    pub status: &'static str,
    /// The key or the prefix that it asked for.
    pub key: Arc<str>,
    /// The first byte that it asked for.
    pub start: u64,
    /// How many bytes it asked for.
    pub len: u64,
    /// When it was sent.
    pub began: Instant,
    /// How long after that the first byte of the answer came, if that is known.
    pub first_byte: Option<Duration>,
    /// How long it took.
    pub took: Duration,
}

/// One call of a program that was answered.
#[derive(Clone, Debug)]
pub struct CallEvent {
    /// The operation, as the label of the metrics has it.
    pub operation: &'static str,
    /// The thread that called. 0 stands for a thread of the kernel.
    pub pid: u32,
    /// The inode that it called for.
    pub inode: u64,
    /// The first byte that it asked for.
    pub start: u64,
    /// How many bytes it asked for.
    pub len: u64,
    /// When it came.
    pub began: Instant,
    /// How long it took to its answer.
    pub took: Duration,
    /// Whether it failed.
    pub failed: bool,
}

/// A change of an object of which the store has told.
#[derive(Clone, Debug)]
pub struct ChangeEvent {
    /// `written`, or `gone`.
    pub change: &'static str,
    /// The key of the object.
    pub key: Arc<str>,
    /// The length in bytes, if the store has told it.
    pub size: Option<u64>,
    /// The `ETag` without quotes, if the store has told it.
    pub etag: Option<Arc<str>>,
    /// When it happened, as the store has told it: text as of RFC 3339.
    pub time: Arc<str>,
}

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request to the store.
    Request(RequestEvent),
    /// A call of a program.
    Call(CallEvent),
    /// A change of an object.
    Change(ChangeEvent),
}

/// The events that wait for one listener.
#[derive(Debug, Default)]
struct Buffer {
    events: VecDeque<Event>,
    /// How many events did not fit.
    lost: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes events on to all who listen.
#[derive(Debug, Default)]
pub struct Recorder {
    is_on: AtomicBool,
    listeners: Mutex<Vec<Weak<Mutex<Buffer>>>>,
}

impl Recorder {
    /// Whether anybody listens.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Passes an event on.
    pub fn note(&self, event: &Event) {
        for buffer in lock(&self.listeners).iter().filter_map(Weak::upgrade) {
            let Buffer { events, lost } = &mut *lock(&buffer);
            if events.len() < MAX_WAITING {
                events.push_back(event.clone());
            } else {
                *lost += 1;
            }
        }
    }

    /// Listens from `now` on, until the listener is dropped. Returns `None` if eight others listen already.
    pub fn listen(self: &Arc<Self>, now: Instant) -> Option<Listener> {
        let mut listeners = lock(&self.listeners);
        if listeners.len() >= MAX_LISTENERS {
            return None;
        }
        let buffer = Arc::<Mutex<Buffer>>::default();
        listeners.push(Arc::downgrade(&buffer));
        self.is_on.store(true, Ordering::Relaxed);
        Some(Listener { recorder: self.clone(), began: now, buffer, text: Mutex::default() })
    }

    fn forget(&self, buffer: &Arc<Mutex<Buffer>>) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| !std::ptr::eq(listener.as_ptr(), Arc::as_ptr(buffer)));
        self.is_on.store(!listeners.is_empty(), Ordering::Relaxed);
    }
}

/// Somebody who takes events as lines of JSON.
#[derive(Debug)]
pub struct Listener {
    recorder: Arc<Recorder>,
    began: Instant,
    buffer: Arc<Mutex<Buffer>>,
    /// Lines that did not fit what was asked for last.
    text: Mutex<Vec<u8>>,
}

impl Listener {
    /// The lines of the next events, at most `max_bytes` of text; none if nothing has happened. A line may be
    /// cut, and goes on with the next call. `key_of` returns the key or the prefix of an inode, or `None` for
    /// an inode whose calls are left out.
    pub fn take(&self, max_bytes: usize, key_of: impl Fn(u64) -> Option<Arc<str>>) -> Vec<u8> {
        let mut text = lock(&self.text);
        while text.len() < max_bytes {
            let (event, lost) = {
                let buffer = &mut *lock(&self.buffer);
                (buffer.events.pop_front(), std::mem::take(&mut buffer.lost))
            };
            if lost > 0 {
                text.extend_from_slice(format!("{{\"event\":\"lost\",\"count\":{lost}}}\n").as_bytes());
            }
            match event {
                Some(event) => text.extend_from_slice(self.line(&event, &key_of).as_bytes()),
                None => break,
            }
        }
        let end = text.len().min(max_bytes);
        let rest = text.split_off(end);
        std::mem::replace(&mut *text, rest)
    }

    /// Microseconds from the beginning of the recording on. They are negative for what began before.
    fn micros(&self, at: Instant) -> i128 {
        match at.checked_duration_since(self.began) {
            Some(after) => after.as_micros() as i128,
            None => -(self.began.duration_since(at).as_micros() as i128),
        }
    }

    /// The line of an event. It is empty for a call that is left out.
    fn line(&self, event: &Event, key_of: impl Fn(u64) -> Option<Arc<str>>) -> String {
        let mut text = String::new();
        // A String takes all that is written.
        let _ = match event {
            Event::Request(request) => {
                let RequestEvent { operation, status, key, start, len, began, first_byte, took } = request;
                let first = first_byte.map_or("null".to_owned(), |first| first.as_micros().to_string());
                writeln!(
                    text,
                    "{{\"event\":\"request\",\"operation\":\"{operation}\",\"status\":\"{status}\",\"key\":{},\
                     \"start\":{start},\"len\":{len},\"at\":{},\"first\":{first},\"took\":{}}}",
                    json_string(key),
                    self.micros(*began),
                    took.as_micros()
                )
            }
            Event::Call(CallEvent { operation, pid, inode, start, len, began, took, failed }) => {
                let Some(key) = key_of(*inode) else { return text };
                writeln!(
                    text,
                    "{{\"event\":\"call\",\"operation\":\"{operation}\",\"pid\":{pid},\"key\":{},\
                     \"start\":{start},\"len\":{len},\"at\":{},\"took\":{},\"failed\":{failed}}}",
                    json_string(&key),
                    self.micros(*began),
                    took.as_micros()
                )
            }
            Event::Change(ChangeEvent { change, key, size, etag, time }) => {
                let size = size.map_or("null".to_owned(), |size| size.to_string());
                let etag = etag.as_ref().map_or("null".to_owned(), |etag| json_string(etag));
                writeln!(
                    text,
                    "{{\"event\":\"change\",\"change\":\"{change}\",\"key\":{},\"size\":{size},\"etag\":{etag},\
                     \"time\":{}}}",
                    json_string(key),
                    json_string(time)
                )
            }
        };
        text
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.recorder.forget(&self.buffer);
    }
}

//! The client on servers: the test server, others, and one whose answers are written down here.

mod canned;
mod client;
mod contract;
mod sessions;
mod uploads;
mod warm;

//! Whole mounts in virtual time, by seeds: programs, the kernel between them and the filesystem, the mounts, and one
//! store. All runs in one thread, and a seed decides every order.
//!
//! - [`draw`]: what chance decides; [`ticks`]: the order of what happens, and the trace; `watched`: values that
//!   others wait for;
//! - [`store`]: the bucket, and what goes wrong on the way to it;
//! - `hearing`: mounts to which the store tells of changes;
//! - [`kernel`]: the kernel's side of a mount;
//! - [`disk`]: the disk caches of mounts;
//! - [`world`]: mounts as the product joins them;
//! - [`programs`]: what programs do; [`scenario`]: what a seed stands for;
//! - [`content`]: bytes that say who has written them; [`history`]: what a file and a name may show;
//! - [`promise`]: what may be broken; [`judge`]: what is right, `shared` where several mounts or strangers change a name;
//!   [`opened`]: open files of programs;
//! - [`run`]: one run; [`seeds`]: many of them, and how a failing one is cut down.

pub mod content;
pub mod disk;
pub mod draw;
mod hearing;
pub mod history;
pub mod judge;
pub mod kernel;
pub mod opened;
pub mod programs;
pub mod promise;
pub mod run;
pub mod scenario;
pub mod seeds;
mod shared;
pub mod store;
pub mod ticks;
mod watched;
pub mod world;

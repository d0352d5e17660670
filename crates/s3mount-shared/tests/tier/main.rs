//! The tier over stores in memory, by a clock that the tests move on.

mod blocks;
mod faults;
mod fleet;
mod world;

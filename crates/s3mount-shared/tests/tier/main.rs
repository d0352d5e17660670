//! The tier over stores in memory, by a clock that the tests move on.

mod blocks;
mod crt;
mod epoch;
mod faults;
mod fleet;
mod world;

//! The parts of the simulation, each held to what it stands for.

mod cached;
mod conformance;
mod contract;
mod folders;
mod kernel;
mod slow_disk;

//! The command line from outside: help texts, and exact messages for what can't work. Nothing here
//! needs a server; what mounts is tested elsewhere.

mod bad_input;
mod help;
mod run;
mod umount;

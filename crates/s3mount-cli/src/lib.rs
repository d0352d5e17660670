//! Flags, configuration, wiring, daemon, subcommands of s3mount

//! The `s3mount` command.

fn main() -> std::process::ExitCode {
    s3mount_cli::run(std::env::args_os())
}

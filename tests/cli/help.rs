//! Pins the texts of `--help`, which are part of the product, so that a review sees each change of them.

use crate::run::{run, s3mount};

fn help(args: &[&str]) -> String {
    let output = run(s3mount(args));
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{args:?}");
    output.stdout
}

#[test]
fn long() {
    insta::assert_snapshot!("help_long", help(&["--help"]));
}

#[test]
fn short() {
    insta::assert_snapshot!("help_short", help(&["-h"]));
}

#[test]
fn of_umount() {
    insta::assert_snapshot!("help_umount", help(&["umount", "--help"]));
}

#[test]
fn of_warm() {
    insta::assert_snapshot!("help_warm", help(&["warm", "--help"]));
}

#[test]
fn of_cache() {
    insta::assert_snapshot!("help_cache", help(&["cache", "--help"]));
}

#[test]
fn of_cp() {
    insta::assert_snapshot!("help_cp", help(&["cp", "--help"]));
}

#[test]
fn of_stats() {
    insta::assert_snapshot!("help_stats", help(&["stats", "--help"]));
}

#[test]
fn of_top() {
    insta::assert_snapshot!("help_top", help(&["top", "--help"]));
}

#[test]
fn of_trace() {
    insta::assert_snapshot!("help_trace", help(&["trace", "--help"]));
}

#[test]
fn of_bench() {
    insta::assert_snapshot!("help_bench", help(&["bench", "--help"]));
}

#[test]
fn of_completions() {
    insta::assert_snapshot!("help_completions", help(&["completions", "--help"]));
}

#[test]
fn of_cleanup() {
    insta::assert_snapshot!("help_cleanup", help(&["cleanup", "--help"]));
}

#[test]
fn of_tune() {
    insta::assert_snapshot!("help_tune", help(&["tune", "--help"]));
}

/// The page with all flags. `WRITE_PAGES=1 cargo test --test cli` writes it anew.
#[test]
fn the_page_of_flags_is_what_help_says() {
    let mut page = "# Flags\n\nWhat `s3mount --help` says, and `--help` of each command.\n".to_owned();
    let cache = ["cache", "cache ls", "cache stats", "cache verify", "cache evict", "cache clear"];
    for command in ["", "umount", "warm", "stats", "top", "trace"].into_iter().chain(cache).chain([
        "config",
        "cp",
        "cleanup",
        "doctor",
        "bench",
        "tune",
        "completions",
    ]) {
        let args: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let text = help(&args);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        page += &format!(
            "\n## {}\n\n```text\n{}\n```\n",
            ["s3mount", command].join(" ").trim(),
            lines.join("\n")
        );
    }
    if std::env::var_os("WRITE_PAGES").is_some() {
        std::fs::write("docs/FLAGS.md", &page).expect("the page");
    }
    check_page("docs/FLAGS.md", &page);
}

/// Whether a page that is generated is as it would be generated now.
fn check_page(path: &str, page: &str) {
    let is_current = std::fs::read_to_string(path).is_ok_and(|text| text == page);
    assert!(is_current, "{path} is not current; write it with WRITE_PAGES=1 cargo test --test cli");
}

/// The page about the configuration. `WRITE_PAGES=1 cargo test --test cli` writes it anew.
#[test]
fn the_page_of_the_configuration_is_current() {
    let page = s3mount_settings::layers::page::configuration_page();
    if std::env::var_os("WRITE_PAGES").is_some() {
        std::fs::write("docs/CONFIGURATION.md", &page).expect("the page");
    }
    check_page("docs/CONFIGURATION.md", &page);
}

#[test]
fn mount_has_the_flags_of_the_bare_command() {
    let flags = |help: &str| {
        let lines = help.lines().map(str::trim).filter(|line| line.starts_with('-'));
        let mut flags: Vec<_> = lines.map(str::to_owned).collect();
        flags.retain(|line| !line.contains("--version"));
        flags
    };
    assert_eq!(flags(&help(&["mount", "--help"])), flags(&help(&["--help"])));
}

#[test]
fn version() {
    let version = concat!("s3mount ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(help(&["-V"]), version);
    let said = help(&["--version"]);
    assert!(said.starts_with(version) && said.contains("\ncommit: ") && said.contains("FIPS"), "{said}");
}

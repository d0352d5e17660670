//! The files with which other programs start s3mount, read by these programs or by their schemas.

use std::fs;
use std::process::Command;

use crate::run::{run, s3mount};

/// Has everything that `tests/requirements.txt` names.
const VENV: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/venv/bin/");

#[test]
fn kubernetes_takes_the_examples() {
    let files = fs::read_dir("packaging/kubernetes").expect("the examples");
    let files: Vec<_> = files.map(|entry| entry.expect("an example").path()).collect();
    assert!(files.len() >= 3, "{files:?}");
    let mut command = Command::new(format!("{VENV}kubernetes-validate"));
    command.arg("--strict").args(files);
    let output = run(command);
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
}

#[test]
fn systemd_takes_the_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let unit = fs::read_to_string("packaging/systemd/s3mount@.service").expect("the unit");
    // systemd looks for the program.
    let unit = unit.replace("/usr/bin/s3mount", env!("CARGO_BIN_EXE_s3mount"));
    let path = folder.path().join("s3mount@data.service");
    fs::write(&path, unit).expect("a file");
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path);
    let output = run(command);
    // Notes on units of the machine may be there, too.
    assert!(output.code == Some(0) && !output.stderr.contains("s3mount@"), "{}", output.stderr);
}

#[test]
fn shells_take_the_completions() {
    let folder = tempfile::tempdir().expect("a folder");
    for (shell, word) in [("bash", "--part-size"), ("zsh", "--part-size"), ("fish", "part-size")] {
        let output = run(s3mount(&["completions", shell]));
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(output.stdout.contains(word), "{shell}: {}", output.stdout);
        fs::write(folder.path().join(shell), output.stdout).expect("a file");
    }
    // Completes as a user's bash does after a tab.
    let script = "source $1; COMP_WORDS=(s3mount umount --la); COMP_CWORD=2; _s3mount s3mount --la umount; echo ${COMPREPLY[*]}";
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash"]).arg(folder.path().join("bash"));
    let output = run(command);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("--lazy\n", ""));
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("man");
    let output = run(s3mount(&["man", &dir.display().to_string()]));
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    for (page, word) in [
        ("s3mount.1", "memory\\-limit"),
        ("s3mount-umount.1", "\\-\\-lazy"),
        ("s3mount-cp.1", "\\-\\-recursive"),
        ("mount.s3mount.8", "mount(8)"),
    ] {
        let text = fs::read_to_string(dir.join(page)).expect(page);
        assert!(text.contains(word), "{page}: {text}");
    }
    assert!(!dir.join("s3mount-man.1").exists(), "a hidden command");
    let output = run(s3mount(&["man", "/proc/none"]));
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.starts_with("s3mount: cannot make the folder /proc/none: "), "{}", output.stderr);
}

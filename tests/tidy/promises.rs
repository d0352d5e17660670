//! Each promise of SEMANTICS has a test, and what is named as its test is one.

use std::collections::BTreeSet;
use std::path::Path;

/// The numbers of the promises that SEMANTICS makes, and the tests that it names for each. A promise is an item of a
/// numbered list, or a row of a table whose first cell is its number.
fn promises(page: &str) -> (Vec<u32>, Vec<(u32, String, String)>) {
    let (promises, table) = page.split_once("## Tests").expect("a list of tests");
    let number = |line: &str| {
        let (number, _) = match line.strip_prefix("| ") {
            Some(row) => row.split_once(" |")?,
            None => line.split_once(". ")?,
        };
        number.parse().ok()
    };
    let rows = table.lines().filter_map(|line| {
        let [number, file, tests] = line.trim_matches('|').split('|').collect::<Vec<_>>().try_into().ok()?;
        Some((number.trim().parse().ok()?, file.trim().trim_matches('`').to_owned(), tests.to_owned()))
    });
    (promises.lines().filter_map(number).collect(), rows.collect())
}

/// Names in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Whether `code` has a function of this name that a run of all tests calls, and checks. Macros, such as `proptest!`,
/// hold functions as well, so the lines are looked at and not the syntax tree.
fn has_test(code: &str, name: &str) -> bool {
    let lines: Vec<_> = code.lines().map(str::trim_start).collect();
    let begins = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|line| line.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    lines.iter().enumerate().filter(|(_, line)| begins(line)).any(|(at, _)| {
        let above = lines[..at].iter().rev();
        let attributes: Vec<_> = above
            .take_while(|line| line.starts_with('#') || line.starts_with("//"))
            .filter(|line| line.starts_with('#'))
            .collect();
        let is_test = |line: &&&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        attributes.iter().any(is_test) && !attributes.iter().any(|line| line.starts_with("#[ignore"))
    })
}

#[test]
fn each_promise_names_its_tests() {
    let (numbers, rows) = promises(&crate::read("docs/SEMANTICS.md"));
    let promised: BTreeSet<_> = numbers.iter().copied().collect();
    assert_eq!(numbers.len(), promised.len(), "a number stands for two promises: {numbers:?}");
    assert!(promised.len() >= 64, "{promised:?}");
    let kept: BTreeSet<u32> = rows.iter().map(|(number, ..)| *number).collect();
    assert_eq!(promised, kept, "promises, and those with tests");
    for (number, file, tests) in rows {
        let code = crate::read(Path::new(&file));
        let names = quoted(&tests);
        assert!(!names.is_empty(), "promise {number} names no test in {file}");
        for name in names {
            assert!(has_test(&code, name), "promise {number}: {file} has no test {name}");
        }
    }
}

/// The tables of SEMANTICS say of some rows which test shows them: `NAME`, or `NAME` of `FILE`.
#[test]
fn each_call_names_its_test() {
    let page = crate::read("docs/SEMANTICS.md");
    let (_, calls) = page.split_once("| call | here | test |\n").expect("the table of calls");
    let rows: Vec<_> = calls.lines().map(str::trim).take_while(|line| line.starts_with('|')).collect();
    let mut checked = 0;
    for row in &rows {
        let tests = row.trim_matches('|').rsplit('|').next().expect("a last cell");
        for test in tests.split(',') {
            let [name, rest @ ..] = &quoted(test)[..] else { continue };
            let file = match rest {
                [] => "tests/mount/calls.rs".to_owned(),
                [file] if file.ends_with(".rs") => format!("tests/mount/{file}"),
                [package] => format!("crates/{package}/tests/all/one_inode.rs"),
                _ => panic!("{row}"),
            };
            assert!(has_test(&crate::read(Path::new(&file)), name), "{file} has no test {name}");
            checked += 1;
        }
    }
    assert!(rows.len() > 30 && checked > 8, "{checked} tests of {} rows", rows.len());
}

#[test]
fn only_what_is_run_and_checked_is_a_test() {
    let is_test = |code: &str| has_test(code, "name");
    for code in [
        "#[test]\nfn name() {",
        "    #[tokio::test(start_paused = true)]\n    async fn name() {",
        "proptest! {\n    #[test]\n    /// Says.\n    fn name(\n",
        "#[test]\n#[cfg(not(miri))]\nfn name() {",
    ] {
        assert!(is_test(code), "{code}");
    }
    for code in [
        "fn name() {",
        "#[test]\nfn other() {}\n\nfn name() {",
        "#[test]\nfn names() {",
        "#[test]\n#[ignore = \"slow\"]\nfn name() {",
        "// #[test]\nfn name() {",
        "#[test]\nfn other() {\n    name();",
    ] {
        assert!(!is_test(code), "{code}");
    }
}

//! The HTML page of a recording. It loads nothing from anywhere.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use indicatif::HumanCount;
use s3mount_system::terminal::plain;

use super::recording::Recording;
use crate::stats::answer;
use crate::watch::shown::{bytes, dollars, percent, rate};

/// The page without its contents, and the program that draws its charts.
const TEMPLATE: &str = include_str!("page.html");

/// The places in the template where contents go.
const ANSWER: &str = "<!-- answer -->";
const TABLES: &str = "<!-- tables -->";
const BEGAN: &str = "/* began */";
const DATA: &str = "/* data */";

/// The longest waits that are listed.
const MAX_LISTED: usize = 20;

/// The page.
///
/// # Errors
/// Fails if the recording can't be written as JSON.
pub(super) fn html(recording: &Recording) -> anyhow::Result<String> {
    // Inside a script, `<` could end it.
    let data = serde_json::to_string(&recording.drawn)?.replace('<', "\\u003c");
    let began = recording.began.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    // The places are found from the last to the first.
    let (before, after) = TEMPLATE.rsplit_once(BEGAN).expect("the template has a place for the time");
    let (first, second) = before.rsplit_once(DATA).expect("the template has a place for the data");
    let (first, script) = first.rsplit_once(TABLES).expect("the template has a place for the tables");
    let (head, charts) = first.rsplit_once(ANSWER).expect("the template has a place for the answer");
    let (answer, tables) = (contents(recording, write_answer), contents(recording, write_tables));
    Ok([head, &answer, charts, &tables, script, &data, second, &began.to_string(), after].concat())
}

/// Text for a place between tags.
fn escape(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Microseconds as seconds.
fn shown_seconds(micros: i64) -> String {
    format!("{:.3} s", micros as f64 / 1e6)
}

fn contents(
    recording: &Recording,
    write: impl FnOnce(&mut String, &Recording) -> std::fmt::Result,
) -> String {
    let mut html = String::new();
    // A String takes all that is written.
    let _ = write(&mut html, recording);
    html
}

/// What was read, and whether somebody waits for storage.
fn write_answer(html: &mut String, recording: &Recording) -> std::fmt::Result {
    let report = &recording.report;
    let waiting = &report.waiting;
    writeln!(html, "<p class=\"source\">{}, over {:.1} s</p>", escape(&report.source), report.seconds)?;
    writeln!(html, "<p class=\"verdict\">Waiting for storage? {}</p>\n<ul>", escape(&answer(waiting)))?;
    for reason in &waiting.reasons {
        writeln!(html, "<li>{}</li>", escape(reason))?;
    }
    if report.lost_events > 0 {
        let lost = HumanCount(report.lost_events);
        writeln!(html, "<li>{lost} events came too fast to be recorded: shares are too small</li>")?;
    }
    if recording.left_out > 0 {
        let left_out = HumanCount(recording.left_out as u64);
        writeln!(html, "<li>{left_out} requests and waits are not drawn: they are too many</li>")?;
    }
    writeln!(html, "</ul>\n<table><tr><th>read<th>fetched<th>GETs<th>a GET<th>in memory<th>cost</tr>")?;
    let gets = report.gets_per_second * report.seconds;
    writeln!(
        html,
        "<tr><td>{}<td>{}<td>{:.0}<td>{}<td>{}<td>{}</tr></table>",
        rate(report.read_bytes_per_second),
        rate(report.fetched_bytes_per_second),
        gets,
        report.get_seconds.map_or("–".to_owned(), |seconds| format!("{:.0} ms", seconds * 1e3)),
        report.found.as_ref().map_or("–".to_owned(), |found| percent(found.in_memory)),
        dollars(recording.dollars)
    )
}

/// What the charts show, in numbers.
fn write_tables(html: &mut String, recording: &Recording) -> std::fmt::Result {
    let Recording { report, drawn, .. } = recording;
    writeln!(html, "<h2>Processes</h2>\n<table><tr><th>process<th>waited<th>calls<th>read</tr>")?;
    for process in &report.waiting.processes {
        writeln!(
            html,
            "<tr><td>{} ({})<td>{}<td>{}<td>{}</tr>",
            escape(&process.name),
            process.pid,
            percent(process.share),
            HumanCount(process.calls),
            bytes(process.bytes)
        )?;
    }
    writeln!(
        html,
        "</table>\n<h2>How requests ended</h2>\n<table><tr><th>operation<th>ended<th>requests</tr>"
    )?;
    for ((operation, status), count) in &recording.requests {
        let count = HumanCount(*count);
        writeln!(html, "<tr><td>{}<td>{}<td>{count}</tr>", escape(operation), escape(status))?;
    }
    writeln!(html, "</table>\n<h2>The longest waits</h2>")?;
    writeln!(html, "<table><tr><th>waited<th>at<th>process<th>call<th>bytes<th>file</tr>")?;
    for wait in drawn.waits.iter().take(MAX_LISTED) {
        writeln!(
            html,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            shown_seconds(wait.took),
            shown_seconds(wait.at),
            escape(&drawn.processes[wait.process]),
            escape(&wait.operation),
            bytes(wait.len),
            escape(&drawn.keys[wait.key])
        )?;
    }
    writeln!(html, "</table>")
}

#[cfg(test)]
mod tests {
    use super::html;
    use crate::trace::recording::recording_of;
    use crate::watch::events::{Call, Request};

    #[test]
    fn names_are_no_part_of_the_page() {
        let key = "</script><script>alert(1)</script>/* data */<!-- tables -->\u{1b}[2J".to_owned();
        let request = Request {
            operation: "get".into(),
            status: "ok".into(),
            key: key.clone(),
            start: 0,
            len: 8 << 20,
            at: 1000,
            first: Some(30_000),
            took: 80_000,
        };
        let call = Call { operation: "read".into(), pid: 0, key, len: 131_072, at: 900, took: 81_000 };
        let page = html(&recording_of(vec![request], vec![call])).expect("a page");
        assert_eq!(page.matches("</script>").count(), TEMPLATE_SCRIPTS, "{page}");
        assert!(!page.contains("<script>alert") && !page.contains('\u{1b}'));
        assert!(page.contains("&lt;/script&gt;") && page.contains("0.081 s"));
        assert!(!page.contains("src=") && !page.contains("href="), "it loads nothing");
        let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next());
        let data: serde_json::Value = serde_json::from_str(data.expect("data")).expect("JSON");
        assert_eq!(data["parts"][0]["first"], 30_000);
        assert_eq!(data["waits"][0]["took"], 81_000);
    }

    /// The scripts of the template.
    const TEMPLATE_SCRIPTS: usize = 2;
}

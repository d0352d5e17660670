//! Draws the history of the results.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::prelude::*;
use serde_json::Value;

/// Speed of the mount, by scenario: the number of the commit in the history, and GB/s.
type Lines = BTreeMap<String, Vec<(usize, f64)>>;

fn lines(history: &str) -> anyhow::Result<(Vec<String>, Lines)> {
    let (mut commits, mut lines) = (Vec::new(), Lines::new());
    for line in history.lines() {
        let row: Value = serde_json::from_str(line).context("a line of the history")?;
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        if row["target"] != "mount" {
            continue;
        }
        let commit = text("commit");
        if commits.last() != Some(&commit) {
            commits.push(commit);
        }
        let points = lines.entry(text("scenario")).or_default();
        points.push((commits.len() - 1, row["gb_s"].as_f64().context("gb_s")?));
    }
    Ok((commits, lines))
}

/// Draws benches/history.svg from benches/history.jsonl.
pub(crate) fn draw() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    let (commits, lines) = lines(&std::fs::read_to_string(folder.join("history.jsonl"))?)?;
    let picture = folder.join("history.svg");
    plot(&picture, &commits, &lines).map_err(|error| anyhow!("drawing {}: {error}", picture.display()))
}

fn plot(picture: &Path, commits: &[String], lines: &Lines) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(picture, (1100, 700)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = lines.values().flatten().map(|point| point.1).fold(1.0, f64::max);
    // The names of the scenarios need room at the right.
    let last = commits.len().saturating_sub(1).max(1) as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption("s3mount: GB/s by commit", ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..last * 1.4, 0.0..most * 1.05)?;
    let name = |x: &f64| {
        let is_whole = x.fract().abs() < 1e-9;
        is_whole.then(|| commits.get(*x as usize).cloned()).flatten().unwrap_or_default()
    };
    chart.configure_mesh().x_labels(commits.len() * 2).x_label_formatter(&name).y_desc("GB/s").draw()?;
    for (index, (scenario, points)) in lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x as f64, *y)).collect();
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(scenario)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).draw()?;
    area.present()?;
    Ok(())
}

//! Makes an HTML page with the table, the plots of speed over part size, and the timeline of the best run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::anyhow;
use plotters::prelude::*;
use s3mount_settings::flags::size::Size;

use super::measured::{Measured, PartTimes};
use super::report::{Report, Row};

const WIDTH: u32 = 1000;

/// The largest number of parts in a timeline. It shows the first ones.
const MAX_PARTS: usize = 300;

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The HTML page of `report`.
pub(crate) fn html(report: &Report) -> anyhow::Result<String> {
    let mut page = format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>s3mount bench</title>\n\
         <style>body {{ font-family: sans-serif; max-width: {WIDTH}px; margin: 2em auto }} pre {{ overflow-x: auto }}</style>\n\
         <h1>s3mount bench</h1>\n<pre>\n{}\n",
        escape(&report.heading())
    );
    for row in &report.rows {
        let _ = writeln!(page, "{}", row.line());
    }
    let _ = writeln!(page, "\n{}</pre>", escape(&report.verdict()));
    for (name, of) in [("Client alone", client as fn(&Row) -> Option<&Measured>), ("Through a mount", mount)]
    {
        if report.best(of).is_some() {
            let svg = drawn(420, |area| speeds(area, name, report, of))?;
            let _ = writeln!(page, "<h2>{name}</h2>\n{svg}");
        }
    }
    if let Some((row, measured)) = report.best(client) {
        let shown = &measured.parts[..measured.parts.len().min(MAX_PARTS)];
        let svg = drawn(60 + 4 * shown.len() as u32, |area| timeline(area, shown))?;
        let _ = writeln!(
            page,
            "<h2>The parts of the client's best run</h2>\n<p>Parts of {} over {} connections: the first {} of {}, in \
             the order of their ends. Grey: until the first byte; blue: until the last.</p>\n{svg}",
            Size(row.point.part_bytes),
            row.point.connections,
            shown.len(),
            measured.parts.len()
        );
    }
    Ok(page)
}

fn client(row: &Row) -> Option<&Measured> {
    row.client.as_ref()
}

fn mount(row: &Row) -> Option<&Measured> {
    row.mount.as_ref()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn drawn(height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let result = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area));
        result.and_then(|()| Ok(area.present()?)).map_err(|error| anyhow!("drawing the plots: {error}"))?;
    }
    Ok(svg)
}

/// Plots GB/s over the part size, with a line for each number of connections.
fn speeds(area: &Area<'_>, name: &str, report: &Report, of: fn(&Row) -> Option<&Measured>) -> Drawn {
    let mut lines: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for row in &report.rows {
        if let Some(measured) = of(row) {
            let point = ((row.point.part_bytes as f64).log2(), measured.gb_s());
            lines.entry(row.point.connections).or_default().push(point);
        }
    }
    let points = || lines.values().flatten();
    let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let most = points().map(|point| point.0).fold(0.0, f64::max);
    let top = points().map(|point| point.1).fold(0.01, f64::max);
    // Leave room for the names at the right.
    let right = most + (most - least).max(1.0) * 0.25;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(least..right, 0.0..top * 1.05)?;
    chart
        .configure_mesh()
        .x_label_formatter(&|log| Size(1 << (log.round() as u32).min(62)).to_string())
        .x_labels((most - least) as usize + 2)
        .x_desc(format!("size of a part ({})", name.to_lowercase()))
        .y_desc("GB/s")
        .draw()?;
    for (index, (connections, points)) in lines.into_iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(format!("{connections} connections"))
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).draw()?;
    Ok(())
}

/// Draws a bar for each part.
fn timeline(area: &Area<'_>, parts: &[PartTimes]) -> Drawn {
    let last = parts.iter().map(|part| part.end).fold(0.001, f64::max);
    let count = parts.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last, 0.0..count)?;
    chart.configure_mesh().disable_y_mesh().y_labels(0).x_desc("seconds").draw()?;
    let waits = RGBColor(190, 190, 190).filled();
    let flows = RGBColor(40, 100, 200).filled();
    for (index, part) in parts.iter().enumerate() {
        let (bottom, top) = (count - index as f64 - 0.9, count - index as f64);
        let bars = [
            Rectangle::new([(part.start, bottom), (part.first_byte, top)], waits),
            Rectangle::new([(part.first_byte, bottom), (part.end, top)], flows),
        ];
        chart.draw_series(bars)?;
    }
    Ok(())
}

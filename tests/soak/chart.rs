//! The samples as a table (CSV) and as a page with one small chart per series.

use crate::sample::Sample;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Result;
use std::path::Path;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 120.0;

/// Writes both files; gives the path of the page.
pub(crate) fn write(folder: &Path, store: &str, samples: &[Sample], counts: &BTreeMap<String, u64>) -> Result<String> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("soak-{store}.csv")), table(samples))?;
    let page = folder.join(format!("soak-{store}.html"));
    std::fs::write(&page, self::page(store, samples, counts))?;
    Ok(page.display().to_string())
}

fn names(samples: &[Sample]) -> Vec<&'static str> {
    samples.first().map(|first| first.values.iter().map(|(name, _)| *name).collect()).unwrap_or_default()
}

fn table(samples: &[Sample]) -> String {
    let mut text = format!("at_s,{}\n", names(samples).join(","));
    for sample in samples {
        let _ = write!(text, "{:.1}", sample.at_s);
        for (_, value) in &sample.values {
            let _ = write!(text, ",{value}");
        }
        text.push('\n');
    }
    text
}

fn page(store: &str, samples: &[Sample], counts: &BTreeMap<String, u64>) -> String {
    let minutes = samples.last().map_or(0.0, |last| last.at_s / 60.0);
    let mut text = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Soak on {store}</title><style>body{{font:14px sans-serif;margin:2em}}\
         svg{{background:#f6f6f4}}polyline{{fill:none;stroke:#2a6;stroke-width:1.5}}text{{font-size:11px}}\
         figure{{display:inline-block;margin:8px}}</style><h1>Soak on {store}: {minutes:.1} minutes</h1>"
    );
    for name in names(samples) {
        text.push_str(&series(name, samples));
    }
    text.push_str("<h2>What was done</h2><table>");
    for (what, count) in counts {
        let _ = write!(text, "<tr><td>{what}<td>{count}");
    }
    text.push_str("</table>");
    text
}

fn series(name: &str, samples: &[Sample]) -> String {
    let points: Vec<(f64, f64)> =
        samples.iter().filter_map(|sample| Some((sample.at_s, sample.value(name)?))).collect();
    let end_s = points.last().map_or(1.0, |(at_s, _)| at_s.max(1e-3));
    let most = points.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    let mut line = String::new();
    for (at_s, value) in &points {
        let (x, y) = (at_s / end_s * WIDTH, HEIGHT - value / most * (HEIGHT - 16.0));
        let _ = write!(line, "{x:.1},{y:.1} ");
    }
    format!(
        "<figure><figcaption>{name}</figcaption><svg width=\"{WIDTH}\" height=\"{HEIGHT}\"><polyline points=\"{line}\"/>\
         <text x=\"4\" y=\"12\">{most:.0}</text></svg></figure>"
    )
}

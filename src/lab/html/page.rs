//! The page around the charts.

use super::chart::{self, Frame};
use crate::lab::On;
use crate::lab::findings::time;
use crate::lab::load::Class;
use crate::lab::report::{Report, StrategyResult};
use std::fmt::Write;

/// Text that is safe in HTML and in its attributes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

impl Report {
    /// The report as one HTML page that needs nothing else.
    pub(crate) fn to_html(&self) -> String {
        self.on.words(&self.page())
    }

    fn page(&self) -> String {
        let ends_us = self.strategies.iter().flat_map(|result| result.takes.iter().map(|take| take.done_us));
        let load_end_us = self.arrivals_us.last().map_or(0, |(at_us, _)| *at_us);
        let end_us = ends_us.max().unwrap_or(0).max(i64::try_from(load_end_us).unwrap_or(i64::MAX));
        let end_s = (end_us as f64 / 1e6).max(0.001);
        let frame = Frame { width: chart::PANEL, end_s, phases: &self.phases };
        let waits_ms = self.strategies.iter().flat_map(|result| result.classes.iter().map(|class| class.max_ms));
        let longest_ms = waits_ms.fold(1.0, f64::max);

        let mut page = String::with_capacity(1 << 18);
        page.push_str("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
        page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
        page.push_str("<meta name=\"color-scheme\" content=\"light dark\"><title>Dialoq lab</title><style>");
        page.push_str(include_str!("page.css"));
        page.push_str("</style></head><body>");
        let _ = write!(
            page,
            "<h1>The same load under every strategy</h1><p class=\"quiet\">Dialoq lab on {}{}. {} messages; a reader works \
             {} ms on each. Load: {}. {} messages were served in {} runs, {} of them out of their conversation's order.</p>",
            self.store,
            if self.on == On::Work { ", work queues" } else { "" },
            self.arrivals_us.len(),
            self.service.as_micros() as f64 / 1000.0,
            escape(&self.load),
            self.strategies.iter().map(|result| result.takes.len()).sum::<usize>(),
            self.strategies.len(),
            self.strategies.iter().map(|result| result.order_violations).sum::<u64>()
        );
        page.push_str("<h2>What it shows</h2><section class=\"findings\">");
        for finding in &self.findings {
            let _ = write!(
                page,
                "<article class=\"card\"><h3>{}</h3><p>{}</p></article>",
                escape(&finding.title),
                escape(&finding.text)
            );
        }
        page.push_str("</section><h2>The load</h2>");
        self.legend(&mut page, &[]);
        let load_s = (load_end_us as f64 / 1e6).max(0.001);
        let _ = write!(
            page,
            "<section class=\"card panel\"><h4>Messages arriving per second</h4>{}</section>",
            chart::arrivals(&Frame { width: chart::PAGE, end_s: load_s, ..frame }, &self.arrivals_us)
        );
        page.push_str("<h2>Strategy by strategy</h2>");
        self.legend(&mut page, &[("thick", "served"), ("dash", "arrived")]);
        page.push_str("<section class=\"panels\">");
        for result in &self.strategies {
            panel(&mut page, &frame, result, longest_ms);
        }
        page.push_str("</section><h2>All figures</h2>");
        self.table(&mut page);
        page.push_str(
            "<p class=\"quiet\">Waiting is from a message's enqueueing to the start of the work on it. Starvation is the \
             longest time in which messages of a class waited and none of them was taken. Out of order counts messages \
             that came after a later one of their conversation. One reader takes one message at a time in every strategy \
             but independent_readers.</p></body></html>\n",
        );
        page
    }

    fn legend(&self, page: &mut String, lines: &[(&str, &str)]) {
        page.push_str("<div class=\"legend\">");
        let band = (!self.phases.is_empty()).then_some(("band", "flood of high"));
        for (mark, label) in [("high", "high"), ("low", "low")].iter().chain(lines).chain(&band) {
            let _ = write!(page, "<span><i class=\"{mark}\"></i>{label}</span>");
        }
        page.push_str("</div>");
    }

    fn table(&self, page: &mut String) {
        page.push_str(
            "<div class=\"scroll card\"><table class=\"all\"><thead><tr><th class=\"text\">strategy</th>\
             <th class=\"text\">class</th><th>count</th><th>p50</th><th>p99</th><th>max</th><th>starvation</th>\
             <th>out of order</th><th>per s</th></tr>\
             </thead><tbody>",
        );
        for result in &self.strategies {
            for (index, class) in result.classes.iter().enumerate() {
                let name = class.class.name();
                page.push_str(if index == 0 { "<tr class=\"first\">" } else { "<tr>" });
                if index == 0 {
                    let rows = result.classes.len() + 1;
                    let _ = write!(
                        page,
                        "<td class=\"text\" rowspan=\"{rows}\">{}<br><span class=\"quiet\">{}</span></td>",
                        result.name, result.form
                    );
                }
                let _ = write!(
                    page,
                    "<td class=\"text {name}\">{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                    class.count,
                    time(class.p50_ms),
                    time(class.p99_ms),
                    time(class.max_ms),
                    time(class.longest_starvation_ms)
                );
                if index == 0 {
                    let rows = result.classes.len();
                    let _ = write!(
                        page,
                        "<td rowspan=\"{rows}\">{}</td><td rowspan=\"{rows}\">{:.0}</td>",
                        result.order_violations, result.throughput_per_s
                    );
                }
                page.push_str("</tr>");
            }
            // In a row of their own: as two more columns they were cut off on a page 1,100 pixels wide.
            let _ = write!(
                page,
                "<tr><td class=\"text wide\" colspan=\"8\"><b>Bound</b> {}<br><b>Observed</b> {}</td></tr>",
                escape(&result.bound.to_string()),
                seen(result)
            );
        }
        page.push_str("</tbody></table></div>");
    }
}

/// What was seen of the bound, and whether it was kept.
fn seen(result: &StrategyResult) -> String {
    let verdict = match result.is_bound_kept {
        Some(true) => " <span class=\"kept\">(kept)</span>",
        Some(false) => " <span class=\"broken\">(broken)</span>",
        None => "",
    };
    format!("{}{verdict}", escape(&result.observed))
}

fn panel(page: &mut String, frame: &Frame<'_>, result: &StrategyResult, longest_ms: f64) {
    let _ = write!(
        page,
        "<article class=\"card panel\"><header><h3>{}</h3><span class=\"form\">{}</span></header>\
         <p class=\"definition\">{}</p><table class=\"figures\"><thead><tr><th class=\"text\">class</th><th>p50</th>\
         <th>p99</th><th>max</th><th>longest starvation</th></tr></thead><tbody>",
        result.name,
        result.form,
        escape(&result.definition)
    );
    for class in Class::ALL.iter().filter_map(|class| result.class(*class)) {
        let name = class.class.name();
        let _ = write!(
            page,
            "<tr><td class=\"text {name}\">{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            time(class.p50_ms),
            time(class.p99_ms),
            time(class.max_ms),
            time(class.longest_starvation_ms)
        );
    }
    let _ = write!(
        page,
        "</tbody></table><h4>Waiting time by time of arrival (logarithmic)</h4>{}<h4>Messages arrived and served so far</h4>{}\
         <p class=\"bound\"><b>Bound</b> {}</p><p class=\"bound\"><b>Observed</b> {}</p></article>",
        chart::waiting(frame, &result.takes, longest_ms),
        chart::service(frame, &result.takes),
        escape(&result.bound.to_string()),
        seen(result)
    );
}

//! What the lab found, as data.

use super::On;
use super::contestant::Contestant;
use super::findings::{Finding, findings};
use super::load::{Class, Load, Phase};
use super::measure::{self, ClassResult};
use super::play::{Take, Trace};
use super::scene::LOW_LEVEL;
use dialoq::receive::strategy::{Bound, Form};
use serde::Serialize;
use std::time::Duration;

/// The figures of all strategies under one load. Serialized, it is the object that `dialoq lab --json` prints;
/// [`Report::to_html`] gives the page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    /// One entry per strategy and form.
    pub strategies: Vec<StrategyResult>,
    /// The load in words.
    #[serde(skip)]
    pub load: String,
    /// The kind of store it was played on: `SQLite`, `PostgreSQL`, `SQL Server`.
    #[serde(skip)]
    pub store: &'static str,
    /// What carried the load.
    #[serde(skip)]
    pub on: On,
    /// The time each message was worked on.
    #[serde(skip)]
    pub service: Duration,
    /// What the figures show, in sentences.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    #[serde(skip)]
    pub(super) arrivals_us: Vec<(u64, Class)>,
    #[serde(skip)]
    pub(super) phases: Vec<Phase>,
}

/// The figures of one strategy in one form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StrategyResult {
    /// The strategy.
    pub name: &'static str,
    /// As first published, or ours.
    pub form: Form,
    /// High, then low.
    pub classes: Vec<ClassResult>,
    /// Messages that came after a later one of their conversation; anything but 0 is a fault.
    pub order_violations: u64,
    /// Messages per second from the first arrival to the end of the last message.
    pub throughput_per_s: f64,
    /// The stated starvation bound; a text when serialized.
    pub bound: Bound,
    /// What the run showed of that bound.
    #[serde(skip)]
    pub observed: String,
    /// Whether the run kept the bound; `None` where there is none, or none that a run could break.
    #[serde(skip)]
    pub is_bound_kept: Option<bool>,
    /// What it does, in a sentence.
    #[serde(skip)]
    pub definition: String,
    #[serde(skip)]
    pub(super) takes: Vec<Take>,
}

impl StrategyResult {
    pub(super) fn of(contestant: Contestant, trace: Trace, on: On) -> Self {
        let classes = Class::ALL.map(|class| ClassResult::of(&trace, class)).to_vec();
        Self {
            name: contestant.name(),
            form: contestant.form(),
            order_violations: measure::order_violations(&trace.takes),
            throughput_per_s: measure::throughput_per_s(&trace.takes),
            observed: on.words(&measure::observed(&trace, &classes)),
            is_bound_kept: measure::kept(&trace, LOW_LEVEL),
            definition: on.words(&contestant.definition()),
            bound: trace.bound,
            takes: trace.takes,
            classes,
        }
    }

    /// The figures of that class.
    pub(crate) fn class(&self, class: Class) -> Option<&ClassResult> {
        self.classes.iter().find(|result| result.class == class)
    }
}

impl Report {
    pub(super) fn new(
        load: Load,
        service: Duration,
        (store, on): (&'static str, On),
        strategies: Vec<StrategyResult>,
    ) -> Self {
        let mut findings = findings(&strategies, &load.phases);
        for finding in &mut findings {
            (finding.title, finding.text) = (on.words(&finding.title), on.words(&finding.text));
        }
        Self {
            strategies,
            load: on.words(&load.description),
            store,
            on,
            service,
            findings,
            arrivals_us: load.arrivals.iter().map(|arrival| (arrival.at_us, arrival.class)).collect(),
            phases: load.phases,
        }
    }

    /// The figures of that strategy in that form.
    #[cfg(test)]
    pub(crate) fn strategy(&self, name: &str, form: Form) -> Option<&StrategyResult> {
        self.strategies.iter().find(|result| result.name == name && result.form == form)
    }
}

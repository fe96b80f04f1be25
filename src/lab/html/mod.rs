//! The report as one page: no scripts, nothing loaded from elsewhere.

mod chart;
mod page;

//! Activation: readers that are launched when there is work and leave when there is none (reference chapter 5).

pub mod monitor;

pub use monitor::{ActivationCounters, Launches, Monitor, MonitorSettings, MonitorState, Ramp};

//! The command as a user meets it: every subcommand, bad input, hostile names, ctrl-C.
#![cfg(feature = "cli")]

mod activate;
mod apply;
mod bad_store;
mod help;
mod hostile;
mod install;
mod lost;
mod measure;
mod names;
mod not_read;
mod operate;
mod receive;
mod says;
mod schedules;
mod secrets;
mod send;
#[path = "../servers/mod.rs"]
mod servers;
mod shop;
mod status;
mod work;

/// A limit for a test, held to its end.
fn limit() -> servers::limit::Limit {
    servers::limit::limit(|| dialoq::testing::describe_waits().join("\n"))
}

//! The command as a user meets it: every subcommand, bad input, hostile names, ctrl-C.
#![cfg(feature = "cli")]

mod activate;
mod apply;
mod bad_store;
mod help;
mod install;
mod measure;
mod names;
mod receive;
mod send;
#[path = "../servers/mod.rs"]
mod servers;
mod shop;
mod status;

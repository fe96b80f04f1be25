//! The texts of `sql/<dialect>/bench`: `sql/postgres/bench/sizes.sql` is `postgres::SIZES`.
//!
//! `build.rs` makes the constants from the files.

include!(concat!(env!("OUT_DIR"), "/bench_sql.rs"));

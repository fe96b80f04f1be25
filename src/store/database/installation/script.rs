//! An installation as one script, for an administrator who reads it and runs it by hand.

use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::id::IdSource;
use crate::store::database::calls::put;
use crate::store::database::dialect::Dialect;
use crate::store::database::installation::install::{self, Plan};
use crate::store::database::link::{Arg, Call, Column};
use std::fmt::Write;
use uuid::Uuid;

/// The script that runs the steps of `plan` as [`install`](install::install) would: in one transaction, under the lock of installers.
///
/// # Errors
/// 60026 an argument cannot be written as text; those of an installation can.
pub fn whole(dialect: &Dialect, plan: &Plan, ids: &mut IdSource) -> Result<String> {
    let mut steps = vec![dialect.install.lock.to_owned()];
    steps.push(if plan.is_new { dialect.install.begin } else { dialect.install.clear }.to_owned());
    steps.extend(plan.scripts.iter().map(|step| format!("-- {}\n{}", step.name, step.text)));
    if plan.is_new {
        let catalog = Catalog::with_builtins(ids.next_id());
        for call in put::builtins(&catalog) {
            steps.push(statement(dialect, &call)?);
        }
    }
    let hash = install::logic_hash(dialect);
    steps.push(statement(dialect, &install::record(dialect, &hash, install::version_before(dialect, &plan.scripts)))?);
    let body = if dialect.has_batches { batches(dialect, &steps) } else { one_after_the_other(&steps) };
    Ok(dialect.install.script.replace("-- <steps>", body.trim_end()))
}

/// Every batch, each followed by the batch that stops the rest after an error.
fn batches(dialect: &Dialect, steps: &[String]) -> String {
    let stop = format!("GO\n{}GO\n", install::without_comments(dialect.install.stop));
    let mut text = stop.clone();
    for step in steps {
        for batch in install::batches(dialect, step) {
            text.push_str(&batch);
            text.push_str(&stop);
        }
    }
    text
}

fn one_after_the_other(steps: &[String]) -> String {
    let mut text = String::new();
    for step in steps {
        let step = step.trim_end();
        text.push_str(step);
        text.push_str(if step.ends_with(';') { "\n\n" } else { ";\n\n" });
    }
    text
}

/// A call as a statement with its arguments written out.
fn statement(dialect: &Dialect, call: &Call<'_>) -> Result<String> {
    let (mut before, mut arguments) = (String::new(), Vec::new());
    for arg in &call.args {
        match arg {
            Arg::Rows { type_name, columns } if dialect.has_batches => {
                let name = format!("@rows{}", arguments.len());
                let _ = writeln!(before, "DECLARE {name} dialoq.{type_name};");
                for (item, row) in rows(dialect, columns)?.into_iter().enumerate() {
                    let cells: String = row.iter().map(|cell| format!(", {cell}")).collect();
                    let _ = writeln!(before, "INSERT {name} VALUES ({item}{cells});");
                }
                arguments.push(name);
            }
            Arg::Rows { columns, .. } => {
                for column in columns {
                    let of = if matches!(column, Column::Text(_)) { "text" } else { "int" };
                    arguments.push(format!("ARRAY[{}]::{of}[]", cells(dialect, column)?.join(", ")));
                }
            }
            one => arguments.push(literal(dialect, one)?),
        }
    }
    let text = install::without_comments(dialect.install.call);
    Ok(before + &text.replace("<name>", call.name).replace("<arguments>", &arguments.join(", ")))
}

fn rows(dialect: &Dialect, columns: &[Column<'_>]) -> Result<Vec<Vec<String>>> {
    let columns: Vec<Vec<String>> = columns.iter().map(|column| cells(dialect, column)).collect::<Result<_>>()?;
    let count = columns.first().map_or(0, Vec::len);
    Ok((0..count).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}

fn cells(dialect: &Dialect, column: &Column<'_>) -> Result<Vec<String>> {
    let or_null = |value: Option<Arg<'_>>| literal(dialect, &value.unwrap_or(Arg::Null));
    match column {
        Column::Int(values) => values.iter().map(|value| or_null(value.map(Arg::Int))).collect(),
        Column::Text(values) => values.iter().map(|value| or_null(value.map(Arg::Text))).collect(),
        other => Err(unwritten(other)),
    }
}

fn literal(dialect: &Dialect, arg: &Arg<'_>) -> Result<String> {
    Ok(match arg {
        Arg::Null => "NULL".to_owned(),
        Arg::Bool(value) if dialect.has_batches => i32::from(*value).to_string(),
        Arg::Bool(value) => value.to_string(),
        Arg::Int(value) => value.to_string(),
        Arg::BigInt(value) => value.to_string(),
        Arg::Text(text) if dialect.has_batches => format!("N'{}'", text.replace('\'', "''")),
        Arg::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Arg::Uuid(id) => quoted(*id),
        other => return Err(unwritten(other)),
    })
}

fn quoted(id: Uuid) -> String {
    format!("'{id}'")
}

fn unwritten(what: &dyn std::fmt::Debug) -> Error {
    Error::new(Code::UNSUPPORTED, format!("an installation gives {what:?}, which is not written as text"))
}

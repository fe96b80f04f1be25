//! `dialoq install` and `dialoq uninstall`

use super::failure::Failure;
use super::globals::Globals;
use super::output::Output;
use clap::Args;
use dialoq::install::{install, plan, plan_script, uninstall};
use serde_json::json;

/// Install the broker in a database of a server, or bring it to this version.
///
/// Makes schema dialoq with its tables, functions and views, and the roles dialoq_user (may execute the verbs and read
/// the views) and dialoq_admin (may also change definitions). All of it or nothing; what is there already in this version
/// stays as it is. An application whose user may do all that needs no `install`: the broker is installed when it is opened.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq install --db postgres://postgres@db/shop
  dialoq install --db postgres://postgres@db/shop --dry-run
  dialoq install --db mssql://sa@db/shop --dry-run --sql > install.sql; sqlcmd -b -d shop -i install.sql
  psql -c 'GRANT dialoq_user TO shop'                    let the application's user in")]
pub(super) struct Install {
    /// Only say which scripts would be run.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print the whole installation as one text, which an administrator can run by hand.
    #[arg(long, requires = "dry_run")]
    sql: bool,
}

impl Install {
    /// Whether it changes nothing.
    pub(super) fn is_trial(&self) -> bool {
        self.dry_run
    }

    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let steps = if self.dry_run { plan(&globals.db).await? } else { install(&globals.db).await? };
        if output.json {
            let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
            let mut answer = json!({ if self.dry_run { "would_run" } else { "ran" }: names });
            if self.sql {
                answer["sql"] = plan_script(&globals.db).await?.into();
            }
            return if self.dry_run { output.json(&answer) } else { output.result_json(&answer) };
        }
        match (steps.is_empty(), self.dry_run) {
            (true, _) => output.text("nothing to do: this version is installed"),
            (false, true) if self.sql => output.text(plan_script(&globals.db).await?.trim_end()),
            (false, true) => output.text(&steps.iter().map(|step| step.name).collect::<Vec<_>>().join("\n")),
            (false, false) => {
                let ran = steps.len();
                output.result(&format!("installed: {ran} scripts were run\n{}", next_step(&globals.db)))
            }
        }
    }
}

/// What an administrator does next: without a role only the installer may do anything.
fn next_step(url: &str) -> &'static str {
    match url.starts_with("mssql:") {
        true => {
            "next, let the application's user in: ALTER ROLE dialoq_user ADD MEMBER [name]\n\
             (dialoq_admin, if it also changes definitions)"
        }
        false => {
            "next, let the application's user in: GRANT dialoq_user TO name\n\
             (dialoq_admin, if it also changes definitions)"
        }
    }
}

/// Remove the broker from a database of a server, with everything in it.
///
/// Definitions, conversations, messages and jobs are gone for good. The application's own tables stay, and so do the roles, which
/// other databases of the server may use. It is refused if views or functions of the application are built on the broker's.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq uninstall --db postgres://postgres@db/shop --yes")]
pub(super) struct Uninstall {
    /// Really do it.
    #[arg(long)]
    yes: bool,
}

impl Uninstall {
    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        if !self.yes {
            return Err(Failure::input(
                "uninstall removes all definitions, conversations, messages and jobs of the broker; say --yes if you mean it",
            ));
        }
        let was_there = uninstall(&globals.db).await?;
        match output.json {
            true => output.result_json(&json!({ "uninstalled": was_there })),
            false => output.result(if was_there { "uninstalled" } else { "nothing to do: no broker is installed" }),
        }
    }
}

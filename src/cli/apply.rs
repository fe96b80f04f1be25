//! `dialoq apply`

use super::deliveries::settle;
use super::failure::Failure;
use super::globals::{Globals, close_after};
use super::output::{Output, printable, printable_name};
use super::waits::naming_the_statement;
use clap::Args;
use dialoq::define::{DefinitionChange, DefinitionChangeKind};
use dialoq::{Broker, Error, Position};
use serde_json::json;
use std::io::{IsTerminal, Read};

/// Apply definitions written in Service Broker's own language.
///
/// The file holds CREATE, ALTER and DROP statements for message types, contracts, queues, services, broker priorities,
/// XML schema collections, event notifications, work queues and work schedules, with GO between batches if you like.
/// All of them are applied, or none: an error names its line and column, and nothing has changed. The database is made
/// if it does not exist; --dry-run then shows what it would get, and makes none.
///
/// With --ensure, only what is missing is made: run twice, it changes nothing the second time. An object that exists but differs
/// is an error, but for its STATUS: what poison handling or an operator has turned off stays off, with a warning. A statement other than
/// CREATE is an error, but for ALTER DATABASE with what stands so already. With --dry-run, what would change is printed as a diff, and nothing
/// is changed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq apply shop.sql
  dialoq apply shop.sql --ensure                 at every start or deployment
  dialoq apply shop.sql --ensure --dry-run       what would that change?
  echo 'ALTER QUEUE orders WITH STATUS = OFF' | dialoq apply -
  dialoq --db sqlite:old.db dump | dialoq --db sqlite:new.db apply -")]
pub(super) struct Apply {
    /// The file with the statements, in UTF-8; - is standard input.
    file: String,
    /// Make what is missing; change nothing else.
    #[arg(long)]
    ensure: bool,
    /// Print what would change; change nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    /// Whether it changes nothing.
    pub(super) fn is_trial(&self) -> bool {
        self.dry_run
    }

    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let file = self.file.clone();
        let script = tokio::task::spawn_blocking(move || read_script(&file))
            .await
            .map_err(|error| Failure::input(error.to_string()))??;
        let broker = match self.dry_run {
            true => globals.open_to_try().await?,
            false => globals.open_or_create().await?,
        };
        let done = match self.dry_run || self.ensure {
            // Neither changes a conversation.
            true => self.apply(&broker, &script).await,
            false => naming_the_statement(&broker, self.name(), &script, output, self.apply(&broker, &script)).await,
        };
        if !self.dry_run && done.as_ref().is_ok_and(|(changes, _)| !changes.is_empty()) {
            settle(&broker, output).await;
        }
        let done = done.map_err(|error| self.located(error, &script));
        let (changes, warnings) = close_after(&broker, done).await?;
        for warning in &warnings {
            if !output.json {
                output.note(&format!("warning: {}", printable(warning)));
            }
        }
        let printed = match output.json {
            true => output.json(&json!({
                if self.dry_run { "would_apply" } else { "applied" }: self.file, "changes": changes, "warnings": warnings,
            })),
            false => output.text(&self.report(&changes)),
        };
        printed.map_err(|failure| if self.dry_run { failure } else { failure.after("done") })
    }

    /// Applies the script, or tries it; gives what it changes, and the warnings.
    async fn apply(&self, broker: &Broker, script: &str) -> dialoq::Result<(Vec<DefinitionChange>, Vec<String>)> {
        // The store may refuse a script that the definitions allow, and allow none that they refuse but for this race: another
        // process has changed them meanwhile. Then the list of changes is that of before.
        let changes = match self.ensure {
            true => broker.preview_ensure(script)?,
            false if self.dry_run => broker.preview(script)?,
            false => broker.preview(script).unwrap_or_default(),
        };
        let warnings = match (self.dry_run, self.ensure) {
            (true, true) => dialoq::internals::preview_warnings(broker, script)?,
            (true, false) => Vec::new(),
            (false, true) => broker.ensure_script(script).await?,
            (false, false) => broker.execute(script).await?,
        };
        Ok((changes, warnings))
    }

    fn report(&self, changes: &[DefinitionChange]) -> String {
        let name = printable_name(self.name());
        if self.dry_run {
            let diff: Vec<String> = changes.iter().map(|change| printable(&change.to_string()).into_owned()).collect();
            return match changes.is_empty() {
                true => format!("{name} would change nothing"),
                false => diff.join("\n"),
            };
        }
        let mut text = String::new();
        for change in changes {
            let done = match change.kind {
                DefinitionChangeKind::Created => "created",
                DefinitionChangeKind::Altered => "altered",
                DefinitionChangeKind::Dropped => "dropped",
            };
            text.push_str(&format!("{done} {}\n", printable_name(&change.object)));
        }
        let nothing = if changes.is_empty() { "; nothing has changed" } else { "" };
        format!("{text}applied {name}{nothing}")
    }

    fn name(&self) -> &str {
        name_of(&self.file)
    }

    fn located(&self, error: Error, script: &str) -> Failure {
        match error.position() {
            Some(position) => {
                let excerpt = excerpt(self.name(), script, position);
                Failure::Script { error, excerpt }
            }
            None => error.into(),
        }
    }
}

/// The name of a file in texts.
fn name_of(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

fn read_script(file: &str) -> Result<String, Failure> {
    let bytes = if file == "-" {
        if std::io::stdin().is_terminal() {
            Output::new(false).note("reading definitions from standard input; ctrl-D ends");
        }
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| Failure::file("read", "standard input", error))?
    } else {
        std::fs::read(file).map_err(|error| Failure::file("read", file, error))?
    };
    let name = name_of(file);
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        Failure::input(format!(
            "'{}' is not UTF-8: line {line} has a byte that cannot be decoded",
            printable_name(name)
        ))
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The line of an error with a caret below its column.
fn excerpt(name: &str, script: &str, position: Position) -> String {
    let Position { line, column } = position;
    let text = script.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default();
    // Of a long line, what surrounds the place; tabs become one blank so that the caret stands right.
    let before = column.saturating_sub(1) as usize;
    let skipped = before.saturating_sub(60);
    let shown: String = text.chars().skip(skipped).take(100).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let shown = shown.trim_end();
    let width = display_width(text.chars().skip(skipped).take(before - skipped));
    let gutter = " ".repeat(line.to_string().len());
    let (name, shown) = (printable_name(name), printable(shown));
    format!("\n{gutter}--> {name}:{line}:{column}\n{gutter} |\n{line} | {shown}\n{gutter} | {}^", " ".repeat(width))
}

/// How many columns of a terminal those characters take: wide ones take two.
fn display_width(characters: impl Iterator<Item = char>) -> usize {
    let wide = |character: char| matches!(character, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1faff}');
    characters.map(|character| 1 + usize::from(wide(character))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_the_place() {
        let script = "CREATE QUEUE a;\n\tCREATE QUEUE [🚚] WIHT;\n";
        let shown = excerpt("shop.sql", script, Position { line: 2, column: 19 });
        let expected = "\n --> shop.sql:2:19\n  |\n2 |  CREATE QUEUE [🚚] WIHT;\n  |                    ^";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_place_at_the_end_of_the_text_has_an_excerpt_too() {
        let shown = excerpt("-", "CREATE", Position { line: 2, column: 1 });
        assert_eq!(shown, "\n --> -:2:1\n  |\n2 | \n  | ^");
        let long = format!("{}X", "a ".repeat(500));
        assert!(excerpt("-", &long, Position { line: 1, column: 1001 }).ends_with(&format!("{}^", " ".repeat(60))));
    }
}

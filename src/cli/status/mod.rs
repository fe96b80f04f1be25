//! `dialoq status`

pub(super) mod show;

use super::failure::Failure;
use super::globals::{Globals, parse_span};
use super::output::Output;
use clap::Args;
use dialoq::Broker;
use dialoq::status::{ConversationFilter, ConversationSide};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Duration;

/// Show queues per level, readers, conversations, what waits to be transmitted, and work queues.
///
/// Reads the tables without owning them, so that it works while another process runs the broker. Of a queue it shows
/// per level how many messages are ready in how many conversation groups, and for how long the oldest has waited; of
/// an activated queue how many readers run, how many may, and each process that runs them with the state of its queue
/// monitor. Of a work queue it shows what `dialoq work list` does. In a terminal what wants a human is red, unless NO_COLOR is
/// set; a narrow one leaves columns out, --json has all.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq status
  dialoq status --conversations  with the handle of each conversation
  dialoq status --watch          again every two seconds, until ctrl-C, which is exit code 0
  dialoq status --json | jq '.queues[] | select(.name == \"orders\")'")]
pub(super) struct Status {
    /// Show it again and again, after each SPAN (such as 500ms or 10s; without it 2s; at least 100ms); with --json, one line each
    /// time. A server that cannot be reached meanwhile is tried again.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, num_args = 0..=1, default_missing_value = "2s")]
    watch: Option<Duration>,
    /// Also each side of a conversation with its handle, the oldest first, at most so many [default: 100].
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    conversations: Option<u32>,
}

/// The sides of conversations.
pub(super) struct Sides {
    sides: Vec<ConversationSide>,
    has_more: bool,
}

/// The status with the sides, as JSON.
#[derive(Serialize)]
struct WithSides<'a> {
    #[serde(flatten)]
    status: &'a dialoq::status::Status,
    sides: &'a [ConversationSide],
}

/// Clears the screen and goes to its upper left corner.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// How many lines the terminal shows.
fn rows() -> Option<usize> {
    #[cfg(unix)]
    let rows = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_row));
    #[cfg(not(unix))]
    let rows = None;
    rows.filter(|rows| *rows > 1)
}

/// As much of the text as the window shows, so that its first line stays; the last line says how much is left out.
fn window(text: &str, rows: Option<usize>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match rows {
        Some(rows) if lines.len() > rows => {
            let shown = rows - 1;
            format!("{}\n... {} more lines", lines[..shown].join("\n"), lines.len() - shown)
        }
        _ => lines.join("\n"),
    }
}

impl Status {
    /// Whether ctrl-C is its ordinary end.
    pub(super) fn is_watch(&self) -> bool {
        self.watch.is_some()
    }

    pub(super) async fn run(&self, globals: &Globals, output: &Output) -> Result<(), Failure> {
        let broker = globals.open_read_only().await?;
        loop {
            match self.read(&broker).await {
                Ok((status, sides)) => self.show(output, &status, sides.as_ref())?,
                // The server may be restarting: it is tried again at the next interval.
                Err(error) if self.is_watch() && error.is_retryable() => {
                    output.warning(&format!("{error}; trying again"))
                }
                Err(error) => return Err(error.into()),
            }
            match self.watch {
                Some(interval) => tokio::time::sleep(interval.max(Duration::from_millis(100))).await,
                None => return Ok(()),
            }
        }
    }

    async fn read(&self, broker: &Broker) -> dialoq::Result<(dialoq::status::Status, Option<Sides>)> {
        let status = broker.status().await?;
        let Some(most) = self.conversations else { return Ok((status, None)) };
        let mut sides = broker.conversations(&ConversationFilter::default(), most + 1).await?;
        let has_more = sides.len() > most as usize;
        sides.truncate(most as usize);
        Ok((status, Some(Sides { sides, has_more })))
    }

    fn show(&self, output: &Output, status: &dialoq::status::Status, sides: Option<&Sides>) -> Result<(), Failure> {
        if output.json {
            return match sides {
                Some(Sides { sides, .. }) => output.json(&WithSides { status, sides }),
                None => output.json(status),
            };
        }
        let text = show::tables(status, sides);
        match self.is_watch() && std::io::stdout().is_terminal() {
            true => output.bytes(format!("{CLEAR}{}", window(&text, rows())).as_bytes()),
            false => output.text(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::window;

    #[test]
    fn a_window_keeps_the_first_line_and_says_what_is_left_out() {
        assert_eq!(window("a\nb\nc\n", Some(3)), "a\nb\nc");
        assert_eq!(window("a\nb\nc\nd\n", Some(3)), "a\nb\n... 2 more lines");
        assert_eq!(window("a\nb", None), "a\nb");
    }
}

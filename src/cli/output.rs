//! What goes to standard output and standard error.

mod writer;

use super::failure::Failure;
use super::interrupt::Interrupt;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use dialoq::internals::store::url::redacted_in;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;
use writer::Writer;

/// Where results go, and in which form.
#[derive(Debug)]
pub(super) struct Output {
    /// JSON for programs instead of tables for people.
    pub(super) json: bool,
    /// Once a stop can be requested.
    writer: OnceLock<Writer>,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json, writer: OnceLock::new() }
    }

    /// From now on a stop ends a write whose reader does not read.
    pub(super) fn stops_by(&self, interrupt: &Interrupt) -> Result<(), Failure> {
        let _ = self.writer.set(Writer::start(interrupt.clone())?);
        Ok(())
    }

    /// Writes bytes as they are, at once.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match self.writer.get() {
            Some(writer) => writer.write(bytes).ok_or(Failure::NotRead)?,
            None => writer::write(bytes),
        };
        written.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::unwritten(error),
        })
    }

    /// Writes a text and a line end.
    pub(super) fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Writes one line of JSON.
    pub(super) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(value).map_err(|error| Failure::input(error.to_string()))?;
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Writes the result of a change as a text; where that fails, the change is done all the same.
    pub(super) fn result(&self, text: &str) -> Result<(), Failure> {
        self.text(text).map_err(|failure| failure.after("done"))
    }

    /// The same as one line of JSON.
    pub(super) fn result_json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.json(value).map_err(|failure| failure.after("done"))
    }

    /// Writes a note to standard error, without the passwords of the command line; if standard error is closed, nothing.
    pub(super) fn note(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", without_passwords(text));
    }

    /// Writes a warning to standard error, in the form that was asked for.
    pub(super) fn warning(&self, text: &str) {
        match self.json {
            true => self.note(&serde_json::json!({ "warning": text }).to_string()),
            false => self.note(&format!("warning: {}", printable(text))),
        }
    }

    /// A counter on standard error while long work runs; nothing unless that is a terminal.
    pub(super) fn spinner(&self, template: &str) -> ProgressBar {
        self.bar(ProgressBar::new_spinner(), template)
    }

    /// A bar on standard error while long work runs; nothing unless that is a terminal.
    pub(super) fn progress(&self, steps: u64, template: &str) -> ProgressBar {
        self.bar(ProgressBar::new(steps), template)
    }

    fn bar(&self, bar: ProgressBar, template: &str) -> ProgressBar {
        if self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }
}

/// Returns once standard output has no reader any more, where the system says it.
pub(super) async fn reader_has_gone() {
    #[cfg(unix)]
    {
        let (gone, has_gone) = tokio::sync::oneshot::channel();
        let watching = std::thread::Builder::new().spawn(move || {
            use rustix::event::{PollFd, PollFlags, poll};
            let stdout = io::stdout();
            loop {
                let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
                match poll(&mut watched, None) {
                    Err(rustix::io::Errno::INTR) => {}
                    Ok(_) if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
                        let _ = gone.send(());
                        return;
                    }
                    Ok(_) | Err(_) => return,
                }
            }
        });
        if watching.is_ok() && has_gone.await.is_ok() {
            return;
        }
    }
    std::future::pending().await
}

/// The text without the passwords of those words of the command line that it repeats, as they are or as they are escaped
/// for a terminal or in JSON.
pub(super) fn without_passwords(text: &str) -> String {
    let in_json = |word: &str| {
        let quoted = serde_json::Value::from(word).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let spellings = |word: OsString| {
        let word = word.to_string_lossy();
        let (shown, named) = (printable(&word).into_owned(), printable_name(&word).into_owned());
        [in_json(&word), in_json(&named), named, shown, word.into_owned()]
    };
    redacted_in(text, std::env::args_os().skip(1).flat_map(spellings))
}

/// A table with these headings; headings that begin with `#` are numbers and stand to the right.
pub(super) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if Table::new().width() == Some(0) {
        // A terminal that does not know its size; a table without room has columns of one character.
        table.set_width(u16::MAX);
    }
    table.set_header(headings.iter().map(|heading| heading.trim_start_matches('#')));
    for (index, heading) in headings.iter().enumerate() {
        if let Some(column) = table.column_mut(index).filter(|_| heading.starts_with('#')) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Whether colours are wanted on standard output.
pub(super) fn is_coloured() -> bool {
    takes_colours(&io::stdout())
}

/// Whether colours are wanted: it is a terminal that is not `TERM=dumb`, and NO_COLOR is not set.
pub(super) fn takes_colours(stream: &impl IsTerminal) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_dumb && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// A cell, red in a terminal if it wants a human.
pub(super) fn marked(text: String, wants_a_human: bool) -> Cell {
    let cell = Cell::new(text);
    if wants_a_human && is_coloured() { cell.fg(Color::Red) } else { cell }
}

/// A table that breaks no word: in a narrow terminal it leaves columns out, the first of `spare` first. The columns have the
/// places of their headings.
pub(super) fn fitting(headings: &[&str], spare: &[usize], rows: &[Vec<Cell>]) -> Table {
    fitting_at(width(), headings, spare, rows)
}

/// The same; in a terminal the texts of the last column have one line each, and end where the terminal does.
pub(super) fn fitting_with_text(headings: &[&str], spare: &[usize], rows: Vec<Vec<String>>) -> Table {
    fitting_with_text_at(width(), headings, spare, rows)
}

/// The least width of the last column before another one is left out for it.
const LEAST_TEXT: usize = 12;

fn fitting_with_text_at(width: Option<u16>, headings: &[&str], spare: &[usize], mut rows: Vec<Vec<String>>) -> Table {
    let Some(room) = width else {
        let rows: Vec<Vec<Cell>> = rows.into_iter().map(|row| row.into_iter().map(Cell::new).collect()).collect();
        return fitting_at(None, headings, spare, &rows);
    };
    let last = headings.len() - 1;
    let natural = |column: usize, rows: &[Vec<String>]| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        widest.max(headings[column].trim_start_matches('#').chars().count())
    };
    for row in &mut rows {
        row[last] = printable_name(&row[last]).into_owned();
    }
    let least = natural(last, &rows).min(LEAST_TEXT.max(headings[last].chars().count()));
    let mut others: Vec<usize> = (0..last).collect();
    let room_beside = |others: &[usize]| {
        let taken: usize = others.iter().map(|column| natural(*column, &rows) + 3).sum();
        usize::from(room).saturating_sub(taken + 4)
    };
    for left_out in spare {
        if room_beside(&others) >= least {
            break;
        }
        others.retain(|column| column != left_out);
    }
    let text_room = room_beside(&others).max(least);
    for row in &mut rows {
        if let Some((end, _)) = row[last].char_indices().nth(text_room) {
            let end = row[last][..end].char_indices().next_back().map_or(0, |(before, _)| before);
            row[last].truncate(end);
            row[last].push('…');
        }
    }
    let shown: Vec<usize> = others.into_iter().chain([last]).collect();
    let headings: Vec<&str> = shown.iter().map(|column| headings[*column]).collect();
    let rows: Vec<Vec<Cell>> =
        rows.iter().map(|row| shown.iter().map(|column| Cell::new(&row[*column])).collect()).collect();
    fitting_at(Some(room), &headings, &[], &rows)
}

fn fitting_at(width: Option<u16>, headings: &[&str], spare: &[usize], rows: &[Vec<Cell>]) -> Table {
    let width_of = |cell: &Cell| cell.content().lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let natural = |column: usize| {
        let widest = rows.iter().filter_map(|row| row.get(column)).map(width_of).max().unwrap_or(0);
        widest.max(headings[column].trim_start_matches('#').chars().count()) + 3
    };
    let mut shown: Vec<usize> = (0..headings.len()).collect();
    if let Some(room) = width {
        for left_out in spare {
            if shown.iter().map(|column| natural(*column)).sum::<usize>() < usize::from(room) {
                break;
            }
            shown.retain(|column| column != left_out);
        }
    }
    let mut fitted = table(&shown.iter().map(|column| headings[*column]).collect::<Vec<_>>());
    for row in rows {
        fitted.add_row(shown.iter().filter_map(|column| row.get(*column).cloned()).collect::<Vec<_>>());
    }
    fitted
}

/// The columns of the terminal; `None` if standard output is none, or one that does not know its size.
fn width() -> Option<u16> {
    Table::new().width().filter(|columns| *columns > 0)
}

/// The same table, wrapped also where no terminal says how wide it may be.
pub(super) fn wrapped(mut table: Table) -> Table {
    if width().is_none() {
        table.set_width(120);
    }
    table
}

/// The text with its lines broken between words, if standard output is a terminal and they are wider.
pub(super) fn folded(text: &str) -> String {
    width().map_or_else(|| text.to_owned(), |width| folded_at(text, usize::from(width)))
}

fn folded_at(text: &str, width: usize) -> String {
    let mut folded = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            folded.push('\n');
        }
        let mut column = 0;
        for word in line.split_inclusive(' ') {
            // The space after a word may hang over.
            let length = word.trim_end().chars().count();
            if column > 0 && column + length > width {
                folded.truncate(folded.trim_end_matches(' ').len());
                folded.push_str("\n  ");
                column = 2;
            }
            folded.push_str(word);
            column += word.chars().count();
        }
    }
    folded
}

/// A text that cannot move the cursor, colour the terminal or hide itself: control characters are escaped, line ends
/// and tabs kept.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    let is_safe = |character: char| matches!(character, '\n' | '\t') || !is_hostile(character);
    if text.chars().all(is_safe) {
        return text.into();
    }
    text.chars()
        .fold(String::with_capacity(text.len()), |mut safe, character| {
            if is_safe(character) {
                safe.push(character)
            } else {
                safe.extend(character.escape_unicode())
            }
            safe
        })
        .into()
}

/// The same for a name or a path, which has one line: line ends and tabs are escaped too.
pub(super) fn printable_name(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\t']) {
        true => printable(text).replace('\n', "\\n").replace('\t', "\\t").into(),
        false => printable(text),
    }
}

fn is_hostile(character: char) -> bool {
    // Besides control characters, those that change the direction of the text around them, line ends of Unicode, and two that are not seen:
    // a line was refused for a byte-order mark and looked right.
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// The beginning of a long text, with its full length.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
    }
}

/// A number of things whose name takes an s.
pub(super) fn counted(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// A time span for people: `340 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_characters_are_shown_not_obeyed() {
        assert_eq!(printable("a 🚚\n\tb"), "a 🚚\n\tb");
        assert_eq!(printable("\u{200f}\u{61c}\u{2028}"), r"\u{200f}\u{61c}\u{2028}");
        assert_eq!(printable_name("a\nerror[1]: \tb\u{1b}"), r"a\nerror[1]: \tb\u{1b}");
        assert_eq!(printable("\u{1b}]0;x\u{7}\r\u{9b}\u{202e}"), r"\u{1b}]0;x\u{7}\u{d}\u{9b}\u{202e}");
    }

    #[test]
    fn long_texts_end_early_but_between_characters() {
        assert_eq!(shortened("🚚🚚🚚", 3), "🚚🚚🚚");
        assert_eq!(shortened("🚚🚚🚚🚚", 3), "🚚🚚🚚… (4 characters)");
    }

    #[test]
    fn a_table_fits_its_terminal_and_breaks_no_word() {
        let headings = ["#seq", "arrived", "state", "#bytes", "body"];
        let row = |seq: &str, body: &str| {
            [seq, "2026-01-01T00:00:00.000Z", "waits", "1234", body].map(str::to_owned).to_vec()
        };
        let long = "{\"sku\":\"A-1\",\"note\":\"long enough\"}";
        let of = |width: u16, body: &str| {
            let table = fitting_with_text_at(Some(width), &headings, &[3, 1], vec![row("0", body), row("1", "x\ny")]);
            table.to_string()
        };
        for width in [40, 60, 64, 80, 120] {
            let shown = of(width, long);
            let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(width), "{width}: {widest}\n{shown}");
            assert_eq!(shown.lines().count(), 6, "one line a row at {width}:\n{shown}");
            assert!(shown.contains("{\"sku\":\"A-1") && shown.contains("x\\ny"), "{shown}");
        }
        assert!(of(120, long).contains(long) && of(120, long).contains("bytes"), "{}", of(120, long));
        assert!(of(64, long).contains('…') && !of(64, long).contains("bytes"), "{}", of(64, long));
        assert!(of(60, long).contains("arrived") && !of(40, long).contains("arrived"), "{}", of(60, long));
        let whole = fitting_with_text_at(None, &headings, &[3, 1], vec![row("0", &long.repeat(9))]).to_string();
        assert!(whole.contains(&long.repeat(9)), "a file has no width: {whole}");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(folded_at("one two three", 7), "one two\n  three");
        assert_eq!(folded_at("one\ntwo three", 9), "one\ntwo three");
        assert_eq!(folded_at("a-long-word and more", 4), "a-long-word\n  and\n  more");
        assert_eq!(folded_at("", 4), "");
    }

    #[test]
    fn spans_read_well() {
        let texts = [0, 59, 61, 3_660, 90_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(texts, ["0 ms", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }
}

//! Collects the texts of `sql/` by folder: `sql/postgres/read/broker.sql` becomes `crate::sql::postgres::read::BROKER`.
//!
//! Each folder also has `SCRIPTS`, its files in the order of their names. So no file is listed by hand. The texts of
//! `bench` are for the command, so they go into a file of their own: `sql/postgres/bench/sizes.sql` becomes
//! `crate::bench::sql::postgres::SIZES`.
//!
//! A line `-- <each routine of dialoq_user> ... NAME ...` is repeated, without its mark, for every routine whose file says
//! `-- Called by: dialoq_user`. `<each routine>` means those of both roles, `<each table>`, `<each view>` and `<each function>` all
//! that the scripts of the dialect make. So a right stands in the file of the routine, and nowhere else. `TEXT` in such a line is the
//! comment above the routine, up to what it takes. `(client)` in it is left out for the routines whose file says `-- For: plain SQL`:
//! people call these too.
//!
//! T-SQL has no way to share the beginning of a procedure, and PL/pgSQL none to share a part of a statement that costs nothing at
//! each call. So a line `-- <name>` of a script in `sql/<dialect>/{rules,verbs}` becomes the text of `sql/<dialect>/parts/name.sql`:
//! see [`Dialect::fill`].

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders whose texts are sent to a database again and again: they go without the comment at their top.
const SENT_OFTEN: [&str; 3] = ["client", "session", "transaction"];
/// The folder of each dialect that only the command uses.
const BENCH: &str = "bench";
/// The folder of a dialect with texts that stand in many scripts, and the folders whose scripts name them.
const PARTS: &str = "parts";
const WITH_PARTS: [&str; 2] = ["rules", "verbs"];
/// What stands before the name of each table, view and function in the script that makes it. Scripts of the schema are never
/// changed, so tables of earlier versions are among these.
const MADE: [(&str, &str); 6] = [
    ("table", "CREATE TABLE dialoq."),
    ("table", "CREATE UNLOGGED TABLE dialoq."),
    ("table", " RENAME TO "),
    ("view", "CREATE VIEW dialoq."),
    ("function", "CREATE FUNCTION dialoq."),
    ("function", "CREATE OR REPLACE FUNCTION dialoq."),
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=sql");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the package's folder"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder for what is made"));
    let (mut library, mut bench) = (String::new(), String::new());
    for dialect in sorted(&root.join("sql"))?.into_iter().filter(|path| path.is_dir()) {
        let mut texts = Dialect { each: Each::default(), parts: parts(&dialect.join(PARTS))? };
        texts.each.read(&dialect)?;
        texts.module(&mut library, &dialect, "", &out.join(name(&dialect)))?;
        let _ = writeln!(bench, "pub(super) mod {} {{", name(&dialect));
        for path in sorted(&dialect.join(BENCH))? {
            let constant = name(&path).trim_end_matches(".sql").to_uppercase();
            let _ = writeln!(bench, "pub(in crate::bench) const {constant}: &str = include_str!({path:?});");
        }
        bench.push_str("}\n");
    }
    fs::write(out.join("sql.rs"), library)?;
    fs::write(out.join("bench_sql.rs"), bench)
}

/// The names for which a marked line is repeated.
#[derive(Default)]
struct Each {
    /// By the mark.
    names: BTreeMap<String, BTreeSet<String>>,
    /// The comment above each routine.
    texts: BTreeMap<String, String>,
    /// The routines that people call in plain SQL; a client calls the others.
    plain: BTreeSet<String>,
}

impl Each {
    fn read(&mut self, folder: &Path) -> io::Result<()> {
        for path in sorted(folder)?.into_iter().filter(|path| name(path) != BENCH) {
            if path.is_dir() {
                self.read(&path)?;
                continue;
            }
            let text = fs::read_to_string(&path)?;
            for (mark, before) in MADE {
                for rest in text.split(before).skip(1) {
                    let made = rest.split(|of: char| !of.is_alphanumeric() && of != '_').next().unwrap_or_default();
                    self.add(mark, made);
                }
            }
            if let Some((role, routines)) = header(&text, "Called by", &path) {
                for routine in routines {
                    self.add(&format!("routine of {role}"), routine);
                    self.add("routine", routine);
                    self.texts.insert(routine.to_owned(), comment_above(&text, routine));
                }
            }
            if let Some(("plain SQL", routines)) = header(&text, "For", &path) {
                self.plain.extend(routines.into_iter().map(str::to_owned));
            }
        }
        Ok(())
    }

    fn add(&mut self, mark: &str, name: &str) {
        self.names.entry(mark.to_owned()).or_default().insert(name.to_owned());
    }

    /// The text with its marked lines repeated, if it has any.
    fn repeat(&self, text: &str) -> Option<String> {
        if !text.contains("-- <each ") {
            return None;
        }
        let mut done = String::new();
        for line in text.lines() {
            let marked = line.trim_start().strip_prefix("-- <each ").and_then(|rest| rest.split_once("> "));
            let Some((mark, pattern)) = marked else {
                done.extend([line, "\n"]);
                continue;
            };
            let names = self.names.get(mark).unwrap_or_else(|| panic!("no file is marked for <each {mark}>"));
            for name in names {
                let text = self.texts.get(name).map_or("", String::as_str).replace('\'', "''");
                let pattern = match self.plain.contains(name) {
                    true => pattern.replace("(client) ", ""),
                    false => pattern.to_owned(),
                };
                done.extend([indent(line), &pattern.replace("NAME", name).replace("TEXT", &text), "\n"]);
            }
        }
        Some(done)
    }
}

/// The line `-- MARK: WORDS (NAMES)` of a script: its words, and the names, which are that of the file if there are none.
fn header<'t>(text: &'t str, mark: &str, path: &'t Path) -> Option<(&'t str, Vec<&'t str>)> {
    let (_, rest) = text.split_once(&format!("-- {mark}: "))?;
    let line = rest.lines().next().unwrap_or_default();
    let Some((words, _)) = line.split_once(" (") else {
        return Some((line, vec![name(path).trim_end_matches(".sql")]));
    };
    let names = rest.split_once('(').unwrap_or_default().1.split(')').next().unwrap_or_default();
    let names = names.split(|of: char| !of.is_alphanumeric() && of != '_').filter(|name| !name.is_empty());
    Some((words, names.collect()))
}

/// The comment above a routine, up to what it takes.
fn comment_above(text: &str, routine: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let made = ["FUNCTION", "PROCEDURE"].map(|kind| format!("{kind} dialoq.{routine}"));
    let is_made = |line: &&str| {
        line.starts_with("CREATE")
            && made
                .iter()
                .filter_map(|made| line.split_once(made.as_str()))
                .any(|(_, rest)| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    };
    let place = lines.iter().position(is_made).unwrap_or(0);
    let above = lines[..place].iter().rev().take_while(|line| line.starts_with("--")).count();
    // A routine without a comment has that of its file.
    let start = if above == 0 { 0 } else { place - above };
    let comment = lines[start..].iter().take_while(|line| line.starts_with("--"));
    let ends = ["Takes:", "Takes,", "Gives:", "Errors:", "Locks:", "For:", "Called by:"];
    let told = comment
        .map(|line| line.trim_start_matches('-').trim())
        .take_while(|line| !ends.iter().any(|end| line.starts_with(end)));
    told.collect::<Vec<_>>().join(" ")
}

/// What the scripts of a dialect share.
struct Dialect {
    each: Each,
    /// Texts of `parts` by name, without their headers.
    parts: BTreeMap<String, String>,
}

impl Dialect {
    /// The module of a folder: a constant for each file, `SCRIPTS`, and a module for each folder in it. Texts that differ from
    /// their files are written to the folder `out`.
    fn module(&self, code: &mut String, folder: &Path, below: &str, out: &Path) -> io::Result<()> {
        let _ = writeln!(code, "pub(crate) mod {} {{", name(folder));
        let mut scripts = String::new();
        fs::create_dir_all(out)?;
        for path in sorted(folder)?.into_iter().filter(|path| ![BENCH, PARTS].contains(&name(path))) {
            if path.is_dir() {
                self.module(code, &path, &format!("{below}{}/", name(&path)), &out.join(name(&path)))?;
            } else if path.extension().is_some_and(|extension| extension == "sql") {
                let file = format!("{below}{}", name(&path));
                let stem = name(&path).trim_end_matches(".sql").to_owned();
                let constant = stem.to_uppercase();
                let text = fs::read_to_string(&path)?;
                let mut made = self.each.repeat(&text).unwrap_or_else(|| text.clone());
                if SENT_OFTEN.contains(&name(folder)) {
                    made = without_header(&made).to_owned();
                }
                if WITH_PARTS.contains(&name(folder)) && !self.parts.is_empty() {
                    made = self.fill(&made);
                }
                let text = if made == text {
                    path
                } else {
                    let copy = out.join(name(&path));
                    fs::write(&copy, made)?;
                    copy
                };
                // A script that begins with its number has no constant: it is never asked for by name.
                if stem.starts_with(|first: char| first.is_ascii_digit()) {
                    let _ = writeln!(scripts, "    Script {{ name: {file:?}, text: include_str!({text:?}) }},");
                } else {
                    let _ = writeln!(code, "pub(crate) const {constant}: &str = include_str!({text:?});");
                    let _ = writeln!(scripts, "    Script {{ name: {file:?}, text: {constant} }},");
                }
            }
        }
        let _ = writeln!(code, "pub(crate) const SCRIPTS: &[Script] = &[\n{scripts}];\nuse crate::sql::Script;\n}}");
        Ok(())
    }

    /// The text with its parts. The line `-- <name>` becomes the part of that name, which may name others. If the part has the
    /// line `-- <body>`, the lines of the text up to `-- </name>` take its place.
    fn fill(&self, text: &str) -> String {
        let mut made = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(named) = line.trim_start().strip_prefix("-- <").and_then(|rest| rest.strip_suffix('>')) else {
                made.extend([line, "\n"]);
                continue;
            };
            let part = self.parts.get(named).unwrap_or_else(|| panic!("no part is named {named}:\n{text}"));
            let mut section = String::new();
            for inner in part.lines() {
                if inner.trim() != "-- <body>" {
                    push(&mut section, indent(line), inner);
                    continue;
                }
                loop {
                    let body = lines.next().unwrap_or_else(|| panic!("-- </{named}> is missing:\n{text}"));
                    if body.trim() == format!("-- </{named}>") {
                        break;
                    }
                    push(&mut section, indent(inner), body);
                }
            }
            made.push_str(&self.fill(&section));
        }
        made
    }
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

fn push(text: &mut String, indent: &str, line: &str) {
    text.extend([if line.is_empty() { "" } else { indent }, line, "\n"]);
}

fn parts(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    if !folder.exists() {
        return Ok(BTreeMap::new());
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path)?;
        Ok((name(&path).trim_end_matches(".sql").to_owned(), without_header(&text).to_owned()))
    };
    sorted(folder)?.into_iter().map(read).collect()
}

fn without_header(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with("--") && !rest.starts_with("-- <") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest.trim()
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("names are plain")
}

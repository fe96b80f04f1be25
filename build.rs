//! Collects the texts of `sql/` by folder: `sql/postgres/read/broker.sql` becomes `crate::sql::postgres::read::BROKER`.
//!
//! Each folder also has `SCRIPTS`, its files in the order of their names. So no file is listed by hand. The texts of
//! `bench` are for the command, so they go into a file of their own: `sql/postgres/bench/sizes.sql` becomes
//! `crate::bench::sql::postgres::SIZES`.
//!
//! A line `-- <each routine of dialoq_user> ... NAME ...` is repeated, without its mark, for every routine whose file says
//! `-- Called by: dialoq_user`. `<each routine>` means those of both roles, `<each view>` every view of the dialect. So a right
//! stands in the file of the routine, and nowhere else.

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

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=sql");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the package's folder"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder for what is made"));
    let (mut library, mut bench) = (String::new(), String::new());
    for dialect in sorted(&root.join("sql"))?.into_iter().filter(|path| path.is_dir()) {
        let mut each = Each::default();
        each.read(&dialect)?;
        module(&mut library, &dialect, name(&dialect), "", &each, &out)?;
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

/// The names for which a marked line is repeated, by the mark.
#[derive(Default)]
struct Each(BTreeMap<String, BTreeSet<String>>);

impl Each {
    fn read(&mut self, folder: &Path) -> io::Result<()> {
        for path in sorted(folder)? {
            if path.is_dir() {
                self.read(&path)?;
                continue;
            }
            let text = fs::read_to_string(&path)?;
            for rest in text.split("CREATE VIEW dialoq.").skip(1) {
                let view = rest.split(|of: char| !of.is_alphanumeric() && of != '_').next().unwrap_or_default();
                self.add("view", view);
            }
            if let Some((_, called_by)) = text.split_once("-- Called by: ") {
                let (role, routines) =
                    called_by.split_once('\n').map_or((called_by, ""), |(role, _)| match role.split_once(" (") {
                        Some((role, _)) => (
                            role,
                            called_by.split_once('(').unwrap_or_default().1.split(')').next().unwrap_or_default(),
                        ),
                        None => (role, name(&path).trim_end_matches(".sql")),
                    });
                for routine in
                    routines.split(|of: char| !of.is_alphanumeric() && of != '_').filter(|name| !name.is_empty())
                {
                    self.add(&format!("routine of {role}"), routine);
                    self.add("routine", routine);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, mark: &str, name: &str) {
        self.0.entry(mark.to_owned()).or_default().insert(name.to_owned());
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
            let names = self.0.get(mark).unwrap_or_else(|| panic!("no file is marked for <each {mark}>"));
            let indent = &line[..line.len() - line.trim_start().len()];
            for name in names {
                done.extend([indent, &pattern.replace("NAME", name), "\n"]);
            }
        }
        Some(done)
    }
}

/// The module of a folder: a constant for each file, `SCRIPTS`, and a module for each folder in it.
fn module(code: &mut String, folder: &Path, dialect: &str, below: &str, each: &Each, out: &Path) -> io::Result<()> {
    let _ = writeln!(code, "pub(crate) mod {} {{", name(folder));
    let mut scripts = String::new();
    for path in sorted(folder)?.into_iter().filter(|path| name(path) != BENCH) {
        if path.is_dir() {
            module(code, &path, dialect, &format!("{below}{}/", name(&path)), each, out)?;
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            let file = format!("{below}{}", name(&path));
            let stem = name(&path).trim_end_matches(".sql").to_owned();
            let constant = stem.to_uppercase();
            let text = fs::read_to_string(&path)?;
            let made = match each.repeat(&text) {
                None if SENT_OFTEN.contains(&name(folder)) => Some(without_header(&text).to_owned()),
                repeated => repeated,
            };
            let text = match made {
                Some(made) => {
                    let copy = out.join(format!("{dialect}_{}", file.replace('/', "_")));
                    fs::write(&copy, made)?;
                    copy
                }
                None => path,
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

fn without_header(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with("--") {
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

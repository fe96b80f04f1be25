//! Collects the texts of `sql/` by folder: `sql/postgres/read/broker.sql` becomes `crate::sql::postgres::read::BROKER`.
//!
//! Each folder also has `SCRIPTS`, its files in the order of their names. So no file is listed by hand. The texts of
//! `bench` are for the command, so they go into a file of their own: `sql/postgres/bench/sizes.sql` becomes
//! `crate::bench::sql::postgres::SIZES`.

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
        module(&mut library, &dialect, name(&dialect), "", &out)?;
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

/// The module of a folder: a constant for each file, `SCRIPTS`, and a module for each folder in it.
fn module(code: &mut String, folder: &Path, dialect: &str, below: &str, out: &Path) -> io::Result<()> {
    let _ = writeln!(code, "pub(crate) mod {} {{", name(folder));
    let mut scripts = String::new();
    for path in sorted(folder)?.into_iter().filter(|path| name(path) != BENCH) {
        if path.is_dir() {
            module(code, &path, dialect, &format!("{below}{}/", name(&path)), out)?;
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            let file = format!("{below}{}", name(&path));
            let stem = name(&path).trim_end_matches(".sql").to_owned();
            let constant = stem.to_uppercase();
            let text = if SENT_OFTEN.contains(&name(folder)) {
                let bare = out.join(format!("{dialect}_{}", file.replace('/', "_")));
                fs::write(&bare, without_header(&fs::read_to_string(&path)?))?;
                bare
            } else {
                path
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

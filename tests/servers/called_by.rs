//! The roles that may call a routine: its file says `-- Called by: ROLE`, with the names in brackets if it makes several.

use std::collections::BTreeSet;
use std::fs;

/// The routines of a dialect that members of a role may call, by the files of `sql/<dialect>`.
pub(crate) fn called_by(dialect: &str, role: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in ["rules", "verbs"] {
        for entry in fs::read_dir(format!("{}/sql/{dialect}/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let Some((_, mark)) = text.split_once(&format!("-- Called by: {role}")) else { continue };
            match mark.strip_prefix(" (").and_then(|list| list.split_once(')')) {
                Some((list, _)) => {
                    found.extend(list.split(',').map(|name| name.trim_matches([' ', '\n', '-']).to_owned()));
                }
                None => _ = found.insert(path.file_stem().unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found
}

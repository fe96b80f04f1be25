//! `docs/troubleshooting.md` is the one table of error numbers: each number that Dialoq raises has one row there.

use crate::source::{files, root};
use dialoq::Code;
use std::collections::BTreeMap;
use std::fs;

/// The numbers in the first cells of the tables of a text.
fn numbers(text: &str) -> Vec<u16> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells
        .flat_map(|cell| cell.split(", ").map(str::parse::<u16>).collect::<Result<Vec<_>, _>>().unwrap_or_default())
        .collect()
}

#[test]
fn each_error_number_has_one_row() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let (_, table) = page.split_once("\n## Error numbers\n").expect("the section of error numbers");
    let mut rows: BTreeMap<u16, usize> = Code::ALL.iter().map(|(code, _)| (code.0, 0)).collect();
    for number in numbers(table) {
        *rows.entry(number).or_default() += 1;
    }
    rows.retain(|_, times| *times != 1);
    assert!(rows.is_empty(), "these numbers do not have one row each in docs/troubleshooting.md: {rows:?}");
}

/// Two tables contradicted each other in what 60010 and 60041 ask for.
#[test]
fn no_other_page_has_a_table_of_error_numbers() {
    let mut found = Vec::new();
    for file in files(&root().join("docs"), "md") {
        let page = crate::shown(&file);
        let rows = numbers(&fs::read_to_string(&file).unwrap());
        let own = rows.iter().filter(|row| **row > 60_000 && Code::ALL.iter().any(|(code, _)| code.0 == **row)).count();
        if page != "docs/troubleshooting.md" && own > 0 {
            found.push(format!("{page}: {own} rows"));
        }
    }
    assert!(found.is_empty(), "a row of an error number belongs into docs/troubleshooting.md: {found:#?}");
}

#[test]
fn numbers_are_read_from_first_cells() {
    assert_eq!(
        numbers("| 8432, 8434 | one side only | 60001 |\n| number | x |\n|---|\n| 60010 | owned |"),
        [8432, 8434, 60_010]
    );
}

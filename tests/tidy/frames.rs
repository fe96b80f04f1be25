//! Processes of two versions must not take each other's frames for their own: a change of the types in them is a new version.

use super::source::{files, lex, root};
use std::fs;
use std::path::PathBuf;

const FRAMES: &str = "src/store/sqlite/share/frame.rs";
const KNOWN: &str = "tests/tidy/frames.txt";

/// The text of each type that can be in a frame, without comments and spaces, in the order of the files.
fn types() -> Vec<String> {
    let mut sources: Vec<PathBuf> = files(&root().join("src/protocol"), "rs");
    sources.extend(["src/id.rs", "src/time.rs", FRAMES].map(|file| root().join(file)));
    sources.sort();
    sources.iter().flat_map(|file| types_of(&fs::read_to_string(file).unwrap())).collect()
}

fn types_of(source: &str) -> Vec<String> {
    let (code, _) = lex(source);
    let derived = code.split("#[derive(").skip(1);
    let wired = derived.filter(|rest| rest.split(')').next().unwrap_or_default().contains("Deserialize"));
    wired.map(|rest| item(rest.split_once(")]").unwrap_or_default().1)).collect()
}

/// The first item of a text: up to the end of its braces, or to a semicolon before them.
fn item(text: &str) -> String {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, letter)| {
        depth += i32::from(*letter == '{') - i32::from(*letter == '}');
        depth == 0 && (*letter == '}' || *letter == ';')
    });
    let text = &text[..end.map_or(text.len(), |(place, _)| place + 1)];
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

/// FNV-1a: the same on every machine and in every version of the toolchain.
fn hash(types: &[String]) -> u64 {
    let bytes = types.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Between two commits of 2026-11-23 a step of a transaction got a field, and the version stayed 6.
#[test]
fn a_change_of_a_type_in_a_frame_is_a_new_version_of_the_frames() {
    let frames = fs::read_to_string(root().join(FRAMES)).unwrap();
    let version = frames.split_once("const VERSION: u32 = ").and_then(|(_, rest)| rest.split(';').next()).unwrap();
    let found = types();
    assert!(found.len() > 40, "the types of the frames have moved: only {} were found", found.len());
    let now = format!("{version} {:016x}\n", hash(&found));
    let known = fs::read_to_string(root().join(KNOWN)).unwrap_or_default();
    if now == known {
        return;
    }
    let is_new = known.split(' ').next() != Some(version);
    assert!(is_new, "a type in a frame has changed; raise VERSION in {FRAMES}, then run this test with DIALOQ_BLESS=1");
    assert!(std::env::var_os("DIALOQ_BLESS").is_some(), "{KNOWN} is of another version; DIALOQ_BLESS=1 writes it");
    fs::write(root().join(KNOWN), now).unwrap();
}

#[test]
fn fields_variants_and_attributes_are_seen_and_comments_are_not() {
    let one = "/// A.\n#[derive(Debug, Serialize, Deserialize)]\npub enum E { A, B { c: u8 } }\nfn f() {}";
    assert_eq!(types_of(one), ["pubenumE{A,B{c:u8}}"]);
    let unit =
        "#[derive(Serialize, Deserialize)] #[serde(transparent)] pub struct I(pub u64);\n#[derive(Debug)] struct N {}";
    assert_eq!(types_of(unit), ["#[serde(transparent)]pubstructI(pubu64);"]);
    assert_ne!(hash(&types_of(one)), hash(&types_of(&one.replace("u8", "u16"))));
}

//! Every link of a page to a page of ours leads to a file and a heading that exist.

use crate::source::{files, root};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut pages = files(&root().join("docs"), "md");
    pages.extend(files(&root().join("examples"), "md"));
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(top.filter(|path| path.extension().is_some_and(|found| found == "md")));
    let texts: HashMap<PathBuf, String> = pages.into_iter().map(|page| (whole(&page), prose(&page))).collect();
    let mut links = 0;
    let mut lost = Vec::new();
    for (page, text) in &texts {
        for link in targets(text) {
            links += 1;
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { whole(&page.parent().unwrap().join(path)) };
            let leads = match texts.get(&target) {
                Some(text) => heading.is_empty() || headings(text).contains(heading),
                None => target.exists(),
            };
            if !leads {
                lost.push(format!("{}: {link}", page.strip_prefix(whole(&root())).unwrap().display()));
            }
        }
    }
    lost.sort();
    assert!(links > 300, "{links} links: the pages have moved, or are not understood");
    assert!(lost.is_empty(), "these links lead nowhere: {lost:#?}");
}

/// The path without `..`; as it is if there is no such file.
fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The text of a page without its blocks of code.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    text.split("```").step_by(2).collect()
}

/// Where the links of a page lead, but for those to other sites.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(' ') && !target.contains('`'))
}

/// The anchors of the headings, as the usual web pages for repositories name them.
fn headings(text: &str) -> HashSet<String> {
    let mut times: HashMap<String, usize> = HashMap::new();
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|of| of.is_alphanumeric() || " -_".contains(*of));
            let name: String = kept.map(|of| if of == ' ' { '-' } else { of }).collect();
            let before = times.entry(name.clone()).or_default();
            *before += 1;
            if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
        })
        .collect()
}

//! A page of rustdoc's, as text.

use std::collections::BTreeSet;

pub(crate) struct Page(String);

impl Page {
    pub(crate) fn new(html: String) -> Self {
        Self(html)
    }

    /// The pages of all items, from the page that lists them: `act/struct.Answer.html`.
    pub(crate) fn items(&self) -> BTreeSet<String> {
        let links = between(&self.0, "<li><a href=\"", "\"");
        links.into_iter().filter(|link| link.ends_with(".html")).map(str::to_owned).collect()
    }

    /// The re-exports of a module.
    pub(crate) fn re_exports(&self) -> Vec<String> {
        between(&self.0, "<code>pub use ", "</code>")
            .into_iter()
            .map(|path| format!("pub use {}", line(path)))
            .collect()
    }

    /// The declaration of an item, then its methods and constants, then the traits it implements, or the types that
    /// implement it.
    pub(crate) fn lines(&self, name: &str, is_trait: bool) -> Vec<String> {
        let own = self.0.split("<h2 id=\"synthetic-implementations\"").next().unwrap_or_default();
        let declaration = between(own, "<pre class=\"rust item-decl\"><code>", "</code></pre>").into_iter().take(1);
        let mut lines: Vec<_> =
            declaration.flat_map(|text| plain(text).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        if is_trait {
            lines.extend(headers(own, "h3").into_iter().filter(|line| line.starts_with("impl")));
        } else {
            let section = |id: &str| own.split(&format!("<h2 id=\"{id}\"")).nth(1).unwrap_or_default();
            let methods = section("implementations").split("<h2 id=").next().unwrap_or_default();
            lines.extend(headers(methods, "h4"));
            let (mut traits, suffix) = (Vec::new(), format!(" for {name}"));
            for line in headers(section("trait-implementations"), "h3") {
                match line.strip_prefix("impl ").and_then(|line| line.strip_suffix(&suffix)) {
                    Some("StructuralPartialEq") => {}
                    Some(implemented) => traits.push(implemented.to_owned()),
                    None => lines.push(line),
                }
            }
            if !traits.is_empty() {
                lines.push(format!("impl {}", traits.join(", ")));
            }
        }
        lines.into_iter().filter(|line| !line.trim().is_empty()).collect()
    }
}

/// The declarations of that rank, each on one line, sorted.
fn headers(html: &str, rank: &str) -> BTreeSet<String> {
    let found = between(html, &format!("<{rank} class=\"code-header\">"), &format!("</{rank}>"));
    found.into_iter().map(line).collect()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    text.split(start).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

fn line(html: &str) -> String {
    plain(html).split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(", )", ")")
}

/// The text of a piece of a page, without what only shows on a screen.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        if tag.starts_with("div") || tag.starts_with("/div") {
            text.push('\n');
        }
        let end = if tag.starts_with("summary") { "</summary>" } else { ">" };
        rest = tag.split_once(end).map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    // A button that shows the traits of the type.
    text = text.replace(" ⓘ", "");
    for (code, sign) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
    {
        text = text.replace(code, sign);
    }
    text
}

#[test]
fn a_page_becomes_text() {
    let html = "<pre class=\"rust item-decl\"><code><div>#[non_exhaustive]</div>pub struct A&lt;'a&gt; {<details><summary>Show 1 field</summary>
    pub <a href=\"x\">b</a>: B,</details>
}</code></pre><h2 id=\"implementations\"></h2><h3 class=\"code-header\">impl A</h3><h4 class=\"code-header\">pub fn
    <a>c</a>(
    &amp;self,
)</h4><h2 id=\"trait-implementations\"></h2><h3 class=\"code-header\">impl Clone for A</h3><h3 class=\"code-header\">impl Debug for A</h3><h3 class=\"code-header\">impl From&lt;A&gt; for B</h3><h4 class=\"code-header\">fn clone()</h4>";
    let lines = Page::new(html.to_owned()).lines("A", false);
    assert_eq!(
        lines,
        [
            "#[non_exhaustive]",
            "pub struct A<'a> {",
            "    pub b: B,",
            "}",
            "pub fn c(&self)",
            "impl From<A> for B",
            "impl Clone, Debug"
        ]
    );
}

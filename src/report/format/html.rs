//! A report as one HTML file: no network, readable without scripts, on paper and by screen readers.
//!
//! The page has no styles and scripts but its own, by their hashes, and loads nothing from elsewhere:
//! its policy requires it of the browser.

mod blocks;
mod looking;
mod markup;
mod table;

use super::words::UsedNames;
use crate::report::chart::palette;
use crate::report::content::{FigureSource, Report};
use crate::wording::count_noun;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use markup::Markup;
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

const OWN_STYLE: &str = include_str!("html/report.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("html/timeline.js"),
    include_str!("html/report.js")
);

/// The colours of drawings, and the page's own.
static STYLE: LazyLock<String> = LazyLock::new(|| {
    let [light, dark] = [false, true].map(palette::colour_properties);
    format!(
        ":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ \
         :root:not([data-theme=\"light\"]) {{ {dark} }} }}\n\
         @media screen {{ :root[data-theme=\"dark\"] {{ {dark} }} }}\n{OWN_STYLE}{}",
        palette::swatch_rules()
    )
});

/// One file that works from the disk.
pub(super) fn page(report: &Report) -> String {
    let mut html = Markup::default();
    let mut names = UsedNames::default();
    // Names of the page's own elements.
    for own in ["answer", "report-body", "report-drawer", "sources"] {
        names.take_name(own);
    }
    let ids = report.chapters.iter().map(|c| names.take_name(&c.id));
    let ids: Vec<String> = ids.collect();
    write_head(&mut html, &report.title);
    html.write_raw("<body>\n<a class=\"skip\" href=\"#report-body\">Skip to the report</a>\n");
    masthead(&mut html, report);
    if let Some(answer) = &report.answer {
        blocks::write_answer(&mut html, answer, report);
    }
    html.write_raw("<div class=\"columns\">\n");
    contents(&mut html, report, &ids);
    html.write_raw("<main id=\"report-body\" tabindex=\"-1\">\n");
    for (chapter, id) in report.chapters.iter().zip(&ids) {
        html.write_raw("<section")
            .write_attribute("id", id)
            .write_element("><h2>", &chapter.title, "</h2>\n");
        for block in chapter.all_blocks() {
            blocks::write_block(&mut html, block, report, &mut names);
        }
        html.write_raw("</section>\n");
    }
    write_sources(&mut html, report);
    html.write_raw("</main>\n</div>\n");
    html.write_raw("<footer><p>Written by plimsoll. GiB is 2<sup>30</sup> bytes. — is not known.</p></footer>\n");
    html.write_raw(concat!(
        "<dialog id=\"report-drawer\" aria-labelledby=\"report-drawer-title\"></dialog>\n",
        "<div class=\"tip\" role=\"tooltip\" hidden></div>\n<script>"
    ));
    html.write_raw(SCRIPT)
        .write_raw("</script>\n</body>\n</html>\n");
    html.into_text()
}

/// By this a file is known as a report of ours when it is about to be written over.
pub const MARK: &str = "<meta name=\"generator\" content=\"plimsoll\">";

fn write_head(html: &mut Markup, title: &str) {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; base-uri 'none'; \
         form-action 'none'",
        hash(SCRIPT),
        hash(&STYLE)
    );
    html.write_raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.write_raw("<meta http-equiv=\"Content-Security-Policy\"");
    // No text of the report: hashes must come as they are.
    html.write_attribute("content", &policy).write_raw(">\n");
    html.write_raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.write_raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    html.write_raw(
        "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n",
    );
    html.write_raw(MARK).write_raw("\n");
    html.write_element("<title>", title, "</title>\n<style>")
        .write_raw(STYLE.as_str());
    html.write_raw("</style>\n</head>\n");
}

/// The hash of an element's text, as a policy names it.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

fn masthead(html: &mut Markup, report: &Report) {
    html.write_raw("<header><div class=\"title\"><h1>")
        .write_text(&report.title);
    html.write_raw(
        "</h1><button type=\"button\" class=\"theme scripted\" hidden>Dark</button></div>\n",
    );
    if let Some(what) = &report.simulated {
        html.write_element(
            "<p class=\"simulated\"><strong>Simulated</strong> ",
            what,
            "</p>\n",
        );
    }
    if !report.about.is_empty() {
        html.write_raw("<dl class=\"about\">");
        for (label, value) in &report.about {
            html.write_element("<div><dt>", label, "</dt><dd>");
            html.write_text(value).write_raw("</dd></div>");
        }
        html.write_raw("</dl>\n");
    }
    html.write_raw("</header>\n");
}

fn contents(html: &mut Markup, report: &Report, ids: &[String]) {
    html.write_raw("<nav aria-label=\"Chapters\"><ol>");
    let chapters = report.chapters.iter().map(|c| c.title.as_str());
    let own = (!report.sources.is_empty()).then_some(("Sources", "sources"));
    let links = chapters.zip(ids.iter().map(String::as_str)).chain(own);
    for (title, id) in links {
        html.write_raw("<li><a")
            .write_attribute("href", &format!("#{id}"))
            .write_element(">", title, "</a></li>");
    }
    html.write_raw("</ol></nav>\n");
}

/// Where every figure comes from: what the drawer shows, and a chapter without scripts.
fn write_sources(html: &mut Markup, report: &Report) {
    if report.sources.is_empty() {
        return;
    }
    html.write_raw(
        "<section id=\"sources\"><h2>Sources</h2>\n<details class=\"sources\"><summary>",
    );
    let count = count_noun(report.sources.len(), "figure");
    html.write_text(&format!("Where {count} come from"))
        .write_raw("</summary>\n");
    for (i, source) in report.sources.iter().enumerate() {
        one_source(html, i, source);
    }
    html.write_raw("</details></section>\n");
}

fn one_source(html: &mut Markup, i: usize, source: &FigureSource) {
    html.write_raw("<article")
        .write_attribute("id", &format!("source-{i}"))
        .write_element("><h3>", &source.title, "</h3><p class=\"value\">");
    html.write_text(&source.value).write_raw("</p>");
    if let Some(confidence) = &source.confidence {
        html.write_element("<p class=\"confidence\">", confidence, "</p>");
    }
    if source.witnesses.is_empty() {
        html.write_raw("<p>No witness is recorded.</p>");
    }
    html.write_raw("<ol class=\"witnesses\">");
    for witness in &source.witnesses {
        let (open, close) = if witness.used {
            ("<li class=\"used\"><p><strong>", " <em>used</em></p>")
        } else {
            ("<li><p><strong>", " <em>not used</em></p>")
        };
        html.write_element(open, &witness.kind, "</strong>");
        if !witness.value.is_empty() {
            html.write_element(" <span class=\"value\">", &witness.value, "</span>");
        }
        html.write_raw(close);
        if !witness.quote.is_empty() {
            html.write_raw("<pre>")
                .write_listing(&witness.quote)
                .write_raw("</pre>");
        }
        if let Some(place) = &witness.place {
            html.write_element("<p class=\"place\">", place, "</p>");
        }
        html.write_raw("</li>");
    }
    html.write_raw("</ol></article>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_policy_names_what_the_page_holds() {
        let html = page(&Report::default());
        let between = |start: &str, end: &str| {
            let from = html.find(start).unwrap() + start.len();
            html[from..][..html[from..].find(end).unwrap()].to_owned()
        };
        for (element, end) in [("<script>", "</script>"), ("<style>", "</style>")] {
            let hash = hash(&between(element, end)).replace('\'', "&#39;");
            assert!(html.contains(&hash), "{element}");
        }
        assert!(!html.contains("unsafe"));
    }

    #[test]
    fn a_script_cannot_end_its_own_element() {
        for text in [STYLE.as_str(), SCRIPT] {
            assert!(!text.contains("</") && !text.contains("<!--"));
            assert!(!text.contains("://"), "an address");
        }
    }

    /// The colours of each block of custom properties with a ground: light, dark by the system, dark by the button,
    /// and paper.
    fn themes() -> Vec<BTreeMap<&'static str, &'static str>> {
        let blocks = OWN_STYLE.split(['{', '}']);
        let properties = |block: &'static str| {
            let each = block.split(';').filter_map(|d| d.split_once(':'));
            let each = each.map(|(name, value)| (name.trim(), value.trim()));
            each.filter(|(name, _)| name.starts_with("--")).collect()
        };
        let themes = blocks.filter(|b| b.contains("--ground:")).map(properties);
        themes.collect()
    }

    /// Contrast of text is that of WCAG 2 at level AA. All is judged as small text.
    #[test]
    fn text_stands_out_from_every_ground_that_it_has() {
        let themes = themes();
        assert_eq!(themes.len(), 4);
        for (n, theme) in themes.iter().enumerate() {
            let dark = n == 1 || n == 2;
            let drawn = palette::colour_properties(dark);
            let colour = |name: &str| {
                let value = theme[name];
                let value = match value.strip_prefix("var(").and_then(|v| v.strip_suffix(')')) {
                    Some(of) => drawn
                        .split(';')
                        .find_map(|d| d.strip_prefix(&format!("{of}:"))),
                    None => Some(value),
                };
                let digits = value.unwrap().trim_start_matches('#');
                let digits = match digits.len() {
                    3 => digits.chars().flat_map(|c| [c, c]).collect(),
                    _ => digits.to_owned(),
                };
                u32::from_str_radix(&digits, 16).unwrap()
            };
            let grounds = [
                "--ground",
                "--sheet",
                "--faint",
                "--accent-faint",
                "--warn-faint",
                "--bad-faint",
            ];
            let everywhere = ["--ink", "--quiet"].map(|text| (text, &grounds[..]));
            let some: [(&str, &[&str]); 5] = [
                ("--accent", &grounds[..4]),
                ("--warn", &["--sheet", "--ground", "--warn-faint"]),
                ("--bad", &["--sheet", "--ground", "--bad-faint"]),
                ("--good", &["--sheet", "--ground", "--faint"]),
                ("--sheet", &["--accent"]),
            ];
            for (text, grounds) in everywhere.into_iter().chain(some) {
                for ground in grounds {
                    let contrast = palette::contrast(colour(text), colour(ground));
                    assert!(
                        contrast >= 4.5,
                        "theme {n}: {text} on {ground}: {contrast:.2}"
                    );
                }
            }
        }
    }
}

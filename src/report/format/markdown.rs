//! A report as Markdown for pull requests and `$GITHUB_STEP_SUMMARY`. Charts are their figures: a
//! summary shows no drawing that is not on the network.
//!
//! GitHub makes links of `@name`, `#12` and addresses after it has read the Markdown, so that a
//! backslash does not stop it: an invisible space (U+200B) does.

use super::text::{figure_text, gauge_bar, gauge_words, missing_reasons};
use super::{figures, words};
use crate::engine::facts::Severity;
use crate::report::chart::{Chart, Plot};
use crate::report::content::{
    Answer, AnswerState, ContentBlock, Grid, Listing, Note, Report, TableCell,
};
use crate::report::layout::counted_noun;

/// Bytes of the whole; GitHub takes 1 MiB and shows nothing of more.
const MOST: usize = 1_000_000;

/// Bytes of a brief report: a comment on a pull request holds 65,536 characters.
const MOST_OF_BRIEF: usize = 60_000;

/// Lines of a brief report of one run or of two that are compared.
const LINES_OF_BRIEF: usize = 60;

/// Chapters that keep their tables in a brief report, whatever their length.
const WITH_TABLES: [&str; 3] = ["summary", "breakdown", "compare"];

/// Rows that are shown without being asked for.
const OPEN: usize = 30;

/// Rows at most.
const ROWS: usize = 1000;

/// Rows of a table of words in a brief report.
const ROWS_OF_WORDS: usize = 20;

/// One document.
pub(super) fn markdown_text(report: &Report) -> String {
    let mut parts = vec![format!("# {}\n", inert(&report.title))];
    if let Some(what) = &report.simulated {
        let what = inert(what);
        parts.push(format!("\n> [!IMPORTANT]\n> **Simulated:** {what}\n"));
    }
    if let Some(answer) = &report.answer {
        parts.push(format!("\n{}", answer_markdown(answer)));
    }
    if report.is_brief {
        let above = parts.concat().lines().count();
        parts.extend(brief_parts(report, above));
        return bounded(parts, MOST_OF_BRIEF);
    }
    if !report.about.is_empty() {
        let about = report.about.iter();
        let about = about.map(|(label, value)| format!("- {}: {}\n", inert(label), inert(value)));
        parts.push(format!("\n{}", about.collect::<String>()));
    }
    for chapter in &report.chapters {
        parts.push(format!("\n## {}\n", inert(&chapter.title)));
        parts.extend(chapter.all_blocks().map(|b| format!("\n{}", block(b))));
    }
    if !report.sources.is_empty() {
        parts.push(format!("\n## Sources\n\n{}", sources_markdown(report)));
    }
    bounded(parts, MOST)
}

/// Facts, sentences and notes on a line each, so that a profile is on one screen of a pull request. Where that is not
/// enough, the longest chapters leave their tables to `--full`.
fn brief_parts(report: &Report, above: usize) -> Vec<String> {
    let chapters = report.chapters.iter().enumerate();
    let mut all: Vec<Vec<String>> = (chapters.clone())
        .map(|(n, _)| brief_chapter(report, n, true))
        .collect();
    let count = |parts: &[String]| parts.concat().lines().count();
    let left = chapters.filter(|(_, chapter)| !WITH_TABLES.contains(&chapter.id.as_str()));
    let mut left: Vec<usize> = left.map(|(n, _)| n).collect();
    while above + all.iter().map(|parts| count(parts)).sum::<usize>() > LINES_OF_BRIEF {
        let Some(at) = (0..left.len()).max_by_key(|at| count(&all[left[*at]])) else {
            break;
        };
        let n = left.swap_remove(at);
        all[n] = brief_chapter(report, n, false);
    }
    all.concat()
}

/// Labels and values as one line.
fn fact_line(facts: impl IntoIterator<Item = (String, String)>) -> String {
    let each = facts.into_iter();
    let words = each.map(|(label, value)| format!("{}: {}", inert(&label), inert(&value)));
    format!("\n{}\n", words.collect::<Vec<_>>().join(" · "))
}

/// A chapter by its place. The first is the run itself: it has no title, and the facts of the report are its first line.
fn brief_chapter(report: &Report, n: usize, with_tables: bool) -> Vec<String> {
    let chapter = &report.chapters[n];
    let mut parts = match n {
        0 => vec![fact_line(report.about.clone())],
        _ => vec![format!("\n## {}\n", inert(&chapter.title))],
    };
    let is_table = |b: &ContentBlock| matches!(b, ContentBlock::Table(g) if !is_facts(g));
    let tables = chapter.blocks.iter().filter(|b| is_table(b)).count();
    // Sentences that follow each other, or the facts of the report, are one paragraph.
    let (mut in_list, mut in_text) = (false, n == 0);
    for block in &chapter.blocks {
        if is_table(block) && !with_tables {
            continue;
        }
        let is_note = matches!(block, ContentBlock::Note(_));
        let follows = std::mem::replace(&mut in_text, matches!(block, ContentBlock::Text(_)));
        if is_note && !in_list {
            parts.push("\n".into());
        }
        in_list = is_note;
        let written = match block {
            ContentBlock::Note(note) => note_line(note),
            ContentBlock::Text(text) if follows => {
                if let Some(before) = parts.last_mut() {
                    before.truncate(before.trim_end().len());
                }
                format!(" {}\n", inert(text))
            }
            ContentBlock::Table(grid) if is_facts(grid) => {
                let line = fact_line(grid.rows.iter().map(|row| fact_of_row(row)));
                if grid.caption.is_empty() {
                    line
                } else {
                    format!("\n**{}:** {}", inert(&grid.caption), line.trim_start())
                }
            }
            ContentBlock::Table(of) => format!("\n{}", brief_grid(of, tables > 1)),
            other => format!("\n{}", self::block(other)),
        };
        parts.push(written);
    }
    if !with_tables && tables > 0 {
        let tables = counted_noun(tables, "table");
        parts.push(format!("\n{tables} more with --full.\n"));
    }
    parts
}

/// A table; words of two sides are a line, as a long list of settings would hide the figures below.
fn brief_grid(of: &Grid, captions: bool) -> String {
    let is_words = of.columns.len() == 3 && of.columns.iter().all(|c| !c.numeric);
    if is_words {
        let side = |cell: Option<&TableCell>| cell.map_or("—".into(), cell_markdown);
        let row = |row: &Vec<TableCell>| {
            let label = row.first().map_or(String::new(), cell_markdown);
            format!("{label}: {} → {}", side(row.get(1)), side(row.get(2)))
        };
        let rows: Vec<String> = of.rows.iter().take(ROWS_OF_WORDS).map(row).collect();
        let more = match of.rows.len().saturating_sub(ROWS_OF_WORDS) {
            0 => String::new(),
            n => format!(" · and {n} more with --full"),
        };
        let rows = rows.join(" · ");
        return format!("**{}:** {rows}{more}\n", inert(&of.caption));
    }
    let mut of = of.clone();
    if !captions {
        of.caption.clear();
    }
    grid(&of, OPEN)
}

/// Whether a table is a list: a label, a value and at most a unit.
fn is_facts(grid: &Grid) -> bool {
    let keys: Vec<&str> = grid.columns.iter().map(|c| c.key.as_str()).collect();
    matches!(keys[..], ["fact", "value"] | ["figure", "value", "unit"])
}

fn fact_of_row(row: &[TableCell]) -> (String, String) {
    let text = |n: usize| row.get(n).map_or("", |cell| cell.text.as_str());
    let value = match (text(1), row.get(1).and_then(|cell| cell.missing.as_ref())) {
        ("", Some(why)) => format!("— ({why})"),
        (value, _) => format!("{value} {}", text(2)).trim_end().to_owned(),
    };
    (text(0).to_owned(), value)
}

/// A note as an item of a list.
fn note_line(note: &Note) -> String {
    let word = match note.severity {
        Severity::Info => "note",
        Severity::Warning => "**warning**",
        Severity::Error => "**error**",
    };
    let named = note.code.as_ref().map(|c| format!(" ({})", code(c)));
    let named = named.unwrap_or_default();
    format!("- {word}: {}{named}\n", inert(&note.message))
}

/// The answer as one of GitHub's alerts: verdict, gauge, main figures, what to change.
fn answer_markdown(answer: &Answer) -> String {
    let kind = match answer.state {
        AnswerState::Safe => "TIP",
        AnswerState::Tight => "WARNING",
        AnswerState::Critical | AnswerState::Failed => "CAUTION",
        AnswerState::Unknown => "NOTE",
    };
    let mut text = format!("> [!{kind}]\n> **{}**\n", inert(&answer.verdict));
    for (place, gauge) in answer.gauges().enumerate() {
        let bar = gauge_bar(gauge.used_percent(), 30, true);
        let before = if place == 0 { ">\n> " } else { "  \n> " };
        text.push_str(&format!("{before}`{bar}` {}", inert(&gauge_words(gauge))));
    }
    if let Some(unknown) = answer.unknown_headroom() {
        text.push_str(&format!(">\n> {}", inert(&unknown)));
    }
    if !answer.figures.is_empty() {
        let figures = answer.figures.iter().map(|f| inert(&figure_text(f)));
        let figures: Vec<String> = figures.collect();
        let before = match (&answer.gauge, &answer.no_gauge) {
            (Some(_), _) => "; ",
            (None, Some(_)) => " ",
            (None, None) => ">\n> ",
        };
        text.push_str(&format!("{before}{}", figures.join(" · ")));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if !answer.actions.is_empty() {
        text.push_str(">\n");
    }
    for action in &answer.actions {
        let setting = match action.setting.as_str() {
            "" => String::new(),
            setting => format!("{}: ", code(setting)),
        };
        text.push_str(&format!("> - {setting}{}\n", inert(&action.effect)));
    }
    text
}

/// As many parts as there is room for, each of them whole, and a sentence for the others.
fn bounded(parts: Vec<String>, most: usize) -> String {
    let mut text = String::new();
    let mut left_out = 0;
    for part in parts {
        if text.len() + part.len() < most - 400 {
            text.push_str(&part)
        } else {
            left_out += 1
        }
    }
    if left_out > 0 {
        let parts_are = if left_out == 1 {
            "part is"
        } else {
            "parts are"
        };
        text.push_str(&format!(
            "\n> [!NOTE]\n> {left_out} {parts_are} left out: GitHub shows no more. The report in \
             other formats has all of them.\n"
        ));
    }
    text
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => format!("{}\n", paragraph(text)),
        ContentBlock::Note(of) => note_markdown(of),
        ContentBlock::Table(of) => grid(of, OPEN),
        ContentBlock::Chart(of) => chart(of),
        ContentBlock::Listing(of) => listing(of),
    }
}

fn chart(chart: &Chart) -> String {
    let marked = if chart.simulated { " (simulated)" } else { "" };
    let mut text = String::new();
    match (&chart.plot, &mut figures::of_chart(chart)[..]) {
        (Plot::Timeline(_), [lanes, more @ ..]) => {
            text.push_str(&grid(lanes, OPEN));
            if chart.simulated {
                text.push_str("\n*Simulated.*\n");
            }
            for moments in more {
                text.push_str(&format!("\n{}", grid(moments, 0)));
            }
        }
        (_, [figures, ..]) => {
            figures.caption = format!("Figures of the chart: {}{marked}", chart.title);
            text.push_str(&grid(figures, 0));
        }
        (_, []) => text.push_str(&format!("*{}{marked}*\n", paragraph(&chart.title))),
    }
    if let Some(note) = &chart.note {
        text.push_str(&format!("\n{}\n", paragraph(note)));
    }
    text
}

fn note_markdown(note: &Note) -> String {
    let kind = match note.severity {
        Severity::Info => "NOTE",
        Severity::Warning => "WARNING",
        Severity::Error => "CAUTION",
    };
    let named = note.code.as_ref().map(|c| format!(" ({})", code(c)));
    let (message, named) = (paragraph(&note.message), named.unwrap_or_default());
    let mut text = format!("> [!{kind}]\n> {message}{named}\n");
    if let Some(quote) = note.quote.as_ref().filter(|q| !q.trim().is_empty()) {
        text.push_str(&format!(">\n> {}\n", code(quote)));
    }
    text
}

fn listing(listing: &Listing) -> String {
    let text = words::clean_listing(&listing.text);
    let fence = "`".repeat(longest_run(&text, '`').max(2) + 1);
    let block = format!("{fence}text\n{text}\n{fence}\n");
    if listing.folded {
        folded(&listing.title, &block)
    } else {
        format!("{}:\n\n{block}", paragraph(&listing.title))
    }
}

fn folded(summary: &str, inside: &str) -> String {
    format!(
        "<details><summary>{}</summary>\n\n{inside}\n</details>\n",
        inert(summary)
    )
}

/// A table; one of more rows than `open` has to be opened.
fn grid(grid: &Grid, open: usize) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = row(grid.columns.iter().map(|c| inert(&c.title)).collect());
    let rules = (grid.columns.iter()).map(|c| if c.numeric { "---:" } else { "---" });
    text.push_str(&row(rules.map(str::to_owned).collect()));
    for cells in grid.rows.iter().take(ROWS) {
        text.push_str(&row(cells.iter().map(cell_markdown).collect()));
    }
    if let Some(more) = grid.rows.len().checked_sub(ROWS).filter(|n| *n > 0) {
        text.push_str(&format!("\nand {more} more rows\n"));
    }
    let reasons = missing_reasons(grid).into_iter();
    let reasons: Vec<String> = reasons
        .map(|(why, columns)| format!("{}: {}", inert(&columns), inert(&why)))
        .collect();
    if !reasons.is_empty() {
        text.push_str(&format!("\n— {}\n", reasons.join("; ")));
    }
    if grid.rows.len() > open {
        let summary = format!("{} (rows: {})", grid.caption, grid.rows.len());
        folded(&summary, &text)
    } else if grid.caption.is_empty() {
        text
    } else {
        format!("**{}**\n\n{text}", inert(&grid.caption))
    }
}

fn cell_markdown(cell: &TableCell) -> String {
    match &cell.missing {
        Some(_) if cell.text.is_empty() => "—".into(),
        _ => inert(&cell.text),
    }
}

fn sources_markdown(report: &Report) -> String {
    let mut text = String::new();
    for source in &report.sources {
        let confidence = source.confidence.as_ref();
        let sure = confidence
            .map(|c| format!(", {}", code(c)))
            .unwrap_or_default();
        let (title, value) = (inert(&source.title), inert(&source.value));
        text.push_str(&format!("- {title}: {value}{sure}\n"));
        for witness in &source.witnesses {
            let used = if witness.used { "" } else { " (not used)" };
            let place = witness.place.as_ref();
            let place = place.map(|p| format!(", {}", inert(p))).unwrap_or_default();
            let quote = match witness.quote.trim() {
                "" => String::new(),
                quote => format!(": {}", code(quote)),
            };
            let (kind, value) = (inert(&witness.kind), inert(&witness.value));
            text.push_str(&format!("  - {kind}{used}: {value}{place}{quote}\n"));
        }
    }
    let summary = format!("Where {} figures come from", report.sources.len());
    folded(&summary, &text)
}

/// A line as code: nothing in it is read as anything else.
fn code(text: &str) -> String {
    let text = words::one_line(text);
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) {
        format!("{fence} {text} {fence}")
    } else {
        format!("{fence}{text}{fence}")
    }
}

fn longest_run(text: &str, of: char) -> usize {
    let runs = text.split(|c| c != of).map(str::len);
    runs.max().unwrap_or(0)
}

/// A text that begins a line.
fn paragraph(text: &str) -> String {
    let text = inert(text);
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let begins_list = digits > 0 && text[digits..].starts_with(['.', ')']);
    if text.starts_with(['-', '+', '=']) {
        format!("\\{text}")
    } else if begins_list {
        format!("{}\\{}", &text[..digits], &text[digits..])
    } else {
        text
    }
}

/// A text in which nothing is markup, a link, a mention or a formula.
fn inert(text: &str) -> String {
    let text = words::one_line(text.trim());
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '$' => out.push_str("&#36;"),
            // Within a word it is none.
            '_' if before.is_alphanumeric() && next.is_alphanumeric() => out.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' => out.extend(['\\', c]),
            '@' => out.push_str("@\u{200b}"),
            '#' => out.push_str("\\#\u{200b}"),
            // GH-12 is a link as #12 is.
            '-' if next.is_ascii_digit() && out.to_ascii_lowercase().ends_with("gh") => {
                out.push_str("-\u{200b}");
            }
            ':' if next == '/' => out.push_str(":\u{200b}"),
            '.' if out.to_ascii_lowercase().ends_with("www") => out.push_str(".\u{200b}"),
            c => out.push(c),
        }
        before = c;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup_or_a_link() {
        assert_eq!(
            inert("a|b `c` <img src=x> **d**"),
            "a\\|b \\`c\\` &lt;img src=x&gt; \\*\\*d\\*\\*"
        );
        assert_eq!(
            inert("@me see org/x#12, GH-7"),
            "@\u{200b}me see org/x\\#\u{200b}12, GH-\u{200b}7"
        );
        assert_eq!(
            inert("https://a.b www.c.d"),
            "https:\u{200b}//a.b www.\u{200b}c.d"
        );
        assert_eq!(
            inert("gpu_memory_used _x_ $y$"),
            "gpu_memory_used \\_x\\_ &#36;y&#36;"
        );
        assert_eq!(paragraph("# a"), "\\#\u{200b} a");
        assert_eq!(paragraph("1. a"), "1\\. a");
        assert_eq!(paragraph("- a\n- b"), "\\- a - b");
        assert_eq!(code("a ``b"), "```a ``b```");
    }

    #[test]
    fn what_is_too_long_is_left_out_with_a_sentence() {
        let parts = vec!["a".repeat(900_000), "b".repeat(900_000), "c".into()];
        let text = bounded(parts, MOST);
        assert!(text.len() < MOST);
        assert!(
            text.contains("ac\n> [!NOTE]\n> 1 part is left out"),
            "{}",
            &text[899_990..]
        );
    }
}

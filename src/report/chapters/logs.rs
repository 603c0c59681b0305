//! The words of the engine and of the bench, folded: what the figures were read from.

use super::Sources;
use crate::report::content::{Chapter, listing_block};
use crate::report::material::Material;

/// Characters of a log in a report of one run; of several each has its share.
const MOST: usize = 128 * 1024;

pub(super) fn write_logs_chapter(material: &Material, _: &mut Sources) -> Vec<Chapter> {
    let most = MOST / material.shown_runs().count().max(1);
    let mut details = Vec::new();
    for at in material.shown_runs() {
        let logs = &at.run.profile.raw_logs;
        for (title, text) in [
            ("The engine's log", &logs.engine),
            ("The bench's output", &logs.bench),
        ] {
            if !text.trim().is_empty() {
                let lines = cut_middle(text, most);
                details.push(listing_block(at.title(title), lines, true));
            }
        }
        let omitted = logs.omitted_bytes;
        if omitted > 0 {
            details.push(format!("{omitted} bytes between beginning and end are left out of the profile; the capture has them in log.txt.").into());
        }
    }
    Chapter::of_parts("logs", "Logs", Vec::new(), details)
}

/// Beginning and end: engines report their memory first, and why they died last.
fn cut_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let mut head = half;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - half;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let (first, omitted, last) = (&text[..head], tail - head, &text[tail..]);
    format!("{first}\n… {omitted} bytes …\n{last}")
}

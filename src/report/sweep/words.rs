//! Words that the texts on a sweep share.

/// The first few of a list: `a, b, c and 4 more`.
pub(super) fn first_few(items: &[String], few: usize) -> String {
    match items.len() {
        n if n > few => format!("{} and {} more", items[..few].join(", "), n - few),
        _ => items.join(", "),
    }
}

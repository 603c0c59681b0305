//! Figures as the comparing commands print them: with signs, and a dash for what is unknown.

use super::layout::unsigned_zero;

/// GiB with three decimals, or a dash.
pub(super) fn format_gib(figure: Option<f64>) -> String {
    figure.map_or_else(|| "—".into(), |g| unsigned_zero(format!("{g:.3}")))
}

/// GiB with its sign, or a dash.
pub(super) fn gib_change(figure: Option<f64>) -> String {
    figure.map_or_else(
        || "—".into(),
        |g| with_plus(g, unsigned_zero(format!("{g:.3}"))),
    )
}

/// Percent with its sign; of next to nothing everything is very many times as much.
pub(super) fn format_percent(figure: Option<f64>) -> String {
    match figure {
        None => "—".into(),
        Some(p) if p >= 1000.0 => "> 999".into(),
        Some(p) if p <= -1000.0 => "< -999".into(),
        Some(p) => with_plus(p, unsigned_zero(format!("{p:.1}"))),
    }
}

/// With a plus, unless it rounds to nothing.
pub(super) fn with_plus(value: f64, text: String) -> String {
    let nothing = text.chars().all(|c| c == '0' || c == '.');
    if value > 0.0 && !nothing {
        format!("+{text}")
    } else {
        text
    }
}

/// Bytes as GiB.
pub(super) fn gib_of(bytes: Option<f64>) -> String {
    format_gib(bytes.map(|b| b / crate::units::GIB))
}

//! One figure as AMD's tools write it: a bare number, `{"value": n, "unit": "W"}`, a text with its
//! unit, or one of many ways to write "not available".

use serde_json::Value;

/// Printed when the library returned its largest 16-bit number, which means "not available".
const NOT_AVAILABLE: f64 = 65535.0;

/// A figure with its unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// Unit in lower case, without blanks; `None` for a bare number.
    pub unit: Option<String>,
}

/// The unit of a bare number of bytes: releases before 6.1 write megabytes without a unit, process
/// lists write bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bare {
    /// One byte.
    Bytes,
    /// 2^20 bytes.
    Mebibytes,
}

/// The figure in a value; `None` if there is none.
pub fn parse_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::Number(n) => n.as_f64().map(|value| Quantity { value, unit: None }),
        Value::String(text) => in_text(text),
        Value::Object(map) => {
            let inner = parse_quantity(map.get("value").filter(|v| !v.is_object())?)?;
            let unit = map.get("unit").and_then(Value::as_str).map(tidy);
            Some(Quantity {
                value: inner.value,
                unit: unit.filter(|u| !u.is_empty()).or(inner.unit),
            })
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => None,
    }
}

fn in_text(text: &str) -> Option<Quantity> {
    // `(500Mhz)`, `330.0W`, `24 °C`.
    let text = text.trim().trim_start_matches('(').trim_end_matches(')');
    let end = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && matches!(c, '-' | '+'))))
        .map_or(text.len(), |(at, _)| at);
    let (number, unit) = text.split_at(end);
    let value: f64 = number.parse().ok()?;
    let unit = tidy(unit);
    // `0x744c` and `1 (16.0GT/s x16)` are not figures that we read.
    let known = unit.is_empty() || known(&unit);
    known.then(|| Quantity {
        value,
        unit: (!unit.is_empty()).then_some(unit),
    })
}

fn tidy(unit: &str) -> String {
    unit.trim().trim_start_matches('°').to_lowercase()
}

fn known(unit: &str) -> bool {
    byte_factor(unit).is_some()
        || hertz_factor(unit).is_some()
        || watt_factor(unit).is_some()
        || matches!(
            unit,
            "c" | "%" | "mv" | "v" | "ns" | "us" | "ms" | "s" | "mb/s" | "rpm" | "j"
        )
}

/// The tools write MB for units of 1024 * 1024.
fn byte_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "b" | "bytes" => 1.0,
        "kb" | "kib" => 1024.0,
        "mb" | "mib" => 1024.0 * 1024.0,
        "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "tb" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

fn hertz_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "hz" => 1e-6,
        "khz" => 1e-3,
        "mhz" => 1.0,
        "ghz" => 1e3,
        _ => return None,
    })
}

fn watt_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "uw" | "µw" => 1e-3,
        "mw" => 1.0,
        "w" => 1e3,
        "kw" => 1e6,
        _ => return None,
    })
}

/// Bytes; `None` if negative or larger than any machine's memory.
pub fn parse_bytes(value: &Value, bare: Bare) -> Option<u64> {
    let q = parse_quantity(value)?;
    let factor = match q.unit.as_deref() {
        Some(unit) => byte_factor(unit)?,
        None if bare == Bare::Mebibytes => 1024.0 * 1024.0,
        None => 1.0,
    };
    let bytes = (q.value * factor).round();
    (0.0..9e18).contains(&bytes).then_some(bytes as u64)
}

/// Milliwatts; a bare number is watts.
pub fn parse_milliwatts(value: &Value) -> Option<u32> {
    let q = parse_quantity(value)?;
    let factor = q.unit.as_deref().map_or(Some(1e3), watt_factor)?;
    available_figure(&q, q.value * factor, 1e8)
}

/// Degrees Celsius.
pub fn parse_celsius(value: &Value) -> Option<u32> {
    figure_in(value, "c", 1000.0)
}

/// Percent, 0 to 100.
pub fn parse_percent(value: &Value) -> Option<u32> {
    figure_in(value, "%", 100.5)
}

/// A figure in this unit, or without one.
fn figure_in(value: &Value, unit: &str, below: f64) -> Option<u32> {
    let q = parse_quantity(value).filter(|q| q.unit.as_deref().is_none_or(|u| u == unit))?;
    available_figure(&q, q.value, below)
}

/// Megahertz; a bare number is megahertz.
pub fn parse_megahertz(value: &Value) -> Option<u32> {
    let q = parse_quantity(value)?;
    let factor = q.unit.as_deref().map_or(Some(1.0), hertz_factor)?;
    available_figure(&q, q.value * factor, 1e6)
}

fn available_figure(q: &Quantity, figure: f64, below: f64) -> Option<u32> {
    (q.value != NOT_AVAILABLE && (0.0..below).contains(&figure)).then(|| figure.round() as u32)
}

/// A whole number without unit, also as text (`"1"`).
pub fn parse_whole(value: &Value) -> Option<u64> {
    let q = parse_quantity(value).filter(|q| q.unit.is_none())?;
    (q.value.fract() == 0.0 && (0.0..9e15).contains(&q.value)).then_some(q.value as u64)
}

/// A text, unless it means "not available".
pub fn available_text(value: &Value) -> Option<String> {
    let text = value.as_str()?.trim();
    let nothing = text.is_empty()
        || ["n/a", "none", "unknown"]
            .iter()
            .any(|no| text.eq_ignore_ascii_case(no));
    (!nothing).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn every_shape_of_one_figure_reads_the_same() {
        for shape in [
            json!(542),
            json!(542.0),
            json!("542"),
            json!("542 W"),
            json!("542.0W"),
            json!("(542W)"),
            json!({"value": 542, "unit": "W"}),
            json!({"value": "542", "unit": "W"}),
            json!({"value": "542 W"}),
            json!({"value": 542_000, "unit": "mW"}),
        ] {
            assert_eq!(parse_milliwatts(&shape), Some(542_000), "{shape}");
        }
    }

    #[test]
    fn no_figure_is_none_and_never_zero() {
        for shape in [
            json!(null),
            json!("N/A"),
            json!("N/A mV"),
            json!("N/A (Secondary die)"),
            json!({"value": "N/A", "unit": "W"}),
            json!({"value": "N/A"}),
            json!({"value": null, "unit": "W"}),
            json!({"unit": "W"}),
            json!({}),
            json!([]),
            json!([1]),
            json!(true),
            json!(""),
            json!("0x744c"),
            json!("No running processes detected"),
            json!(-1),
            json!(65535),
            json!({"value": {"value": 1}, "unit": "W"}),
        ] {
            assert_eq!(parse_milliwatts(&shape), None, "{shape}");
            assert_eq!(parse_celsius(&shape), None, "{shape}");
            assert_eq!(parse_megahertz(&shape), None, "{shape}");
            assert_eq!(parse_percent(&shape), None, "{shape}");
        }
    }

    #[test]
    fn units_are_honoured() {
        const MIB: u64 = 1 << 20;
        for (shape, expected) in [
            (json!({"value": 118.5, "unit": "GB"}), 121_344 * MIB),
            (json!({"value": 121_344, "unit": "MB"}), 121_344 * MIB),
            (
                json!({"value": 127_205_904_384_u64, "unit": "B"}),
                127_205_904_384,
            ),
            (json!("2068 KiB"), 2068 * 1024),
            (json!(7), 7 * MIB),
            (json!({"value": 0, "unit": "MB"}), 0),
        ] {
            assert_eq!(
                parse_bytes(&shape, Bare::Mebibytes),
                Some(expected),
                "{shape}"
            );
        }
        assert_eq!(parse_bytes(&json!(7), Bare::Bytes), Some(7));
        assert_eq!(
            parse_bytes(&json!("7 W"), Bare::Bytes),
            None,
            "watts are no bytes"
        );
        assert_eq!(parse_megahertz(&json!("2.1 GHz")), Some(2100));
        assert_eq!(parse_megahertz(&json!("(500Mhz)")), Some(500));
        assert_eq!(parse_celsius(&json!("42 °C")), Some(42));
        assert_eq!(parse_percent(&json!("99 %")), Some(99));
        assert_eq!(parse_percent(&json!(101)), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = parse_quantity(&json!(text));
            let _ = parse_bytes(&json!({"value": text, "unit": text}), Bare::Bytes);
        }

        #[test]
        fn any_figure_reads_the_same_in_every_shape(n in 0u32..4000) {
            let shapes = [json!(n), json!(n.to_string()), json!(format!("{n} MHz")), json!({"value": n, "unit": "MHz"})];
            for shape in shapes {
                prop_assert_eq!(parse_megahertz(&shape), Some(n));
            }
        }
    }
}

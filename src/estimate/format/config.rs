//! The quantisation that a model's own configuration names: `quantization_config` and hf_quant_config.json.

use super::super::Unknown;
use super::modules::Patterns;
use super::{Format, Scheme};
use serde_json::{Map, Value};

/// Reads a `quantization_config`, or the content of hf_quant_config.json.
///
/// # Errors
///
/// A method that is not known, or known but not described in full.
pub fn read(value: &Value) -> Result<Scheme, Unknown> {
    if !value.is_object() {
        return Err(unknown("which is not a JSON object"));
    }
    let q = Config(value);
    // hf_quant_config.json has all of it one level down.
    if let Some(inner) = value.get("quantization").filter(|v| v.is_object()) {
        return modelopt(Config(inner));
    }
    let method = q.text("quant_method").to_ascii_lowercase();
    match method.as_str() {
        "fp8" => Ok(q.left_out(Scheme::all(q.fp8()))),
        "fbgemm_fp8" => Ok(q.left_out(Scheme::all(Format::Fp8Channel))),
        "awq" | "awq_marlin" => {
            let bits = q.number(&["bits", "w_bit"]).unwrap_or(4);
            if bits != 4 {
                return Err(unknown(&format!("awq with {bits} bits")));
            }
            let group = q.number(&["group_size", "q_group_size"]).unwrap_or(128);
            Ok(q.left_out(Scheme::all(Format::Awq { group })))
        }
        "gptq" | "gptq_marlin" => gptq(q),
        "auto-round" | "auto_round" | "intel/auto-round" | "autoround" | "inc" => auto_round(q),
        "bitsandbytes" => Ok(q.left_out(Scheme::all(bitsandbytes(q)))),
        "mxfp4" => Ok(q.left_out(Scheme {
            experts_only: true,
            ..Scheme::all(Format::Mxfp4)
        })),
        "modelopt" | "modelopt_fp4" | "modelopt_mixed" => modelopt(q),
        "compressed-tensors" | "compressed_tensors" => compressed(q),
        "quark" => quark(q),
        "" if value.get("quant_algo").is_some() => modelopt(q),
        "" if value.get("config_groups").is_some() => compressed(q),
        "" if value.get("load_in_4bit").is_some() || value.get("load_in_8bit").is_some() => {
            Ok(q.left_out(Scheme::all(bitsandbytes(q))))
        }
        "" => Err(unknown("one without a method")),
        other => Err(unknown(&format!("`{other}`"))),
    }
}

fn unknown(what: &str) -> Unknown {
    Unknown::new(format!("the model's quantisation, {what}, is not known"))
        .hint("give the model's folder, or --quantization with the nearest format")
}

/// A configuration, read leniently: what is of another type is as if it were not there.
#[derive(Clone, Copy)]
struct Config<'a>(&'a Value);

impl<'a> Config<'a> {
    fn text(self, key: &str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or("")
    }

    /// A count; what is negative (a group as long as the row) is 0.
    fn number(self, keys: &[&str]) -> Option<u64> {
        let found = keys.iter().find_map(|key| self.0.get(key))?;
        found.as_u64().or_else(|| found.as_i64().map(|_| 0))
    }

    fn flag(self, key: &str) -> Option<bool> {
        self.0.get(key).and_then(Value::as_bool)
    }

    fn map(self, key: &str) -> Option<&'a Map<String, Value>> {
        self.0.get(key).and_then(Value::as_object)
    }

    /// The format that `fp8` means: in blocks where it gives their size.
    fn fp8(self) -> Format {
        let size = self.0.get("weight_block_size").and_then(Value::as_array);
        let side = |at: usize| size.and_then(|s| s.get(at)).and_then(Value::as_u64);
        match (side(0), side(1)) {
            (Some(rows), Some(columns)) if rows > 0 && columns > 0 => {
                Format::Fp8Block { rows, columns }
            }
            _ => Format::Fp8Tensor,
        }
    }

    /// The scheme without the modules that the configuration leaves out, under whichever name it lists them.
    fn left_out(self, mut scheme: Scheme) -> Scheme {
        let keys = [
            "ignore",
            "ignored_layers",
            "modules_to_not_convert",
            "exclude_modules",
            "exclude",
            "llm_int8_skip_modules",
        ];
        let lists = keys.iter().filter_map(|key| self.0.get(key));
        let entries = lists
            .filter_map(Value::as_array)
            .flatten()
            .filter_map(Value::as_str);
        scheme.ignored = Patterns::of(entries);
        if self.flag("lm_head") == Some(true) {
            scheme.lm_head = true;
        }
        scheme
    }
}

fn bitsandbytes(q: Config) -> Format {
    let eight = q.flag("load_in_8bit").or(q.flag("_load_in_8bit"));
    if eight == Some(true) {
        return Format::BnbInt8;
    }
    Format::Nf4 {
        double: q.flag("bnb_4bit_use_double_quant").unwrap_or(false),
    }
}

fn integers(bits: u64, group: u64, act_order: bool, zeros: bool) -> Option<Format> {
    (2..=8).contains(&bits).then_some(Format::Gptq {
        bits,
        group,
        act_order,
        zeros,
    })
}

/// GPTQ. Marlin keeps neither zero points where it is symmetric nor indices without act order.
fn gptq(q: Config) -> Result<Scheme, Unknown> {
    let bits = q.number(&["bits"]).unwrap_or(4);
    let group = q.number(&["group_size"]).unwrap_or(128);
    let order = q.flag("desc_act").unwrap_or(false);
    let zeros = !q.flag("sym").unwrap_or(true);
    let format = integers(bits, group, order, zeros);
    let format = format.ok_or_else(|| unknown(&format!("gptq with {bits} bits")))?;
    let mut scheme = q.left_out(Scheme::all(format));
    // GPTQModel: `-:expression` leaves modules out, `+:expression` gives them other settings.
    if let Some(rules) = q.map("dynamic") {
        let out = rules.keys().filter_map(|k| k.strip_prefix("-:"));
        let out: Vec<String> = out.map(|e| format!("re:{e}")).collect();
        scheme.ignored = Patterns::of(out.iter().map(String::as_str));
        for (rule, settings) in rules.iter().filter(|(k, _)| !k.starts_with("-:")) {
            let own = Config(settings);
            let format = integers(
                own.number(&["bits"]).unwrap_or(bits),
                own.number(&["group_size"]).unwrap_or(group),
                own.flag("desc_act").unwrap_or(order),
                !own.flag("sym").unwrap_or(!zeros),
            );
            let rule = format!("re:{}", rule.trim_start_matches("+:"));
            if let Some(format) = format {
                scheme.others.push((Patterns::of([rule.as_str()]), format));
            }
        }
    }
    Ok(scheme)
}

fn auto_round(q: Config) -> Result<Scheme, Unknown> {
    let bits = q.number(&["bits", "weight_bits"]).unwrap_or(4);
    let group = q.number(&["group_size"]).unwrap_or(128);
    let zeros = !q.flag("sym").unwrap_or(true);
    let format = if q.text("packing_format").contains("awq") {
        Some(Format::Awq { group })
    } else {
        integers(bits, group, false, zeros)
    };
    let format = format.ok_or_else(|| unknown(&format!("auto-round with {bits} bits")))?;
    let mut scheme = q.left_out(Scheme::all(format));
    let mut plain = Vec::new();
    for (module, settings) in q.map("extra_config").into_iter().flatten() {
        let own = Config(settings);
        let bits = own.number(&["bits"]).unwrap_or(bits);
        if bits >= 16 {
            plain.push(module.as_str());
            continue;
        }
        let group = own.number(&["group_size"]).unwrap_or(group);
        if let Some(format) = integers(bits, group, false, zeros) {
            scheme
                .others
                .push((Patterns::of([module.as_str()]), format));
        }
        if scheme.others.len() > 4096 {
            break;
        }
    }
    if !plain.is_empty() {
        scheme.ignored = Patterns::of(plain);
    }
    Ok(scheme)
}

/// NVIDIA's ModelOpt, from config.json and from hf_quant_config.json.
fn modelopt(q: Config) -> Result<Scheme, Unknown> {
    let algorithm = q.text("quant_algo").to_ascii_uppercase();
    if algorithm.is_empty() && q.map("config_groups").is_some() {
        return compressed(q);
    }
    if algorithm == "MIXED_PRECISION" {
        return mixed(q);
    }
    let format = algorithm_format(q, &algorithm);
    let format = format.ok_or_else(|| unknown(&format!("`{algorithm}` of ModelOpt")))?;
    let mut scheme = q.left_out(Scheme::all(format));
    if scheme.ignored.is_empty() && format == Format::Nvfp4 {
        let note = "the list of modules that NVFP4 leaves out is not in this configuration: attention often is";
        scheme.warnings.push(note.to_owned());
    }
    Ok(scheme)
}

fn algorithm_format(q: Config, algorithm: &str) -> Option<Format> {
    let group = q.number(&["group_size"]);
    Some(match algorithm {
        "FP8" => Format::Fp8Tensor,
        "FP8_PER_CHANNEL_PER_TOKEN" => Format::Fp8Channel,
        "FP8_PB_WO" | "FP8_PB_REAL" => Format::Fp8Block {
            rows: 128,
            columns: 128,
        },
        "NVFP4" | "NVFP4_AWQ" | "W4A16_NVFP4" | "W4A8_NVFP4_FP8" => Format::Nvfp4,
        "W4A16_AWQ" | "W4A8_AWQ" => Format::Awq {
            group: group.unwrap_or(128),
        },
        "W4A16_GPTQ" => integers(4, group.unwrap_or(128), false, false)?,
        "W8A8_SQ_PER_CHANNEL" | "W8A8_SQ_PER_TENSOR" | "W8A16" => Format::Int8Channel,
        "W4A8_MXFP4_FP8" | "W4A16_MXFP4" | "MXFP4" => Format::Mxfp4,
        "MXFP8" => Format::Mxfp8,
        _ => return None,
    })
}

/// Every quantised layer is listed with its own algorithm.
fn mixed(q: Config) -> Result<Scheme, Unknown> {
    let missing = || {
        Unknown::new(
            "the model mixes precisions, and its configuration does not list which layer has which",
        )
        .hint("give the model's folder, or --quantization with the format of most layers")
    };
    let layers = q.map("quantized_layers").ok_or_else(missing)?;
    let mut kinds: Vec<(Format, Vec<&str>)> = Vec::new();
    for (module, settings) in layers {
        let own = Config(settings);
        let algorithm = own.text("quant_algo").to_ascii_uppercase();
        let format = algorithm_format(own, &algorithm)
            .ok_or_else(|| unknown(&format!("`{algorithm}` of ModelOpt")))?;
        match kinds.iter_mut().find(|(f, _)| *f == format) {
            Some((_, modules)) => modules.push(module),
            None => kinds.push((format, vec![module])),
        }
    }
    if kinds.is_empty() {
        return Err(missing());
    }
    let labels: Vec<String> = kinds.iter().map(|(f, _)| f.label()).collect();
    let mut scheme = q.left_out(Scheme::all(Format::Plain));
    scheme.name = format!("mixed: {}", labels.join("; "));
    scheme.lm_head = layers.keys().any(|m| m.ends_with("lm_head"));
    scheme.others = kinds
        .into_iter()
        .map(|(format, modules)| (Patterns::of(modules), format))
        .collect();
    Ok(scheme)
}

/// compressed-tensors: groups of modules, each with the format of its weights.
fn compressed(q: Config) -> Result<Scheme, Unknown> {
    let groups = q.map("config_groups").filter(|g| !g.is_empty());
    let groups = groups.ok_or_else(|| unknown("compressed-tensors without groups"))?;
    let mut base = None;
    let mut others = Vec::new();
    for group in groups.values() {
        let weights = group.get("weights").filter(|w| w.is_object());
        let Some(weights) = weights else { continue };
        let own = group.get("format").and_then(Value::as_str);
        let format = compressed_format(Config(weights), own.unwrap_or(q.text("format")))?;
        let targets = group.get("targets").and_then(Value::as_array);
        let targets: Vec<&str> = targets
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        // A class of modules means all of them.
        let class = |t: &&str| {
            !t.starts_with("re:") && !t.contains('.') && t.starts_with(char::is_uppercase)
        };
        if targets.is_empty() || targets.iter().any(class) {
            base.get_or_insert(format);
        } else {
            others.push((Patterns::of(targets), format));
        }
    }
    if base.is_none() && others.is_empty() {
        return Err(unknown("compressed-tensors without weights"));
    }
    let mut scheme = q.left_out(Scheme::all(base.unwrap_or(Format::Plain)));
    scheme.lacks_list = scheme.ignored.is_empty() && base.is_some_and(Format::is_small);
    if base.is_none() {
        scheme.name = others[0].1.label();
    }
    scheme.lm_head = others
        .iter()
        .any(|(who, _)| who.name(&["lm_head".to_owned()]));
    scheme.others = others;
    Ok(scheme)
}

fn compressed_format(w: Config, format: &str) -> Result<Format, Unknown> {
    let bits = w.number(&["num_bits"]).unwrap_or(0);
    let float = w.text("type") == "float";
    let group = w.number(&["group_size"]);
    let actorder =
        w.0.get("actorder")
            .is_some_and(|a| *a == "group" || *a == true);
    let zeros = w.flag("symmetric") == Some(false);
    Ok(match (float, bits) {
        (true, 8) if group == Some(32) || format.contains("mxfp8") => Format::Mxfp8,
        (true, 8) => match w.text("strategy") {
            "block" => {
                let size = w.0.get("block_structure").and_then(Value::as_array);
                let side = |at: usize| {
                    let side = size.and_then(|s| s.get(at)).and_then(Value::as_u64);
                    side.filter(|s| *s > 0).unwrap_or(128)
                };
                Format::Fp8Block {
                    rows: side(0),
                    columns: side(1),
                }
            }
            "tensor" => Format::Fp8Tensor,
            _ => Format::Fp8Channel,
        },
        (true, 4) if format.contains("mxfp4") || group == Some(32) => Format::Mxfp4,
        (true, 4) => Format::Nvfp4,
        (false, 8) if matches!(w.text("strategy"), "channel" | "tensor" | "") => {
            Format::Int8Channel
        }
        (false, bits) => integers(bits, group.unwrap_or(0), actorder, zeros)
            .ok_or_else(|| unknown(&format!("compressed-tensors with {bits} bits")))?,
        (true, bits) => {
            return Err(unknown(&format!(
                "compressed-tensors with {bits}-bit floats"
            )));
        }
    })
}

/// AMD's Quark.
fn quark(q: Config) -> Result<Scheme, Unknown> {
    let global = q.0.get("global_quant_config").and_then(|g| g.get("weight"));
    // One setting, or a list of steps, the first of them for the values.
    let weight = global.map(|w| w.get(0).unwrap_or(w));
    let w = Config(weight.ok_or_else(|| unknown("quark without weights"))?);
    let format = match (w.text("dtype"), w.text("qscheme")) {
        ("fp8_e4m3", "per_channel") => Format::Fp8Channel,
        ("fp8_e4m3", _) => Format::Fp8Tensor,
        ("fp4", _) => Format::Mxfp4,
        ("int8", _) => Format::Int8Channel,
        ("int4" | "uint4", _) => integers(
            4,
            w.number(&["group_size"]).unwrap_or(128),
            false,
            w.text("dtype") == "uint4",
        )
        .ok_or_else(|| unknown("quark"))?,
        (dtype, _) => return Err(unknown(&format!("quark with `{dtype}`"))),
    };
    Ok(q.left_out(Scheme::all(format)))
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

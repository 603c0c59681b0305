//! A server with other settings: from `--set NAME=VALUE,VALUE` to every combination.

use super::cell::ServerConfig;
use super::expand::take_out_flag;
use super::file::flag_of_name;
use super::taken::{ArgumentFlag, is_address, own_key_of};
use crate::capture::RequestedSettings;
use crate::error::Failure;
use std::str::FromStr;

/// The most combinations. A search that looks at more takes longer than an engine's start.
pub const MAX_COMBINATIONS: usize = 10_000;

/// A setting and its values, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingValues {
    /// Its flag: `--max-num-seqs`.
    pub flag: String,
    /// Each once, in the order in which they were written. `true` is the flag alone, `false` leaves it out.
    pub values: Vec<String>,
}

impl FromStr for SettingValues {
    type Err = String;

    fn from_str(text: &str) -> Result<SettingValues, String> {
        let form = "write it as max-num-seqs=16,64";
        let (name, values) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` has no values: {form}"))?;
        let flag = flag_of_name(name.trim());
        let flag = flag.ok_or_else(|| format!("`{name}` is not the name of a setting: {form}"))?;
        let mut each: Vec<String> = Vec::new();
        for value in values.split(',').map(str::trim) {
            if value.is_empty() || value.starts_with('-') {
                return Err(format!("`{text}` has an invalid value `{value}`: {form}"));
            }
            if each.iter().any(|v| v == value) {
                return Err(format!("`{text}` has the value `{value}` twice"));
            }
            each.push(value.to_owned());
        }
        Ok(SettingValues {
            flag: flag.as_str().to_owned(),
            values: each,
        })
    }
}

/// The server with every combination of these values, the last setting changing fastest.
///
/// # Errors
/// A setting twice, one that cannot be varied, a value that it cannot have, or too many combinations.
pub fn vary_settings(
    server: &ServerConfig,
    settings: &[SettingValues],
) -> Result<Vec<ServerConfig>, Failure> {
    for (at, setting) in settings.iter().enumerate() {
        let flag = ArgumentFlag::from(setting.flag.as_str());
        if settings[..at]
            .iter()
            .any(|other| flag.is_named_by(&other.flag))
        {
            let message = format!("setting {} is given twice", setting.flag);
            return Err(Failure::usage(message).hint("give all its values in one --set"));
        }
    }
    let counts = settings.iter().map(|s| s.values.len());
    let combinations = counts.fold(1usize, usize::saturating_mul);
    if combinations > MAX_COMBINATIONS {
        return Err(Failure::usage(format!(
            "{combinations} combinations are more than can be searched, {MAX_COMBINATIONS}"
        ))
        .hint("give fewer values"));
    }
    let mut servers = vec![server.clone()];
    for setting in settings {
        let mut varied = Vec::with_capacity(servers.len() * setting.values.len());
        for server in &servers {
            for value in &setting.values {
                varied.push(with_setting(server, &setting.flag, value)?);
            }
        }
        servers = varied;
    }
    Ok(servers)
}

/// The server with another value of one setting.
fn with_setting(server: &ServerConfig, flag: &str, value: &str) -> Result<ServerConfig, Failure> {
    if is_address(flag) {
        return Err(Failure::usage(format!("{flag} cannot be varied"))
            .hint("plimsoll chooses where the engine listens"));
    }
    if let (true, Some(key)) = (flag.starts_with("--no-"), own_key_of(flag)) {
        let hint = format!(
            "vary --{}: its values are true and false",
            key.replace('_', "-")
        );
        return Err(Failure::usage(format!("{flag} cannot be varied")).hint(hint));
    }
    let mut server = server.clone();
    take_out_flag(&mut server.engine_args, flag);
    let settings = &mut server.settings;
    match own_key_of(flag) {
        Some("model_id") => value.clone_into(&mut server.model),
        Some(key) => set_requested(settings, key, value).ok_or_else(|| {
            Failure::usage(format!("{flag} cannot have the value `{value}`"))
                .hint("`plimsoll config schema` prints what each setting takes")
        })?,
        None => match value {
            "false" => {}
            "true" => server.engine_args.push(flag.to_owned()),
            value => server
                .engine_args
                .extend([flag.to_owned(), value.to_owned()]),
        },
    }
    Ok(server)
}

/// Sets what has a field of its own; `None` where the value does not suit it.
fn set_requested(settings: &mut RequestedSettings, key: &str, value: &str) -> Option<()> {
    match key {
        "dtype" => settings.dtype = Some(value.to_owned()),
        "quantization" => settings.quantization = Some(value.to_owned()),
        "kv_cache_dtype" => settings.kv_cache_dtype = Some(value.to_owned()),
        "tensor_parallel_size" => {
            settings.tensor_parallel_size = Some(value.parse().ok().filter(|n| *n > 0)?);
        }
        "enforce_eager" => settings.enforce_eager = value.parse().ok()?,
        "gpu_memory_utilization" => {
            let share = value.parse().ok().filter(|s| *s > 0.0 && *s <= 1.0)?;
            settings.gpu_memory_utilization = Some(share);
        }
        "max_model_len" => {
            settings.max_model_len = Some(value.parse().ok().filter(|n| *n > 0)?);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::samples::server;
    use super::*;

    fn set(text: &str) -> SettingValues {
        text.parse().unwrap()
    }

    #[test]
    fn every_combination_is_a_server() {
        let mut base = (*server("m")).clone();
        base.engine_args = vec!["--max_num_seqs".into(), "7".into(), "--seed=1".into()];
        let sets = [
            set("max-num-seqs=16,64"),
            set("enforce_eager=true,false"),
            set("tp=1,2"),
        ];
        let all = vary_settings(&base, &sets).unwrap();
        assert_eq!(all.len(), 8);
        assert_eq!(all[0].engine_args, ["--seed=1", "--max-num-seqs", "16"]);
        assert!(all[0].settings.enforce_eager && !all[2].settings.enforce_eager);
        assert_eq!(all[7].settings.tensor_parallel_size, Some(2));
        let switch = vary_settings(&base, &[set("enable-prefix-caching=true,false")]).unwrap();
        assert_eq!(
            switch[0].engine_args.last().unwrap(),
            "--enable-prefix-caching"
        );
        assert_eq!(switch[1].engine_args, base.engine_args);
    }

    #[test]
    fn what_cannot_be_varied_is_refused() {
        for (text, word) in [
            ("max-num-seqs", "no values"),
            ("=1", "name of a setting"),
            ("a=1,,2", "invalid value"),
            ("a=1,1", "twice"),
        ] {
            let refused = text.parse::<SettingValues>().unwrap_err();
            assert!(refused.contains(word), "{text}: {refused}");
        }
        let refused =
            |sets: &[SettingValues]| vary_settings(&server("m"), sets).unwrap_err().message;
        assert!(refused(&[set("port=1,2")]).contains("cannot be varied"));
        assert!(refused(&[set("tp=0")]).contains("value `0`"));
        assert!(refused(&[set("x=1"), set("x=2")]).contains("twice"));
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let many = |name: &str| set(&format!("{name}={}", many.join(",")));
        assert!(refused(&[many("x"), many("y")]).contains("more than can be searched"));
    }
}

//! The deployment of a profiled engine, from its settings in force, else those requested.

use super::settings;
use crate::breakdown::Component;
use crate::capture::DeviceKind;
use crate::engine::EngineId;
use crate::estimate::settings::IllegalValue;
use crate::estimate::{Deployment, Gpu, Unknown, Unmodelled, Version};
use crate::profile::Profile;

/// How the engine of this profile was deployed. An unknown setting is left to the engine's default.
///
/// # Errors
/// An engine without known rules.
pub fn deployment_of(profile: &Profile) -> Result<Deployment, Unknown> {
    let name = &profile.engine_metadata.engine_type;
    if name.is_empty() {
        return Err(Unknown::new("the profile names no engine"));
    }
    let engine = EngineId::from_name(name)?;
    let mut values = settings::settings_of_profile(profile);
    // The type of the loaded weights wins over the requested one.
    if let Some(weights) = values.get("weights_dtype").cloned() {
        values.insert("dtype".into(), weights);
    }
    let asked = settings::asked_flags(profile);
    let (deployment, draft) =
        Deployment::from_settings(engine, &values, &asked, IllegalValue::IsUnset)?;
    let mut deployment = Deployment {
        version: (profile.engine_metadata.engine_version.as_deref()).and_then(Version::leading),
        gpu: gpu_of(profile),
        on_cpu: (profile.gpu_info.devices.iter()).all(|d| d.kind != DeviceKind::Gpu),
        ..deployment
    };
    deployment
        .unmodelled
        .extend(draft.map(Unmodelled::draft_model));
    Ok(deployment)
}

/// The load where it is known exactly how much of it is in flight at once: sequences, and tokens of
/// each at its end. Only the latency bench sends whole batches.
pub fn batch_of(profile: &Profile) -> Option<(u64, u64)> {
    let load = &profile.parameters.workload;
    let exact = profile.parameters.bench == "latency" && load.input_len > 0;
    let tokens = u64::from(load.input_len) + u64::from(load.output_len);
    exact.then_some((u64::from(load.batch_size?), tokens))
}

/// The GPU with the most memory in use by others: there the engine has least room.
fn gpu_of(profile: &Profile) -> Option<Gpu> {
    let gpus = profile.gpu_info.devices.iter();
    let others = |index: u32| {
        let devices = &profile.memory_breakdown.per_gpu;
        let device = devices.iter().find(|d| d.gpu_id == index)?;
        let part = |c| {
            let found = device.parts.iter().find(|p| p.component == c);
            u64::try_from(found.map_or(0, |p| p.bytes)).unwrap_or(0)
        };
        Some((part(Component::Baseline), part(Component::DriverReserved)))
    };
    gpus.filter(|d| d.kind == DeviceKind::Gpu)
        .filter_map(|d| {
            let (in_use, reserved) = others(d.index).unwrap_or_default();
            Some(Gpu {
                name: d.name.clone(),
                // As the engine sees it: CUDA's total is without what the driver keeps.
                total: d.total_bytes?.saturating_sub(reserved),
                in_use,
            })
        })
        .max_by_key(|gpu| gpu.in_use)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Capture, ContainerFacts};
    use crate::estimate::case;
    use crate::matrix::samples;
    use crate::profile::derive_profile;
    use serde_json::json;

    /// A profile of a server with this command.
    fn profile_of(engine: EngineId, argv: &[String]) -> Profile {
        let capture = Capture {
            engine: engine.name.into(),
            ..Capture::default()
        };
        let facts = ContainerFacts {
            argv: argv.to_vec(),
            ..ContainerFacts::default()
        };
        let mut profile = derive_profile(&capture, [], []);
        profile.engine_metadata.engine_type = engine.name.into();
        profile.configuration.requested = (engine.settings)(&facts).values;
        profile
    }

    #[test]
    fn one_server_is_one_deployment_however_it_is_described() {
        let sglang = [
            "--chunked-prefill-size",
            "2048",
            "--max-running-requests",
            "16",
        ];
        let cases: [(EngineId, &[&str], _, _); 5] = [
            (
                EngineId::Vllm,
                &["--max-num-batched-tokens", "2048", "--max-num-seqs", "16"],
                Some(2048),
                Some(16),
            ),
            (EngineId::Sglang, &sglang, Some(2048), Some(16)),
            (
                EngineId::Tgi,
                &[
                    "--max-batch-prefill-tokens",
                    "2048",
                    "--max-batch-size",
                    "16",
                ],
                Some(2048),
                Some(16),
            ),
            (
                EngineId::TensorRtLlm,
                &["--max_num_tokens", "2048", "--max_batch_size", "16"],
                Some(2048),
                Some(16),
            ),
            (EngineId::LlamaCpp, &[], None, None),
        ];
        for (engine, words, tokens, sequences) in cases {
            let mut server = (*samples::server("m")).clone();
            server.settings.tensor_parallel_size = (engine != EngineId::LlamaCpp).then_some(2);
            server.settings.max_model_len = Some(4096);
            server.settings.gpu_memory_utilization = (engine != EngineId::LlamaCpp).then_some(0.8);
            server.engine_args = words.iter().map(|w| (*w).to_owned()).collect();
            let cell = crate::matrix::deployment(&server, engine).unwrap().0;
            assert_eq!(
                (cell.max_model_len, cell.max_batched_tokens),
                (Some(4096), tokens)
            );
            let argv = engine.serve_argv(&crate::engine::ServeJob {
                model: "m",
                port: 8000,
                settings: &server.settings,
                extra_engine_args: &server.engine_args,
            });
            let mut measured = deployment_of(&profile_of(engine, &argv)).unwrap();
            assert!(measured.on_cpu, "it has no GPU");
            assert!(measured.longer_allowed, "it ran");
            (measured.on_cpu, measured.longer_allowed) = (false, false);
            assert_eq!(measured, cell, "{engine:?}");
            let line = json!({
                "model": "m", "engine": engine.name, "tp": server.settings.tensor_parallel_size,
                "max_model_len": 4096, "gpu_memory_utilization": server.settings.gpu_memory_utilization,
                "max_num_batched_tokens": tokens, "max_num_seqs": sequences,
            });
            assert_eq!(case::read(&line).unwrap().deployment, cell, "{engine:?}");
        }
    }

    #[test]
    fn what_moves_memory_and_is_not_computed_is_named_of_a_profile_too() {
        let words = "vllm serve m --speculative-config {\"model\":\"d\"}";
        let argv: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let mut profile = profile_of(EngineId::Vllm, &argv);
        // What the engine prints is no request, and need not be legal.
        let printed = [
            ("swap_space", "4"),
            ("quantization", "None"),
            ("max_num_seqs", "many"),
        ];
        let printed = printed.map(|(k, v)| (k.to_owned(), v.to_owned()));
        profile.configuration.effective.extend(printed);
        let deployment = deployment_of(&profile).unwrap();
        let names: Vec<&str> = deployment
            .unmodelled
            .iter()
            .map(|u| u.name.as_str())
            .collect();
        assert_eq!(names, ["the draft model `d`"]);
        assert_eq!((deployment.quantization, deployment.max_seqs), (None, None));
    }

    #[test]
    fn versions_are_read_as_engines_write_them() {
        for (text, version) in [
            ("0.11.0", Some((0, 11, 0))),
            ("0.19.1rc1.dev3+g1234", Some((0, 19, 1))),
            ("1.0rc2", Some((1, 0, 0))),
            ("0.8", Some((0, 8, 0))),
            ("b5432", None),
            ("", None),
            ("99999999999.1.1", None),
        ] {
            let expected = version.map(|(a, b, c)| Version::new(a, b, c));
            assert_eq!(Version::leading(text), expected, "{text}");
        }
        let later = Version {
            post: 1,
            ..Version::new(0, 5, 5)
        };
        assert_eq!(Version::leading("v0.5.5.post1"), Some(later));
    }
}

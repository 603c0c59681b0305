//! Which tensor of a model is kept in which format.

use super::super::{Deployment, EngineId, Model, Tensor, Unknown};
use super::gguf::Mixture;
use super::modules::Patterns;
use super::{FileType, Format, config, contradiction, modules, named};
use crate::estimate::engines::{self, Generation};
use crate::estimate::kv::text_value;
use serde::Deserialize;
use serde_json::Value;

/// Which tensor of a model is kept in which format.
#[derive(Debug, Clone, Default)]
pub struct Scheme {
    /// As a person calls it: `fp8, blocks of 128 x 128`.
    pub name: String,
    /// The format of all other tensors.
    pub base: Format,
    /// Only the experts are quantised.
    pub experts_only: bool,
    /// The format of the experts, where the configuration names one of their own.
    pub experts: Option<Format>,
    /// Modules that are left as they are.
    pub ignored: Patterns,
    /// Formats of named modules, before the base; the first that names a module counts.
    pub others: Vec<(Patterns, Format)>,
    /// The output layer is quantised too.
    pub lm_head: bool,
    /// A dynamic quantisation: which modules it leaves in 16 bits, only its config.json describes.
    pub dynamic: bool,
    /// A configuration of 4 bits without the list of modules that every such checkpoint leaves out.
    pub lacks_list: bool,
    /// Projections of gated delta nets are taken to have 8 bits: copies of Qwen3.8-27B in NVFP4 by name are of 18.6 (all
    /// in 4 bits), 21.3 and 24.0 GiB.
    pub wide_states: bool,
    /// Layers with an MLP that it is taken to leave so.
    pub plain_mlps: u64,
    /// The matrices of experts are padded to what the kernels want.
    pub padding: Padding,
    /// A GGUF file type, where it is one.
    pub file_type: Option<FileType>,
    /// Known by its name alone: what it leaves in 16 bits, and its groups, are taken as usual.
    pub by_name: bool,
    /// What the configuration leaves open.
    pub warnings: Vec<String>,
    pub(super) mixture: Mixture,
}

/// To what multiples a kernel pads an expert's matrices.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// As they are.
    #[default]
    None,
    /// Triton on Hopper: outputs to 256, inputs to 128, biases in 32 bits. Source: triton_kernels,
    /// tensor_details/layout_details/hopper_value.py.
    Triton,
    /// The residual stream and the width of an expert to multiples of these. Source: vLLM 0.11,
    /// quantization/mxfp4.py: Marlin 256 and 128, FlashInfer 256 and 256.
    To {
        /// Of the residual stream.
        hidden: u64,
        /// Of an expert.
        width: u64,
    },
}

impl Scheme {
    /// Everything in `base`, but for what engines never quantise.
    pub fn all(base: Format) -> Scheme {
        Scheme {
            name: base.label(),
            base,
            ..Scheme::default()
        }
    }

    /// What the deployment asks for, or else what the model's configuration has.
    ///
    /// # Errors
    ///
    /// A quantisation that is not recognised.
    pub fn of(model: &Model, deployment: &Deployment) -> Result<Scheme, Unknown> {
        let requested = deployment.quantization.as_deref().map(str::trim);
        let stored = model.quantization.as_ref();
        let method = requested.filter(|name| !name.is_empty());
        // llama.cpp's files have 8 bits beside experts in MXFP4, and Ollama's 16.
        let of_llama = deployment.named() == EngineId::LlamaCpp
            && method
                .or(model.quant_method())
                .is_some_and(|m| m.eq_ignore_ascii_case("mxfp4"));
        let requested = if of_llama {
            Some("mxfp4_moe")
        } else {
            requested
        };
        let own = |name: &&str| !name.is_empty() && !contradiction::reads_own(model, name);
        let mut scheme = match requested.filter(own) {
            None => match stored {
                Some(value) => config::read(value)?,
                None => Scheme::all(Format::Plain),
            },
            Some(name) => {
                let mut scheme = named::read(name, deployment.engine)?;
                // The name is the method; the configuration has its details, and what is left out.
                let detail = stored.and_then(|value| config::read(value).ok());
                if let Some(detail) = detail.filter(|d| same_kind(d.base, scheme.base)) {
                    scheme = Scheme {
                        experts_only: scheme.experts_only || detail.experts_only,
                        dynamic: scheme.dynamic && detail.ignored.is_empty(),
                        padding: scheme.padding,
                        ..detail
                    };
                } else if scheme.base != Format::Plain && scheme.file_type.is_none() {
                    scheme.name = format!("{} (by name)", scheme.name);
                    scheme.by_name = true;
                }
                scheme
            }
        };
        if stored_experts(model) == Some("fp4") && scheme.base.is_fp8() {
            let format = match deployment.engine {
                EngineId::Sglang => Format::WideMxfp4,
                _ => Format::Mxfp4,
            };
            scheme.experts = Some(format);
            scheme.name = format!("{}; experts {}", scheme.name, format.label());
        }
        if scheme.dynamic {
            scheme.plain_mlps = dynamic_plain_mlps(model);
        }
        scheme.wide_states = scheme.by_name
            && scheme.base == Format::Nvfp4
            && model.tensors.iter().any(|t| t.role == "in_qkvz");
        // Without products in 8 bits Marlin multiplies, with a 16-bit scale of each output for 128 inputs (vLLM 0.22,
        // quantization/utils/marlin_utils_fp8.py).
        let generation = engines::generation_of(deployment);
        let old = matches!(generation, Some(Generation::Turing | Generation::Ampere));
        if old && deployment.engine == EngineId::Vllm {
            for format in scheme
                .others
                .iter_mut()
                .map(|(_, f)| f)
                .chain([&mut scheme.base])
            {
                if let Format::Fp8Block { rows, columns } = format {
                    *format = Format::Gptq {
                        bits: 8,
                        group: *columns.min(rows),
                        act_order: false,
                        zeros: false,
                    };
                }
            }
        }
        // Kimi K3's, of compressed-tensors, are not: with them 8 x B300 would be 27 GiB over what they served with.
        let packed = model.quant_method() == Some("compressed-tensors");
        let padded =
            scheme.base == Format::Mxfp4 && !packed || scheme.experts == Some(Format::Mxfp4);
        if padded && scheme.padding == Padding::None {
            scheme.padding = mxfp4_padding(deployment);
        }
        let beside = model.kind.starts_with("gemma4");
        let lists = scheme.others.iter_mut().map(|(who, _)| who);
        lists
            .chain([&mut scheme.ignored])
            .for_each(|list| list.experts_beside = beside);
        let experts = model
            .tensors
            .iter()
            .find(|t| t.role == "exp_w13")
            .map_or(0, |t| t.count);
        // Kimi K2.5 and K3 as they are published: 8 x B300 served with what this leaves.
        if scheme.lacks_list && experts > 0 {
            scheme.experts_only = true;
            let note = "the list of modules that stay in 16 bits is not in this configuration: all but the experts is taken to";
            scheme.warnings.push(note.to_owned());
        }
        scheme.mixture = Mixture {
            layers: model.mixers.len() as u64,
            sharing: model.heads / model.kv_heads.max(1),
            experts,
            tied: model.tied,
            mxfp4_experts: model.kind.starts_with("gpt_oss"),
        };
        for expression in scheme.ignored.unread.iter().take(3) {
            let note = format!("`{expression}` in the quantisation's list could not be read");
            scheme.warnings.push(note);
        }
        if scheme.ignored.cut {
            let note = "the quantisation's list of modules is shortened: it is taken to go on for the other layers";
            scheme.warnings.push(note.to_owned());
        }
        Ok(scheme)
    }

    /// The format of a tensor of a model whose layers from `beyond` on predict further tokens. Checkpoints list these by
    /// their number or under `mtp`; all checkpoints in four bits that are known leave them in 16.
    pub fn format_from(&self, tensor: &Tensor, beyond: u32) -> Format {
        let ahead = tensor.layer.and_then(|l| l.checked_sub(beyond));
        let Some(ahead) = ahead.filter(|_| self.file_type.is_none()) else {
            return self.format(tensor);
        };
        let renamed = Tensor {
            layer: Some(ahead),
            ..tensor.clone()
        };
        let modules = modules::names(&renamed).into_iter();
        let modules: Vec<String> = modules.map(|m| format!("mtp.{m}")).collect();
        let small = self.is_small() && self.experts.is_none();
        if small || self.ignored.name(&modules) {
            return Format::Plain;
        }
        self.format(tensor)
    }

    /// The format of a tensor.
    pub fn format(&self, tensor: &Tensor) -> Format {
        if let Some(file) = self.file_type {
            return self.blocks(file, tensor)[0];
        }
        let head = tensor.role == "lm_head" && self.lm_head;
        if self.base == Format::Plain && self.others.is_empty() || !(tensor.quantizable || head) {
            return Format::Plain;
        }
        if self.is_plain_mlp(tensor) {
            return Format::Plain;
        }
        if !self.ignored.is_empty() || !self.others.is_empty() {
            if self.ignored.name_tensor(tensor) {
                return Format::Plain;
            }
            let other = self.others.iter().find(|(who, _)| who.name_tensor(tensor));
            if let Some((_, format)) = other {
                return *format;
            }
        }
        // A model given by figures has no experts of its own: most of it is them.
        let expert = tensor.role.starts_with("exp_") || tensor.role == "all";
        if self.experts_only && !expert {
            return Format::Plain;
        }
        if self.wide_states && matches!(tensor.role, "in_qkvz" | "out_proj") {
            return Format::Fp8Channel;
        }
        self.experts.filter(|_| expert).unwrap_or(self.base)
    }

    /// The blocks of a tensor's two halves in a GGUF file.
    pub fn blocks(&self, file: FileType, tensor: &Tensor) -> [Format; 2] {
        let matrix = tensor.quantizable || matches!(tensor.role, "embed" | "lm_head");
        let blocks = if matrix {
            file.blocks(tensor.role, tensor.layer, tensor.columns, self.mixture)
        } else if tensor.role == "embed_per_layer" {
            // In 16 bits the files of Ollama's gemma4:e2b and e4b come to the 7.2 and 9.6 GB that its library states.
            [super::Block::of_name("F16").unwrap_or(super::Block::float32()); 2]
        } else {
            // Vectors and routers stay in 32 bits.
            [super::Block::float32(); 2]
        };
        blocks.map(Format::Gguf)
    }

    /// Whether a dynamic quantisation is taken to leave this one in 16 bits.
    fn is_plain_mlp(&self, tensor: &Tensor) -> bool {
        let early = tensor
            .layer
            .is_some_and(|layer| u64::from(layer) < self.plain_mlps);
        early && matches!(tensor.role, "gate_up" | "down")
    }

    /// Whether some of it is kept in four bits or fewer.
    pub fn is_small(&self) -> bool {
        self.base.is_small()
            || self.experts.is_some()
            || self.others.iter().any(|(_, f)| f.is_small())
    }

    /// Whether anything is quantised.
    pub fn is_plain(&self) -> bool {
        self.base == Format::Plain && self.others.is_empty() && self.file_type.is_none()
    }
}

/// `expert_dtype` (DeepSeek-V4): with 8 bits elsewhere `fp4` is values of 4 bits with an exponent for each 32. Where it is
/// left out, engines take it for `fp4` (vLLM 0.33, models/deepseek_v41/quant_config.py); H200 took 125.65 GiB.
pub fn stored_experts(model: &Model) -> Option<&str> {
    let dtype = text_value(&model.config, "expert_dtype").and_then(Value::as_str);
    let default = ["deepseek_v4", "deepseek_ref"].contains(&model.kind.as_str());
    dtype.or(default.then_some("fp4"))
}

/// Layers with an MLP that a dynamic 4-bit checkpoint leaves in 16 bits: the smaller the model, the more of them hurt.
/// Six measured runs: one in Llama-3.1-8B, three in Qwen2.5-3B, five in Qwen2.5-0.5B.
fn dynamic_plain_mlps(model: &Model) -> u64 {
    match model.parameters() / 1_000_000_000 {
        0..2 => 5,
        2..6 => 3,
        _ => 1,
    }
}

/// Whether a name and a configuration mean the same family, so that the one may detail the other.
fn same_kind(a: Format, b: Format) -> bool {
    let is_mxfp4 = |f: Format| matches!(f, Format::Mxfp4 | Format::WideMxfp4);
    match (a, b) {
        (Format::Plain, _) => false,
        (Format::Gptq { bits, .. }, Format::Gptq { bits: other, .. }) => bits == other,
        _ if a.is_fp8() => b.is_fp8(),
        _ if is_mxfp4(a) => is_mxfp4(b),
        _ => std::mem::discriminant(&a) == std::mem::discriminant(&b),
    }
}

/// Which kernels multiply MXFP4 on this GPU, and so how they pad.
///
/// Source: vLLM 0.11, quantization/mxfp4.py, `get_mxfp4_backend`, and 0.22, fused_moe/oracle/mxfp4.py: Triton came in 0.11, and
/// is for compute capability 9 and 10; FlashInfer's, which goes before it, for 10; gpt-oss-20b takes 13.80 GiB on GB10.
fn mxfp4_padding(deployment: &Deployment) -> Padding {
    let marlin = Padding::To {
        hidden: 256,
        width: 128,
    };
    if !matches!(deployment.engine, EngineId::Vllm | EngineId::Sglang) {
        return Padding::None;
    }
    match engines::generation_of(deployment) {
        Some(Generation::Blackwell) => Padding::To {
            hidden: 256,
            width: 256,
        },
        Some(
            Generation::Turing
            | Generation::Ampere
            | Generation::Ada
            | Generation::GeforceBlackwell,
        ) => marlin,
        _ => Padding::Triton,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gpu_is_decides_how_experts_are_padded() {
        let on = |name: &str| {
            let mut deployment = Deployment::with_defaults(EngineId::Vllm);
            deployment.gpu = Some(super::super::super::Gpu {
                name: name.to_owned(),
                total: 80 << 30,
                in_use: 0,
            });
            mxfp4_padding(&deployment)
        };
        assert_eq!(on("H100"), Padding::Triton);
        assert_eq!(on("NVIDIA H200"), Padding::Triton);
        let marlin = Padding::To {
            hidden: 256,
            width: 128,
        };
        assert_eq!(on("A100-80GB"), marlin);
        assert_eq!(on("RTX 4090"), marlin);
        assert_eq!(
            mxfp4_padding(&Deployment::with_defaults(EngineId::LlamaCpp)),
            Padding::None
        );
    }
}

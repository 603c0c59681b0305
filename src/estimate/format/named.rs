//! A quantisation by name: as engines' `--quantization` has it, as people write it, as GGUF files are called.

use super::super::Unknown;
use super::{FileType, Format, Padding, Scheme};

/// The names that are understood, for a message.
pub const NAMES: &str = "none, fp8, fp8_channel, fp8_block, int8_channel, awq, gptq, gptq8, w4a16, nf4, \
     bitsandbytes, bnb_int8, mxfp4, mxfp8, nvfp4, or a GGUF file type such as Q4_K_M";

/// Reads a name.
///
/// # Errors
///
/// A name that is not known.
pub fn read(name: &str) -> Result<Scheme, Unknown> {
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    let (stem, experts_only) = match name.strip_suffix("_experts") {
        Some(stem) => (stem, true),
        None => (name.as_str(), false),
    };
    let integers = |bits, group| Format::Gptq {
        bits,
        group,
        act_order: false,
        zeros: false,
    };
    let block = Format::Fp8Block {
        rows: 128,
        columns: 128,
    };
    let nf4 = Format::Nf4 { double: true };
    let mut scheme = match stem {
        "none" | "bf16" | "bfloat16" | "fp16" | "float16" | "auto" | "16bit" | "unquantized" => {
            Scheme::all(Format::Plain)
        }
        "fp8" | "fp8_tensor" | "fp8_per_tensor" | "modelopt" | "modelopt_fp8" | "w8a8_fp8" => {
            Scheme::all(Format::Fp8Tensor)
        }
        "fp8_channel" | "fp8_dynamic" | "ptpc_fp8" | "fbgemm_fp8" | "fp8_per_channel" => {
            Scheme::all(Format::Fp8Channel)
        }
        "fp8_block" | "blockwise_fp8" | "fp8_per_block" | "deepseek_fp8" => Scheme::all(block),
        "int8_channel" | "int8" | "w8a8" | "w8a8_int8" => Scheme::all(Format::Int8Channel),
        "experts_int8" => Scheme {
            experts_only: true,
            ..Scheme::all(Format::Int8Channel)
        },
        "awq" | "awq_marlin" | "awq_4bit" => Scheme::all(Format::Awq { group: 128 }),
        "gptq" | "gptq_marlin" | "gptq4" | "gptq_4bit" => Scheme::all(integers(4, 128)),
        "gptq8" | "gptq_8bit" | "w8a16" => Scheme::all(integers(8, 128)),
        "w4a16" | "int4" | "autoround" | "auto_round" => {
            // Compressed experts are grouped by 32, as Kimi's are; whole models by 128.
            Scheme::all(integers(4, if experts_only { 32 } else { 128 }))
        }
        "nf4" | "bnb" | "bnb_4bit" | "bnb_nf4" | "bitsandbytes" | "bitsandbytes_nf4" => {
            Scheme::all(nf4)
        }
        "nf4_dynamic" => Scheme {
            dynamic: true,
            warnings: vec![
                "a dynamic 4-bit checkpoint leaves some modules in 16 bits: which, only its config.json tells"
                    .to_owned(),
            ],
            ..Scheme::all(nf4)
        },
        "bnb_int8" | "bitsandbytes_int8" | "bnb_8bit" | "llm_int8" => Scheme::all(Format::BnbInt8),
        "mxfp4" => Scheme {
            experts_only: true,
            ..Scheme::all(Format::Mxfp4)
        },
        "mxfp4_marlin" => Scheme {
            experts_only: true,
            padding: Padding::To {
                hidden: 256,
                width: 128,
            },
            ..Scheme::all(Format::Mxfp4)
        },
        "mxfp8" => Scheme::all(Format::Mxfp8),
        "nvfp4" | "modelopt_fp4" | "fp4" => Scheme::all(Format::Nvfp4),
        other => match FileType::of_name(other) {
            Some(file) => Scheme {
                file_type: Some(file),
                name: format!("GGUF {}", other.to_ascii_uppercase()),
                ..Scheme::all(Format::Gguf(file.base()))
            },
            None => {
                let what = format!("the quantisation `{name}` is not known");
                return Err(Unknown::new(what).hint(format!("known are {NAMES}")));
            }
        },
    };
    scheme.experts_only |= experts_only;
    Ok(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_and_peoples_names_lead_to_the_same_format() {
        assert_eq!(read("AWQ").unwrap().base, read("awq_marlin").unwrap().base);
        assert_eq!(
            read("bitsandbytes").unwrap().base,
            read("nf4").unwrap().base
        );
        assert!(read("w4a16_experts").unwrap().experts_only);
        assert!(read("nvfp4_experts").unwrap().experts_only);
        assert_eq!(read("Q4_K_M").unwrap().name, "GGUF Q4_K_M");
        assert_eq!(read("none").unwrap().base, Format::Plain);
    }

    #[test]
    fn a_name_that_is_not_known_is_no_guess() {
        for name in ["exl2", "torchao", "hqq", "iq2_xxs_ud", "3bit"] {
            let unknown = read(name).unwrap_err();
            assert!(unknown.what.contains(name), "{unknown}");
            assert!(unknown.hint.unwrap().contains("gptq"));
        }
    }
}

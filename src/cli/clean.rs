//! Flags of `clean`.

use super::{MEASURING, OUTPUT, backend_arg, look_interval, some_text};
use crate::collect::MemorySource;
use crate::units::{parse_duration, some_time};
use clap::Args;
use std::time::Duration;

/// `plimsoll clean`
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// Containers to stop, stuck or not: names or ids
    #[arg(value_name = "CONTAINER", value_parser = some_text)]
    pub containers: Vec<String>,

    /// Do it [default: a dry run]
    #[arg(long)]
    pub apply: bool,
    /// Do not ask before stopping containers that a selector matched
    #[arg(long, short, requires = "apply")]
    pub yes: bool,
    /// Time from SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub grace: Duration,
    /// Longest wait for memory to be freed
    #[arg(long, visible_alias = "timeout", value_name = "TIME", default_value = "60s", value_parser = some_time)]
    pub settle_timeout: Duration,

    /// Containers with this label; may be repeated
    #[arg(long, value_name = "KEY[=VALUE]", value_parser = label, help_heading = "Choosing")]
    pub label: Vec<String>,
    /// Containers of matching images, * for any text; may be repeated
    #[arg(long, value_name = "PATTERN", value_parser = some_text, help_heading = "Choosing")]
    pub image: Vec<String>,
    /// Every container that holds GPU memory
    #[arg(long, help_heading = "Choosing")]
    pub all_gpu_containers: bool,
    /// Only containers that were idle this long: no GPU use, no request
    #[arg(long, value_name = "TIME", value_parser = some_time, help_heading = "Choosing")]
    pub idle: Option<Duration>,

    /// Docker volumes with the compile caches of `sweep` and `tune`; nothing else
    #[arg(long, conflicts_with_all = ["containers", "label", "image", "all_gpu_containers", "idle", "watch"], help_heading = "Choosing")]
    pub compile_caches: bool,

    /// Watch until SIGTERM or Ctrl-C; print a JSON line per decision
    #[arg(long, help_heading = "As a service")]
    pub watch: bool,
    /// Time between scans, 1s or more
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = look_interval, requires = "watch", help_heading = "As a service")]
    pub interval: Duration,
    /// Rate limit: containers per minute
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..), requires = "watch", help_heading = "As a service")]
    pub max_per_minute: u32,

    /// Source of memory readings: auto, nvml, amd, intel, host
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_arg, help_heading = MEASURING)]
    pub memory_backend: MemorySource,
    /// Print JSON instead of text: every verdict with its evidence
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
}

fn label(text: &str) -> Result<String, String> {
    match text.trim().split('=').next() {
        None | Some("") => Err("write it as KEY or KEY=VALUE".into()),
        Some(_) => Ok(text.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use std::time::Duration;

    fn parsed(line: &str) -> Result<super::CleanArgs, String> {
        let words = ["plimsoll", "clean"]
            .into_iter()
            .chain(line.split_whitespace());
        match Cli::try_parse_from(words)
            .map_err(|e| e.to_string())?
            .command
        {
            Command::Clean(args) => Ok(*args),
            _ => Err("another command".into()),
        }
    }

    #[test]
    fn nothing_is_applied_without_the_flag() {
        let args = parsed("").unwrap();
        assert!(!args.apply && !args.yes && !args.all_gpu_containers && !args.watch);
        assert!(args.containers.is_empty() && args.idle.is_none());
        assert_eq!(args.grace, Duration::from_secs(60));
    }

    #[test]
    fn a_flag_without_what_it_belongs_to_is_refused() {
        for line in [
            "--yes",
            "--interval 10s",
            "--max-per-minute 3",
            "--watch --interval 10ms",
            "--watch --max-per-minute 0",
            "--label =x",
            "--label=",
            "--image=",
            "--idle 0",
            "--settle-timeout 0",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        let args =
            parsed("a b --label k --label k=v --image vllm/* --idle 30m --timeout 2m --apply -y");
        let args = args.unwrap();
        assert_eq!(args.containers, ["a", "b"]);
        assert_eq!(args.label, ["k", "k=v"]);
        assert_eq!(args.idle, Some(Duration::from_secs(1800)));
        assert_eq!(args.settle_timeout, Duration::from_secs(120));
    }
}

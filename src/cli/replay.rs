//! Flags of `replay`.

use clap::Args;
use std::path::PathBuf;

/// `plimsoll replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Profile, `.capture` folder, recording, or a folder with one run
    pub path: PathBuf,
    /// Begin at this second of the run
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = moment)]
    pub from: Option<f64>,
    /// End at this second of the run
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = moment)]
    pub to: Option<f64>,
    /// Show this device only, by its index
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Play it on the terminal, this many times as fast
    #[arg(long, value_name = "N", value_parser = speed)]
    pub speed: Option<f64>,
}

fn moment(text: &str) -> Result<f64, String> {
    let seconds = text.trim().trim_end_matches('s').trim_end().parse::<f64>();
    match seconds {
        Ok(seconds) if seconds.is_finite() => Ok(seconds),
        _ => Err("a number of seconds, as 12.5".into()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('x').parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(speed),
        _ => Err("a number above 0, as 10".into()),
    }
}

//! Flags of `report`.

use super::OUTPUT;
use clap::Args;
use std::path::PathBuf;

/// `plimsoll report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Profiles, captures, documents, or folders with these in them; - is a document on standard input
    #[arg(required = true, value_name = "DIR|FILE")]
    pub paths: Vec<PathBuf>,
    /// Formats, separated by commas (a wrong one lists the known) [default: what --output ends in, else html]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = OUTPUT)]
    pub format: Vec<String>,
    /// Folder, or a file for a single format; - is standard output [default: beside the input]
    #[arg(long, short, value_name = "DIR|FILE", help_heading = OUTPUT)]
    pub output: Option<PathBuf>,
    /// Overwrite files that are not reports
    #[arg(long, help_heading = OUTPUT)]
    pub force: bool,
    /// Everything in Markdown [default: a summary]
    #[arg(long, help_heading = OUTPUT)]
    pub full: bool,
    /// Title of the report
    #[arg(long, value_name = "TEXT", value_parser = super::some_text)]
    pub title: Option<String>,
    /// Price of one GPU hour: adds the cost per million tokens
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub gpu_hour_price: Option<f64>,
    /// Currency of that price, as USD
    #[arg(long, value_name = "WORD", requires = "gpu_hour_price", value_parser = super::some_text)]
    pub currency: Option<String>,
    /// Compare two profiles, or two sweeps; the baseline first
    #[arg(long)]
    pub compare: bool,
}

fn price(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(price) if price.is_finite() && price > 0.0 && price < 1e9 => Ok(price),
        _ => Err("must be a number above 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_an_amount_of_money() {
        assert_eq!(price("2.5"), Ok(2.5));
        for text in ["0", "-1", "nan", "inf", "1e12", "free"] {
            assert!(price(text).is_err(), "{text}");
        }
    }
}

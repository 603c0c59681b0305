//! Tests of TGI's log. Every line is written for them, in the engine's form and with own values.

use super::*;

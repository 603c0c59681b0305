//! Tests of the log parser.

"""Make text safe to print: redact secrets, replace control characters, match names and paths."""

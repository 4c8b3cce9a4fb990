"""From a table of records to features: declared columns and schemas."""

"""Tables in and out, in the formats that people have them in."""

FORMATS = ("csv", "tsv", "ndjson", "parquet", "feather", "npy")

"""hmmstream under the names that other libraries use: change the import line, keep the script."""

"""Parse workflow files in all supported formats."""

"""Parse workflow files of all supported dialects into a `Workflow`."""

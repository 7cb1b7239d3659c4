"""Read workflow files of every dialect into one `Workflow`."""

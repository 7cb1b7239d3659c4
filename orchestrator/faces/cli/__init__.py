"""The command line: commands, options and all output. Only this package uses typer and rich."""

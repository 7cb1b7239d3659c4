"""Commands, options and everything that a person sees; alone knows typer, rich and humanize."""

"""The models of all settings."""

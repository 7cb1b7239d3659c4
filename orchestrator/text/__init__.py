"""Make text safe to show: hidden characters, secret values, suggestions for misspelt names."""

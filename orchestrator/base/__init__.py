"""What knows no container: text, files, errors, results, events."""

"""What a user can ask for: settings, workflows, and their bounds."""

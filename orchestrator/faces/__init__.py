"""What users and programs meet: the command line, the web view, tools for agents."""

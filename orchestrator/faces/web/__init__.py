"""The web view: pages made from the files that runs record, for one signed-in browser."""

"""The web view of runs: pages made from the files of runs, for one signed-in browser."""

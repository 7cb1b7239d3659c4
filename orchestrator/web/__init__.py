"""The web view of runs: pages made from the files of runs, and a door that stays closed."""

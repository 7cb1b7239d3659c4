"""Before a run: check everything, choose its names, reserve them, record the plan."""

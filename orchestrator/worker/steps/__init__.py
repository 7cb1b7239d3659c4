"""The steps of a worker's place: services, setup, agent, teardown, pack, checks."""

"""The network and the ports of workers, and what they reached."""

"""The files that one worker sees: private git directory, mounts, copies, caches, shared files."""

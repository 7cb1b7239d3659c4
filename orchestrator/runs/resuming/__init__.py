"""Go on with recorded runs: resume, detach, repeat, continue one worker."""

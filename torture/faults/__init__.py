"""One file for each kind of fault; its `play(run)` does the trials of a run."""

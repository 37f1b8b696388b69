"""The subjects, one small file each. `oncebench.kit` says what an adapter has."""

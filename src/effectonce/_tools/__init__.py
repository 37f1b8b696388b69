"""A function that is protected: its contract, its identity, and the call of it."""

"""The circuit breaker as a pure machine: its states, its windows, and the votes of processes."""

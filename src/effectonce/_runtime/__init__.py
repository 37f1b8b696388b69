"""Between the pure core and the world: drivers, heartbeats, steps, signatures."""

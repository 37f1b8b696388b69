"""What you need to test that an effect lands once: things outside the process that count."""

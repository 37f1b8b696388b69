"""A file for each library. effectonce never imports it; it imports its own framework at most."""

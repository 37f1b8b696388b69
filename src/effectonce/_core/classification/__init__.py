"""What an error says about the effect: verdicts, the tables of vendors, and the matching."""

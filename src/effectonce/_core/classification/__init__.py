"""What an error says about the effect: verdicts, the tables of vendors, and how an error is
matched with them.
"""

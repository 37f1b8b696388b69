"""Other people's libraries, one file each. Nothing inside effectonce imports them, and each
imports its own framework at most.
"""

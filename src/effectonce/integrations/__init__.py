"""Other people's libraries, one file each. Nothing inside effectonce imports them, and they import no SDK."""

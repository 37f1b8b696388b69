"""Both ends of HTTP, one file each. Nothing inside effectonce imports them."""

"""Both ends of HTTP, and a gateway between them. Nothing inside effectonce imports them."""

"""Example scripts as a user would write them; ``intus examples`` runs them."""

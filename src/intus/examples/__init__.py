"""Training scripts as a user would write them, with a few lines of intus; ``intus examples`` runs them."""
